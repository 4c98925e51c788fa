"""An experiment from its plan to its records, the same from Python and from the command line.

The experiment becomes a plan, what is left of it is announced with an estimate and carried out: with workers on this
machine, or with tasks of a Ray cluster. The experiment then reads its answer off the records.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from svag.lab.execution.dispatch import dispatching
from svag.lab.execution.estimate import TimeEstimate, estimate_from, estimate_seconds, untimed
from svag.lab.execution.execution import HERE, Execution
from svag.lab.execution.plan import DataShape, PlannedRun, own_runs, plan_runs
from svag.lab.execution.pool import Announcing, Looked, Pool, WorkerGroup
from svag.lab.experiments import load_experiment, save_experiment
from svag.lab.experiments.compare import Compare, plan_within
from svag.lab.experiments.experiment import Experiment
from svag.lab.experiments.runs import one_version
from svag.lab.records.identity import NUMERICS_VERSION
from svag.lab.records.record import REMEDY, RUNS, RunRecord, each_record
from svag.lab.specs.fields import SpecError, visible
from svag.lab.training.watching import say

AnyExperiment = TypeVar("AnyExperiment", bound=Experiment)


@dataclass(frozen=True)
class Announcement:
    """What is about to be done.

    Attributes:
        kind: of the experiment, or "theory".
        title: one line.
        label: in the paper.
        size: of the figure.
        note: how it differs from the paper.
        out: where the runs go.
        runs: how many there are in all.
        estimate: how long they take, or a sentence that says why that is not known.
        caution: a sentence on what the plan cannot give; empty if there is nothing to say.
        planned: how the runs were chosen, where a plan chose them.
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

    def __str__(self) -> str:
        head = " at size ".join(filter(None, (self.label, self.size)))
        title = visible(self.title)
        lines = [f"{head}: {title}" if head else title]
        if self.note:
            lines.append(f"Differs from the paper: {self.note}.")
        lines += [self.planned] if self.planned else []
        lines.append(f"{visible(str(self.out))}: {self.estimate}")
        return "\n".join([*lines, *([f"Note: {self.caution}"] if self.caution else [])])

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        about = {name: getattr(self, name) for name in ("kind", "title", "label", "size", "note")}
        estimate = {"unknown": self.estimate} if isinstance(self.estimate, str) else self.estimate.to_dict()
        found = {**about, "out": str(self.out), "runs": self.runs, "estimate": estimate, "caution": self.caution}
        return {**found, "planned": self.planned} if self.planned else found


@dataclass(frozen=True)
class Conducted:
    """An experiment that has been carried out, or a shard of it.

    Attributes:
        plan: its runs.
        records: what there is of each of them.
    """

    plan: list[PlannedRun]
    records: list[RunRecord]

    @property
    def left(self) -> int:
        """Runs that other shards have not ended yet."""
        return sum(record.state in {"interrupted", "running"} for record in self.records)

    @property
    def failures(self) -> list[str]:
        """A sentence about each run that has no result."""
        runs = zip(self.plan, self.records, strict=True)
        return [trouble(run, record) for run, record in runs if record.state in {"failed", "broken"}]


def trouble(run: PlannedRun, record: RunRecord) -> str:
    """What is wrong with a run, where it is, and for a broken one what to do: the same command leaves it alone."""
    remedy = f": {REMEDY}" if record.state == "broken" and REMEDY not in record.problem else ""
    return f"{run.name} {record.state}: {record.problem}{remedy} ({record.path})"


def conduct(experiment: Experiment, out: Path, execution: Execution = HERE) -> Conducted:
    """Announce an experiment on standard error, and carry out what is left of it.

    Nothing is written before every spec has been checked against its data, nor into a folder that holds runs of another
    version of the numerics.

    Args:
        experiment: what is asked.
        out: its folder.
        execution: how its runs are carried out; without `progress` nothing is announced.
    """
    plan = _checked_plan(experiment, out, execution)
    left = _left(plan, execution)

    def announced(estimate: TimeEstimate | str) -> str:
        return visible(str(_announcement(experiment, out, plan, estimate)), lines=True)

    if left and execution.executor == "local":
        with WorkerGroup(execution.threads, _started_early(left, execution)) as workers:
            looked = workers.look(left, execution)
            save_experiment(experiment, out)
            _here(plan, left, looked, execution, workers, announced if execution.progress else None)
    else:
        shapes: Mapping[str, DataShape] = {}
        if execution.progress:
            estimate, shapes = look_ahead(plan, execution)
            say(announced(estimate))
        elif left:
            shapes = _look_at_data(left, execution)
        save_experiment(experiment, out)
        if left:
            _on_ray(own_runs(plan, execution.shard), left, shapes, execution)
    return Conducted(plan, [run.record() for run in plan])


