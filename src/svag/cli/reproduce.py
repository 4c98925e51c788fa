"""`svag reproduce`: a figure or a theorem of the paper, by its label."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from svag.cli.setup import Address, AsJson, DataDir, DryRun, Executor, OnDevice, Out, Setup, Shard, Threads, Workers

Label = Annotated[str, typer.Argument(metavar="LABEL", help="LaTeX label of the paper, as in `svag list figures`.")]


def reproduce(
    context: typer.Context,
    label: Label,
    size: Annotated[
        Literal["smoke", "small", "paper"],
        typer.Option(help="Seconds; a laptop without a GPU; the paper's own setting."),
    ] = "small",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Seeds of every arm; the figure's own when not given.")
    ] = None,
    out: Out = None,
    workers: Workers = None,
    threads: Threads = 1,
    device: OnDevice = "auto",
    data_dir: DataDir = None,
    shard: Shard = None,
    executor: Executor = "local",
    address: Address = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Reproduce a figure of the paper, or check a theorem.

    Fields of the specs are flags here too: --sampling shuffle is what the paper used. The same command continues.
    """
    from svag.cli.base_spec import field_edits
    from svag.cli.conduct import conduct
    from svag.cli.errors import reported
    from svag.experiments.edits import edited
    from svag.experiments.figures import family, figure

    with reported():
        if family(label) == "theory":
            _check(label, dry_run, as_json)
            return
        experiment = edited(figure(label, size), field_edits(context), seeds)
        folder = out or Path("experiments") / f"{label.partition(':')[2]}-{size}"
        setup = Setup(workers, threads, device, data_dir, shard, dry_run, as_json, executor, address)
        conduct(experiment, folder, setup)


def _check(label: str, dry_run: bool, as_json: bool) -> None:
    """A label of the theory has nothing to train."""
    from svag.cli.verify import verify
    from svag.findings.verify import LABELS
    from svag.records.refusal import SpecError

    if label not in LABELS:
        raise SpecError(label, "has no check of its own: it will be drawn by the report, which is not there yet")
    if dry_run:
        typer.echo(f"{label}: a check of the theory, in seconds; no runs")
        return
    verify([label], as_json=as_json)
