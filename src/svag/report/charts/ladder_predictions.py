"""The B* that each rung predicts as a baseline, with its interval, beside what was observed (thm:lsr_kappa_bound)."""

import math
from dataclasses import asdict, dataclass

import altair as alt

from svag.experiments.ladder_finding import LadderPanelFinding
from svag.experiments.wording import batch, batch_interval
from svag.report import look
from svag.report.charts.ladder_regions import OBSERVED, Region, draw, regions

_TITLE = "critical batch size B*"
USABLE, NOT_USABLE = "usable prediction", "not usable"


@dataclass(frozen=True)
class PredictionRow:
    """A prediction.

    Attributes:
        baseline: batch size of the run it is made from.
        critical_batch: B*; None when G is not resolved.
        low: lower 95% limit.
        high: upper limit; None where unbounded.
        kind: whether it says anything about this ladder.
        over_observed: predicted over observed; None when no failure was observed.
        noise_to_signal: N/G; None when G is not resolved.
        status: what to think of it.
    """

    baseline: int
    critical_batch: float | None
    low: float
    high: float | None
    kind: str
    over_observed: float | None
    noise_to_signal: float | None
    status: str


@dataclass(frozen=True)
class PredictionTable:
    """Predictions and the observed failure."""

    rows: list[PredictionRow]
    regions: list[Region]


def table(panel: LadderPanelFinding) -> PredictionTable:
    """The predictions of the finding, as rows."""
    rows = []
    for one in panel.predictions:
        found = one.critical
        numbers = (found.critical_batch, found.high, found.noise_to_signal)
        critical, high, ratio = (number if math.isfinite(number) else None for number in numbers)
        kind = USABLE if one.usable else NOT_USABLE
        rows.append(
            PredictionRow(found.batch_size, critical, found.low, high, kind, one.over_observed, ratio, one.status)
        )
    return PredictionTable(rows, [region for region in regions(panel) if region.kind == OBSERVED])


def chart(found: PredictionTable) -> look.Picture:
    """One row a baseline; an interval without an end runs to the edge, with an arrow."""
    ends = [x for row in found.rows for x in (row.baseline, row.critical_batch, row.low, row.high) if x is not None]
    ends += [x for region in found.regions for x in (region.low, region.high)]
    left, right = min(x for x in ends if x > 0) / 1.3, max(ends) * 1.6
    values = [
        {
            **asdict(row),
            "name": f"from B = {row.baseline}",
            "x1": max(row.low, left),
            "x2": right if row.high is None else row.high,
            "open": row.high is None,
            "said": batch_interval(row.low, math.inf if row.high is None else row.high),
        }
        for row in found.rows
    ]
    kinds = [USABLE, NOT_USABLE]
    x = alt.X("critical_batch:Q", title=_TITLE)
    x = x.scale(type="log", base=2, domain=[left, right], nice=False).axis(format="~d")
    picked = look.shown("kind", kinds)
    base = (
        alt.Chart(look.data(values))
        .transform_filter(picked)
        .encode(
            y=alt.Y("name:N", title=None, sort=None),
            color=look.colour("kind", kinds),
            tooltip=[
                alt.Tooltip("name:N", title="prediction"),
                alt.Tooltip("critical_batch:Q", title="B*", format=",.0f"),
                alt.Tooltip("said:N", title="95% interval"),
                alt.Tooltip("noise_to_signal:Q", title="N/G", format=".3g"),
                alt.Tooltip("over_observed:Q", title="predicted / observed", format=".2f"),
                "status:N",
            ],
        )
    )
    bars = base.mark_rule(strokeWidth=3).encode(
        x=alt.X("x1:Q"), x2="x2:Q", strokeDash=look.dash("kind", kinds, quiet=True)
    )
    arrows = base.transform_filter("datum.open").mark_point(shape="triangle-right", filled=True, size=130, opacity=1)
    points = base.mark_point(filled=True, size=100, opacity=1).encode(x=x, shape=look.shape("kind", kinds))
    own = alt.Chart(look.data(values)).mark_tick(thickness=2, style="guide")
    own = own.encode(x=alt.X("baseline:Q"), y=alt.Y("name:N", sort=None))
    layers = [*draw(found.regions, _TITLE), own, bars, arrows.encode(x="x2:Q"), points]
    return (
        alt.layer(*layers)
        .add_params(picked, look.zoom("x"))
        .properties(width=look.WIDTH, height=50 + 34 * len(found.rows))
    )


def sentence(found: PredictionTable) -> str:
    """Predicted over observed, or what was predicted where nothing was observed."""
    usable = [row for row in found.rows if row.kind == USABLE]
    if not usable:
        return "No baseline gives a usable prediction: see the status of each in the table."
    ratios = [row.over_observed for row in usable if row.over_observed is not None]
    if ratios:
        span = f"{min(ratios):.2g}" if len(ratios) == 1 else f"{min(ratios):.2g} to {max(ratios):.2g}"
        field = " (filled field)" if found.regions else ""
        return f"Usable predictions are {span} times the observed failure{field}. Grey ticks: the baselines."
    values = [row.critical_batch for row in usable if row.critical_batch is not None]
    span = batch(values[0]) if len(values) == 1 else f"{batch(min(values))} to {batch(max(values))}"
    return f"Usable predictions: B* = {span}. No failure was observed to hold them against. Grey ticks: the baselines."
