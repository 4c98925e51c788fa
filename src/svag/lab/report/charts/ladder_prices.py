"""What the price list said and what the ladder measured: D(κ) and the spread against batch size, and B* (def:lsi).

Drift: the predicted distortion and the measured spread. Predictions: B* of each baseline beside where the ladder really
drifted apart by C² (thm:lsr_kappa_bound).
"""

import math
from dataclasses import asdict, dataclass

import altair as alt

from svag.lab.experiments.ladder_finding import COMPARED, LadderPanelFinding, drift_headline
from svag.lab.experiments.rungs import PREDICTS_FROM
from svag.lab.experiments.wording import batch_interval, percent
from svag.lab.report import look
from svag.lab.report.charts.ladder_error import Region, batch_axis, draw, error_region, key

PREDICTED, MEASURED, SECOND_MOMENT = "predicted", "measured", "κV′/V over κN′/N"


@dataclass(frozen=True)
class DriftRow:
    """A factor at a batch size.

    Attributes:
        series: the baseline, as "from 32".
        kind: predicted (D), measured (the spread), or of Adam and its kin (κV′/V)/(κN′/N), which D is about.
        batch_size: of the larger run.
        factor: D, or what was measured.
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
        adaptive: whether this is about Adam or its kin.
    """

    rows: list[DriftRow]
    c2: float
    compared: str
    theorem: bool
    answer: str
    adaptive: bool = False

    @property
    def second_moment(self) -> bool:
        """Whether there is a second moment to show, as there is of Adam and its kin."""
        return any(row.kind == SECOND_MOMENT for row in self.rows)


def drift_table(panel: LadderPanelFinding) -> DriftTable | None:
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
            for kind, seen in ((MEASURED, pair.spread), (SECOND_MOMENT, pair.second_moment_over_noise)):
                if seen is not None:
                    rows.append(DriftRow(series, kind, pair.batch_size, seen.value, seen.low, _known(seen.high)))
    theorem = all(one.theorem for one in drawn)
    return DriftTable(rows, panel.c2, COMPARED[panel.drift.compared], theorem, drift_headline(panel), panel.adaptive)


def _known(number: float) -> float | None:
    return number if math.isfinite(number) else None


def drift_chart(found: DriftTable) -> look.Picture:
    """Lines with bands are predicted, points with bars are measured; the rule is C²."""
    series = list(dict.fromkeys(row.series for row in found.rows))
    picked = look.shown("series", series)
    top = 1.15 * max([found.c2, *(row.factor for row in found.rows), *(row.high or 0.0 for row in found.rows)])
    scale = alt.Scale(type="log", domain=[0.95, top], nice=False)
    y = alt.Y("factor:Q", title="drift of training statistics (factor)", scale=scale).axis(tickCount=6, format="~g")
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
    moments = base.transform_filter(alt.datum.kind == SECOND_MOMENT)
    level = alt.Chart(look.data([{"factor": found.c2, "said": f"C² = {found.c2:g}"}]))
    words = level.mark_text(style="guide-words", align="left", baseline="bottom", dx=4, dy=-3)  # D begins at 1 there
    layers = [
        level.mark_rule(style="guide", strokeDash=[5, 4]).encode(y=y, tooltip=[alt.Tooltip("said:N", title="level")]),
        predicted.mark_area(opacity=0.18, line=False).encode(y=alt.Y("low:Q", scale=scale), y2="to:Q"),
        predicted.mark_line().encode(y=y, strokeDash=look.dash("series", series, quiet=True)).add_params(look.zoom()),
        measured.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q", scale=scale), y2="to:Q"),
        measured.mark_point(filled=True, size=80, opacity=1).encode(y=y, shape=look.shape("series", series)),
        words.encode(y=y, x=alt.value(0), text="said:N"),
    ]
    if found.second_moment:
        ring = moments.mark_point(filled=False, size=150, opacity=1, strokeWidth=2)
        layers.append(ring.encode(y=y, shape=look.shape("series", series)))
    return alt.layer(*layers).add_params(picked).properties(width=look.WIDTH, height=look.HEIGHT)


