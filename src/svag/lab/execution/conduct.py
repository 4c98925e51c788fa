"""An experiment from its plan to its records, the same from Python and from the command line.

The experiment becomes a plan. The runs that are left are announced with an estimate and carried out by an executor:
worker processes on this machine (`local`) or tasks on a Ray cluster (`on_ray`). Both first load the data of all runs,
then start computing.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, Self, TypeVar

from svag.lab.execution.dispatch import Dispatch, dispatching
from svag.lab.execution.estimate import Announcement, TimeEstimate, Workload
from svag.lab.execution.execution import HERE, Execution
from svag.lab.execution.local import LocalWorkers
from svag.lab.execution.plan import Looked, PlannedRun, plan_runs
from svag.lab.experiments import load_experiment, save_experiment
from svag.lab.experiments.compare import Compare
from svag.lab.experiments.experiment import Experiment
from svag.lab.experiments.runs import one_version
from svag.lab.experiments.sde_plan import plan_within
from svag.lab.records.identity import NUMERICS_VERSION
from svag.lab.records.record import RunRecord
from svag.lab.specs.fields import SpecError, visible
from svag.lab.training.watching import say

AnyExperiment = TypeVar("AnyExperiment", bound=Experiment)


class RunExecutor(Protocol):
    """Carries out runs somewhere; a context that leaves nothing running."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

    def look(self, runs: Iterable[PlannedRun]) -> Looked:
        """Load the data of the runs and check every spec against it, before anything is written."""
        ...

    def work(self, dispatch: Dispatch) -> None:
        """Carry out all runs of a dispatch; let it announce the plan before they are named."""
        ...


@dataclass(frozen=True)
class Conducted:
    """An experiment, or a shard of it, that has been carried out.

    Attributes:
        plan: its runs.
        records: the record of each run.
    """

    plan: list[PlannedRun]
    records: list[RunRecord]

    @property
    def left(self) -> int:
        """Number of runs that other shards have not ended yet."""
        return sum(record.state in {"interrupted", "running"} for record in self.records)

    @property
    def failures(self) -> list[str]:
        """One sentence for each run without a result."""
        runs = zip(self.plan, self.records, strict=True)
        return [trouble(run, record) for run, record in runs if record.state in {"failed", "broken"}]


def trouble(run: PlannedRun, record: RunRecord) -> str:
    """What is wrong with a run, where it is, and what to do about a broken one."""
    return f"{run.name} {record.state}: {record.problem} ({record.path})"


def conduct(experiment: Experiment, out: Path, execution: Execution = HERE) -> Conducted:
    """Announce an experiment on standard error, and carry out what is left of it.

    Nothing is written before every spec has been checked against its data. A folder with runs of another version of the
    numerics is refused.

    Args:
        experiment: the experiment.
        out: folder of the experiment.
        execution: how its runs are carried out; without `progress` nothing is announced.
    """
    return conduct_workload(experiment, out, workload_of(experiment, out, execution))


def workload_of(experiment: Experiment, out: Path, execution: Execution) -> Workload:
    """Plan an experiment, and find what is left of it; refuse a folder with runs of another version of the numerics."""
    execution.check_extra()
    workload = Workload(plan_runs(experiment.runs(), out), execution)
    one_version(workload.there, to_come=NUMERICS_VERSION)
    return workload


def conduct_workload(experiment: Experiment, out: Path, workload: Workload) -> Conducted:
    """Announce an experiment that is already planned, and carry out what is left of it."""
    if workload.left:
        _carry_out(workload, (experiment, out))
    else:
        if workload.execution.progress:
            announcement = Announcement.of(experiment, out, workload.plan, look_ahead(workload))
            say(visible(str(announcement), lines=True))
        save_experiment(experiment, out)
    return _conducted(workload)


def _conducted(workload: Workload) -> Conducted:
    return Conducted(workload.plan, [run.record() for run in workload.plan])


def carry_out(experiment: AnyExperiment, out: Path, execution: Execution = HERE) -> tuple[AnyExperiment, Conducted]:
    """Carry out an experiment of one or two stages, and return it as it was carried out, with its records.

    A ladder by the gain rule has two stages: its smallest batch size, then the rungs that are planned from it. If the
    first stage is not done, because other shards have some of its runs or because one failed, the ladder is returned
    as it was given, with the records of the first stage.

    Args:
        experiment: the experiment.
        out: folder of the experiment.
        execution: how its runs are carried out.
    """
    experiment = known_plans(experiment, out)
    if experiment.waits:
        first = _first_stage(experiment, out, execution)
        if not all(record.ended for record in first.records):
            return experiment, first
        experiment = experiment.planned_from(first.records)
    return experiment, conduct(experiment, out, execution)


def _first_stage(experiment: Experiment, out: Path, execution: Execution, *, run: bool = True) -> Conducted:
    """The runs from which the others are planned; nothing is announced or saved if they are done already."""
    workload = workload_of(experiment, out, execution)
    return conduct_workload(experiment, out, workload) if run and workload.left else _conducted(workload)


def known_plans(experiment: AnyExperiment, out: Path) -> AnyExperiment:
    """The experiment with the plans that its folder already holds."""
    if not experiment.waits:
        return experiment
    try:
        return experiment.with_plans_of(load_experiment(out))
    except SpecError:  # a file that cannot be read is replaced, as for every other experiment
        return experiment


