"""All pairs of rungs of an atlas: what was predicted against what was measured, of the statistics and of examples."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import altair as alt

from svag.lab.report import look
from svag.lab.report.content import Row
from svag.paper.atlas.atlas import AtlasBaseline, AtlasLadder, AtlasPair
from svag.prices.estimate import Estimate

TOP = 40.0
"""Where the vertical axis ends at the latest; points beyond it, of runs that do not train, lie on the edge."""

_ARROW = "M0,-1L.6,-.2L.15,-.2L.15,1L-.15,1L-.15,-.2L-.6,-.2Z"  # upwards; no series has this shape


@dataclass(frozen=True)
class PairPoint:
    """One pair of rungs in a chart.

    Attributes:
        optimizer: with its momentum.
        pair: which rungs of which ladder.
        setting: of the ladder, in words.
        carried: "theorem" or "estimate".
        predicted: D.
        predicted_low: lower 95% limit.
        predicted_high: upper limit.
        measured: the spread, or the factor in examples; its least value where it was not reached.
        low: lower end.
        high: upper end; infinite where unbounded.
        reached: whether `measured` is a measurement, and not a bound.
        levels: how many of the levels of the training loss the larger rung reached; empty for the spread.
    """

    optimizer: str
    pair: str
    setting: str
    carried: str
    predicted: float
    predicted_low: float
    predicted_high: float
    measured: float
    low: float
    high: float
    reached: bool = True
    levels: str = ""


def spread_points(pairs: Sequence[AtlasPair]) -> list[PairPoint]:
    """The measured spread against D."""
    return [_point(pair, pair.observed) for pair in pairs]


def example_points(pairs: Sequence[AtlasPair]) -> list[PairPoint]:
    """The measured factor in examples against D; a bound where the larger rung never reached a level of the loss."""
    points = []
    for pair in pairs:
        if pair.factor is not None:
            points.append(_point(pair, pair.factor, levels=_levels(pair)))
        elif pair.examples is not None and pair.examples.at_least > 0:
            least = pair.examples.at_least
            points.append(_point(pair, Estimate(least, least, math.inf), reached=False, levels=_levels(pair)))
    return points


def _levels(pair: AtlasPair) -> str:
    return "" if pair.examples is None else f"{len(pair.examples.reached)} of {len(pair.examples.factors)}"


def _point(pair: AtlasPair, seen: Estimate, *, reached: bool = True, levels: str = "") -> PairPoint:
    return PairPoint(
        optimizer=pair.setting.method,
        pair=f"{pair.setting.ladder}: {pair.drift.baseline} → {pair.drift.batch_size}",
        setting=str(pair.setting),
        carried="theorem" if pair.theorem else "estimate",
        predicted=pair.predicted.value,
        predicted_low=pair.predicted.low,
        predicted_high=pair.predicted.high,
        measured=seen.value,
        low=seen.low,
        high=seen.high,
        reached=reached,
        levels=levels,
    )


def chart(points: Sequence[PairPoint], measured: str) -> look.Picture:
    """Both axes logarithmic, the diagonal where the two agree; filled where a theorem applies, an arrow for a bound.

    Args:
        points: one a pair.
        measured: title of the vertical axis.
    """
    optimizers = sorted({point.optimizer for point in points}, key=lambda name: (not name.startswith("SGD"), name))
    right = 1.1 * max(point.predicted for point in points)
    top = min(1.1 * max(right, *(point.measured for point in points)), TOP)
    bottom = 0.9 * min(1.0, *(point.measured for point in points))
    series = look.DrawnSeries("optimizer", optimizers)
    x = alt.X("predicted:Q", title="predicted distortion D").axis(format="~g", tickCount=6)
    x = x.scale(type="log", domain=[0.95, right], nice=False, clamp=True)
    y = alt.Y("measured:Q", title=measured).axis(format="~g", tickCount=6)
    y = y.scale(type="log", domain=[bottom, top], nice=False, clamp=True)
    values = [
        {**asdict(point), "to": min(point.high, top), "until": min(point.predicted_high, right)} for point in points
    ]
    numbers = look.tips("pair", "setting", "carried", "levels", predicted=".3g", measured=".3g", low=".3g", high=".3g")
    base = series.base(values, x, numbers)
    ends = look.data([{"predicted": 0.95, "measured": 0.95}, {"predicted": right, "measured": right}])
    line = alt.Chart(ends).mark_line(style="guide", strokeDash=[5, 4])
    seen, bounds = base.transform_filter("datum.reached"), base.transform_filter("!datum.reached")
    marks = seen.mark_point(size=64, strokeWidth=1.5)
    layers = [
        line.encode(x=x, y=y),
        seen.mark_rule(strokeWidth=1, opacity=0.4).encode(y=alt.Y("low:Q"), y2="to:Q"),
        seen.mark_rule(strokeWidth=1, opacity=0.4).encode(x=alt.X("predicted_low:Q"), x2="until:Q", y=y),
        marks.encode(
            y=y,
            shape=series.shape,
            fill=series.colour,
            fillOpacity=alt.condition(alt.datum.carried == "theorem", alt.value(0.85), alt.value(0.12)),
        ),
        bounds.mark_point(shape=_ARROW, filled=True, size=130, opacity=0.6).encode(y=y),
    ]
    return series.layered(*layers, height=440)


def pair_row(pair: AtlasPair) -> Row:
    """A pair as a row of a table."""
    drift, factor = pair.drift, pair.factor
    return {
        "ladder": pair.setting.ladder,
        "kind": pair.setting.kind,
        "baseline": drift.baseline,
        "batch_size": drift.batch_size,
        "kappa": drift.kappa,
        "predicts": pair.small.usable,
        "theorem": pair.theorem,
        **_columns("predicted", pair.predicted),
        **_columns("measured", pair.observed),
        "over_predicted": pair.over_predicted,
        "overlap": pair.agrees,
        "compared": pair.compared,
        "first": drift.first.value,
        "grad": drift.grad.value,
        "noise": drift.noise.value,
        "noise_scale": drift.noise_scale.value,
        **_columns("examples", factor),
        "examples_at_least": None if pair.examples is None or factor is not None else pair.examples.at_least,
        "setting": str(pair.setting),
    }


def baseline_row(baseline: AtlasBaseline, ladder: AtlasLadder) -> Row:
    """A baseline as a row of a table, with the failure of test error on its ladder."""
    rule = baseline.prediction.linear
    return {
        "ladder": baseline.setting.ladder,
        "kind": baseline.setting.kind,
        "baseline": baseline.batch_size,
        "basis": rule.basis,
        "signal": rule.signal,
        "noise_to_signal": rule.noise_to_signal.value,
        "b_simple": baseline.prediction.price_list.noise_scale.value,
        **_columns("critical_batch", baseline.predicted),
        **_columns("crossing", baseline.crossing.observed),
        **_columns("over_predicted", baseline.crossing.over_predicted),
        **_columns("strict", baseline.crossing.strict),
        "strict_over_predicted": baseline.strict_over_predicted,
        "test_error_fails_at": ladder.fails_at,
        "distortion_there": ladder.distortion_there,
        "scale_drift": baseline.scale_drift,
        "balance": rule.balance,
        "pull_share": rule.pull_share,
        "miss": baseline.miss,
        "setting": str(baseline.setting),
    }


def _columns(name: str, estimate: Estimate | None) -> Row:
    if estimate is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
