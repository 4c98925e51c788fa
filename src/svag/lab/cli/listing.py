"""`svag list` and `svag data`: listing runs and data sets, and downloading a data set."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from svag.lab.cli.errors import all_printed, aloud, echo
from svag.lab.cli.flags import AsJson, DataDir
from svag.lab.records.record import RunRecord, each_record
from svag.lab.specs.fields import visible

COLOURS = {"finished": "green", "diverged": "yellow", "running": "cyan", "interrupted": "yellow"}


def list_runs(folder: Path, *, as_json: bool) -> None:
    """List the runs in a folder with their state and accuracy."""
    if not folder.is_dir():
        aloud(f"Error: there is no folder {folder}")
        raise typer.Exit(2)
    if as_json:
        # one record at a time, so that the rows of all runs are not in memory together
        echo(json.dumps([record.to_dict() for record in each_record(folder)], ensure_ascii=False, indent=2))
    elif records := list(each_record(folder, whole=False)):
        _print(records, folder)
    else:
        echo(f"no runs in {visible(str(folder))}")


def _quality(record: RunRecord) -> str:
    """The accuracy of the last evaluation, or for a text the bits per character."""
    bits, accuracy = record.final.get("test_bits_per_character"), record.final.get("test_accuracy")
    return f"{bits:.3f} bits" if bits is not None else "" if accuracy is None else f"{accuracy:.4f}"


_DESCRIBED = ("data", "network", "process", "batch", "lr", "seed")
_NUMBERS = frozenset(("batch", "lr", "seed"))
_ANY_WIDTH = 10_000


def _print(records: list[RunRecord], folder: Path) -> None:
    """Print one row per run; in a narrow terminal, first what all runs share, and two lines per run if need be."""
    console = Console() if Console().is_terminal else Console(width=250)  # do not cut lines in a file
    described = [dict(zip(_DESCRIBED, _description(record), strict=True)) for record in records]
    table = _table(records, described, _DESCRIBED, folder)
    if _width(table, console) > console.width:
        known = [one for record, one in zip(records, described, strict=True) if record.spec is not None]
        shared = {name: known[0][name] for name in _DESCRIBED if len({one[name] for one in known}) == 1}
        if shared:
            said = ", ".join(_said(name, value) for name, value in shared.items())
            console.print(Text(visible(f"all runs: {said}")))
        names = [name for name in _DESCRIBED if name not in shared]
        table = _table(records, described, names, folder)
        if _width(table, console) > console.width:
            below = [", ".join(_said(name, one[name]) for name in names if one[name]) for one in described]
            table = _table(records, described, (), folder, below)
    console.print(table)


def _said(name: str, value: str) -> str:
    """A cell without its column: numbers need the name."""
    return f"{name} {value}" if name in _NUMBERS else value


def _width(table: Table, console: Console) -> int:
    return Measurement.get(console, console.options.update(max_width=_ANY_WIDTH), table).maximum


def _table(
    records: Sequence[RunRecord],
    described: Sequence[Mapping[str, str]],
    names: Sequence[str],
    folder: Path,
    below: Sequence[str] = (),
) -> Table:
    """The runs with these columns; `below` is a second line for each of them."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("run", overflow="fold")
    table.add_column("state", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right" if name in _NUMBERS else "left", no_wrap=True)
    for name in ("step", "test accuracy"):
        table.add_column(name, justify="right", no_wrap=True)
    for record, cells, more in zip(records, described, below or [""] * len(records), strict=True):
        where = str(record.path.relative_to(folder)) if record.path != folder else record.path.name
        shown = [*(cells[name] for name in names), f"{record.step}/{record.steps}", _quality(record)]
        # as Text, so that a folder called [bold] is not taken for markup
        state = Text(record.state, style=COLOURS.get(record.state, "bold red"))
        run = Text(visible(where))
        if more:
            run.append(f"\n  {visible(more)}", style="dim")
        table.add_row(run, state, *(Text(visible(cell)) for cell in shown))
    return table


def _description(record: RunRecord) -> tuple[str, ...]:
    spec = record.spec
    if spec is None:
        return record.problem, "", "", "", "", ""
    network = f"{spec.model.arch} {spec.model.norm}"
    return spec.data.name, network, spec.method, str(spec.batch_size), f"{spec.lr:g}", str(spec.seed)


data = typer.Typer(help="List the data sets, or download one.", no_args_is_help=True)


@data.command("list")
def list_(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List the data sets and where they are.

    Example: svag data list --json
    """
    from svag.lab.data import downloads, sources
    from svag.lab.data.downloads import data_folder
    from svag.lab.data.sources import SOURCES

    folder = data_folder(data_dir)
    embedded = {sources.NAME: sources.TITLE, **sources.TEXT_TITLES}
    rows: list[dict[str, object]] = [
        {"name": name, "title": title, "here": True, "where": "embedded"} for name, title in embedded.items()
    ]
    for source in SOURCES.values():
        files = downloads.find(source, folder)
        rows.append(
            {
                "name": source.name,
                "title": source.title,
                "here": files is not None,
                "where": str(files[0].parent) if files else None,
                "megabytes": round(source.megabytes),
            }
        )
    if as_json:
        echo(json.dumps({"data_dir": str(folder), "data": rows}, ensure_ascii=False, indent=2))
        all_printed()
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("name", no_wrap=True)
    table.add_column("what", no_wrap=True)
    table.add_column("here", overflow="fold")
    for row in rows:
        where = visible(str(row["where"])) if row["here"] else f"no ({row['megabytes']} MB)"
        table.add_row(str(row["name"]), str(row["title"]), Text(where))
    table.add_row("npz", "your own arrays", "your file")
    Console().print(table)
    echo(f"\n`svag data get NAME` downloads one into {visible(str(folder))}.")
    all_printed()


@data.command()
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the data set, as in `svag data list`.")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Download a data set from its official site, unless it is here, and verify it.

    Exit code 1 if the download fails or is corrupt, 2 if there is no such data set.

    Example: svag data get cifar10
    """
    from svag.lab.data import downloads, sources
    from svag.lab.data.downloads import data_folder
    from svag.lab.data.formats import DataError
    from svag.lab.data.sources import SOURCES

    if name in sources.TEXT_TITLES:
        typer.echo(json.dumps({"name": name, "where": "embedded"}) if as_json else f"{name} is embedded.")
        return
    if name != sources.NAME and name not in SOURCES:
        names = (sources.NAME, *SOURCES, *sources.TEXT_TITLES)
        raise typer.BadParameter(f"there is no data set {name!r}; choose from {', '.join(names)}.", param_hint="NAME")
    try:
        arrays = sources.read_small() if name == sources.NAME else downloads.read(SOURCES[name], data_folder(data_dir))
    except DataError as error:
        aloud(f"Error: {error}")
        raise typer.Exit(1) from error
    files = None if name == sources.NAME else downloads.find(SOURCES[name], data_folder(data_dir))
    where = str(files[0].parent) if files else "embedded"
    train, test = len(arrays.train_x), len(arrays.test_x)
    if as_json:
        row = {"name": name, "where": where, "train": train, "test": test, "classes": arrays.num_classes}
        echo(json.dumps(row, ensure_ascii=False, indent=2))
    else:
        found_there = f"{train} training and {test} test images, {arrays.num_classes} classes."
        echo(f"{name} is complete ({visible(where)}): {found_there}")
