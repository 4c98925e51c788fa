"""`svag list`: the runs in a folder, or the figures and theorems of the paper that can be reproduced, as a table."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from svag.records.record import RunRecord


def list_figures(as_json: bool) -> None:
    """Print every label with its family, what it shows and the command that shows it."""
    from svag.experiments.figures import LABELS, figure
    from svag.experiments.figures.theory import THEORY, UNVERIFIED

    rows = []
    for label, family in LABELS.items():
        title = THEORY[label] if family == "theory" else figure(label, "paper").title
        command = "svag verify" if family == "theory" and label not in UNVERIFIED else "svag reproduce"
        rows.append({"label": label, "family": family, "title": title, "command": f"{command} {label}"})
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("label", "family"):
        table.add_column(name, no_wrap=True)
    table.add_column("shows")
    for row in rows:
        apart = row["label"] in UNVERIFIED
        table.add_row(row["label"], row["family"], f"{row['title']} ({row['command']})" if apart else row["title"])
    Console().print(table)
    typer.echo("\n`svag reproduce LABEL --size smoke | small | paper` runs one; `svag verify LABEL` checks the theory.")


COLOURS = {"finished": "green", "diverged": "yellow", "running": "cyan", "interrupted": "yellow"}


def list_runs(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where to look, at any depth; `figures` lists those of the paper.")
    ] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the runs as JSON.")] = False,
) -> None:
    """Show the runs in a folder (what, how far, how good), or the paper's figures.

    Example: svag list figures
    """
    from svag.records.record import load_records

    if str(folder) == "figures":  # a folder of that name is listed by its full path
        list_figures(as_json)
        return

    if not folder.is_dir():
        typer.echo(f"Error: there is no folder {folder}", err=True)
        raise typer.Exit(2)
    records = load_records(folder)
    if as_json:
        typer.echo(json.dumps([record.to_dict() for record in records], ensure_ascii=False, indent=2))
    elif not records:
        typer.echo(f"no runs in {folder}")
    else:
        _print(records, folder)


def _print(records: "list[RunRecord]", folder: Path) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("run", "state", "data", "network", "process"):
        table.add_column(name, no_wrap=True)
    for name in ("batch", "lr", "seed", "step", "test accuracy"):
        table.add_column(name, justify="right", no_wrap=True)
    for record in records:
        colour = COLOURS.get(record.state, "bold red")
        where = str(record.path.relative_to(folder)) if record.path != folder else record.path.name
        accuracy = record.final.get("test_accuracy")
        cells = [*_description(record), f"{record.step}/{record.steps}", "" if accuracy is None else f"{accuracy:.4f}"]
        # Text everywhere: a folder called [bold] stays text
        table.add_row(Text(where), Text(record.state, style=colour), *map(Text, cells))
    wide = None if Console().is_terminal else 250  # a file has no edge to cut at
    Console(width=wide).print(table)


def _description(record: "RunRecord") -> tuple[str, ...]:
    spec = record.spec
    if spec is None:
        return record.problem, "", "", "", "", ""
    settings = spec.process.model_dump(exclude={"kind"}, exclude_none=True)
    process = " ".join([spec.process.kind, *(f"{name}={value}" for name, value in settings.items())])
    network = f"{spec.model.arch} {spec.model.norm}"
    return spec.data.name, network, process, str(spec.batch_size), f"{spec.lr:g}", str(spec.seed)
