"""A report as text: one self-contained page, Markdown for a pull request, tables in a terminal."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from markupsafe import Markup
from rich.console import Console, RenderableType
from rich.table import Table as TerminalTable
from rich.text import Text

from svag.lab.experiments.wording import LINES, Answer, Judgement, Numbers, PaperVerdict, Tone, count
from svag.lab.report import look
from svag.lab.report.content import Report, Table, verdict_said
from svag.lab.report.save import script_json, specification, template, vega_bundle
from svag.lab.specs.fields import visible

MARKS = {"yes": "✓", "no": "✗", "open": "?", "note": ""}  # a note makes no claim, so it gets no tick
_COLOURS = {"yes": "green", "no": "yellow", "open": "cyan", "note": ""}
# In the order in which a terminal shows them.
_VERDICTS: dict[PaperVerdict, Tone] = {"differs": "no", "cannot tell": "open", "agrees": "yes"}
WARNED = "yellow"
_BLOCKS = "▁▂▃▄▅▆▇█"
# Lines of an answer that name the page and --details; they are printed below it.
_BELOW = 2
# Characters that Markdown or its HTML would treat as markup; a run may have any name.
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
        bundle=Markup(vega_bundle()),  # the libraries, bundled by vl-convert
        charts=script_json(charts),
        looks=script_json(looks),
        version=version("svag"),
    )


def _own(name: str) -> Markup:
    return Markup(files("svag.lab.report").joinpath("templates", name).read_text(encoding="utf-8"))  # ours


def _fluid(spec: dict[str, Any]) -> dict[str, Any]:
    """A chart with a single view gets the width of the page; rows of charts keep their width."""
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
    if report.judged is not None:
        lines += [*_markdown_rows(report.judged), ""]
    for card in report.cards:
        answer = card.answer
        lines += [f"### {escape(_panel(answer))}", "", f"**{escape(answer.headline)}**", ""]
        if card.prices is not None:
            lines += [*_markdown_rows(card.prices), ""]
        if answer.numbers:
            lines += ["| | |", "|---|---|"]
            lines += [f"| {escape(name)} | {escape(value)} |" for name, value in answer.numbers]
            lines.append("")
        if answer.next:
            lines += [f"Next: {escape(answer.next)}", ""]
    if report.figures:
        lines += ["### Figures", ""]
        lines += [f"- {escape(figure.heading)}. {escape(figure.sentence)}" for figure in report.figures]
        lines.append("")
    lines += ["### How it was measured", ""]
    lines += [f"- {escape(name)}: {escape(value)}" for name, value in report.provenance.facts]
    return "\n".join(lines) + "\n"


def _markdown_rows(table: Table) -> list[str]:
    names = table.columns
    rows = [names, ["---"] * len(names), *([row[name] for name in names] for row in table.rows)]
    return ["| " + " | ".join(escape(str(cell)) if cell != "---" else cell for cell in row) + " |" for row in rows]


def _line(report: Report) -> list[str]:
    """What was run, as a sentence, and how it answers the question."""
    return [sentence for sentence in (f"{report.subject}." if report.subject else "", report.method) if sentence]


def _panel(answer: Answer) -> str:
    return f"{answer.panel} ({answer.badge})" if answer.badge else answer.panel


def escape(text: str) -> str:
    r"""Escape text, so that it contains no markup and no line break.

    >>> escape("a|b <script>")
    'a\\|b \\<script\\>'
    """
    return _SPECIAL.sub(r"\\\1", visible(" ".join(text.split())))


def render_terminal(report: Report) -> Iterator[RenderableType]:
    """Everything that is known. `Text` everywhere: a run called [bold] stays text."""
    yield _text(report.title, style="bold")
    if report.subject:
        yield _text(f"{report.subject}.")
    for note in report.notes:
        yield _text(note)
    for warning in report.warnings:
        yield _text(warning, style=WARNED)
    yield from map(_claim, report.claims)
    for card in report.cards:
        yield _text("")
        yield _headline(card.answer)
        if card.prices is not None:
            yield _price_rows(card.prices)
            yield _text("")
        yield _number_rows(card.answer.numbers, card.answer)
        if card.answer.next:
            yield _text(f"Next: {card.answer.next}")


class _Room:
    """The number of lines left in a terminal.

    Args:
        lines: how many there are.
        width: columns of the terminal.
    """

    def __init__(self, lines: int, width: int) -> None:
        self._lines, self._console = lines, Console(width=width)
        self.left_out = False

    def take(self, parts: Iterable[RenderableType]) -> list[RenderableType]:
        """The parts for which there is room, in order."""
        return [part for part in parts if self._fits(part)]

    def longest(self, versions: Iterable[RenderableType]) -> list[RenderableType]:
        """The first of several versions of one part for which there is room, if any."""
        return next(([part] for part in versions if self._fits(part)), [])

    def _fits(self, part: RenderableType) -> bool:
        needed = len(self._console.render_lines(part))
        if needed > self._lines:
            self.left_out = True
            return False
        self._lines -= needed
        return True


def render_brief(report: Report, width: int = 80) -> tuple[list[RenderableType], bool]:
    """The answer in at most 12 lines, with room for where the page is, and whether something was left out.

    Headlines come first. Then, as far as they fit: warnings, what a single panel costs or its first numbers, what to do
    next, and notes. Of a figure of the paper its claims are the answer, those that differ and the open ones first.

    Args:
        report: what to show.
        width: columns of the terminal.
    """
    if report.claims:
        return _brief_claims(report, width), True
    room, alone = _Room(LINES - _BELOW, width), len(report.cards) == 1
    answers = room.take(_headline(answer, alone=alone) for answer in report.answers)
    if len(answers) < len(report.cards):
        answers[-1:] = [_text(f"and {count(len(report.cards) - len(answers) + 1, 'more answer')}")]
    warnings = room.take(_text(warning, style=WARNED) for warning in report.warnings)
    if alone:
        prices, answer = report.cards[0].prices, report.answers[0]
        if prices is not None:
            answers += room.longest(_price_rows(prices, most) for most in range(len(prices.rows), 0, -1))
        else:
            answers += room.longest(_number_rows(answer.in_card[:most]) for most in range(len(answer.in_card), 0, -1))
        answers += room.take([_text(f"Next: {answer.next}")] if answer.next else [])
    notes = room.take(map(_text, report.notes))
    return [*warnings, *answers, *notes], room.left_out or any(answer.folded for answer in report.answers) or not alone


def _brief_claims(report: Report, width: int) -> list[RenderableType]:
    room = _Room(LINES - _BELOW - 1, width)
    before = room.take([*map(_text, report.notes[:1]), *(_text(warning, style=WARNED) for warning in report.warnings)])
    ranked = sorted(report.claims, key=lambda claim: (not claim.counted, list(_VERDICTS).index(claim.verdict)))
    parts = [(claim, room.take([_claim(claim)])) for claim in ranked]
    left = Counter(claim.verdict for claim, part in parts if not part)
    said = ", ".join(f"{number} × {verdict}" for verdict, number in left.items())
    more = [_text(f"and {count(left.total(), 'more claim')}: {said}")] if left else []
    return [*before, *(line for _, part in parts for line in part), *more]


def _claim(claim: Judgement) -> Text:
    tone = _VERDICTS[claim.verdict]
    apart = "" if claim.counted else f" ({verdict_said(claim)})"
    return _text(f"{MARKS[tone]} {claim.panel}: {claim.claim}{apart}: {claim.said}", style=_COLOURS[tone])


def _headline(answer: Answer, *, alone: bool = False) -> Text:
    said = answer.headline if alone else f"{_panel(answer)}: {answer.headline}"
    if alone and answer.badge:  # the mark refers to the badge, which is only shown with the details
        return _text(said, style="bold")
    return _text(f"{MARKS[answer.tone]} {said}".lstrip(), style=f"bold {_COLOURS[answer.tone]}".rstrip())


def _text(text: str, style: str = "", *, lines: bool = False) -> Text:
    return Text(visible(text, lines=lines), style=style)


def _price_rows(prices: Table, most: int | None = None) -> TerminalTable:
    table = TerminalTable(box=None, pad_edge=False, header_style="dim")
    for name in prices.columns:
        wide = max(len(str(row[name])) for row in prices.rows)
        title = name if len(name) <= wide else name.replace(" ", "\n")
        table.add_column(_text(title, lines=True), justify="right" if name == prices.columns[0] else "left")
    for number, row in enumerate(prices.rows[:most]):
        cells = [_text(str(row[name])) for name in prices.columns]
        table.add_row(*cells, style=WARNED if number in prices.warned else "")
    return table


def _number_rows(numbers: Numbers, spark_of: Answer | None = None) -> TerminalTable:
    table = TerminalTable(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for name, value in numbers:
        table.add_row(_text(name), _text(value))
    if spark_of is not None and len(spark_of.spark) > 1:
        table.add_row(_text("curve"), _text(f"{sparkline(spark_of.spark)}  {spark_of.spark_of}".rstrip()))
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