def carry_out(experiment: AnyExperiment, out: Path, execution: Execution = HERE) -> tuple[AnyExperiment, Conducted]:
    """Carry out an experiment of one or two stages, and return it as it was carried out, with its records.

    A ladder by the gain rule has two: its smallest batch size, then the rungs that are planned from it. Where the first
    one is not done, because other shards have some of its runs or because one failed, the ladder comes back as it was
    given, with the records of the first stage.

    Args:
        experiment: what is asked.
        out: its folder.
        execution: how its runs are carried out.
    """
    experiment = known_plans(experiment, out)
    if experiment.waits:
        plan = _checked_plan(experiment, out, execution)
        first = Conducted(plan, [run.record() for run in plan])
        if _left(plan, execution):
            first = conduct(experiment, out, execution)
        if not all(record.ended for record in first.records):
            return experiment, first
        experiment = experiment.planned_from(first.records)
    return experiment, conduct(experiment, out, execution)


def known_plans(experiment: AnyExperiment, out: Path) -> AnyExperiment:
    """The experiment with the plans that its folder has written down already."""
    if not experiment.waits:
        return experiment
    try:
        return experiment.with_plans_of(load_experiment(out))
    except SpecError:  # what cannot be read is replaced, as with every other experiment
        return experiment


def _started_early(left: Sequence[PlannedRun], execution: Execution) -> int:
    """How many workers shall import torch at once.

    Without knowing the devices, which torch would have to tell, it is one if their number is not given.
    """
    known = execution.workers is not None or execution.device == "cpu"
    return min(len(left), execution.workers_on("cpu") if known else 1)


def plan_from_pilot(
    pilot: Compare, within: float, out: Path, execution: Execution = HERE, *, run: bool = True
) -> Compare:
    """Run the pilot of a comparison, and plan the comparison from it; the pilot itself while it is not done.

    The plan depends on the runs of the pilot alone, so that the same command finds it again when it is continued.

    Args:
        pilot: from `Compare.pilot`.
        within: the accuracy wanted, as `--within` takes it.
        out: the folder of the experiment.
        execution: how the runs of the pilot are carried out.
        run: whether to run what is left of the pilot.
    """
    plan = _checked_plan(pilot, out, execution)
    records = conduct(pilot, out, execution).records if run and _left(plan, execution) else [p.record() for p in plan]
    if not all(record.ended for record in records):
        return pilot
    return plan_within(pilot, records, within)


def preview(
    experiment: Experiment, out: Path, execution: Execution = HERE, *, elsewhere: Collection[str] = ()
) -> Announcement:
    """What `conduct` would announce; nothing is fetched or written to find out.

    Args:
        experiment: what is asked.
        out: its folder.
        execution: how its runs would be carried out.
        elsewhere: identities of runs that would be copied, and count as done.
    """
    plan = _checked_plan(experiment, out, execution)
    rest = [run for run in plan if run.identity not in elsewhere]
    estimate, _ = look_ahead(rest, execution, fetch=False)
    if isinstance(estimate, TimeEstimate):
        copied = len(own_runs(plan, execution.shard)) - len(own_runs(rest, execution.shard))
        estimate = replace(estimate, runs=estimate.runs + copied, done=estimate.done + copied)
    return _announcement(experiment, out, plan, estimate)


def _checked_plan(experiment: Experiment, out: Path, execution: Execution) -> list[PlannedRun]:
    execution.check_extra()
    one_version(each_record(out / RUNS, whole=False), to_come=NUMERICS_VERSION)
    return plan_runs(experiment.runs(), out)


def _announcement(
    experiment: Experiment, out: Path, plan: Sequence[PlannedRun], estimate: TimeEstimate | str
) -> Announcement:
    from svag.lab.experiments.baseline import shortfall

    about = (experiment.kind, experiment.title, experiment.label, experiment.size, experiment.note)
    to_come = [run.spec for run in plan if run.record(whole=False).to_do]
    caution = shortfall(to_come, (record for run in plan if (record := run.record()).ended))
    return Announcement(*about, out, len(plan), estimate, caution, experiment.planned())


