"""What is left of a plan, an estimate of how long that takes, and the announcement before the runs start.

Nothing here needs torch: networks are timed by `worker.timed_seconds`, in a worker process where there is one.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from svag.lab.execution.execution import Execution
from svag.lab.execution.plan import Looked, PlannedRun, own_runs
from svag.lab.experiments.experiment import Experiment
from svag.lab.records.record import RunRecord, read_record, run_folders
from svag.lab.specs.fields import visible
from svag.lab.specs.spec import RunSpec, examples_per_step

# Fields that do not affect the time of an effective step.
_NOT_SHAPE = ("seed", "lr", "weight_decay", "optimizer", "schedule", "budget", "sampling")


def roughly(seconds: float) -> str:
    """A duration in the unit that a person would use.

    >>> [roughly(seconds) for seconds in (0.4, 42, 300, 9000, 200_000)]
    ['1 s', '42 s', '5 min', '2.5 h', '2.3 days']
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86_400:.1f} days"


def _count(number: int, thing: str) -> str:
    return f"1 {thing}" if number == 1 else f"{number} {thing}s"


@dataclass(frozen=True)
class TimeEstimate:
    """How much of a plan is left, and how long that takes.

    >>> print(TimeEstimate(runs=12, done=4, examples=3_200_000, seconds=1500.0, workers=2))
    12 runs, 4 already done, 8 to do: 3,200,000 examples, about 25 min with 2 workers

    >>> print(TimeEstimate(runs=12, done=4, examples=3_200_000, seconds=1500.0, workers=2, for_cluster=True))
    12 runs, 4 already done, 8 to do: about 25 min on 2 cores of this machine; the cluster may be faster

    Attributes:
        runs: number of runs.
        done: number of runs that have ended.
        examples: training examples that the remaining runs will process.
        seconds: approximate time that they take.
        workers: number of workers that this assumes.
        broken: number of runs that cannot be read; they are left alone.
        for_cluster: whether the runs are for a cluster, whose speed is not known here. The time is then that of cores
            of this machine.
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
        """Number of runs that will be computed."""
        return self.runs - self.done - self.broken

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON values."""
        fields = {**asdict(self), "to_do": self.to_do}
        if not self.broken:
            del fields["broken"]
        return {**fields, "of": "cores of this machine"} if fields.pop("for_cluster") else fields

    def __str__(self) -> str:
        runs = _count(self.runs, "run")
        broken = f", {self.broken} broken" if self.broken else ""
        if not self.to_do:
            return f"{runs}, {self.done} already done{broken}" if broken else f"{runs}, all done already"
        to_do = f"{runs}, {self.done} already done{broken}, {self.to_do} to do"
        if self.for_cluster:
            cores = "one core" if self.workers == 1 else f"{self.workers} cores"
            return f"{to_do}: about {roughly(self.seconds)} on {cores} of this machine; the cluster may be faster"
        workers = _count(self.workers, "worker")
        return f"{to_do}: {self.examples:,} examples, about {roughly(self.seconds)} with {workers}"


