"""`svag list`: the runs of a folder, or the figures of the paper."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from svag.lab.cli.errors import all_printed
from svag.lab.cli.listing import list_runs


def list_runs_or_figures(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Folder to search, at any depth; `figures` lists the paper's figures instead."
        ),
    ] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the runs as JSON.")] = False,
) -> None:
    """List the runs in a folder with their state and accuracy, or the paper's figures.

    Example: svag list figures
    """
    if str(folder) == "figures":  # a folder of that name is listed by its full path
        list_figures(as_json)
    else:
        list_runs(folder, as_json=as_json)
    all_printed()


def list_figures(as_json: bool) -> None:
    """Print every label with its family, what it shows and the command that shows it."""
    from svag.paper.figures import LABELS, THEORY, UNVERIFIED, figure

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
    typer.echo("\nRun one with `svag reproduce LABEL --size small`; check the theory with `svag verify LABEL`.")
