"""The content of a report, before it is rendered as a page, as Markdown or in a terminal; its tables also as CSV."""

import base64
import csv
import io
import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

import altair as alt

from svag.lab.experiments.wording import Answer, Judgement
from svag.lab.specs.fields import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed import DataclassInstance

Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """Rows with a name, to read and to download.

    Attributes:
        name: of the file, without its ending.
        title: what the rows are.
        rows: plain values, one dict a row.
        warned: numbers of the rows that are shown in the colour of a warning.
    """

    name: str
    title: str
    rows: list[Row]
    warned: frozenset[int] = frozenset()

    @property
    def columns(self) -> list[str]:
        """The columns of all rows, in order of first appearance."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    @property
    def filled(self) -> list[str]:
        """The columns with a value in some row, which a page shows."""
        return [name for name in self.columns if any(row.get(name) not in (None, "") for row in self.rows)]

    def csv(self) -> str:
        r"""The rows as CSV with a header; what is unknown (None, NaN) or unbounded is an empty cell.

        Text that a spreadsheet would take for a formula gets an apostrophe in front; numbers stay numbers.

        >>> Table("runs", "runs", [{"run": "a, b", "error": 0.5}, {"run": "c", "error": math.nan}]).csv()
        'run,error\r\n"a, b",0.5\r\nc,\r\n'
        """
        columns, file = self.columns, io.StringIO()
        writer = csv.writer(file)
        writer.writerow([_cell(name) for name in columns])
        writer.writerows([[_cell(row.get(name)) for name in columns] for row in self.rows])
        return file.getvalue()

    def csv_link(self) -> str:
        """The CSV as a link that downloads it without a script; a byte order mark tells Excel that it is UTF-8."""
        content = base64.b64encode(("\ufeff" + self.csv()).encode()).decode()
        return f"data:text/csv;charset=utf-8;base64,{content}"


# ASCII and the full-width forms, which some spreadsheets treat alike
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def _cell(value: object) -> object:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if not isinstance(value, str):
        return value
    return visible(f"'{value}" if value.startswith(_FORMULA) and not _is_number(value) else value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class Figure:
    """A chart with its verdict and its numbers.

    Attributes:
        name: of the file, without its ending.
        title: what it shows.
        chart: the picture.
        sentence: the verdict under the picture.
        tables: what is drawn.
        panel: name of its panel; empty if there is only one.
    """

    name: str
    title: str
    chart: alt.TopLevelMixin = field(repr=False)
    sentence: str
    tables: tuple[Table, ...]
    panel: str = ""

    @classmethod
    def of(
        cls,
        name: str,
        title: str,
        chart: alt.TopLevelMixin,
        sentence: str,
        what: str,
        rows: "Iterable[DataclassInstance]",
        panel: str = "",
    ) -> Self:
        """A chart of one table, whose rows are `what`."""
        return cls(name, title, chart, sentence, (Table(name, what, [asdict(row) for row in rows]),), panel)

    @property
    def heading(self) -> str:
        """The title, after the name of the panel."""
        return f"{self.panel}: {self.title}" if self.panel else self.title


@dataclass(frozen=True)
class Card:
    """The answer of one panel, with the costs of the batch sizes if they were priced or measured."""

    answer: Answer
    prices: Table | None = None


@dataclass(frozen=True)
class Provenance:
    """How the numbers were obtained.

    Attributes:
        facts: seeds, versions, hardware, seconds and the like.
        specs: the base spec of every panel, by its name, as YAML.
    """

    facts: tuple[tuple[str, str], ...]
    specs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that is reported about a folder of runs.

    Attributes:
        title: the question, in one sentence.
        subject: what it was asked of: a figure of the paper, a base spec, a folder.
        method: how it is answered.
        words: what the letters and terms on the page mean.
        notes: what to know first: what the paper claims, and how a reproduction differs from it.
        warnings: runs that are missing, and records that were not used.
        cards: the answers, one per panel.
        figures: the figures, in reading order.
        provenance: how the numbers were obtained.
        runs: every run with its outcome.
        finding: the whole finding, for programs.
        claims: what the paper claims of a figure, beside what its runs say.
    """

    title: str
    subject: str
    method: str = ""
    words: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    cards: tuple[Card, ...]
    figures: tuple[Figure, ...]
    provenance: Provenance
    runs: Table
    finding: dict[str, Any]
    claims: tuple[Judgement, ...] = ()

    @property
    def judged(self) -> Table | None:
        """The claims as a table; None where nobody claims anything."""
        rows = [
            {
                "verdict": verdict_said(claim),
                "panel": claim.panel,
                "the paper says": claim.claim,
                "these runs say": claim.said,
            }
            for claim in self.claims
        ]
        differ = frozenset(number for number, claim in enumerate(self.claims) if claim.verdict == "differs")
        return Table("claims", "the paper's claims", rows, differ) if rows else None

    @property
    def answers(self) -> tuple[Answer, ...]:
        """Only the answers."""
        return tuple(card.answer for card in self.cards)

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables: the runs, the claims, the costs of the panels, and the data of the figures."""
        costs = (card.prices for card in self.cards if card.prices is not None)
        claims = () if self.judged is None else (self.judged,)
        return (self.runs, *claims, *costs, *(table for figure in self.figures for table in figure.tables))


def verdict_said(claim: Judgement) -> str:
    """The verdict on a claim, and whether it counts as evidence.

    >>> verdict_said(Judgement("p", "c", "f", "agrees", "drift"))
    'agrees (counted apart)'
    """
    return claim.verdict if claim.counted else f"{claim.verdict} (counted apart)"