def drift_sentence(found: DriftTable) -> str:
    """What was predicted and measured, and how to read it."""
    claim = "by a theorem, points lie on it or above" if found.theorem else "an estimate here: no theorem applies"
    if found.adaptive:
        claim = "an estimate"
    lines = f"Lines: the predicted distortion D with its 95% interval; {claim}."
    points = f"Points: the measured drift of {found.compared}, with 95% intervals."
    rings = f" Rings: {SECOND_MOMENT}, which D is an estimate of." if found.second_moment else ""
    return f"{found.answer} {lines} {points}{rings}"


PREDICTED_SIZE, MEASURED_SIZE = "predicted B*", "measured"
ESTIMATE = "An estimate: it rules no batch size out."


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


def prediction_table(panel: LadderPanelFinding) -> PredictionTable:
    """One row for every prediction of the finding, and one for every crossing."""
    crossings = {} if panel.drift is None else {one.baseline: one for one in panel.drift.crossings}
    rows = []
    for one in panel.predictions:
        found, crossing = one.linear, crossings.get(one.batch_size)
        ends = {PREDICTED_SIZE: found.limit}
        if crossing is not None and math.isfinite(crossing.observed.low):
            ends[MEASURED_SIZE] = crossing.observed
        rows += [
            PredictionRow(
                baseline=found.batch_size,
                kind=kind,
                batch_size=_known(end.value),
                low=end.low,
                high=_known(end.high),
                over_predicted=None if crossing is None else _known(crossing.over_predicted.value),
                noise_to_signal=_known(found.noise_to_signal.value),
                predicts=one.usable,
                status=ESTIMATE if panel.adaptive and one.usable else one.status,
            )
            for kind, end in ends.items()
        ]
    return PredictionTable(rows, error_region(panel))


def prediction_chart(found: PredictionTable) -> look.Picture:
    """A pair of marks a baseline; an interval without an end runs to the edge, with an arrow."""
    ends = [x for row in found.rows for x in (row.baseline, row.batch_size, row.low, row.high) if x is not None]
    ends += [x for region in found.regions for x in (region.low, region.high)]
    left, right = min(x for x in ends if x > 0) / 1.3, max(ends) * 1.6
    values = [
        {
            **asdict(row),
            "name": f"from {row.baseline}" if row.predicts else f"(from {row.baseline})",
            "x1": max(row.low, left),
            "x2": right if row.high is None else row.high,
            "open": row.high is None,
            "said": batch_interval(row.low, math.inf if row.high is None else row.high),
        }
        for row in found.rows
    ]
    kinds = [PREDICTED_SIZE, MEASURED_SIZE]
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
    height = 50 + 44 * len({row.baseline for row in found.rows})
    words = key(found.regions, top=height - 20)  # below are the large baselines, whose marks are on the right
    layers = [*draw(found.regions), own, bars, arrows.encode(x="x2:Q"), points, *words]
    return alt.layer(*layers).add_params(picked, look.zoom("x")).properties(width=look.WIDTH, height=height)


def prediction_sentence(found: PredictionTable) -> str:
    """Measured over predicted, or that nothing could be held against the predictions."""
    pale = (
        f" Pale and in parentheses: not a prediction; where N/G is below {PREDICTS_FROM:g}, B* is mostly C² times the "
        "batch size itself."
    )
    marks = "Grey ticks: batch size of the baseline." + (pale if any(not row.predicts for row in found.rows) else "")
    for region in found.regions:
        at = f"{region.judged_by} is {percent(region.tolerance)} above the lowest"
        marks += f" Pink: where {at}, which B* is not about."
    if not any(row.predicts for row in found.rows):
        return f"No baseline predicts: the table says why. {marks}"
    seen = [row for row in found.rows if row.predicts and row.kind == MEASURED_SIZE]
    ratios = [row.over_predicted for row in seen if row.over_predicted]
    if not ratios:
        return f"The drift does not reach C² above any baseline that predicts. {marks}"
    span = " to ".join(dict.fromkeys(f"{end:.2f}" for end in (min(ratios), max(ratios))))  # one number if they agree
    return f"Measured: where the drift reaches C², at {span} of the predicted batch size. {marks}"
