"""An experiment from its plan to its answer: how many runs, what is done, how long; then the runs; what they mean."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from svag.cli.announce import Announcement, estimated
from svag.cli.flags import shard_of
from svag.cli.setup import Setup
from svag.records.refusal import SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from svag.execution.plan import PlannedRun
    from svag.records.experiment import Compare, Ladder, Ngd
    from svag.records.record import RunRecord


def conduct(experiment: "Compare | Ladder | Ngd", out: Path, setup: Setup) -> None:
    """Announce an experiment, carry out what is left of it and print its answer; exit code 1 when a run failed."""
    from svag.execution.plan import plan_runs
    from svag.experiments.plan import runs_of
    from svag.records.experiment import save_experiment

    check_setup(setup)
    plan = plan_runs(runs_of(experiment), out)
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
