"""`svag run`: one run from a YAML spec."""

import json
from pathlib import Path
from typing import Annotated

import typer

from svag.cli.flags import AsJson, DataDir, DeviceFlag, Threads, edits_from


def run(
    context: typer.Context,
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="YAML file of the run.")],
    out: Annotated[Path | None, typer.Option(help="Run directory (default: runs/<identity>).")] = None,
    device: DeviceFlag = "auto",
    data_dir: DataDir = None,
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Run a spec, or continue it where it was left.

    Every field of the spec is also a flag: --lr 0.1 --model.norm batch --process.kind svag --process.ell 4. The same
    spec is never computed twice. A run that diverges is a result (exit code 0); one that fails is not (1).

    To share every batch between several processes: torchrun --nproc-per-node 2 -m svag run SPEC.

    Example: svag run base.yaml --lr 0.1 --process.kind svag --process.ell 4
    """
    from svag.cli.errors import processes
    from svag.experiments.baseline import shortfall
    from svag.records.identity import identity
    from svag.records.spec import RunSpec

    with processes(device) as ranks:
        quiet = ranks is not None and ranks.rank > 0
        chosen = RunSpec.load(spec, edits_from(context.args))
        folder = out or Path("runs") / identity(chosen)[:12]
        if chosen.process.kind == "svag" and chosen.sampling == "shuffle" and not quiet:
            typer.echo("Note: shuffled batches are not independent: a comparison over ell mixes sampling in.", err=True)
        if not quiet and (caution := shortfall([chosen])):
            typer.echo(f"Note: {caution}", err=True)
        from svag.lab.run import run as run_spec

        group = None if ranks is None else ranks.group.process_group
        record = run_spec(chosen, folder, device=device, data_dir=data_dir, threads=threads, process_group=group)
    if not quiet:
        typer.echo(json.dumps(record.to_dict(), ensure_ascii=False, indent=2) if as_json else str(record))
