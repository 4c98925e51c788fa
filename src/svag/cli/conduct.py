"""An experiment from its plan to its answer: how many runs, what is done, how long; then the runs; what they mean.

What a command is about to do: how many runs, how many are done, how long the others may take.

An experiment from its plan to its answer: how many runs, what is done, how long; then the runs; what they mean.
"""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from svag.cli.flags import Setup, shard_of
from svag.records.fields import SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from svag.execution.estimate import Estimate
    from svag.execution.plan import PlannedRun
    from svag.experiments.base import Experiment
    from svag.records.record import RunRecord


@dataclass(frozen=True)
class OnCluster:
    """An estimate for a cluster, of which nothing is known here: it is that of cores of this machine."""

    here: "Estimate"

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {**self.here.to_dict(), "of": "cores of this machine"}

    def __str__(self) -> str:
        from svag.execution.view import roughly

        if not self.here.to_do:
            return str(self.here)
        cores = "one core" if self.here.workers == 1 else f"{self.here.workers} cores"
        todo = f"{self.here.runs} runs, {self.here.done} already done, {self.here.to_do} to do"
        return f"{todo}: about {roughly(self.here.seconds)} on {cores} of this machine; the cluster may be faster"


@dataclass(frozen=True)
class Announcement:
    """What a command is about to do.

    Attributes:
        kind: of the experiment, or "theory".
        title: one line.
        label: in the paper.
        size: of the figure.
        note: how it differs from the paper.
        out: where the runs go.
        runs: how many there are in all.
        estimate: how long they take, or a sentence that says why that is not known.
    """

    kind: str
    title: str
    label: str | None
    size: str | None
    note: str
    out: Path
    runs: int
    estimate: "Estimate | OnCluster | str"

    def __str__(self) -> str:
        head = " at size ".join(filter(None, (self.label, self.size)))
        lines = [f"{head}: {self.title}" if head else self.title]
        if self.note:
            lines.append(f"Differs from the paper: {self.note}.")
        return "\n".join([*lines, f"{self.out}: {self.estimate}"])

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        about = {name: getattr(self, name) for name in ("kind", "title", "label", "size", "note")}
        estimate = {"unknown": self.estimate} if isinstance(self.estimate, str) else self.estimate.to_dict()
        return {**about, "out": str(self.out), "runs": self.runs, "estimate": estimate}


def estimated(plan: "Sequence[PlannedRun]", setup: Setup) -> "Estimate | OnCluster | str":
    """How long what is left of a shard takes; a dry run does not fetch data to find out, and says so."""
    from svag.execution.estimate import estimate_seconds
    from svag.execution.plan import own_runs

    shard = shard_of(setup.shard)
    if setup.dry_run and (absent := _absent(plan, setup.data_dir)):
        own = own_runs(plan, shard)
        runs = "1 run" if len(own) == 1 else f"{len(own)} runs"
        fetch = " and ".join(f"svag data get {name}" for name in absent)
        return (
            f"{runs}, {sum(run.record().ended for run in own)} already done; how long they take is known after {fetch}"
        )
    if setup.executor == "ray":
        workers = setup.workers or 1
        return OnCluster(estimate_seconds(plan, workers=workers, device="cpu", data_dir=setup.data_dir, shard=shard))
    return estimate_seconds(
        plan,
        workers=setup.workers,
        threads=setup.threads,
        device=setup.device,
        data_dir=setup.data_dir,
        shard=shard,
    )


def _absent(plan: "Sequence[PlannedRun]", data_dir: Path | None) -> list[str]:
    """Data sets that would have to be downloaded."""
    from svag.lab.data import files
    from svag.lab.data.files import data_folder
    from svag.lab.data.sources import SOURCES

    names = sorted({run.spec.data.name for run in plan} & set(SOURCES))
    return [name for name in names if files.find(SOURCES[name], data_folder(data_dir)) is None]


def conduct(experiment: "Experiment", out: Path, setup: Setup) -> None:
    """Announce an experiment, carry out what is left of it and print its answer; exit code 1 when a run failed."""
    from svag.execution.plan import plan_runs
    from svag.experiments.base import save_experiment

    check_setup(setup)
    plan = plan_runs(experiment.runs(), out)
    about = (experiment.kind, experiment.title, experiment.label, experiment.size, experiment.note)
    announce(Announcement(*about, out, len(plan), estimated(plan, setup)), setup)
    if setup.dry_run:
        return
    save_experiment(experiment, out)
    records = _carry_out(plan, setup)
    _answer(experiment, records, out, setup.as_json)
    failed = [(run, record) for run, record in zip(plan, records, strict=True) if record.state in {"failed", "broken"}]
    for run, record in failed:
        typer.echo(f"Error: {run.name} {record.state}: {record.problem} ({record.path})", err=True)
    if failed:
        raise typer.Exit(1)


def announce(announcement: Announcement, setup: Setup) -> None:
    """Say what is about to be done: a dry run answers with it, others keep standard output for their answer."""
    if setup.dry_run and setup.as_json:
        typer.echo(json.dumps(announcement.to_dict(), indent=2, ensure_ascii=False))
    else:
        typer.echo(announcement, err=not setup.dry_run)


def check_setup(setup: Setup) -> None:
    """Refuse at once what would only be noticed after the estimate."""
    shard_of(setup.shard)
    if setup.executor == "ray":
        from svag.execution.on_ray.cluster import check_extra

        check_extra()
    elif setup.address is not None:
        raise SpecError("--address", "is that of a Ray cluster: add --executor ray")


def _carry_out(plan: "Sequence[PlannedRun]", setup: Setup) -> "list[RunRecord]":
    from svag.execution.local import execute
    from svag.execution.on_ray.execute import execute_on_ray

    carry_out = partial(execute_on_ray, address=setup.address) if setup.executor == "ray" else execute
    return carry_out(
        plan,
        workers=setup.workers,
        threads=setup.threads,
        device=setup.device,
        data_dir=setup.data_dir,
        shard=shard_of(setup.shard),
    )


def _answer(experiment: "Experiment", records: "Sequence[RunRecord]", out: Path, as_json: bool) -> None:
    waiting = sum(record.state in {"interrupted", "running"} for record in records)
    if waiting:
        sentence = f"{waiting} of {len(records)} runs are left to other shards; without --shard the command answers"
        typer.echo(json.dumps({"runs": len(records), "left": waiting}) if as_json else sentence)
        return
    from svag.cli.report import tell
    from svag.report.build import report_of
    from svag.report.write import write_report

    found = report_of(experiment, records)
    tell(found, write_report(found, out / "report", formats=()), as_json=as_json)
