"""How a command prints a report: as JSON, or as its answer in a few lines."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from svag.lab.cli.errors import echo
from svag.lab.specs.fields import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from svag.lab.report.content import Report
    from svag.lab.report.write import Written


@contextmanager
def at_work(what: str) -> Iterator[None]:
    """Show on standard error what a command is doing meanwhile, if that is a terminal."""
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


def tell(
    report: "Report",
    written: "Written",
    *,
    as_json: bool,
    details: bool = False,
    learned: "Sequence[str]" = (),
) -> None:
    """Print a report as JSON, or its answer in a few lines with the place of the page.

    Args:
        report: what to print.
        written: where its files are.
        as_json: for programs.
        details: print everything.
        learned: what a demo has shown, in plain words; without `details` only the last of them, which is what to do.
    """
    if as_json:
        echo(json.dumps({**report.finding, **written.to_dict()}, ensure_ascii=False, indent=2))
        return
    from rich.console import Console

    from svag.lab.report.render import render_brief, render_terminal

    console = Console()
    parts, left_out = (render_terminal(report), False) if details else render_brief(report, console.width)
    for part in parts:
        console.print(part)
    for line in learned if details else learned[-1:]:
        console.print(visible(line), markup=False, highlight=False)
    echo(f"Page: {visible(str(written.page))}")
    if details:
        echo(f"Summary: {visible(str(written.summary))}")
    elif left_out:
        echo("All numbers: add --details, or open the page.")
