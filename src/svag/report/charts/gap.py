"""Gaps with their intervals, and the margin within which they would not matter."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import altair as alt

from svag.experiments.base import Metric
from svag.experiments.wording import UNITS, difference, interval, is_share
from svag.report import look

ANSWERS = ("equivalent", "different", "inconclusive")


@dataclass(frozen=True)
class GapRow:
    """One gap.

    Attributes:
        name: of the panel, or of the two arms.
        answer: "equivalent", "different" or "inconclusive".
        gap: None when it is unknown.
        low: lower 95% limit; None where unbounded.
        high: upper 95% limit; None where unbounded.
        margin: the gap that would not matter.
    """

    name: str
    answer: str
    gap: float | None
    low: float | None
    high: float | None
    margin: float


def row(name: str, answer: str, gap: float, low: float, high: float, margin: float) -> GapRow:
    """A row of plain values: what is not finite is None."""
    known = [number if math.isfinite(number) else None for number in (gap, low, high)]
    return GapRow(name, answer, known[0], known[1], known[2], margin)


def reach(rows: Sequence[GapRow]) -> float:
    """Half the width of the axis: all that is finite, and the margins, with some room for arrows."""
    finite = [abs(number) for one in rows for number in (one.gap, one.low, one.high) if number is not None]
    return 1.25 * max([*finite, *(one.margin for one in rows)])


def chart(rows: Sequence[GapRow], metric: Metric, title: str) -> look.Picture:
    """A point and a bar a row over the margin; a bar without an end runs to the edge of the chart, with an arrow."""
    edge = reach(rows)
    scale = 100 if is_share(metric) else 1
    values = [
        {
            **asdict(one),
            "x": None if one.gap is None else scale * one.gap,
            "x1": scale * (-edge if one.low is None else one.low),
            "x2": scale * (edge if one.high is None else one.high),
            "inner": -scale * one.margin,
            "outer": scale * one.margin,
            "open_left": one.low is None,
            "open_right": one.high is None,
            "gap_said": "unknown" if one.gap is None else difference(one.gap, metric),
            "interval_said": interval(_or(one.low, -math.inf), _or(one.high, math.inf), metric),
        }
        for one in rows
    ]
    unit = "percentage points" if is_share(metric) else "nats"
    x = alt.X("x:Q", title=[title, f"of {UNITS[metric].partition(' (')[0]}", f"in {unit}"])  # fits a phone
    x = x.scale(domain=[-scale * edge, scale * edge], nice=False).axis(tickCount=9)
    base = alt.Chart(look.data(values)).encode(
        y=alt.Y("name:N", title=None, sort=None, axis=alt.Axis(labelLimit=260)),
        tooltip=[
            alt.Tooltip("name:N", title=" "),
            "answer:N",
            alt.Tooltip("gap_said:N", title="gap"),
            alt.Tooltip("interval_said:N", title="95% interval"),
            alt.Tooltip("outer:Q", title="margin ±", format=".3g"),
        ],
    )
    answers = list(ANSWERS)
    coloured = base.encode(color=look.colour("answer", answers))
    margin = base.mark_bar(style="backdrop", height=alt.RelativeBandSize(0.95)).encode(x=alt.X("inner:Q"), x2="outer:Q")
    zero = alt.Chart(look.data([{"x": 0}])).mark_rule(style="guide").encode(x=x)
    bars = coloured.mark_rule(strokeWidth=3).encode(x=alt.X("x1:Q"), x2="x2:Q")
    points = coloured.mark_point(filled=True, size=120, opacity=1).encode(x=x, shape=look.shape("answer", answers))
    left, right = (
        coloured.transform_filter(f"datum.open_{side}")
        .mark_point(shape=f"triangle-{side}", filled=True, size=130, opacity=1)
        .encode(x=end)
        for side, end in (("left", "x1:Q"), ("right", "x2:Q"))
    )
    layers = alt.layer(margin, zero, bars, left, right, points)
    return layers.add_params(look.zoom("x")).properties(width=look.WIDTH, height=60 + 44 * len(rows))


def _or(number: float | None, otherwise: float) -> float:
    return otherwise if number is None else number


def sentence(rows: Sequence[GapRow], metric: Metric) -> str:
    """Each gap in words."""
    parts = [
        f"{one.name}: {one.answer}, {difference(_or(one.gap, math.nan), metric)} "
        f"{interval(_or(one.low, -math.inf), _or(one.high, math.inf), metric)}"
        for one in rows
    ]
    return (
        f"{'; '.join(parts)}. The grey field is the margin. Equivalence is judged by two one-sided tests at 5%, the "
        "bar is the 95% interval: it may reach a little beyond the margin of what is equivalent."
    )
