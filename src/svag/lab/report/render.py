"""A report as text: one self-contained page, Markdown for a pull request, tables in a terminal."""

import math
import re
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from markupsafe import Markup
from rich.console import RenderableType
from rich.table import Table as TerminalTable
from rich.text import Text

from svag.lab.experiments.wording import Answer, Numbers
from svag.lab.report import look
from svag.lab.report.content import Report
from svag.lab.report.save import script_json, specification, template, vega_bundle
from svag.lab.specs.fields import visible

MARKS = {"yes": "✓", "no": "✗", "open": "?", "note": ""}  # a note claims nothing that could be ticked
_COLOURS = {"yes": "green", "no": "yellow", "open": "cyan", "note": ""}
_BLOCKS = "▁▂▃▄▅▆▇█"
# What Markdown or its HTML would take for markup; a run may be called anything.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")


def render_page(report: Report) -> str:
    """One HTML file that opens offline: text, charts, tables and the scripts that draw them."""
    charts = [{"name": figure.name, "spec": _fluid(specification(figure.chart))} for figure in report.figures]
    looks = {"light": {**look.LIGHT, "background": "transparent"}, "dark": look.DARK}
    return template("page.html").render(
        report=report,
        marks=MARKS,
        css=_own("page.css"),
        script=_own("page.js"),
        bundle=Markup(vega_bundle()),  # the libraries, as vl-convert brings them
        charts=script_json(charts),
        looks=script_json(looks),
        version=version("svag"),
    )


def _own(name: str) -> Markup:
    return Markup(files("svag.lab.report").joinpath("templates", name).read_text(encoding="utf-8"))  # ours


def _fluid(spec: dict[str, Any]) -> dict[str, Any]:
    """A chart of one view takes the width of the page; rows of charts keep their own."""
    if "mark" in spec or "layer" in spec:
        return {**spec, "width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
    return spec


def render_markdown(report: Report) -> str:
    """Title, answers with their numbers, figures by their sentences, how it was measured."""
    lines = [f"## {escape(report.title)}", "", escape(" ".join(_line(report))), ""]
    for note in report.notes:
        lines += [f"> {escape(note)}", ""]
    for warning in report.warnings:
        lines += [f"> **{escape(warning)}**", ""]
    for answer in report.answers:
        lines += [f"### {escape(_panel(answer))}", "", f"**{escape(answer.headline)}**", ""]
        if answer.numbers:
            lines += ["| | |", "|---|---|"]
            lines += [f"| {escape(name)} | {escape(value)} |" for name, value in answer.numbers]
            lines.append("")
        if answer.next:
            lines += [f"Next: {escape(answer.next)}", ""]
    if report.figures:
        lines += ["### Figures", ""]
        lines += [f"- {escape(figure.title)}. {escape(figure.sentence)}" for figure in report.figures]
        lines.append("")
    lines += ["### How it was measured", ""]
    lines += [f"- {escape(name)}: {escape(value)}" for name, value in report.provenance.facts]
    return "\n".join(lines) + "\n"


def _line(report: Report) -> list[str]:
    """What was run, as a sentence, and how it answers the question."""
    return [one for one in (f"{report.subject}." if report.subject else "", report.method) if one]


def _panel(answer: Answer) -> str:
    return f"{answer.panel} ({answer.badge})" if answer.badge else answer.panel


def escape(text: str) -> str:
    r"""Text that stays text: no markup, one line.

    >>> escape("a|b <script>")
    'a\\|b \\<script\\>'
    """
    return _SPECIAL.sub(r"\\\1", visible(" ".join(text.split())))


def render_terminal(report: Report, *, brief: bool = False) -> Iterator[RenderableType]:
    """Title, notes, warnings, and every answer. `Text` everywhere: a run called [bold] stays text.

    Args:
        report: what to show.
        brief: only the numbers that the page shows without unfolding.
    """
    yield _text(report.title, style="bold")
    if report.subject:
        yield _text(f"{report.subject}.")
    for note in report.notes:
        yield _text(note)
    for warning in report.warnings:
        yield _text(warning, style="yellow")
    for answer in report.answers:
        yield _text("")
        said = f"{MARKS[answer.tone]} {_panel(answer)}: {answer.headline}".lstrip()
        yield _text(said, style=f"bold {_COLOURS[answer.tone]}".rstrip())
        yield _table(answer, answer.in_card if brief else answer.numbers)
        if answer.next:
            yield _text(f"Next: {answer.next}")


def _text(text: str, style: str = "") -> Text:
    return Text(visible(text), style=style)


def _table(answer: Answer, numbers: Numbers) -> TerminalTable:
    table = TerminalTable(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for name, value in numbers:
        table.add_row(_text(name), _text(value))
    if len(answer.spark) > 1:
        table.add_row(_text("curve"), _text(f"{sparkline(answer.spark)}  {answer.spark_of}".rstrip()))
    return table


def sparkline(values: Sequence[float], width: int = 24) -> str:
    """Draw values as a row of blocks; what is not finite is a gap.

    >>> sparkline([0.0, 0.5, 1.0, math.nan])
    '▁▅█ '

    Args:
        values: the curve; of more than `width` values, equally spaced ones are shown, the last among them.
        width: characters at most.
    """
    if width < 1:
        raise ValueError(f"width must be at least 1, got {width}")
    count = min(len(values), width)
    shown = [values[round(i * (len(values) - 1) / max(count - 1, 1))] for i in range(count)]
    finite = [value for value in shown if math.isfinite(value)]
    if not finite:
        return " " * count
    low, span = min(finite), max(finite) - min(finite)
    top = len(_BLOCKS) - 1
    return "".join(
        " " if not math.isfinite(value) else _BLOCKS[math.floor((value - low) / span * top + 0.5) if span else 0]
        for value in shown
    )
