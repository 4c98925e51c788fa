"""`svag list figures`: the figures and theorems of the paper that can be reproduced."""

import json

import typer
from rich.console import Console
from rich.table import Table


def list_figures(as_json: bool) -> None:
    """Print every label with its family, what it shows and the command that shows it."""
    from svag.experiments.figures import FAMILIES, figure
    from svag.experiments.figures.theory import THEORY, UNVERIFIED

    rows = []
    for label, family in FAMILIES.items():
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
