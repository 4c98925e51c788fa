"""Test error, or test loss of a text, against batch size, and where scaling fails by it (fig:lsr_acc_gnr)."""

import math
from dataclasses import asdict, dataclass

import altair as alt

from svag.lab.experiments.experiment import Metric
from svag.lab.experiments.ladder_finding import LadderPanelFinding, error_headline
from svag.lab.experiments.wording import count, criterion, is_share, judged_by, percent, unbounded
from svag.lab.report import look

ERROR_FAILS, PREDICTED = "error_fails", "predicted"


@dataclass(frozen=True)
class Region:
    """An interval of batch sizes.

    Attributes:
        kind: where test error fails ("error_fails"), or the predictions of B*, smallest to largest ("predicted").
        name: what it is, in the legend.
        low: where it begins; the axis's own end if it is not bounded.
        high: where it ends; likewise.
        value: the estimate itself, if it is one.
    """

    kind: str
    name: str
    low: float
    high: float
    value: float | None = None


def regions(panel: LadderPanelFinding) -> list[Region]:
    """The range in which test error fails, and the predicted B*; an unbounded one ends a factor 2 beyond the ladder."""
    if not panel.rungs:
        return []
    first, last = panel.rungs[0].batch_size / 2, 2 * panel.rungs[-1].batch_size
    scaling, predicted, drawn = panel.scaling, panel.predicted, []
    if scaling is not None and scaling.observed is not None and not unbounded(scaling.low, scaling.high):
        name = f"{judged_by(panel.metric)} +{percent(scaling.tolerance)}"
        high = scaling.high if math.isfinite(scaling.high) else last
        drawn.append(Region(ERROR_FAILS, name, max(scaling.low, first), high, scaling.observed))
    # B* is about the linear or the square-root rule
    if predicted is not None and math.isfinite(predicted.smallest) and panel.gain is None:
        high = min(predicted.largest, max(last, predicted.smallest))
        # the paper's figures plot another one, C²Bρ
        name = "B* (D = C²)" if panel.adaptive else "B* (sharp bound)"
        drawn.append(Region(PREDICTED, name, predicted.smallest, high))
    return drawn


_PINK, _GREEN = look.COLOURS[3], look.COLOURS[2]
_FILLS, _STROKES = {ERROR_FAILS: f"{_PINK}29", PREDICTED: "transparent"}, {ERROR_FAILS: _PINK, PREDICTED: _GREEN}


def fields(drawn: list[Region]) -> list[alt.Chart]:
    """A filled field for test error, an outlined one for the prediction: distinguishable without colour.

    They have a legend above the chart: inside, it would lie under a field that begins at the smallest batch.
    """
    names, layers = [region.name for region in drawn], []
    legend = alt.Legend(title=None, symbolType="square", columns=1)
    fill, stroke = (
        channel("region:N", legend=legend).scale(domain=names, range=[looks[region.kind] for region in drawn])
        for channel, looks in ((alt.Fill, _FILLS), (alt.Stroke, _STROKES))
    )
    for region in drawn:
        row = {"batch_size": region.low, "end": region.high, "region": region.name}
        base = alt.Chart(look.data([row]))
        width, dash = (1.0, [1, 0]) if region.kind == ERROR_FAILS else (2.5, [6, 4])
        box = base.mark_rect(strokeOpacity=0.9, strokeWidth=width, strokeDash=dash)
        tooltip = look.tips("region", batch_size=",.0f", end=",.0f")
        layers.append(box.encode(x=look.batch_axis(), x2="end:Q", fill=fill, stroke=stroke, tooltip=tooltip))
        if region.value is not None:
            middle = alt.Chart(look.data([{"batch_size": region.value}])).mark_rule(color=_PINK, strokeWidth=2)
            layers.append(middle.encode(x=look.batch_axis(), tooltip=look.tips(batch_size=",.0f")))
    return layers


_SAID = {
    ERROR_FAILS: "Pink line and area: {name} over the lowest, with its 95% interval.",
    PREDICTED: "Dashed frame: the range of B*, where D reaches C², which is about training statistics.",
}


SEED, MEAN, SDE = "one seed", "mean with 95% interval", "SDE limit"
LONE_MEAN = "mean of the seeds"


@dataclass(frozen=True)
class ErrorRow:
    """A test error at a batch size.

    Attributes:
        kind: one seed, the mean (with intervals if any rung has one), or the SDE limit.
        batch_size: B.
        lr: η there.
        error: a fraction.
        low: lower 95% limit; NaN for one seed, or without spread.
        high: upper limit.
        seed: of one seed.
    """

    kind: str
    batch_size: int
    lr: float
    error: float
    low: float = math.nan
    high: float = math.nan
    seed: int | None = None


@dataclass(frozen=True)
class ErrorTable:
    """A ladder's errors.

    Attributes:
        rows: seeds, means and, if SVAG was run, SDE limits.
        threshold: the error above which a rung fails; None without one.
        regions: where test error fails, and the predictions of B*.
        diverged: (batch size, seeds that diverged there), which have no error to show.
        answer: the verdict in words.
        metric: whether errors are fractions, losses or bits per character.
    """

    rows: list[ErrorRow]
    threshold: float | None
    regions: list[Region]
    diverged: list[tuple[int, int]]
    answer: str
    metric: Metric = "test_accuracy"

    @property
    def cut(self) -> tuple[float, float] | None:
        """The values at which intervals much wider than the differences of the errors are cut off; None if none is."""
        errors = [row.error for row in self.rows] + ([] if self.threshold is None else [self.threshold])
        return look.range_around(errors, [row.high for row in self.rows], is_share(self.metric))


