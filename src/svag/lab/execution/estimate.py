"""How long what is left of a plan will take."""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from svag.lab.execution.execution import HERE, Execution
from svag.lab.execution.plan import DataShape, PlannedRun, own_runs
from svag.lab.execution.view import roughly
from svag.lab.records.record import RunRecord, each_record
from svag.lab.specs.spec import RunSpec, examples_per_step

if TYPE_CHECKING:
    from svag.lab.execution.timing import LoadedData

# What the time of an effective step does not depend on.
_NOT_SHAPE = ("seed", "lr", "weight_decay", "optimizer", "schedule", "budget", "sampling")


@dataclass(frozen=True)
class TimeEstimate:
    """What is left of a plan.

    >>> print(TimeEstimate(runs=12, done=4, examples=3_200_000, seconds=1500.0, workers=2))
    12 runs, 4 already done, 8 to do: 3,200,000 examples, about 25 min with 2 workers

    >>> print(TimeEstimate(runs=12, done=4, examples=3_200_000, seconds=1500.0, workers=2, for_cluster=True))
    12 runs, 4 already done, 8 to do: about 25 min on 2 cores of this machine; the cluster may be faster

    Attributes:
        runs: runs in all.
        done: those that have ended already.
        examples: examples that the others will still look at.
        seconds: how long that takes, roughly.
        workers: with so many workers.
        broken: runs that cannot be read, and are left alone.
        for_cluster: whether the runs are for a cluster, of which nothing is known here: the time is that of cores of
            this machine.
    """

    runs: int
    done: int
    examples: int
    seconds: float
    workers: int
    for_cluster: bool = False
    broken: int = 0

    @property
    def to_do(self) -> int:
        """Runs that will be computed."""
        return self.runs - self.done - self.broken

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON values."""
        fields = {**asdict(self), "to_do": self.to_do}
        if not self.broken:
            del fields["broken"]
        return {**fields, "of": "cores of this machine"} if fields.pop("for_cluster") else fields

    def __str__(self) -> str:
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        broken = f", {self.broken} broken" if self.broken else ""
        if not self.to_do:
            return f"{runs}, {self.done} already done{broken}" if broken else f"{runs}, all done already"
        to_do = f"{runs}, {self.done} already done{broken}, {self.to_do} to do"
        if self.for_cluster:
            cores = "one core" if self.workers == 1 else f"{self.workers} cores"
            return f"{to_do}: about {roughly(self.seconds)} on {cores} of this machine; the cluster may be faster"
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        return f"{to_do}: {self.examples:,} examples, about {roughly(self.seconds)} with {workers}"


def estimate_seconds(
    plan: Sequence[PlannedRun], execution: Execution = HERE, loaded: "LoadedData | None" = None
) -> TimeEstimate:
    """Estimate how many seconds what is left of a plan takes.

    A run takes (effective steps left) × (seconds per effective step). The latter is that of finished runs of the same
    shape in the same folder, evaluations and probes included; without any, a few updates of its network are timed (see
    `timed_seconds`). The runs are then dealt to the workers, the longest first, each to the one that is free first;
    the last worker to become free ends the plan. That workers slow each other down is not counted.

    Args:
        plan: from `plan_runs`.
        execution: how it will be carried out.
        loaded: the data of the runs that are left, if it has been loaded already.
    """
    for_cluster = execution.executor == "ray"
    if for_cluster:
        execution = replace(execution, executor="local", address=None, workers=execution.workers or 1, device="cpu")
    own = own_runs(plan, execution.shard)
    records = {run.identity: run.record(whole=False) for run in own}
    left = [run for run in own if records[run.identity].to_do]
    done = sum(record.ended for record in records.values())
    broken = len(own) - done - len(left)
    if not left:
        return TimeEstimate(len(own), done, 0, 0.0, execution.workers or 1, for_cluster, broken)
    # torch and what needs it: not for a plan that is done
    from svag.lab.execution.timing import load_data_of, timed_seconds
    from svag.lab.training.training import pick_device

    place = pick_device(execution.device)
    loaded = loaded or load_data_of(left, execution)
    measured = timed_seconds(untimed(plan, left), loaded, place, execution.threads)
    here = replace(execution, device="cuda" if place.type == "cuda" else "cpu")
    return estimate_from(plan, here, records, loaded.shapes, measured, for_cluster=for_cluster)


def estimate_from(
    plan: Sequence[PlannedRun],
    execution: Execution,
    records: Mapping[str, RunRecord],
    shapes: Mapping[str, DataShape],
    measured: Mapping[str, float],
    *,
    for_cluster: bool = False,
) -> TimeEstimate:
    """The estimate of `estimate_seconds`, from what has been loaded and timed elsewhere.

    Args:
        plan: from `plan_runs`.
        execution: how it will be carried out, with the device that was chosen.
        records: what there was of each of the own runs before any of them went on, by identity.
        shapes: the shape of the data of each run that is left, by identity.
        measured: seconds of each whole run that `untimed` names, by identity.
        for_cluster: whether the runs are for a cluster.
    """
    own, known = own_runs(plan, execution.shard), _known(run.folder.parent for run in plan)
    left = [run for run in own if records[run.identity].to_do]
    done = sum(record.ended for record in records.values())
    examples, seconds = 0, []
    for run in left:
        size = shapes[run.identity].examples
        steps = run.spec.steps(size)
        missing = steps - records[run.identity].step
        examples += round(missing * examples_per_step(run.spec, size))
        whole = measured[run.identity] if run.identity in measured else known[_shape(run.spec)] * steps
        seconds.append(whole * missing / steps)
    workers, broken = execution.workers_on(execution.device), len(own) - done - len(left)
    return TimeEstimate(len(own), done, examples, time_of(seconds, workers), workers, for_cluster, broken)


def untimed(
    plan: Sequence[PlannedRun], left: Iterable[PlannedRun], known: Mapping[str, float] | None = None
) -> list[PlannedRun]:
    """The runs whose time is not known from finished runs of the plan: some updates of their networks must be timed."""
    known = _known(run.folder.parent for run in plan) if known is None else known
    return [run for run in left if _shape(run.spec) not in known]


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
        for record in each_record(folder, whole=False):
            if record.state == "finished" and record.spec is not None and record.outcome.get("seconds"):
                steps[_shape(record.spec)] += record.steps
                seconds[_shape(record.spec)] += float(record.outcome["seconds"])
    return {shape: seconds[shape] / steps[shape] for shape in steps if steps[shape]}