def plan_from_pilot(
    pilot: Compare, within: float, out: Path, execution: Execution = HERE, *, run: bool = True
) -> Compare:
    """Run the pilot of a comparison, and plan the comparison from it; return the pilot while it is not done.

    The plan depends on the runs of the pilot only, so that the same command finds it again.

    Args:
        pilot: from `Compare.pilot`.
        within: the desired accuracy, as for `--within`.
        out: folder of the experiment.
        execution: how the runs of the pilot are carried out.
        run: whether to run what is left of the pilot.
    """
    records = _first_stage(pilot, out, execution, run=run).records
    if not all(record.ended for record in records):
        return pilot
    return plan_within(pilot, records, within)


def preview(
    experiment: Experiment, out: Path, execution: Execution = HERE, *, elsewhere: Collection[str] = ()
) -> Announcement:
    """What `conduct` would announce. Nothing is downloaded or written for it.

    Args:
        experiment: the experiment.
        out: folder of the experiment.
        execution: how its runs would be carried out.
        elsewhere: identities of runs that would be copied, which count as done.
    """
    workload = workload_of(experiment, out, execution)
    rest = workload
    if elsewhere:
        rest = Workload([run for run in workload.plan if run.identity not in elsewhere], execution)
    estimate = look_ahead(rest, fetch=False)
    if isinstance(estimate, TimeEstimate):
        copied = len(workload.own) - len(rest.own)
        estimate = replace(estimate, runs=estimate.runs + copied, done=estimate.done + copied)
    return Announcement.of(experiment, out, workload.plan, estimate)


def look_ahead(workload: Workload, *, fetch: bool = True) -> TimeEstimate | str:
    """Estimate in this process how long what is left takes.

    Without `fetch`, missing data is not downloaded, and no user code is imported to time its network: a sentence then
    says why the time is not known.
    """
    left, execution = workload.left, workload.execution
    if not left:
        return workload.estimate(Looked({}, execution.device), {})
    if not fetch and (absent := _absent(left, execution)):
        get = " and ".join(f"svag data get {name}" for name in absent)
        return workload.without_time(f"known after {get}")
    from svag.lab.execution.worker import load_data_of, timed_seconds
    from svag.lab.training.training import pick_device

    loaded = load_data_of(left, execution)
    if not fetch and (code := [run.spec.model.arch for run in workload.to_time if run.spec.model.is_callable]):
        return workload.without_time(
            f"not known: the network is the code of {code[0]}, which a dry run does not import"
        )
    place = pick_device("cpu" if execution.executor == "ray" else execution.device)
    measured = timed_seconds(workload.to_time, loaded, place, execution.threads)
    return workload.estimate(Looked(loaded.shapes, "cuda" if place.type == "cuda" else "cpu"), measured)


def _absent(runs: Sequence[PlannedRun], execution: Execution) -> list[str]:
    """Data sets that would have to be downloaded."""
    from svag.lab.data import downloads
    from svag.lab.data.sources import SOURCES

    names = sorted({run.spec.data.name for run in runs} & set(SOURCES))
    return [name for name in names if downloads.find(SOURCES[name], downloads.data_folder(execution.data_dir)) is None]


def execute(plan: Sequence[PlannedRun], execution: Execution = HERE) -> list[RunRecord]:
    """Carry out what is left of a plan, the longest runs first, and return the records of all its runs, in its order.

    Runs that have ended are only read, and broken ones are left alone. If a worker dies, its run continues from the
    last checkpoint; after three deaths the run is recorded as failed, and the others go on. A run that another process
    is computing is left to it and, without shards, waited for. On an interruption the workers are ended, and the same
    call continues.

    On Ray each run is a task that takes `threads` CPUs of a node and, on CUDA, one GPU. A node that sees the plan's
    folder works in it; from any other node the files of a run are sent back after every checkpoint. A task that dies
    with its process or its node is tried again from there. The records and their bits are the same.

    Args:
        plan: from `plan_runs`.
        execution: how the runs are carried out.
    """
    workload = Workload(plan, execution)
    if workload.left:
        execution.check_extra()
        _carry_out(workload)
    return [run.record() for run in plan]


def _carry_out(workload: Workload, asked: tuple[Experiment, Path] | None = None) -> None:
    """Carry out what is left; announce the experiment and save it in its folder, if there is one."""
    with _executor(workload) as executor:
        announcement = None
        if asked is not None and workload.execution.progress:
            announcement = Announcement.of(*asked, workload.plan, "")  # while the workers import torch
        looked = executor.look(workload.left)
        if asked is not None:
            save_experiment(*asked)
        with dispatching(workload, looked, announcement) as dispatch:
            executor.work(dispatch)


def _executor(workload: Workload) -> RunExecutor:
    execution = workload.execution
    if execution.executor == "ray":
        from svag.lab.execution.on_ray.cluster import RayCluster

        return RayCluster(execution)
    return LocalWorkers(execution, _workers_to_start(workload))


def _workers_to_start(workload: Workload) -> int:
    """How many workers to start before the data has been looked at.

    If the number of workers is not given, it depends on the devices, which only torch knows: then start one.
    """
    execution = workload.execution
    known = execution.workers is not None or execution.device == "cpu"
    return min(len(workload.left), execution.workers_on("cpu") if known else 1)
