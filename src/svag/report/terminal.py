"""The answer in a terminal: a table an answer, with a small curve."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from svag.report.content import Answer, Report
from svag.report.sparkline import sparkline

_COLOURS = {"yes": "green", "no": "yellow", "open": "cyan"}
_MARKS = {"yes": "✓", "no": "✗", "open": "?"}


def render_terminal(report: Report) -> Iterator[RenderableType]:
    """Title, notes, warnings, and every answer. `Text` everywhere: a run called [bold] stays text."""
    yield Text(report.title, style="bold")
    for note in report.notes:
        yield Text(note)
    for warning in report.warnings:
        yield Text(warning, style="yellow")
    for answer in report.answers:
        yield Text("")
        yield Text(f"{_MARKS[answer.tone]} {answer.panel}: {answer.headline}", style=f"bold {_COLOURS[answer.tone]}")
        yield _table(answer)
        yield Text(f"Next: {answer.next}")


def _table(answer: Answer) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for name, value in answer.numbers:
        table.add_row(Text(name), Text(value))
    if len(answer.spark) > 1:
        table.add_row(Text("curve"), Text(f"{sparkline(answer.spark)}  {answer.spark_of}".rstrip()))
    return table
