"""Logging runs to an experiment tracker: TensorBoard, Weights & Biases or MLflow.

Nothing is logged by default, and the training loop is not involved: a run writes `metrics.jsonl`, and a thread of the
parent process follows that file (`following`). Finished runs are replayed from the same file (`replay`). What a tracker
already has of a run is not sent again, so an interrupted run continues where it stopped.
"""

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from svag.lab.records.record import RunRecord, load_records, read_record
from svag.lab.records.storage import METRICS, open_to_read, parse_lines
from svag.lab.specs.fields import SpecError
from svag.noise.reading import KIND, Reading, reading_of

Tracker = Literal["tensorboard", "wandb", "mlflow"]
TRACKERS: tuple[Tracker, ...] = get_args(Tracker)

# Noise is logged as ratios of averages over this many readings, as in `NoiseProbe.scalars`.
RECENT = 1000


class Sink(Protocol):
    """The destination of the numbers of one run."""

    last_step: int
    """The last effective step that the tracker already has; −1 for a new run."""

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        """Log numbers at an effective step."""

    def finish(self, outcome: Mapping[str, Any]) -> None:
        """End the run: `outcome` is what outcome.json holds, and empty if it has not ended."""


class TensorBoardSink:
    """Event files in `out/tensorboard/<run>`; those of an earlier replay of the run are replaced."""

    def __init__(self, out: Path, run: RunRecord) -> None:
        from tensorboard.summary import Writer

        folder = out / "tensorboard" / run.path.name
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        self.last_step = -1
        self._writer = Writer(str(folder))

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        """Log numbers at an effective step."""
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def finish(self, outcome: Mapping[str, Any]) -> None:
        """Close the event file."""
        self._writer.close()


class WandbSink:
    """A run of Weights & Biases per run, in the group `out`; project, entity and mode come from the environment."""

    def __init__(self, out: Path, run: RunRecord) -> None:
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "svag"),
            group=out.name,
            name=_name(run),
            id=run.identity[:32],
            config={"identity": run.identity, **_settings(run)},
            dir=str(out),
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(silent=True),
        )
        self.last_step = self._run.step - 1

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        """Log numbers at an effective step."""
        self._run.log(dict(scalars), step=step)

    def finish(self, outcome: Mapping[str, Any]) -> None:
        """End the run, with its outcome as the summary."""
        for name in ("state", "seconds", "examples"):
            if name in outcome:
                self._run.summary[name] = outcome[name]
        self._run.finish(exit_code=0 if outcome.get("state") in {None, "finished", "diverged"} else 1)


class MlflowSink:
    """An MLflow run per run, in the experiment `out`; the environment determines the store."""

    def __init__(self, out: Path, run: RunRecord) -> None:
        from mlflow import MlflowClient

        self._client = MlflowClient()
        name = f"svag/{out.name}"
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name)
        earlier = self._client.search_runs([experiment], f"tags.`svag.identity` = '{run.identity}'", max_results=1)
        if earlier:
            self._id = earlier[0].info.run_id
            self.last_step = max(self._steps(earlier[0].data.metrics), default=-1)
        else:
            tags = {"mlflow.runName": _name(run), "svag.identity": run.identity}
            self._id, self.last_step = self._client.create_run(experiment, tags=tags).info.run_id, -1
            for key, value in _settings(run).items():
                self._client.log_param(self._id, key, value)

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        """Log numbers at an effective step."""
        for name, value in scalars.items():
            self._client.log_metric(self._id, name, value, step=step)

    def finish(self, outcome: Mapping[str, Any]) -> None:
        """End the run."""
        status = {"finished": "FINISHED", "diverged": "FINISHED", "failed": "FAILED"}
        self._client.set_terminated(self._id, status.get(str(outcome.get("state")), "KILLED"))

    def _steps(self, metrics: Mapping[str, float]) -> Iterator[int]:
        for name in metrics:
            yield max(metric.step for metric in self._client.get_metric_history(self._id, name))


_SINKS: dict[Tracker, Callable[[Path, RunRecord], Sink]] = {
    "tensorboard": TensorBoardSink,
    "wandb": WandbSink,
    "mlflow": MlflowSink,
}


