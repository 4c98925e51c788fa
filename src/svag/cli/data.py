"""`svag data`: which data sets there are, which are here, and fetching one."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from svag.cli.flags import AsJson, DataDir

data = typer.Typer(help="Show the data sets, or fetch one.", no_args_is_help=True)


@data.command("list")
def list_(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show the data sets and where they are.

    Example: svag data list --json
    """
    from svag.lab.data import files, sources
    from svag.lab.data.files import data_folder
    from svag.lab.data.sources import SOURCES

    folder = data_folder(data_dir)
    rows: list[dict[str, object]] = [{"name": sources.NAME, "title": sources.TITLE, "here": True, "where": "embedded"}]
    for source in SOURCES.values():
        found = files.find(source, folder)
        rows.append(
            {
                "name": source.name,
                "title": source.title,
                "here": found is not None,
                "where": str(found[0].parent) if found else None,
                "megabytes": round(source.megabytes),
            }
        )
    if as_json:
        typer.echo(json.dumps({"data_dir": str(folder), "data": rows}, ensure_ascii=False, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("name", no_wrap=True)
    table.add_column("what", no_wrap=True)
    table.add_column("here", overflow="fold")
    for row in rows:
        table.add_row(
            str(row["name"]), str(row["title"]), str(row["where"]) if row["here"] else f"no ({row['megabytes']} MB)"
        )
    table.add_row("npz", "your own arrays", "a file of yours")
    Console().print(table)
    typer.echo(f"\n`svag data get NAME` fetches one into {folder}.")


@data.command()
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the data set, as in `svag data list`.")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Fetch a data set from its official place, unless it is here, and verify it.

    Exit code 1 when it cannot be fetched or is corrupt, 2 for a name that does not exist.

    Example: svag data get cifar10
    """
    from svag.lab.data import files, sources
    from svag.lab.data.files import data_folder
    from svag.lab.data.formats import DataError
    from svag.lab.data.sources import SOURCES

    if name != sources.NAME and name not in SOURCES:
        raise typer.BadParameter(
            f"no data set is called {name}; there are {', '.join((sources.NAME, *SOURCES))}.", param_hint="NAME"
        )
    try:
        arrays = sources.read_small() if name == sources.NAME else files.read(SOURCES[name], data_folder(data_dir))
    except DataError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from error
    found = None if name == sources.NAME else files.find(SOURCES[name], data_folder(data_dir))
    where = str(found[0].parent) if found else "embedded"
    train, test = len(arrays.train_x), len(arrays.test_x)
    if as_json:
        row = {"name": name, "where": where, "train": train, "test": test, "classes": arrays.num_classes}
        typer.echo(json.dumps(row, ensure_ascii=False, indent=2))
    else:
        typer.echo(
            f"{name} is complete ({where}): {train} training and {test} test images, {arrays.num_classes} classes."
        )
