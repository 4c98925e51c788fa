"""The final metric against 1/ell, and the SDE limit at 1/ell = 0 (thm:sde_svag, fig:svag_accs)."""

import math
from dataclasses import asdict, dataclass

import altair as alt

from svag.experiments.base import Metric
from svag.experiments.compare_finding import ComparePanelFinding
from svag.experiments.wording import UNITS, is_share, value, within
from svag.report import look

SEEDS, MEAN, LIMIT = "one seed", "mean with 95% interval", "SDE limit with 95% interval"
_HOW = {
    "fit": "fitted to all ell as E_∞ + c/ell",
    "largest_ell": "taken from the largest ell, because E_∞ + c/ell does not fit",
    "richardson": "from the two largest ell",
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
    """What the SDE limit rests on.

    Attributes:
        metric: what is on the axis.
        rows: seeds, means and the limit.
        line: two points of E_∞ + c/ell; empty when it is not what the limit comes from.
        how: where the limit comes from; empty without one.
        diverged: seeds that are not shown.
    """

    metric: Metric
    rows: list[LimitRow]
    line: list[LimitRow]
    how: str
    diverged: int


def table(panel: ComparePanelFinding) -> LimitTable:
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
    return LimitTable(panel.metric, rows, line, "" if limit is None else _HOW[limit.source], diverged)


def _limits(low: float, high: float, metric: Metric) -> tuple[float, float]:
    return within(low, metric), within(high, metric)


def chart(found: LimitTable) -> look.Picture:
    """The SDE at the left edge, SGD at 1/ell = 1 on the right."""
    kinds = [SEEDS, MEAN, LIMIT]
    picked = look.shown("kind", kinds)
    style = ".2%" if is_share(found.metric) else ".4g"
    ells = sorted({row.ell for row in found.rows if row.ell is not None})
    names = {0.0: "SDE", **{1 / ell: "SGD" if ell == 1 else f"1/{ell}" for ell in ells}}
    labels = "".join(f"abs(datum.value - {at!r}) < 1e-9 ? '{name}' : " for at, name in names.items()) + "''"
    x = alt.X("inverse_ell:Q", title="1/ell", scale=alt.Scale(domain=[0, 1], padding=16, nice=False)).axis(
        values=list(names), labelExpr=labels, grid=False
    )
    # a round number above 100% would be no accuracy
    full = is_share(found.metric) and max(row.high or row.value for row in found.rows) > 0.97
    scale = alt.Scale(zero=False, domainMax=1) if full else alt.Scale(zero=False, padding=8)
    y = alt.Y("value:Q", title=f"final {UNITS[found.metric]}", scale=scale)
    y = y.axis(format="%" if is_share(found.metric) else "", tickCount=6)
    base = (
        alt.Chart(look.data([asdict(row) for row in found.rows]))
        .transform_filter(picked)
        .encode(
            x=x,
            color=look.colour("kind", kinds),
            tooltip=[
                "kind:N",
                "ell:Q",
                "seed:O",
                alt.Tooltip("value:Q", format=style),
                alt.Tooltip("low:Q", format=style),
                alt.Tooltip("high:Q", format=style),
            ],
        )
    )
    pointed = base.encode(y=y, shape=look.shape("kind", kinds))
    seeds = pointed.transform_filter(alt.datum.kind == SEEDS).mark_point(filled=True, size=35, opacity=0.9)
    points = pointed.transform_filter(alt.datum.kind != SEEDS).mark_point(filled=True, size=100, opacity=0.9)
    layers: list[alt.Chart] = [points, seeds]
    if any(row.low is not None for row in found.rows):
        bars = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2)
        layers.insert(0, bars.encode(y="low:Q", y2="high:Q"))
    if found.line:
        line = alt.Chart(look.data([asdict(row) for row in found.line]))
        layers.insert(0, line.mark_line(style="guide", strokeDash=[5, 4]).encode(x=x, y=y))
    return alt.layer(*layers).add_params(picked, look.zoom()).properties(width=look.WIDTH, height=280)


def sentence(found: LimitTable) -> str:
    """The limit and where it comes from."""
    limits = [row for row in found.rows if row.kind == LIMIT]
    if not limits:
        return "No SDE limit: it takes two arms of two seeds each."
    (one,) = limits
    lost = f" Not shown: {found.diverged} diverged." if found.diverged else ""
    low, high = (value(edge if edge is not None else math.nan, found.metric) for edge in (one.low, one.high))
    return f"The SDE limit is {value(one.value, found.metric)} [{low}, {high}], {found.how}.{lost}"
