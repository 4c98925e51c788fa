"""An experiment from its plan to its answer: how many runs, what is done, how long; then the runs; what they mean."""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from svag.cli.flags import shard_of
from svag.cli.setup import Setup
from svag.records.refusal import SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from svag.execution.estimate import Estimate
    from svag.execution.plan import PlannedRun
    from svag.records.experiment import Compare, Ladder, Ngd
    from svag.records.record import RunRecord


def conduct(experiment: "Compare | Ladder | Ngd", out: Path, setup: Setup) -> None:
    """Announce an experiment, carry out what is left of it and print its answer; exit code 1 when a run failed."""
    from svag.execution.plan import plan_runs
    from svag.experiments.plan import runs_of
    from svag.records.experiment import save_experiment

    _check(setup)
    plan = plan_runs(runs_of(experiment), out)
    announcement = _announce(experiment, plan, out, setup)
    if setup.dry_run:
        typer.echo(json.dumps(announcement.to_dict(), indent=2, ensure_ascii=False) if setup.as_json else announcement)
        return
    typer.echo(announcement, err=True)
    save_experiment(experiment, out)
    records = _carry_out(plan, setup)
    _answer(experiment, records, out, setup.as_json)
    failed = [(run, record) for run, record in zip(plan, records, strict=True) if record.state in {"failed", "broken"}]
    for run, record in failed:
        typer.echo(f"Error: {run.name} {record.state}: {record.problem} ({record.path})", err=True)
    if failed:
        raise typer.Exit(1)


def _check(setup: Setup) -> None:
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


@dataclass(frozen=True)
class Announcement:
    """What an experiment is about to do; the estimate is missing where the data is, or a reason why it is not made."""

    experiment: "Compare | Ladder | Ngd"
    out: Path
    runs: int
    estimate: "Estimate | str"

    def __str__(self) -> str:
        head = " at size ".join(filter(None, (self.experiment.label, self.experiment.size)))
        lines = [f"{head}: {self.experiment.title}" if head else self.experiment.title]
        if self.experiment.note:
            lines.append(f"Differs from the paper: {self.experiment.note}.")
        return "\n".join([*lines, f"{self.out}: {self.estimate}"])

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        about = {name: getattr(self.experiment, name) for name in ("kind", "title", "label", "size", "note")}
        estimate = {"unknown": self.estimate} if isinstance(self.estimate, str) else self.estimate.to_dict()
        return {**about, "out": str(self.out), "runs": self.runs, "estimate": estimate}


def _announce(
    experiment: "Compare | Ladder | Ngd", plan: "Sequence[PlannedRun]", out: Path, setup: Setup
) -> Announcement:
    """Estimate the time; a dry run does not fetch data for that, and of a cluster nothing is known here."""
    if setup.executor == "ray":
        done = sum(run.record().ended for run in plan)
        sentence = f"{len(plan)} runs, {done} already done; how long the others take depends on the cluster"
        return Announcement(experiment, out, len(plan), sentence)
    if setup.dry_run and (absent := _absent(plan, setup.data_dir)):
        done = sum(run.record().ended for run in plan)
        fetch = " and ".join(f"svag data get {name}" for name in absent)
        sentence = f"{len(plan)} runs, {done} already done; how long they take is known after {fetch}"
        return Announcement(experiment, out, len(plan), sentence)
    from svag.execution.estimate import estimate_seconds

    estimate = estimate_seconds(
        plan,
        workers=setup.workers,
        threads=setup.threads,
        device=setup.device,
        data_dir=setup.data_dir,
        shard=shard_of(setup.shard),
    )
    return Announcement(experiment, out, len(plan), estimate)


def _absent(plan: "Sequence[PlannedRun]", data_dir: Path | None) -> list[str]:
    """Data sets that would have to be downloaded."""
    from svag.lab.data import members
    from svag.lab.data.places import data_folder
    from svag.lab.data.sources import SOURCES

    names = sorted({run.spec.data.name for run in plan} & set(SOURCES))
    return [name for name in names if members.find(SOURCES[name], data_folder(data_dir)) is None]


def _answer(experiment: "Compare | Ladder | Ngd", records: "Sequence[RunRecord]", out: Path, as_json: bool) -> None:
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
