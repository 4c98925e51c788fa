"""How far training statistics drift apart: the predicted distortion and the measured spread (thm:lsr_kappa_bound)."""

import math
from dataclasses import asdict, dataclass

import altair as alt

from svag.lab.experiments.ladder_finding import COMPARED, LadderPanelFinding, drift_headline
from svag.lab.report import look

PREDICTED, MEASURED, SECOND_MOMENT = "predicted", "measured", "κV′/V over κN′/N"


@dataclass(frozen=True)
class DriftRow:
    """A factor at a batch size.

    Attributes:
        series: the baseline, as "from 32".
        kind: predicted (D), measured (the spread), or for adaptive optimizers (κV′/V)/(κN′/N), which D predicts.
        batch_size: of the larger run.
        factor: D, or what was measured.
        low: lower 95% limit.
        high: upper limit; infinite where unbounded.
    """

    series: str
    kind: str
    batch_size: float
    factor: float
    low: float
    high: float


@dataclass(frozen=True)
class DriftTable:
    """Curves and points of a ladder.

    Attributes:
        rows: D along the ladder and the spread at its rungs, one series a baseline.
        c2: C², at which invariance is lost.
        compared: what drifted, in words.
        theorem: whether the predictions rest on a theorem.
        answer: what was predicted and measured, in words.
        adaptive: whether the optimizer is adaptive.
    """

    rows: list[DriftRow]
    c2: float
    compared: str
    theorem: bool
    answer: str
    adaptive: bool = False

    @property
    def second_moment(self) -> bool:
        """Whether there is a second moment to show, as for adaptive optimizers."""
        return any(row.kind == SECOND_MOMENT for row in self.rows)


def table(panel: LadderPanelFinding) -> DriftTable | None:
    """The curves of the baselines that predict, or of the smallest one if none does, and what was measured."""
    if panel.drift is None:
        return None
    first = panel.drift.crossings[0].baseline
    smallest = [prediction for prediction in panel.predictions if prediction.batch_size == first]
    drawn = [prediction for prediction, _ in panel.checked] or smallest
    rows = []
    for prediction in drawn:
        base = prediction.batch_size
        series, pairs = f"from {base}", [pair for pair in panel.drift.pairs if pair.baseline == base]
        for size, factor in prediction.curve(pairs[-1].batch_size):
            if math.isfinite(factor.value):  # infinite where weight decay alone makes the weights diverge
                rows.append(DriftRow(series, PREDICTED, size, factor.value, factor.low, factor.high))
        for pair in pairs:
            for kind, seen in ((MEASURED, pair.spread), (SECOND_MOMENT, pair.second_moment_over_noise)):
                if seen is not None:
                    rows.append(DriftRow(series, kind, pair.batch_size, seen.value, seen.low, seen.high))
    theorem = all(prediction.theorem for prediction in drawn)
    return DriftTable(rows, panel.c2, COMPARED[panel.drift.compared], theorem, drift_headline(panel), panel.adaptive)


def chart(drift: DriftTable) -> look.Picture:
    """Predicted lines with bands, measured points with bars, and a horizontal rule at C²."""
    series = look.DrawnSeries("series", [row.series for row in drift.rows])
    bottom = 0.95 * min([1.0, *(row.low for row in drift.rows if row.low > 0)])
    top = 1.15 * max([drift.c2, *(end for row in drift.rows for end in (row.factor, row.high) if math.isfinite(end))])
    scale = alt.Scale(type="log", domain=[bottom, top], nice=False)
    y = alt.Y("factor:Q", title="drift of training statistics (factor)", scale=scale)
    y = y.axis(look.log_axis(bottom, top))
    values = [{**asdict(row), "to": min(row.high, top)} for row in drift.rows]
    tooltip = look.tips("kind", batch_size=",.0f", factor=".3g", low=".3g", high=".3g")
    base = series.base(values, look.batch_axis(), tooltip)
    predicted = base.transform_filter(alt.datum.kind == PREDICTED)
    measured = base.transform_filter(alt.datum.kind == MEASURED)
    level, words = look.level(y, "factor", drift.c2, f"C² = {drift.c2:g}")
    layers = [
        level,
        predicted.mark_area(opacity=0.18, line=False).encode(y=alt.Y("low:Q", scale=scale), y2="to:Q"),
        predicted.mark_line().encode(y=y, strokeDash=series.dash(quiet=True)).add_params(look.zoom()),
        measured.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q", scale=scale), y2="to:Q"),
        measured.mark_point(filled=True, size=80, opacity=1).encode(y=y, shape=series.shape),
        words,
    ]
    if drift.second_moment:
        moments = base.transform_filter(alt.datum.kind == SECOND_MOMENT)
        ring = moments.mark_point(filled=False, size=150, opacity=1, strokeWidth=2)
        layers.append(ring.encode(y=y, shape=series.shape))
    return alt.layer(*layers).add_params(series.picked).properties(width=look.WIDTH, height=look.HEIGHT)


def sentence(drift: DriftTable) -> str:
    """What was predicted and measured, and how to read it."""
    claim = "by a theorem, points lie on it or above" if drift.theorem else "an estimate here: no theorem applies"
    if drift.adaptive:
        claim = "an estimate"
    lines = f"Lines: the predicted distortion D with its 95% interval; {claim}."
    points = f"Points: the measured drift of {drift.compared}, with 95% intervals."
    rings = f" Rings: {SECOND_MOMENT}, which D is an estimate of." if drift.second_moment else ""
    return f"{drift.answer} {lines} {points}{rings}"
