"""Data and time of larger batches: the data needed, the training loss against either, and the noise along a run."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import altair as alt

from svag.lab.report import look
from svag.lab.report.costs import Forecast, LadderCosts, Moment
from svag.prices.estimate import Estimate
from svag.prices.plot import plot_table
from svag.prices.price import Price
from svag.prices.price_list import PriceList

LossAxis = Literal["examples", "seconds", "baseline_time"]
_MINUTES = 300.0  # from this number of seconds, time is drawn in minutes
PREDICTED, DISTORTION = "predicted", "D, the gain rule's price"
MEASURED, INSIDE, OUTSIDE = "measured", "measured, inside the range", "measured, outside the range"


@dataclass(frozen=True)
class NeededRow:
    """How many times as many examples one batch size needs.

    Attributes:
        kind: what was predicted, or where what was measured lies: in or outside the range, or without one to judge by.
        batch_size: of the larger batch.
        factor: examples over those of the smallest batch; a lower bound if no level of the loss was reached.
        low: lower end: of the range of a prediction, or of the levels of the loss.
        high: upper end; infinite where unknown.
    """

    kind: str
    batch_size: int
    factor: float
    low: float
    high: float


def needed_rows(costs: LadderCosts) -> list[NeededRow]:
    """Predicted and measured factors of a ladder; those of the smallest batch are 1."""
    line = PREDICTED if costs.forecast == "price" else DISTORTION
    rows = [NeededRow(line, costs.baseline, 1.0, 1.0, 1.0)]
    for rung in costs.rungs:
        predicted, seen, size = rung.predicted, rung.measured, rung.batch_size
        if math.isfinite(predicted.value):
            rows.append(_predicted(size, predicted, line))
        kind = OUTSIDE if rung.outside else INSIDE if rung.inside else MEASURED
        if rung.reached:
            rows.append(NeededRow(kind, size, seen.value, seen.low, seen.high))
        elif rung.at_least:
            rows.append(NeededRow(kind, size, rung.at_least, rung.at_least, math.inf))
    return rows


def price_rows(batch_size: int, prices: Sequence[Price]) -> list[NeededRow]:
    """The price list of one run at a batch size."""
    own = NeededRow(PREDICTED, batch_size, 1.0, 1.0, 1.0)
    return [own, *(_predicted(price.batch_size, price.examples, PREDICTED) for price in prices)]


def _predicted(size: int, found: Estimate, kind: str) -> NeededRow:
    return NeededRow(kind, size, found.value, found.low if found.low > 0 else found.value, found.high)


def needed_chart(rows: Sequence[NeededRow]) -> look.Picture:
    """A line with its range for what was predicted, points with bars for what was measured."""
    looks = {
        PREDICTED: (look.COLOURS[0], look.BAR),
        DISTORTION: (look.COLOURS[0], look.BAR),
        MEASURED: (look.COLOURS[3], "square"),
        INSIDE: (look.COLOURS[2], "circle"),
        OUTSIDE: (look.WARNING, "diamond"),
    }
    kinds = [kind for kind in looks if any(row.kind == kind for row in rows)]
    ends = [end for row in rows for end in (row.factor, row.low, row.high) if math.isfinite(end)]
    bottom, top = 0.93 * min(ends), 1.15 * max(ends)
    values = [{**asdict(row), "to": min(row.high, top), "open": math.isinf(row.high)} for row in rows]
    y = alt.Y("factor:Q", title="times the examples").axis(look.log_axis(bottom, top))
    y = y.scale(type="log", base=2, domain=[bottom, top], nice=False)
    series = look.DrawnSeries("kind", kinds)
    colour = alt.Color("kind:N", title=None).scale(domain=kinds, range=[looks[kind][0] for kind in kinds])
    shape = alt.Shape("kind:N", title=None).scale(domain=kinds, range=[looks[kind][1] for kind in kinds])
    tooltip = look.tips(batch_size=",d", factor=".3g", low=".3g", high=".3g")
    base = series.base(values, look.batch_axis(), tooltip).encode(color=colour)
    predicted = base.transform_filter(alt.datum.kind == kinds[0])
    measured = base.transform_filter(alt.datum.kind != kinds[0])
    layers = [
        predicted.mark_area(opacity=0.16).encode(y=alt.Y("low:Q"), y2="to:Q"),
        predicted.mark_line().encode(y=y),
    ]
    if len(kinds) > 1:
        layers += [
            measured.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q"), y2="to:Q"),
            measured.mark_point(filled=True, size=110, opacity=1).encode(y=y, shape=shape),
        ]
    if any(row.kind != kinds[0] and math.isinf(row.high) for row in rows):
        arrows = measured.transform_filter("datum.open")
        arrows = arrows.mark_point(shape="triangle-up", filled=True, size=110, opacity=1, yOffset=look.ARROW)
        layers.append(arrows.encode(y="to:Q"))
    return series.layered(*layers, height=280)


def needed_sentence(rows: Sequence[NeededRow], forecast: Forecast = "price") -> str:
    """How to read the chart."""
    text = {
        "price": "Line and band: the predicted factor in examples to the same training loss, with its range on the "
        "ladders where it was checked (80%).",
        "distortion": "Line and band: D with its 95% interval, the price at the gain rule's learning rate. These runs "
        "have another one, so their factors need not lie in the band.",
    }[forecast]
    measured = [row for row in rows if row.kind not in {PREDICTED, DISTORTION}]
    if measured:
        text += " Points: measured, with the least and the most of three levels of the loss."
    if any(math.isinf(row.high) for row in measured):
        text += " Arrow up: a level was not reached, so the factor is larger."
    return text


def loss_chart(moments: Sequence[Moment], across: LossAxis, baseline: int) -> look.Picture:
    """Training loss of every batch size, means over seeds with the range of the seeds."""
    minutes = max(moment.seconds for moment in moments) >= _MINUTES
    field, title, style = {
        "examples": ("examples", "training examples", "~s"),
        "seconds": ("minutes", "time (minutes)", "~f") if minutes else ("seconds", "time (seconds)", "~f"),
        "baseline_time": ("baseline_time", f"steps at batch size {baseline}", ",d"),
    }[across]
    rows = [{**_named(moment), "minutes": moment.seconds / 60} for moment in moments]
    series = look.DrawnSeries("series", [row["series"] for row in rows])
    x = alt.X(f"{field}:Q", title=title, scale=alt.Scale(nice=False)).axis(tickCount=6, format=style)
    lowest, highest = min(moment.low for moment in moments), max(moment.high for moment in moments)
    scale, axis = alt.Scale(zero=False), alt.Axis()
    if lowest > 0:
        scale, axis = look.log_scale(), look.log_axis(lowest, highest)
    y = alt.Y("loss:Q", title="training loss (nats)", scale=scale, axis=axis)
    base = series.base(rows, x, look.tips(examples=",.0f", seconds=",.1f", loss=".4g", low=".4g", high=".4g"))
    bands = base.mark_area(opacity=0.15, tooltip=False).encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")
    several = any(moment.seeds > 1 for moment in moments)
    return series.layered(*([bands] if several else []), series.lines(base, y))


def _named(moment: Moment) -> dict[str, Any]:
    return {"series": f"B = {moment.batch_size}", **asdict(moment)}


def loss_sentence(moments: Sequence[Moment], across: LossAxis, baseline: int) -> str:
    """What the lines are, and what the axis means."""
    seeds = max(moment.seeds for moment in moments)
    lines = f"Means over {seeds} seeds, with their range" if seeds > 1 else "One seed a line"
    behind = {
        "examples": "The further right a line ends, the more data that batch size was given.",
        "seconds": "Time is that of the fastest seed of each batch size, on the machine that these runs ran on.",
        "baseline_time": f"By the gain rule, lines coincide where training is the same as at batch size {baseline}.",
    }
    return f"{lines}. {behind[across]}"


def gain_chart(moments: Sequence[Moment], baseline: int) -> look.Picture:
    """The gain of every larger batch along training."""
    rows = [_named(moment) for moment in moments if math.isfinite(moment.gain)]
    series = look.DrawnSeries("series", [row["series"] for row in rows])
    x = alt.X("baseline_time:Q", title=f"steps at batch size {baseline}", scale=alt.Scale(nice=False))
    base = series.base(rows, x.axis(tickCount=8, format=",d"), look.tips(baseline_time=",.0f", gain=".3g"))
    return series.layered(series.lines(base, alt.Y("gain:Q", title="gain").axis(tickCount=6)))


@dataclass(frozen=True)
class NoiseRow:
    """The gradient noise scale in one phase of a run.

    Attributes:
        start: first step of the phase.
        end: the step after its last one.
        noise_scale: B·N/G in examples; not finite where G is not resolved from 0.
        low: lower 95% limit; infinite where G is negative beyond doubt, as in copies of one run.
        high: upper limit; infinite where unbounded.
    """

    start: float
    end: float
    noise_scale: float
    low: float
    high: float


def noise_rows(prices: PriceList) -> list[NoiseRow]:
    """The phases of the run behind a price list; none if its readings have no steps."""
    table = plot_table(prices)
    phases = [(phase.start, phase.end, phase.noise_scale) for phase in table.noise] if table.has_steps else []
    return [NoiseRow(start, end, scale.value, scale.low, scale.high) for start, end, scale in phases]


def noise_chart(rows: Sequence[NoiseRow], batch_size: int) -> look.Picture:
    """A level with its band for every phase, and the batch size of the run."""
    ends = [end for row in rows for end in (row.noise_scale, row.low, row.high) if math.isfinite(end) and end > 0]
    ends.append(float(batch_size))
    bottom, top = 0.8 * min(ends), 1.3 * max(ends)
    values = [{**asdict(row), "from": min(max(row.low, bottom), top), "to": min(row.high, top)} for row in rows]
    y = alt.Y("noise_scale:Q", title="gradient noise scale (examples)").axis(look.log_axis(bottom, top, "~s"))
    y = y.scale(type="log", domain=[bottom, top], nice=False)
    base = alt.Chart(look.data(values)).encode(
        x=alt.X("start:Q", title="step", scale=alt.Scale(nice=False)).axis(tickCount=8, format=",d"),
        x2="end:Q",
        tooltip=look.tips(start=",d", end=",d", noise_scale=",.3~g", low=",.3~g", high=",.3~g"),
    )
    layers = [
        base.mark_rect(opacity=0.18, color=look.COLOURS[0]).encode(y=alt.Y("from:Q"), y2="to:Q"),
        base.transform_filter("isValid(datum.noise_scale)").mark_rule(strokeWidth=3, color=look.COLOURS[0]).encode(y=y),
        *look.level(y, "noise_scale", batch_size, f"batch size {batch_size}"),
    ]
    return alt.layer(*layers).add_params(look.zoom()).properties(width=look.WIDTH, height=260)


def noise_sentence(rows: Sequence[NoiseRow]) -> str:
    """How to read the chart."""
    text = (
        "The batch size from which on noise no longer dominates a gradient: far below it, a larger batch costs hardly "
        "any extra data. Bands: 95% intervals."
    )
    return text + (" A band to the upper edge has no upper limit." if any(math.isinf(row.high) for row in rows) else "")