def error_table(panel: LadderPanelFinding) -> ErrorTable:
    """The rungs of the finding, as rows."""
    rows = []
    mean = MEAN if any(math.isfinite(rung.error_low) for rung in panel.rungs) else LONE_MEAN
    for rung in panel.rungs:
        size, lr = rung.batch_size, rung.lr
        rows += [ErrorRow(SEED, size, lr, error, seed=seed) for seed, error in rung.errors if math.isfinite(error)]
        if math.isfinite(rung.error):
            limits = (rung.error_low, rung.error_high) if math.isfinite(rung.error_low) else ()
            rows.append(ErrorRow(mean, size, lr, rung.error, *limits))
        if rung.sde is not None:
            rows.append(ErrorRow(SDE, size, lr, rung.sde.value, rung.sde.low, rung.sde.high))
    scaling = panel.scaling
    threshold = None if scaling is None or math.isnan(scaling.threshold) else scaling.threshold
    lost = [(rung.batch_size, rung.diverged) for rung in panel.rungs if rung.diverged]
    return ErrorTable(rows, threshold, regions(panel), lost, error_headline(panel), panel.metric)


def error_chart(errors: ErrorTable) -> look.Picture:
    """Seeds and means over the regions, with the threshold."""
    series = look.DrawnSeries(
        "kind", [kind for kind in (MEAN, LONE_MEAN, SEED, SDE) if any(row.kind == kind for row in errors.rows)]
    )
    on_axis, precise = ("%", ".2%") if is_share(errors.metric) else ("~g", ".4~g")
    scale = alt.Scale(zero=False, padding=10)
    if errors.cut is not None:
        scale = alt.Scale(domain=list(errors.cut), nice=False)
    y = alt.Y("error:Q", title=f"final {criterion(errors.metric)}", scale=scale).axis(format=on_axis, tickCount=6)
    values = [{**asdict(row), **_ends(row, errors.cut)} for row in errors.rows]
    tooltip = look.tips("seed", batch_size=",d", lr=".4~g", error=precise, low=precise, high=precise)
    base = series.base(values, look.batch_axis(), tooltip)
    lines = base.transform_filter(alt.datum.kind != SEED).mark_line()
    pointed = base.encode(y=y, shape=series.shape)
    layers: list[alt.Chart] = fields(errors.regions)
    if errors.threshold is not None:
        rule = alt.Chart(look.data([{"error": errors.threshold}])).mark_rule(style="guide", strokeDash=[5, 4])
        layers.append(rule.encode(y=y, tooltip=[alt.Tooltip("error:Q", title="fails above", format=precise)]))
    layers += [
        # a layer that has both axes: the fields have no y to zoom
        lines.encode(y=y, strokeDash=series.dash(quiet=True)).add_params(look.zoom()),
        pointed.transform_filter(alt.datum.kind != SEED).mark_point(filled=True, size=90, opacity=0.9),
        pointed.transform_filter(alt.datum.kind == SEED).mark_point(filled=True, size=35, opacity=0.9),
    ]
    if any(math.isfinite(row.low) for row in errors.rows):
        bars = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2)
        layers.append(bars.encode(y=alt.Y("from:Q"), y2="to:Q"))
    for end, shape, back in (("from", "triangle-down", -look.ARROW), ("to", "triangle-up", look.ARROW)):
        if any(value[f"{end}_cut"] for value in values):
            arrows = base.transform_filter(f"datum.{end}_cut")
            arrows = arrows.mark_point(shape=shape, filled=True, size=90, yOffset=back)
            layers.append(arrows.encode(y=f"{end}:Q"))
    if errors.diverged:
        marks = [{"batch_size": size, "said": f"✕ {many}"} for size, many in errors.diverged]
        words = alt.Chart(look.data(marks)).mark_text(style="guide-words", baseline="bottom")
        layers.append(words.encode(x=look.batch_axis(), y=alt.value(look.HEIGHT - 6), text="said:N"))
    return alt.layer(*layers).add_params(series.picked).properties(width=look.WIDTH, height=look.HEIGHT)


def _ends(row: ErrorRow, cut: tuple[float, float] | None) -> dict[str, float | bool]:
    """The ends of an interval as they are drawn, and which of them are cut off."""
    low, high = row.low, row.high
    if cut is None or not math.isfinite(low):
        return {"from": low, "to": high, "from_cut": False, "to_cut": False}
    return {"from": max(low, cut[0]), "to": min(high, cut[1]), "from_cut": low < cut[0], "to_cut": high > cut[1]}


def error_sentence(errors: ErrorTable) -> str:
    """The verdict, and what the fields are."""
    said = [errors.answer]
    said += [f"{count(many, 'seed')} diverged at batch size {size:,} (✕)." for size, many in errors.diverged]
    if any(row.kind == MEAN for row in errors.rows):
        cut = "" if errors.cut is None else "; arrows: it goes on beyond the chart"
        said.append(f"Bars: 95% intervals of the mean{cut}.")
    if errors.threshold is not None:
        said.append(f"Dashed line: the {'error' if is_share(errors.metric) else 'loss'} that the rule allows.")
    said += [_SAID[region.kind].format(name=region.name) for region in errors.regions]
    return " ".join(said)
