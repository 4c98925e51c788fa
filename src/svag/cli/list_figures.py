"""`svag list figures`: the figures and theorems of the paper that can be reproduced."""

import json

import typer
from rich.console import Console
from rich.table import Table


def list_figures(as_json: bool) -> None:
    """Print every label with its family and what it shows."""
    from svag.experiments.figures import FAMILIES, figure

    rows = []
    for label, family in FAMILIES.items():
        title = "a check of the theory: svag verify" if family == "theory" else figure(label, "paper").title
        rows.append({"label": label, "family": family, "title": title})
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("label", "family"):
        table.add_column(name, no_wrap=True)
    table.add_column("shows")
    for row in rows:
        table.add_row(row["label"], row["family"], row["title"])
    Console().print(table)
    typer.echo("\n`svag reproduce LABEL --size smoke | small | paper` runs one.")
