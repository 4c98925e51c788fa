"""How long what is left of a plan will take."""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from svag.execution.local import default_workers
from svag.execution.plan import PlannedRun, own_runs
from svag.execution.view import roughly
from svag.records.record import load_records
from svag.records.spec import RunSpec, examples_per_step

# What the time of an effective step does not depend on.
_NOT_SHAPE = ("seed", "lr", "weight_decay", "optimizer", "schedule", "budget", "sampling")


@dataclass(frozen=True)
class Estimate:
    """What is left of a plan.

    >>> print(Estimate(runs=12, done=4, examples=3_200_000, seconds=1500.0, workers=2))
    12 runs, 4 already done, 8 to do: 3,200,000 examples, about 25 min with 2 workers

    Attributes:
        runs: runs in all.
        done: those that have ended already.
        examples: examples that the others will still look at.
        seconds: how long that takes, roughly.
        workers: with so many workers.
    """

    runs: int
    done: int
    examples: int
    seconds: float
    workers: int

    @property
    def to_do(self) -> int:
        """Runs that have not ended."""
        return self.runs - self.done

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON values."""
        return {**asdict(self), "to_do": self.to_do}

    def __str__(self) -> str:
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        if not self.to_do:
            return f"{runs}, all done already"
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        time = f"{self.examples:,} examples, about {roughly(self.seconds)} with {workers}"
        return f"{runs}, {self.done} already done, {self.to_do} to do: {time}"


def estimate_seconds(
    plan: Sequence[PlannedRun],
    *,
    workers: int | None = None,
    threads: int = 1,
    device: str = "auto",
    data_dir: Path | None = None,
    shard: tuple[int, int] | None = None,
) -> Estimate:
    """Estimate what is left of a plan, in seconds.

    A run takes (effective steps left) × (seconds per effective step). The latter is that of finished runs of the same
    shape in the same folder, evaluations and probes included; without any, a few updates of its network are timed (see
    `measured_seconds`). The runs are then dealt to the workers, the longest first, each to the one that is free first;
    the last worker to become free ends the plan. That workers slow each other down is not counted.

    Args:
        plan: from `plan_runs`.
        workers: as for `execute`.
        threads: as for `execute`.
        device: as for `execute`.
        data_dir: as for `execute`.
        shard: as for `execute`.
    """
    own = own_runs(plan, shard)
    records = {run.identity: run.record() for run in own}
    left = [run for run in own if not records[run.identity].ended]
    if not left:
        return Estimate(len(own), len(own), 0, 0.0, workers or 1)
    # torch and what needs it: not for a plan that is done
    from svag.execution.measure import look_at_data, measured_seconds
    from svag.lab.training import pick_device

    place = pick_device(device)
    shapes = look_at_data(left, data_dir)
    known = _known(run.folder.parent for run in plan)
    unknown = [run for run in left if _shape(run.spec) not in known]
    measured = measured_seconds(unknown, shapes, data_dir, place, threads)
    examples, seconds = 0, []
    for run in left:
        steps = run.spec.steps(shapes[run.identity].examples)
        missing = steps - records[run.identity].step
        examples += missing * examples_per_step(run.spec, shapes[run.identity].examples)
        whole = known[_shape(run.spec)] * steps if run not in unknown else measured[run.identity]
        seconds.append(whole * missing / steps)
    count = workers or default_workers(place.type, threads)
    return Estimate(len(own), len(own) - len(left), examples, time_of(seconds, count), count)


def time_of(seconds: Iterable[float], workers: int) -> float:
    """When the last worker is free: each run goes to the worker that is free first, the longest runs first.

    >>> time_of([1.0, 1.0, 2.0], workers=2), time_of([1.0, 1.0, 2.0], workers=1)
    (2.0, 4.0)
    """
    free = [0.0] * workers
    for one in sorted(seconds, reverse=True):
        heapq.heapreplace(free, free[0] + one)
    return max(free)


def _shape(spec: RunSpec) -> str:
    fields = spec.to_dict()
    return repr([(name, value) for name, value in fields.items() if name not in _NOT_SHAPE])


def _known(folders: Iterable[Path]) -> dict[str, float]:
    """Seconds per effective step of each shape that has been run to its end in the folders."""
    steps, seconds = defaultdict[str, int](int), defaultdict[str, float](float)
    for folder in sorted(set(folders)):
        for record in load_records(folder):
            if record.state == "finished" and record.spec is not None and record.outcome.get("seconds"):
                steps[_shape(record.spec)] += record.steps
                seconds[_shape(record.spec)] += float(record.outcome["seconds"])
    return {shape: seconds[shape] / steps[shape] for shape in steps if steps[shape]}