def scalars_of(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of one row of metrics.jsonl, under the names that a tracker shows; a single reading has none.

    >>> scalars_of({"kind": "evaluation", "step": 400, "lr": 0.1, "train_loss": None, "test_accuracy": 0.5})
    {'evaluation/lr': 0.1, 'evaluation/test_accuracy': 0.5}
    >>> scalars_of({"kind": "loss", "step": 8, "train_loss": 2.5})
    {'train/loss': 2.5}
    """
    if row.get("kind") == "evaluation":
        numbers = {name: value for name, value in row.items() if name not in {"kind", "step"} and _finite(value)}
        return {f"evaluation/{name}": float(value) for name, value in numbers.items()}
    if row.get("kind") == "loss" and _finite(row.get("train_loss")):
        return {"train/loss": float(row["train_loss"])}
    return {}


def flat(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """A nested mapping as one with dotted names, as trackers show settings.

    >>> flat({"lr": 0.1, "model": {"arch": "mlp", "width": 1.0}})
    {'lr': 0.1, 'model.arch': 'mlp', 'model.width': 1.0}
    """
    dotted: dict[str, Any] = {}
    for name, value in values.items():
        dotted |= flat(value, f"{above}{name}.") if isinstance(value, Mapping) else {f"{above}{name}": value}
    return dotted


class Follower:
    """Sends what is new in one run directory to a tracker.

    Args:
        out: the folder of the experiment, or of the run.
        run: the run, as far as it has come.
        tracker: the tracker.
    """

    def __init__(self, out: Path, run: RunRecord, tracker: Tracker) -> None:
        self._path, self._offset = run.path, 0
        self._readings: deque[Reading] = deque(maxlen=RECENT)
        self._sink = _SINKS[tracker](out, run)

    def follow(self) -> None:
        """Send the complete lines written since the last call."""
        try:
            with os.fdopen(open_to_read(self._path / METRICS), "rb") as file:
                file.seek(self._offset)
                content = file.read()
        except OSError:
            return  # gone: there is nothing to send
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        self.send(parse_lines(whole))

    def send(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Send rows that the tracker does not have yet; the noise scalars go with each evaluation."""
        for row in rows:
            if row.get("kind") == KIND:
                self._readings.append(reading_of(dict(row)))
                continue
            scalars = scalars_of(row)
            if row.get("kind") == "evaluation":
                from svag.prices.scalars import logged_numbers  # and scipy, which the flags do not need

                scalars |= {f"svag/{name}": value for name, value in logged_numbers(self._readings).items()}
            if scalars and row["step"] > self._sink.last_step:
                self._sink.log(row["step"], scalars)

    def finish(self, outcome: Mapping[str, Any]) -> None:
        """End the run in the tracker."""
        self._sink.finish(outcome)


@contextmanager
def following(out: Path, tracker: Tracker | None, *, seconds: float = 1.0) -> Iterator[None]:
    """Send the runs of a folder to a tracker while the block carries them out; with None nothing happens.

    Args:
        out: a run directory, or a folder in which run directories are or will be.
        tracker: which, if any.
        seconds: interval between two checks of the files.
    """
    if tracker is None:
        yield
        return
    check_tracker(tracker)
    followers: dict[Path, Follower] = {}
    over = threading.Event()

    def look() -> None:
        for path in sorted({file.parent for file in out.rglob(METRICS)} - set(followers)):
            record = read_record(path)
            if record.spec is not None:
                followers[path] = Follower(out, record, tracker)
        for follower in followers.values():
            follower.follow()

    def watch() -> None:
        while not over.wait(seconds):
            look()

    thread = threading.Thread(target=watch, name="tracking", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        look()
        for path, follower in followers.items():
            follower.finish(read_record(path).outcome)


def replay(folder: Path, tracker: Tracker) -> int:
    """Send the runs of a folder that have records to a tracker, and return how many.

    Args:
        folder: an experiment's folder, or any folder of runs.
        tracker: the tracker.
    """
    check_tracker(tracker)
    records = [record for record in load_records(folder) if record.rows and record.spec is not None]
    for record in records:
        follower = Follower(folder, record, tracker)
        follower.send(record.rows)
        follower.finish(record.outcome)
    return len(records)


def check_tracker(tracker: Tracker) -> None:
    """Refuse a tracker whose package is not installed, and say how to get it."""
    from importlib.util import find_spec

    if find_spec(tracker) is None:
        raise SpecError("--track", f"{tracker} is not installed: pip install -c constraints.txt '.[{tracker}]'")


def _name(run: RunRecord) -> str:
    return run.path.name if run.spec is None else f"{run.spec.name} {run.path.name}"


def _settings(run: RunRecord) -> dict[str, Any]:
    return {} if run.spec is None else flat(run.spec.to_dict())


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
