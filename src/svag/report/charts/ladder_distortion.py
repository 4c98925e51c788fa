"""What the price list said and what the ladder measured: D(κ) and the observed spread against batch size (def:lsi)."""

import math
from dataclasses import asdict, dataclass

import altair as alt

from svag.experiments.ladder_answer import COMPARED, headline
from svag.experiments.ladder_finding import LadderPanelFinding
from svag.report import look
from svag.report.charts.ladder_regions import batch_axis

PREDICTED, MEASURED = "predicted", "measured"


@dataclass(frozen=True)
class DriftRow:
    """A factor at a batch size.

    Attributes:
        series: the baseline, as "from 32".
        kind: predicted (D) or measured (the spread).
        batch_size: of the larger run.
        factor: D, or the spread.
        low: lower 95% limit.
        high: upper limit; None where unbounded.
    """

    series: str
    kind: str
    batch_size: float
    factor: float
    low: float
    high: float | None


@dataclass(frozen=True)
class DriftTable:
    """Curves and points of a ladder.

    Attributes:
        rows: D along the ladder and the spread at its rungs, one series a baseline.
        c2: C², at which invariance is lost.
        compared: what drifted, in words.
        theorem: whether a theorem carries the predictions.
        answer: what was predicted and measured, in words.
    """

    rows: list[DriftRow]
    c2: float
    compared: str
    theorem: bool
    answer: str


def table(panel: LadderPanelFinding) -> DriftTable | None:
    """The curves of the baselines that predict, or of the smallest one if none does, and what was measured."""
    if panel.drift is None:
        return None
    first = panel.drift.crossings[0].baseline
    smallest = [one for one in panel.predictions if one.batch_size == first]
    drawn = [one for one, _ in panel.checked] or smallest
    rows = []
    for one in drawn:
        series, pairs = f"from {one.batch_size}", [x for x in panel.drift.pairs if x.baseline == one.batch_size]
        for size, found in one.curve(pairs[-1].batch_size):
            if math.isfinite(found.value):  # infinite where weight decay alone makes the weights diverge
                rows.append(DriftRow(series, PREDICTED, size, found.value, found.low, _known(found.high)))
        for pair in pairs:
            seen = pair.spread
            rows.append(DriftRow(series, MEASURED, pair.batch_size, seen.value, seen.low, _known(seen.high)))
    theorem = all(one.theorem for one in drawn)
    return DriftTable(rows, panel.c2, COMPARED[panel.drift.compared], theorem, headline(panel))


def _known(number: float) -> float | None:
    return number if math.isfinite(number) else None


def chart(found: DriftTable) -> look.Picture:
    """Lines with bands are predicted, points with bars are measured; the rule is C²."""
    series = list(dict.fromkeys(row.series for row in found.rows))
    picked = look.shown("series", series)
    top = 1.15 * max([found.c2, *(row.factor for row in found.rows), *(row.high or 0.0 for row in found.rows)])
    scale = alt.Scale(type="log", domain=[0.95, top], nice=False)
    y = alt.Y("factor:Q", title="factor between training statistics", scale=scale).axis(tickCount=6, format="~g")
    values = [{**asdict(row), "to": top if row.high is None else row.high} for row in found.rows]
    base = (
        alt.Chart(look.data(values))
        .transform_filter(picked)
        .encode(
            x=batch_axis(),
            color=look.colour("series", series),
            tooltip=[
                alt.Tooltip("series:N", title="scaling"),
                "kind:N",
                alt.Tooltip("batch_size:Q", title="batch size", format=",.0f"),
                alt.Tooltip("factor:Q", format=".3g"),
                alt.Tooltip("low:Q", format=".3g"),
                alt.Tooltip("high:Q", format=".3g"),
            ],
        )
    )
    predicted = base.transform_filter(alt.datum.kind == PREDICTED)
    measured = base.transform_filter(alt.datum.kind == MEASURED)
    level = alt.Chart(look.data([{"factor": found.c2, "said": f"C² = {found.c2:g}"}]))
    words = level.mark_text(style="guide-words", align="right", baseline="bottom", dx=-4, dy=-3)
    layers = [
        level.mark_rule(style="guide", strokeDash=[5, 4]).encode(y=y, tooltip=[alt.Tooltip("said:N", title="level")]),
        predicted.mark_area(opacity=0.18, line=False).encode(y=alt.Y("low:Q", scale=scale), y2="to:Q"),
        predicted.mark_line().encode(y=y, strokeDash=look.dash("series", series, quiet=True)).add_params(look.zoom()),
        measured.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q", scale=scale), y2="to:Q"),
        measured.mark_point(filled=True, size=80, opacity=1).encode(y=y, shape=look.shape("series", series)),
        words.encode(y=y, x=alt.value("width"), text="said:N"),
    ]
    return alt.layer(*layers).add_params(picked).properties(width=look.WIDTH, height=look.HEIGHT)


def sentence(found: DriftTable) -> str:
    """What was predicted and measured, and how to read it."""
    claim = (
        "a theorem keeps the points on or above it" if found.theorem else "an estimate here, which no theorem bounds"
    )
    lines = f"Lines: the predicted distortion D with its 95% interval; {claim}."
    points = f"Points: the largest change of {found.compared} over the smallest, with 95% intervals."
    return f"{found.answer} {lines} {points}"
