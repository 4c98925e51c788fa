"""The run directory while a run works in it: header, journal, checkpoint, outcome.

Of several processes that share a run only the first has a `RunFolder`; the others have a `NoFolder` in its place. A run
that did not live to say so itself is written down as failed by whoever watched it (`record_failure`).
"""

import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch

from svag.lab.records.files import (
    LARGEST,
    DiskError,
    Journal,
    RunLock,
    digest,
    disk_error,
    forget_parts,
    make_folder,
    parse_lines,
    read_file,
    replace_file,
)
from svag.lab.records.identity import NUMERICS_VERSION
from svag.lab.records.record import CHECKPOINT, LOSS, METRICS, OUTCOME, SPEC, TIMINGS, RunRecord, read_record
from svag.lab.specs.spec import RunSpec, examples_per_step
from svag.lab.training.state import (
    CheckpointError,
    Run,
    check_state,
    load_checkpoint,
    refuse_other_number,
    save_checkpoint,
)
from svag.noise.frozen import PartsComparison
from svag.noise.reading import KIND, Reading, reading_of, row_of


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    return {
        "svag": version("svag"),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
    }


def hardware(device: torch.device) -> dict[str, Any]:
    """What it ran on; of a CUDA device of another machine the name is unknown."""
    return {
        "device": device.type,
        "name": _name(device),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def _name(device: torch.device) -> str:
    if device.type != "cuda":
        return _processor()
    return torch.cuda.get_device_name(device) if torch.cuda.is_available() else "unknown"


def _processor() -> str:
    """The processor's own name where the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123  # not a file that pathlib should read whole
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def run_header(spec: RunSpec, identity: str, examples: int) -> dict[str, Any]:
    """What `spec.json` holds: the spec, its identity, and its budget in effective steps on so many examples."""
    return {
        "identity": identity,
        "numerics": NUMERICS_VERSION,
        "steps": spec.steps(examples),
        "examples": examples,
        "spec": spec.to_dict(),
    }


def write_header(path: Path, header: dict[str, Any]) -> str:
    """Write `spec.json`, and return the digest of what was to be written."""
    content = json.dumps(header, indent=2, ensure_ascii=False).encode() + b"\n"
    replace_file(path / SPEC, content)
    return digest(content)


def write_outcome(
    path: Path,
    state: str,
    reason: str,
    *,
    step: int,
    seconds: float,
    examples: int,
    processes: Sequence[int],
    device: torch.device,
    spec: str,
    metrics: str,
    layout: torch.memory_format | None = None,
) -> None:
    """Write `outcome.json`: how a run ended, and on what.

    Args:
        path: the run directory.
        state: finished, diverged or failed.
        reason: why it diverged or failed.
        step: effective steps that are done.
        seconds: how long they took.
        examples: how many examples they looked at.
        processes: how many processes took part, the last number last.
        device: where.
        spec: digest of `spec.json`.
        metrics: digest of `metrics.jsonl`.
        layout: memory layout of the images, where a network was built.
    """
    outcome: dict[str, Any] = {
        "state": state,
        "reason": reason,
        "step": step,
        "seconds": round(seconds, 3),
        "examples": examples,
        "processes": processes[-1],
        "spec_sha256": spec,
        "metrics_sha256": metrics,
        "versions": versions(),
        "hardware": hardware(device),
    }
    if layout is not None:
        outcome["memory_layout"] = str(layout).removeprefix("torch.")
    if before := list(processes[:-1]):
        outcome["processes_before"] = before
    replace_file(path / OUTCOME, json.dumps(outcome, indent=2, ensure_ascii=False).encode() + b"\n")


def restore(path: Path, identity: str, run: Run) -> int:
    """Go to where a run directory's checkpoint was made, and return how many bytes of its metrics belong to that.

    Without a checkpoint the run stays at its start. All of it is checked, and no file is touched.
    """
    place, training, metrics = path / CHECKPOINT, run.training, _bytes(path / METRICS)
    state = load_checkpoint(place, identity, training.data.device)
    if state is None:
        return 0
    try:
        check_state(state, run)
    except ValueError as error:
        raise CheckpointError(f"{place} is not of this run, {error}: remove it to start the run anew") from error
    refuse_other_number(place, state["processes"][-1], training.ranks, training.model)
    kept: int = state["metrics_length"]
    whole_lines = kept == 0 or metrics[kept - 1 : kept] == b"\n"  # and as many of them as there were
    if not whole_lines or digest(metrics[:kept]) != state["metrics_sha256"]:
        raise CheckpointError(
            f"{path / METRICS} is damaged, it is not what it was when {CHECKPOINT} was made: remove both to start the "
            "run anew"
        )
    try:
        run.load_state_dict(state)
        for row in parse_lines(metrics[:kept]):
            if row.get("kind") == KIND:
                run.progress.since.append(reading_of(row))
            elif row.get("kind") == "evaluation":
                run.progress.since.clear()
    except Exception as error:  # what torch says of a state that only looks right
        raise CheckpointError(f"{place} is damaged: remove it to start the run anew") from error
    return kept


class RunFolder:
    """Writes the five files of a run directory; whoever uses it holds the folder's lock."""

    def __init__(self, path: Path, identity: str, header: dict[str, Any]) -> None:
        self._path, self._identity = path, identity
        forget_parts(path, (SPEC, CHECKPOINT, OUTCOME))
        try:
            (path / OUTCOME).unlink(missing_ok=True)  # that of a run that failed and is tried again
        except OSError as error:
            raise disk_error(path / OUTCOME, error) from error
        self._header = write_header(path, header)
        self._metrics = Journal(path / METRICS)
        try:
            self._timings = Journal(path / TIMINGS)
        except DiskError:
            self._metrics.close()
            raise
        self._began = time.monotonic()
        self._before = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._metrics.close()
        finally:
            self._timings.close()

    @property
    def seconds(self) -> float:
        """Seconds of this run so far, over all sessions; what a killed one did after its checkpoint is not counted."""
        return self._before + time.monotonic() - self._began

    def resume(self, run: Run, kept: int) -> None:
        """Go on where `restore` has gone; what was written later is written again."""
        self._metrics.cut(kept)
        self._before = run.progress.seconds

    def write_readings(self, run: Run, readings: Sequence[Reading]) -> None:
        """Append readings; they also wait for the next evaluation, which summarises them."""
        run.progress.since.extend(readings)
        self._metrics.append(map(row_of, readings))

    def write_comparison(self, step: int, found: PartsComparison) -> None:
        """Append how parts of a batch compare with whole ones before effective step `step`."""
        self._metrics.append([{"kind": "comparison", "step": step, **found.to_dict()}])

    def write_loss(self, step: int, train_loss: float, gained: dict[str, Any]) -> None:
        """Append the mean training loss since the last such row; with the gain rule, also where that is."""
        self._metrics.append([{"kind": LOSS, "step": step, "train_loss": train_loss, **gained}])

    def write_evaluation(self, row: dict[str, Any], timing: dict[str, Any]) -> None:
        """Append an evaluation, and what the clock says elsewhere."""
        self._metrics.append([{"kind": "evaluation", **row}])
        self._timings.append([{"step": row["step"], "seconds": round(self.seconds, 3), **timing}])

    def save(self, run: Run) -> None:
        """Make a checkpoint."""
        run.progress.seconds = self.seconds
        self._metrics.to_disk()
        metrics = {"metrics_length": self._metrics.length, "metrics_sha256": self._metrics.digest}
        save_checkpoint(self._path / CHECKPOINT, {"identity": self._identity, **metrics, **run.state_dict()})

    def end(self, run: Run, state: str, reason: str = "") -> None:
        """Write how it ended."""
        self._metrics.to_disk()
        write_outcome(
            self._path,
            state,
            reason,
            step=run.progress.step,
            seconds=self.seconds,
            examples=run.stepper.seen(run.progress.step),
            processes=run.progress.processes,
            device=run.training.data.device,
            spec=self._header,
            metrics=self._metrics.digest,
            layout=run.training.data.layout,
        )


def record_failure(
    spec: RunSpec, folder: Path, identity: str, examples: int, reason: str, device: torch.device
) -> RunRecord:
    """Write that a run failed; what it left stays, and running it again continues from there.

    A run that has ended by now, here or on another machine, keeps its own outcome.

    Args:
        spec: what was to be run.
        folder: the run directory.
        identity: of the spec.
        examples: number of training examples.
        reason: why it failed, in one sentence.
        device: what it was to run on.
    """
    make_folder(folder)
    with RunLock(folder):
        now = read_record(folder)
        if now.ended:
            return now
        if not (folder / SPEC).exists():
            write_header(folder, run_header(spec, identity, examples))
        seconds = _seconds(folder)
        write_outcome(
            folder,
            "failed",
            reason,
            step=now.step,
            seconds=seconds,
            examples=round(now.step * examples_per_step(spec, examples)),
            processes=[1],
            device=device,
            spec=digest(_bytes(folder / SPEC)),
            metrics=digest(_bytes(folder / METRICS)),
        )
    return read_record(folder)


def _seconds(folder: Path) -> float:
    """Seconds up to the last evaluation."""
    rows = parse_lines(_bytes(folder / TIMINGS))
    return float(rows[-1].get("seconds", 0.0)) if rows else 0.0


def _bytes(path: Path) -> bytes:
    try:
        return read_file(path, LARGEST)
    except OSError:
        return b""


class NoFolder:
    """Takes what a run leaves, and leaves it to rank 0."""

    def write_readings(self, run: Run, readings: Sequence[Reading]) -> None:
        """Write nothing."""

    def write_comparison(self, step: int, found: PartsComparison) -> None:
        """Write nothing."""

    def write_loss(self, step: int, train_loss: float, gained: dict[str, Any]) -> None:
        """Write nothing."""

    def write_evaluation(self, row: dict[str, Any], timing: dict[str, Any]) -> None:
        """Write nothing."""

    def save(self, run: Run) -> None:
        """Save nothing: every rank is where rank 0 is."""

    def end(self, run: Run, state: str, reason: str = "") -> None:
        """Write nothing."""
