"""Predicted B* beside where the ladder really drifted apart by C², baseline by baseline (thm:lsr_kappa_bound)."""

import math
from dataclasses import asdict, dataclass

import altair as alt

from svag.experiments.ladder_evidence import PREDICTS_FROM
from svag.experiments.ladder_finding import LadderPanelFinding
from svag.experiments.wording import batch_interval
from svag.findings.prices import Estimate
from svag.report import look
from svag.report.charts.ladder_regions import ERROR_FAILS, Region, draw, error_region, names

PREDICTED, MEASURED = "predicted B*", "measured drift by C²"


@dataclass(frozen=True)
class PredictionRow:
    """A prediction, or what was measured above the same baseline.

    Attributes:
        baseline: batch size of the run it starts from.
        kind: predicted or measured.
        batch_size: B*, or where the spread crossed C²; None when it is beyond every bound, or the ladder.
        low: lower 95% limit.
        high: upper limit; None where unbounded.
        over_predicted: measured over predicted; None where it is not known.
        noise_to_signal: N/G of the baseline; None when G is not resolved.
        predicts: whether N/G is large enough for a prediction.
        status: what to think of the prediction.
    """

    baseline: int
    kind: str
    batch_size: float | None
    low: float
    high: float | None
    over_predicted: float | None
    noise_to_signal: float | None
    predicts: bool
    status: str


@dataclass(frozen=True)
class PredictionTable:
    """Predictions, what was measured, and where test error failed."""

    rows: list[PredictionRow]
    regions: list[Region]


def table(panel: LadderPanelFinding) -> PredictionTable:
    """One row for every prediction of the finding, and one for every crossing."""
    crossings = {} if panel.drift is None else {one.baseline: one for one in panel.drift.crossings}
    rows = []
    for one in panel.predictions:
        found, crossing = one.critical, crossings.get(one.batch_size)
        ends = {PREDICTED: Estimate(found.critical_batch, found.low, found.high)}
        if crossing is not None and math.isfinite(crossing.observed.low):
            ends[MEASURED] = crossing.observed
        rows += [
            PredictionRow(
                baseline=found.batch_size,
                kind=kind,
                batch_size=_known(end.value),
                low=end.low,
                high=_known(end.high),
                over_predicted=None if crossing is None else _known(crossing.over_predicted.value),
                noise_to_signal=_known(found.noise_to_signal),
                predicts=one.usable,
                status=one.status,
            )
            for kind, end in ends.items()
        ]
    return PredictionTable(rows, error_region(panel))


def _known(number: float) -> float | None:
    return number if math.isfinite(number) else None


def chart(found: PredictionTable) -> look.Picture:
    """A pair of marks a baseline; an interval without an end runs to the edge, with an arrow."""
    ends = [x for row in found.rows for x in (row.baseline, row.batch_size, row.low, row.high) if x is not None]
    ends += [x for region in found.regions for x in (region.low, region.high)]
    left, right = min(x for x in ends if x > 0) / 1.3, max(ends) * 1.6
    values = [
        {
            **asdict(row),
            "name": f"from {row.baseline}" + ("" if row.predicts else " (does not predict)"),
            "x1": max(row.low, left),
            "x2": right if row.high is None else row.high,
            "open": row.high is None,
            "said": batch_interval(row.low, math.inf if row.high is None else row.high),
        }
        for row in found.rows
    ]
    kinds = [PREDICTED, MEASURED]
    x = alt.X("batch_size:Q", title="batch size")
    x = x.scale(type="log", base=2, domain=[left, right], nice=False).axis(format="~d")
    picked = look.shown("kind", kinds)
    y, offset = alt.Y("name:N", title=None, sort=None), alt.YOffset("kind:N", sort=kinds)
    base = (
        alt.Chart(look.data(values))
        .transform_filter(picked)
        .encode(
            y=y,
            yOffset=offset,
            color=look.colour("kind", kinds),
            opacity=alt.condition("datum.predicts", alt.value(1.0), alt.value(0.45)),
            tooltip=[
                alt.Tooltip("name:N", title="scaling"),
                "kind:N",
                alt.Tooltip("batch_size:Q", title="batch size", format=",.0f"),
                alt.Tooltip("said:N", title="95% interval"),
                alt.Tooltip("noise_to_signal:Q", title="N/G", format=".3g"),
                alt.Tooltip("over_predicted:Q", title="measured / predicted", format=".2f"),
                "status:N",
            ],
        )
    )
    bars = base.mark_rule(strokeWidth=3).encode(
        x=alt.X("x1:Q"), x2="x2:Q", strokeDash=look.dash("kind", kinds, quiet=True)
    )
    arrows = base.transform_filter("datum.open").mark_point(shape="triangle-right", filled=True, size=130)
    points = base.mark_point(filled=True, size=100).encode(x=x, shape=look.shape("kind", kinds))
    own = alt.Chart(look.data(values)).mark_tick(thickness=2, style="guide")
    own = own.encode(x=alt.X("baseline:Q"), y=y, yOffset=offset)
    layers = [*draw(found.regions), own, bars, arrows.encode(x="x2:Q"), points, *names(found.regions, left, right)]
    rows = len({row.baseline for row in found.rows})
    return alt.layer(*layers).add_params(picked, look.zoom("x")).properties(width=look.WIDTH, height=50 + 44 * rows)


def sentence(found: PredictionTable) -> str:
    """Measured over predicted, or that nothing could be held against the predictions."""
    pale = f" Pale rows: N/G below {PREDICTS_FROM:g}, where B* is mostly C² times the baseline's own batch size."
    marks = "Grey ticks: the baselines." + (pale if any(not row.predicts for row in found.rows) else "")
    if any(region.kind == ERROR_FAILS for region in found.regions):
        marks += " Filled field: where test error fails, which no theorem speaks of."
    if not any(row.predicts for row in found.rows):
        return f"No baseline predicts: see the status of each in the table. {marks}"
    ratios = [row.over_predicted for row in found.rows if row.predicts and row.kind == MEASURED and row.over_predicted]
    if not ratios:
        return f"The ladder did not drift apart by C² above any baseline that predicts. {marks}"
    span = f"{min(ratios):.2f}" if len(ratios) == 1 else f"{min(ratios):.2f} to {max(ratios):.2f}"
    return f"Training statistics had drifted apart by C² at {span} of the predicted batch size. {marks}"
