"""An experiment from its plan to its answer: how many runs, what is done, how long; then the runs; what they mean."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from svag.cli.flags import shard_of
from svag.cli.setup import Setup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from svag.execution.plan import PlannedRun
    from svag.records.experiment import Compare, Ladder, Ngd
    from svag.records.record import RunRecord


def conduct(experiment: "Compare | Ladder | Ngd", out: Path, setup: Setup) -> None:
    """Announce an experiment, carry out what is left of it and print its answer; exit code 1 when a run failed."""
    from svag.execution.plan import plan_runs
    from svag.execution.shard import own_runs
    from svag.experiments.plan import runs_of
    from svag.records.experiment import save_experiment

    shard = shard_of(setup.shard)
    plan = plan_runs(runs_of(experiment), out)
    summary = _summary(experiment, plan, own_runs(plan, shard), out, setup)
    if setup.dry_run:
        typer.echo(json.dumps(summary, indent=2, ensure_ascii=False) if setup.as_json else _sentences(summary))
        return
    typer.echo(_sentences(summary), err=True)
    save_experiment(experiment, out)
    from svag.execution.local import execute

    records = execute(
        plan,
        workers=setup.workers,
        threads=setup.threads,
        device=setup.device,
        data_dir=setup.data_dir,
        shard=shard,
    )
    _answer(experiment, records, summary, setup.as_json)
    failed = [(run, record) for run, record in zip(plan, records, strict=True) if record.state in {"failed", "broken"}]
    for run, record in failed:
        typer.echo(f"Error: {run.name} {record.state}: {record.problem} ({record.path})", err=True)
    if failed:
        raise typer.Exit(1)


def _summary(
    experiment: "Compare | Ladder | Ngd",
    plan: "Sequence[PlannedRun]",
    own: "Sequence[PlannedRun]",
    out: Path,
    setup: Setup,
) -> dict[str, Any]:
    left = [run for run in own if not run.record().ended]
    return {
        "title": experiment.title,
        "label": experiment.label,
        "size": experiment.size,
        "note": experiment.note,
        "out": str(out),
        "runs": len(plan),
        "of_this_shard": len(own),
        "done": len(own) - len(left),
        "left": len(left),
        "estimated_seconds": _estimate(left, setup),
    }


def _estimate(left: "Sequence[PlannedRun]", setup: Setup) -> float | None:
    return None


def _sentences(summary: dict[str, Any]) -> str:
    head = " at size ".join(filter(None, (summary["label"], summary["size"])))
    lines = [f"{head}: {summary['title']}" if head else summary["title"]]
    if summary["note"]:
        lines.append(f"Differs from the paper: {summary['note']}." if summary["label"] else summary["note"])
    count = f"{summary['runs']} runs in {summary['out']}"
    if summary["of_this_shard"] != summary["runs"]:
        count += f", {summary['of_this_shard']} of them in this shard"
    lines.append(f"{count}: {summary['done']} done, {summary['left']} to do")
    return "\n".join(lines)


def _answer(
    experiment: "Compare | Ladder | Ngd", records: "Sequence[RunRecord]", summary: dict[str, Any], as_json: bool
) -> None:
    waiting = sum(record.state in {"interrupted", "running"} for record in records)
    if waiting:
        sentence = f"{waiting} of {len(records)} runs are left to other shards; without --shard the command answers"
        typer.echo(json.dumps({"runs": len(records), "left": waiting}) if as_json else sentence)
        return
    from svag.findings.experiments.find import find

    found = find(experiment, records)
    typer.echo(json.dumps(found.to_dict(), indent=2, ensure_ascii=False) if as_json else str(found))