class Workload:
    """A plan as a command finds it: which runs are its own, and which of them are left to do.

    It is made once per command, so that every record is read once.

    Attributes:
        plan: all runs of the experiment.
        execution: how they are carried out.
        own: the runs of this shard.
        before: the record of each own run, by identity, before any of them continues.
        left: the own runs that are left to do.
    """

    def __init__(self, plan: Sequence[PlannedRun], execution: Execution) -> None:
        self.plan, self.execution = list(plan), execution
        self.own = own_runs(plan, execution.shard)
        self.before = {run.identity: run.record() for run in self.own}
        self.left = [run for run in self.own if self.before[run.identity].to_do]

    @cached_property
    def there(self) -> list[RunRecord]:
        """The records of all runs in the plan's folder; of runs that are not in the plan without all of their rows."""
        planned = {run.folder: run for run in self.plan}
        roots = {run.folder.parent for run in self.plan}
        return [
            planned[folder].record() if folder in planned else read_record(folder, whole=False)
            for root in roots
            for folder in run_folders(root)
        ]

    @property
    def to_time(self) -> list[PlannedRun]:
        """Runs left to do that are unlike any finished run: updates of their networks have to be timed."""
        return [run for run in self.left if _shape(run.spec) not in self._seconds_per_step]

    @cached_property
    def _seconds_per_step(self) -> dict[str, float]:
        """Seconds per effective step, evaluations and probes included, of each shape of run that has finished."""
        steps, seconds = defaultdict[str, int](int), defaultdict[str, float](float)
        for record in self.there:
            if record.state == "finished" and record.spec is not None and record.outcome.get("seconds"):
                steps[_shape(record.spec)] += record.steps
                seconds[_shape(record.spec)] += float(record.outcome["seconds"])
        return {shape: seconds[shape] / steps[shape] for shape in steps if steps[shape]}

    def estimate(self, looked: Looked, measured: Mapping[str, float]) -> TimeEstimate:
        """Estimate how long the runs that are left take.

        A run takes (effective steps left) × (seconds per effective step), known from finished runs of the same shape
        or from timing. The runs are assigned to the workers, the longest first, each to the one that is free first. It
        ignores that workers slow each other down.

        Args:
            looked: the shape of the data of each run that is left, and the device.
            measured: seconds of each whole run of `to_time`, by identity.
        """
        examples, seconds = 0, []
        for run in self.left:
            size = looked.shapes[run.identity].examples
            steps = run.spec.steps(size)
            missing = steps - self.before[run.identity].step
            examples += round(missing * examples_per_step(run.spec, size))
            timed = run.identity in measured
            whole = measured[run.identity] if timed else self._seconds_per_step[_shape(run.spec)] * steps
            seconds.append(whole * missing / steps)
        for_cluster = self.execution.executor == "ray"
        local = bool(self.left) and not for_cluster
        workers = self.execution.workers_on(looked.device) if local else self.execution.workers or 1
        broken = len(self.own) - self._done - len(self.left)
        return TimeEstimate(
            len(self.own), self._done, examples, time_of(seconds, workers), workers, for_cluster, broken
        )

    def without_time(self, why: str) -> str:
        """What is announced if the time is not known."""
        return f"{_count(len(self.own), 'run')}, {self._done} already done; time {why}"

    @property
    def _done(self) -> int:
        return sum(record.ended for record in self.before.values())


def time_of(seconds: Iterable[float], workers: int) -> float:
    """When the last worker is free, if the longest runs go first and each to the worker that is free first.

    >>> time_of([1.0, 1.0, 2.0], workers=2), time_of([1.0, 1.0, 2.0], workers=1)
    (2.0, 4.0)
    """
    free = [0.0] * workers
    for duration in sorted(seconds, reverse=True):
        heapq.heapreplace(free, free[0] + duration)
    return max(free)


def _shape(spec: RunSpec) -> str:
    fields = spec.to_dict()
    return repr([(name, value) for name, value in fields.items() if name not in _NOT_SHAPE])


@dataclass(frozen=True)
class Announcement:
    """What is printed before the runs of an experiment start.

    Attributes:
        kind: kind of the experiment, or "theory".
        title: title of the experiment, one line.
        label: label in the paper.
        size: size of the figure.
        note: how it differs from the paper.
        out: folder of the runs.
        runs: number of runs.
        estimate: how long they take, or a sentence that says why that is not known.
        caution: what the plan cannot give, in one sentence; empty if there is no limitation.
        planned: how a plan chose the runs; empty without a plan.
    """

    kind: str
    title: str
    label: str | None
    size: str | None
    note: str
    out: Path
    runs: int
    estimate: TimeEstimate | str
    caution: str = ""
    planned: str = ""

    @classmethod
    def of(cls, experiment: Experiment, out: Path, plan: Sequence[PlannedRun], estimate: TimeEstimate | str) -> Self:
        """Announce an experiment with these runs."""
        from svag.lab.experiments.baseline import shortfall  # and scipy, which workers need not wait for

        about = (experiment.kind, experiment.title, experiment.label, experiment.size, experiment.note)
        records = [run.record() for run in plan]
        to_come = [run.spec for run, record in zip(plan, records, strict=True) if record.to_do]
        caution = shortfall(to_come, (record for record in records if record.ended))
        return cls(*about, out, len(plan), estimate, caution, experiment.planned())

    def __str__(self) -> str:
        head = " at size ".join(filter(None, (self.label, self.size)))
        title = visible(self.title)
        lines = [f"{head}: {title}" if head else title]
        if self.note:
            lines.append(f"Setting: {self.note}.")
        lines += [self.planned] if self.planned else []
        lines.append(f"{visible(str(self.out))}: {self.estimate}")
        return "\n".join([*lines, *([f"Note: {self.caution}"] if self.caution else [])])

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON values."""
        about = {name: getattr(self, name) for name in ("kind", "title", "label", "size", "note")}
        estimate = {"unknown": self.estimate} if isinstance(self.estimate, str) else self.estimate.to_dict()
        fields = {**about, "out": str(self.out), "runs": self.runs, "estimate": estimate, "caution": self.caution}
        return {**fields, "planned": self.planned} if self.planned else fields