def look_ahead(
    plan: Sequence[PlannedRun], execution: Execution, *, fetch: bool = True
) -> tuple[TimeEstimate | str, Mapping[str, DataShape]]:
    """How long what is left of a plan takes, and the shapes of its data, which is loaded once for both.

    Without `fetch`, data that is not there is not downloaded, and no code of a user's is imported to time its network:
    then a sentence says why the time is not known.
    """
    left = _left(plan, execution)
    if not left:
        return estimate_seconds(plan, execution), {}
    if not fetch and (absent := _absent(left, execution)):
        get = " and ".join(f"svag data get {name}" for name in absent)
        return _without_time(plan, execution, f"known after {get}"), {}
    from svag.lab.execution.timing import load_data_of

    loaded = load_data_of(left, execution)
    if not fetch and (code := [run.spec.model.arch for run in untimed(plan, left) if run.spec.model.is_callable]):
        reason = f"not known: the network is the code of {code[0]}, which a dry run does not import"
        return _without_time(plan, execution, reason), loaded.shapes
    return estimate_seconds(plan, execution, loaded), loaded.shapes


def _without_time(plan: Sequence[PlannedRun], execution: Execution, known: str) -> str:
    own = own_runs(plan, execution.shard)
    runs = "1 run" if len(own) == 1 else f"{len(own)} runs"
    done = sum(run.record(whole=False).ended for run in own)
    return f"{runs}, {done} already done; time {known}"


def _left(plan: Sequence[PlannedRun], execution: Execution) -> list[PlannedRun]:
    return [run for run in own_runs(plan, execution.shard) if run.record(whole=False).to_do]


def _look_at_data(left: Sequence[PlannedRun], execution: Execution) -> dict[str, DataShape]:
    """The shapes of the data of the runs that are left, each of which must fit its data."""
    if not left:
        return {}
    from svag.lab.execution.timing import load_data_of  # and torch, which a plan that is done does not need

    return load_data_of(left, execution).shapes


def _absent(runs: Sequence[PlannedRun], execution: Execution) -> list[str]:
    """Data sets that would have to be downloaded."""
    from svag.lab.data import files
    from svag.lab.data.sources import SOURCES

    names = sorted({run.spec.data.name for run in runs} & set(SOURCES))
    return [name for name in names if files.find(SOURCES[name], files.data_folder(execution.data_dir)) is None]


def execute(plan: Sequence[PlannedRun], execution: Execution = HERE) -> list[RunRecord]:
    """Carry out what is left of a plan, the longest runs first, and return the records of all its runs, in its order.

    Runs that have ended are only read, and broken ones are left alone. A worker that dies costs its run the time since
    the last checkpoint; after three deaths the run is recorded as failed, and the others go on. A run that another
    process has is left to it and, without shards, waited for. Interrupted, the workers are ended, and the same call
    continues.

    On Ray each run is a task that takes its share of a node: `threads` CPUs and, on CUDA, one GPU. A node that sees
    the plan's folder works in it; from any other one the files of a run come back whenever it has made a checkpoint. A
    task that dies with its process or its node is tried again from there. The records and their bits are the same.

    Args:
        plan: from `plan_runs`.
        execution: how.
    """
    left = _left(plan, execution)
    if left:
        execution.check_extra()
        if execution.executor == "ray":
            _on_ray(own_runs(plan, execution.shard), left, _look_at_data(left, execution), execution)
        else:
            with WorkerGroup(execution.threads, _started_early(left, execution)) as workers:
                _here(plan, left, workers.look(left, execution), execution, workers)
    return [run.record() for run in plan]


def _here(
    plan: Sequence[PlannedRun],
    left: list[PlannedRun],
    looked: Looked,
    execution: Execution,
    workers: WorkerGroup,
    announced: Callable[[TimeEstimate | str], str] | None = None,
) -> None:
    """Carry out what is left on this machine; `announced` makes an announcement of an estimate, if one is wanted."""
    own, here = own_runs(plan, execution.shard), replace(execution, device=looked.device)
    announcing = None
    if announced is not None:
        before = {run.identity: run.record(whole=False) for run in own}

        def text(measured: Mapping[str, float] | str) -> str:
            if isinstance(measured, str):
                return announced(_without_time(plan, execution, f"not known: {measured}"))
            return announced(estimate_from(plan, here, before, looked.shapes, measured))

        announcing = Announcing(untimed(plan, left), text)
    with dispatching(own, left, looked.shapes, here, announced=announcing is None) as dispatch, workers:
        Pool(dispatch, here, workers, announcing).work()


def _on_ray(
    own: list[PlannedRun], waiting: list[PlannedRun], shapes: Mapping[str, DataShape], execution: Execution
) -> None:
    from svag.lab.execution.on_ray.cluster import connected, on_a_node
    from svag.lab.execution.on_ray.crew import Crew

    with connected(execution) as in_a_session:
        there = on_a_node(execution)
        with (
            dispatching(own, waiting, shapes, there) as dispatch,
            Crew(dispatch, there, in_a_session=in_a_session) as crew,
        ):
            crew.work()
