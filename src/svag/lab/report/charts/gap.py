"""Gaps with their intervals and the margin, and the limit from which they are computed.

The limit: the final metric against 1/ell, and the SDE at 1/ell = 0 (thm:sde_svag, fig:svag_accs).
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import altair as alt

from svag.lab.experiments.arms import SGD
from svag.lab.experiments.compare_finding import ComparePanelFinding
from svag.lab.experiments.experiment import Metric
from svag.lab.experiments.wording import UNITS, difference, interval, is_share, metric_name, unit, value, within
from svag.lab.report import look

ANSWERS = ("equivalent", "different", "inconclusive")


@dataclass(frozen=True)
class GapRow:
    """One gap.

    Attributes:
        name: of the panel, or of the two arms.
        answer: "equivalent", "different" or "inconclusive".
        gap: NaN when it is unknown.
        low: lower 95% limit.
        high: upper 95% limit.
        margin: the gap that would not matter.
    """

    name: str
    answer: str
    gap: float
    low: float
    high: float
    margin: float


def reach(rows: Sequence[GapRow]) -> float:
    """Half the width of the axis: room for all finite values, the margins, and arrows."""
    finite = [abs(number) for row in rows for number in (row.gap, row.low, row.high) if math.isfinite(number)]
    return 1.25 * max([*finite, *(row.margin for row in rows)])


def chart(rows: Sequence[GapRow], metric: Metric, title: str) -> look.Picture:
    """A point and a bar per row over the margin; an unbounded bar runs to the edge of the chart, with an arrow."""
    edge = reach(rows)
    scale = 100 if is_share(metric) else 1
    values = [
        {
            **asdict(row),
            "x": scale * row.gap,
            "x1": scale * max(row.low, -edge),
            "x2": scale * min(row.high, edge),
            "inner": -scale * row.margin,
            "margin_drawn": scale * row.margin,
            "open_left": math.isinf(row.low),
            "open_right": math.isinf(row.high),
            "difference": "unknown" if math.isnan(row.gap) else difference(row.gap, metric),
            "interval": interval(row.low, row.high, metric),
        }
        for row in rows
    ]
    x = alt.X("x:Q", title=[title, f"of {metric_name(metric)}", f"in {unit(metric)}"])  # fits a phone
    x = x.scale(domain=[-scale * edge, scale * edge], nice=False).axis(tickCount=9)
    base = alt.Chart(look.data(values)).encode(
        y=alt.Y("name:N", title=None, sort=None, axis=alt.Axis(labelLimit=260)),
        tooltip=look.tips("name", "answer", "difference", "interval", margin_drawn=".3g"),
    )
    series = look.DrawnSeries("answer", ANSWERS)
    coloured = base.encode(color=series.colour)
    margin = base.mark_bar(style="backdrop", height=alt.RelativeBandSize(0.95)).encode(
        x=alt.X("inner:Q"), x2="margin_drawn:Q"
    )
    zero = alt.Chart(look.data([{"x": 0}])).mark_rule(style="guide").encode(x=x)
    bars = coloured.mark_rule(strokeWidth=3).encode(x=alt.X("x1:Q"), x2="x2:Q")
    points = coloured.mark_point(filled=True, size=120, opacity=1).encode(x=x, shape=series.shape)
    left, right = (
        coloured.transform_filter(f"datum.open_{side}")
        .mark_point(shape=f"triangle-{side}", filled=True, size=130, opacity=1, xOffset=back)
        .encode(x=end)
        for side, end, back in (("left", "x1:Q", look.ARROW), ("right", "x2:Q", -look.ARROW))
    )
    layers = alt.layer(margin, zero, bars, left, right, points)
    return layers.add_params(look.zoom("x")).properties(width=look.WIDTH, height=60 + 44 * len(rows))


def sentence(rows: Sequence[GapRow], metric: Metric) -> str:
    """Each gap in words."""
    parts = [
        f"{row.name}: {row.answer}, {difference(row.gap, metric)} {interval(row.low, row.high, metric)}" for row in rows
    ]
    return (
        f"{'; '.join(parts)}. Grey: the margin. Bars: 95% intervals. Equivalence is judged by two one-sided tests at "
        "5%, so the bar of an equivalent pair may reach slightly beyond the margin."
    )


SEEDS, MEAN, LIMIT = "one seed", "mean with 95% interval", "SDE limit with 95% interval"
_HOW = {
    "fit": "fitted to all ell as E_∞ + c/ell",
    "largest_ell": "taken from the largest ell, because E_∞ + c/ell does not fit",
    "collapsed": "taken from the largest ell, because an arm collapsed",
    "richardson": "from the two largest ell",
    "plan": "by weights that were planned beforehand",
}


@dataclass(frozen=True)
class LimitRow:
    """A final metric at 1/ell, with an interval if it is a mean or the limit.

    Attributes:
        kind: what it is.
        ell: None for the SDE.
        inverse_ell: 1/ell, 0 for the SDE.
        value: the metric.
        low: lower limit; None for one seed, or where there is no spread.
        high: upper limit.
        seed: of one seed.
    """

    kind: str
    ell: int | None
    inverse_ell: float
    value: float
    low: float | None = None
    high: float | None = None
    seed: int | None = None


@dataclass(frozen=True)
class LimitTable:
    """The results behind the SDE limit.

    Attributes:
        metric: what is on the axis.
        rows: seeds, means and the limit.
        line: two points of E_∞ + c/ell; empty if the limit does not come from the line.
        how: where the limit comes from; empty without one.
        diverged: seeds that are not shown.
        optimizer: what ell = 1 is called.
    """

    metric: Metric
    rows: list[LimitRow]
    line: list[LimitRow]
    how: str
    diverged: int
    optimizer: str = str(SGD)


def limit_table(panel: ComparePanelFinding) -> LimitTable:
    """SGD and SVAG from the finding; the line is drawn through its limit and its gap, not fitted again."""
    rows, diverged = [], 0
    for arm in panel.arms:
        if arm.kind not in {"sgd", "svag"}:
            continue
        ell, diverged = arm.refinement, diverged + arm.diverged
        finite = [(seed, final) for seed, final in arm.finals if math.isfinite(final)]
        rows += [LimitRow(SEEDS, ell, 1 / ell, final, seed=seed) for seed, final in finite]
        if finite:
            known = math.isfinite(arm.low)
            low, high = _limits(arm.low, arm.high, panel.metric) if known else (None, None)
            rows.append(LimitRow(MEAN, ell, 1 / ell, arm.mean, low, high))
    line: list[LimitRow] = []
    limit = panel.limit
    if limit is not None:
        rows.append(LimitRow(LIMIT, None, 0.0, limit.value, *_limits(limit.low, limit.high, panel.metric)))
        if limit.source == "fit" and panel.verdict is not None and math.isfinite(panel.verdict.gap):
            ends = ((0.0, limit.value), (1.0, limit.value + panel.verdict.gap))
            line = [LimitRow("E_∞ + c/ell", None, at, height) for at, height in ends]
    return LimitTable(panel.metric, rows, line, "" if limit is None else _HOW[limit.source], diverged, panel.optimizer)


def _limits(low: float, high: float, metric: Metric) -> tuple[float, float]:
    return within(low, metric), within(high, metric)


def limit_chart(limit: LimitTable) -> look.Picture:
    """The SDE at the left edge, the optimizer itself at 1/ell = 1 on the right."""
    series = look.DrawnSeries("kind", [SEEDS, MEAN, LIMIT])
    style = ".2%" if is_share(limit.metric) else ".4g"
    ells = sorted({row.ell for row in limit.rows if row.ell is not None})
    names = {0.0: "SDE", **{1 / ell: limit.optimizer if ell == 1 else f"1/{ell}" for ell in ells}}
    labels = "".join(f"abs(datum.value - {at!r}) < 1e-9 ? '{name}' : " for at, name in names.items()) + "''"
    x = alt.X("inverse_ell:Q", title="1/ell", scale=alt.Scale(domain=[0, 1], padding=16, nice=False)).axis(
        values=list(names), labelExpr=labels, grid=False
    )
    # a round number above 100% would not be an accuracy
    full = is_share(limit.metric) and max(row.high or row.value for row in limit.rows) > 0.97
    scale = alt.Scale(zero=False, domainMax=1) if full else alt.Scale(zero=False, padding=8)
    y = alt.Y("value:Q", title=f"final {UNITS[limit.metric]}", scale=scale)
    y = y.axis(format="%" if is_share(limit.metric) else "", tickCount=6)
    base = series.base(limit.rows, x, look.tips("ell", "seed", value=style, low=style, high=style))
    pointed = base.encode(y=y, shape=series.shape)
    seeds = pointed.transform_filter(alt.datum.kind == SEEDS).mark_point(filled=True, size=35, opacity=0.9)
    points = pointed.transform_filter(alt.datum.kind != SEEDS).mark_point(filled=True, size=100, opacity=0.9)
    layers: list[alt.Chart] = [points, seeds]
    if any(row.low is not None for row in limit.rows):
        bars = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2)
        layers.insert(0, bars.encode(y="low:Q", y2="high:Q"))
    if limit.line:
        line = alt.Chart(look.data(limit.line)).mark_line(style="guide", strokeDash=[5, 4])
        layers.insert(0, line.encode(x=x, y=y))
    return series.layered(*layers, height=280)


def limit_sentence(limit: LimitTable) -> str:
    """The limit and where it comes from."""
    limits = [row for row in limit.rows if row.kind == LIMIT]
    if not limits:
        return "No SDE limit: it takes two arms of two seeds each."
    (row,) = limits
    lost = f" Not shown: {limit.diverged} diverged." if limit.diverged else ""
    low, high = (value(edge if edge is not None else math.nan, limit.metric) for edge in (row.low, row.high))
    return f"The SDE limit is {value(row.value, limit.metric)} [{low}, {high}], {limit.how}.{lost}"
