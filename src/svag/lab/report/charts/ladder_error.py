"""Test error, or test loss of a text, against batch size, and where scaling fails by it; and G/N (fig:lsr_acc_gnr)."""

import math
from dataclasses import asdict, dataclass

import altair as alt

from svag.lab.experiments.experiment import Metric
from svag.lab.experiments.ladder_finding import LadderPanelFinding, error_headline
from svag.lab.experiments.wording import batch, count, criterion, is_share, judged_by, percent, unbounded
from svag.lab.report import look
from svag.prices.estimate import Estimate

ERROR_FAILS, PREDICTED = "95% interval", "predictions of B*, smallest to largest"


@dataclass(frozen=True)
class Region:
    """An interval of batch sizes.

    Attributes:
        kind: failure of test error, or predictions of B*.
        low: where it begins; the axis's own end if it is not bounded.
        high: where it ends; likewise.
        value: the estimate itself, if it is one.
        judged_by: what fails: test error, or test loss of a text.
        tolerance: by which fraction it is above the lowest there.
    """

    kind: str
    low: float
    high: float
    value: float | None = None
    judged_by: str = "test error"
    tolerance: float = 0.2

    @property
    def fails(self) -> str:
        """That it fails, in words."""
        return f"{self.judged_by} +{percent(self.tolerance)}"


def regions(panel: LadderPanelFinding) -> list[Region]:
    """The regions of a panel; what is unbounded ends a factor 2 beyond the ladder."""
    last = 2 * panel.rungs[-1].batch_size if panel.rungs else 0
    predicted = panel.predicted
    if predicted is None or not math.isfinite(predicted.smallest):
        return error_region(panel)
    high = min(predicted.largest, max(last, predicted.smallest))
    return [*error_region(panel), Region(PREDICTED, predicted.smallest, high)]


def error_region(panel: LadderPanelFinding) -> list[Region]:
    """Where test error fails, if it does."""
    scaling = panel.scaling
    if scaling is None or scaling.observed is None or unbounded(scaling.low, scaling.high):
        return []
    first, last = panel.rungs[0].batch_size / 2, 2 * panel.rungs[-1].batch_size
    low, high = max(scaling.low, first), scaling.high if math.isfinite(scaling.high) else last
    return [Region(ERROR_FAILS, low, high, scaling.observed, judged_by(panel.metric), scaling.tolerance)]


def batch_axis() -> alt.X:
    """The batch size, in powers of two."""
    return alt.X("batch_size:Q", title="batch size", scale=alt.Scale(type="log", base=2, nice=False, padding=18)).axis(
        format="~d"
    )


def draw(found: list[Region]) -> list[alt.Chart]:
    """A filled field for test error, an outlined one for what was predicted: told apart without colour."""
    layers = []
    for one in found:
        seen = one.kind == ERROR_FAILS
        x = batch_axis()
        kind = f"{one.fails}, {one.kind}" if seen else one.kind
        row = {"batch_size": one.low, "end": one.high, "region": kind}
        base = alt.Chart(look.data([row])).encode(
            x=x,
            tooltip=[
                "region:N",
                alt.Tooltip("batch_size:Q", title="from", format=",.0f"),
                alt.Tooltip("end:Q", title="to", format=",.0f"),
            ],
        )
        layers.append(_box(base, one).encode(x2="end:Q"))
        if one.value is not None:
            middle = alt.Chart(look.data([{"batch_size": one.value}])).mark_rule(color=look.COLOURS[3], strokeWidth=2)
            tip = [alt.Tooltip("batch_size:Q", title=one.fails, format=",.0f")]
            layers.append(middle.encode(x=x, tooltip=tip))
    return layers


def _box(base: alt.Chart, one: Region) -> alt.Chart:
    seen = one.kind == ERROR_FAILS
    colour, opacity, width, dash = (look.COLOURS[3], 0.16, 1.0, [1, 0]) if seen else (look.COLOURS[2], 0, 2.5, [6, 4])
    box: alt.Chart = base.mark_rect(
        fill=colour, fillOpacity=opacity, stroke=colour, strokeOpacity=0.9, strokeWidth=width, strokeDash=dash
    )
    return box


def key(found: list[Region], top: float = 6) -> list[alt.Chart]:
    """What the fields are, on the left, by default above: a ladder's errors are low there. No name leaves the chart."""
    layers: list[alt.Chart] = []
    for one in found:
        base = alt.Chart(look.data([{"words": one.fails if one.kind == ERROR_FAILS else "predicted B*"}]))
        corner = {"x": alt.value(8), "x2": alt.value(22), "y": alt.value(top), "y2": alt.value(top + 11)}
        words = base.mark_text(style="guide-words", align="left", baseline="middle")
        words = words.encode(x=alt.value(28), y=alt.value(top + 6), text="words:N")
        layers, top = [*layers, _box(base, one).encode(**corner), words], top + 18
    return layers


def said(found: list[Region]) -> str:
    """The legend of the fields, in words, as far as they are there."""
    parts = [
        f"pink line and area: where {one.judged_by} is {percent(one.tolerance)} above the lowest, with its 95% interval"
        if one.kind == ERROR_FAILS
        else "dashed frame: the range of the predicted B*, which are about training statistics"
        for one in found
    ]
    text = "; ".join(parts)
    return f" {text[0].upper()}{text[1:]}." if text else ""


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
        low: lower 95% limit; None for one seed, or without spread.
        high: upper limit.
        seed: of one seed.
    """

    kind: str
    batch_size: int
    lr: float
    error: float
    low: float | None = None
    high: float | None = None
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
        metric: which makes errors fractions, or bits per character.
    """

    rows: list[ErrorRow]
    threshold: float | None
    regions: list[Region]
    diverged: list[tuple[int, int]]
    answer: str
    metric: Metric = "test_accuracy"

    @property
    def scale(self) -> alt.Scale:
        """Of the errors; without the ends of intervals that are many times as wide as the errors differ."""
        rows = self.rows
        return look.scale_around([row.error for row in rows], [row.high for row in rows], is_share(self.metric))


def error_table(panel: LadderPanelFinding) -> ErrorTable:
    """The rungs of the finding, as rows."""
    rows = []
    mean = MEAN if any(math.isfinite(rung.error_low) for rung in panel.rungs) else LONE_MEAN
    for rung in panel.rungs:
        size, lr = rung.batch_size, rung.lr
        rows += [ErrorRow(SEED, size, lr, error, seed=seed) for seed, error in rung.errors if math.isfinite(error)]
        if math.isfinite(rung.error):
            known = math.isfinite(rung.error_low)
            low, high = (rung.error_low, rung.error_high) if known else (None, None)
            rows.append(ErrorRow(mean, size, lr, rung.error, low, high))
        if rung.sde is not None:
            rows.append(ErrorRow(SDE, size, lr, rung.sde.value, rung.sde.low, rung.sde.high))
    scaling = panel.scaling
    threshold = None if scaling is None or math.isnan(scaling.threshold) else scaling.threshold
    lost = [(rung.batch_size, rung.diverged) for rung in panel.rungs if rung.diverged]
    return ErrorTable(rows, threshold, regions(panel), lost, error_headline(panel), panel.metric)


def error_chart(found: ErrorTable) -> look.Picture:
    """Seeds and means over the regions, with the threshold."""
    kinds = [kind for kind in (MEAN, LONE_MEAN, SEED, SDE) if any(row.kind == kind for row in found.rows)]
    picked = look.shown("kind", kinds)
    judged, share = criterion(found.metric), is_share(found.metric)
    on_axis, precise = ("%", ".2%") if share else ("~g", ".4~g")
    y = alt.Y("error:Q", title=f"final {judged}", scale=found.scale).axis(format=on_axis, tickCount=6)
    base = (
        alt.Chart(look.data([asdict(row) for row in found.rows]))
        .transform_filter(picked)
        .encode(
            x=batch_axis(),
            color=look.colour("kind", kinds),
            tooltip=[
                "kind:N",
                alt.Tooltip("batch_size:Q", title="batch size"),
                alt.Tooltip("lr:Q", title="learning rate"),
                "seed:O",
                alt.Tooltip("error:Q", title=judged, format=precise),
                alt.Tooltip("low:Q", format=precise),
                alt.Tooltip("high:Q", format=precise),
            ],
        )
    )
    lines = base.transform_filter(alt.datum.kind != SEED).mark_line()
    pointed = base.encode(y=y, shape=look.shape("kind", kinds))
    layers: list[alt.Chart] = draw(found.regions)
    if found.threshold is not None:
        rule = alt.Chart(look.data([{"error": found.threshold}])).mark_rule(style="guide", strokeDash=[5, 4])
        layers.append(rule.encode(y=y, tooltip=[alt.Tooltip("error:Q", title="fails above", format=precise)]))
    layers += [
        # a layer that has both axes: the fields have no y to zoom
        lines.encode(y=y, strokeDash=look.dash("kind", kinds, quiet=True)).add_params(look.zoom()),
        pointed.transform_filter(alt.datum.kind != SEED).mark_point(filled=True, size=90, opacity=0.9),
        pointed.transform_filter(alt.datum.kind == SEED).mark_point(filled=True, size=35, opacity=0.9),
    ]
    if any(row.low is not None for row in found.rows):
        bars = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2, clip=True)
        layers.append(bars.encode(y=alt.Y("low:Q"), y2="high:Q"))
    layers += key(found.regions)
    if found.diverged:
        values = [{"batch_size": size, "said": f"✕ {many}"} for size, many in found.diverged]
        words = alt.Chart(look.data(values)).mark_text(style="guide-words", baseline="bottom")
        layers.append(words.encode(x=batch_axis(), y=alt.value(look.HEIGHT - 6), text="said:N"))
    return alt.layer(*layers).add_params(picked).properties(width=look.WIDTH, height=look.HEIGHT)


def error_sentence(found: ErrorTable) -> str:
    """The verdict, and what the fields are."""
    lost = "".join(f" {count(many, 'seed')} diverged at batch size {size:,} (✕)." for size, many in found.diverged)
    cut = "" if found.scale.to_dict().get("domain") is None else ", cut off at the edge of the chart"
    bars = f" Bars: 95% intervals of the mean{cut}." if any(row.kind == MEAN for row in found.rows) else ""
    what = judged_by(found.metric).removeprefix("test ")
    rule = f" Dashed line: the {what} that the rule allows." if found.threshold is not None else ""
    return f"{found.answer}{lost}{bars}{rule}{said(found.regions)}"


RATIO = "G/N with 95% interval"


@dataclass(frozen=True)
class RatioRow:
    """G/N of one rung.

    Attributes:
        batch_size: B.
        signal_to_noise: G/N, a ratio of averages.
        low: lower 95% limit; None where it is 0, which a logarithmic axis cannot show.
        high: upper limit; None where unbounded.
    """

    batch_size: int
    signal_to_noise: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class SlopeLine:
    """The line of slope 1 through the point of a baseline: where G/N would lie if B_simple stayed as it is there.

    Attributes:
        baseline: batch size of the baseline.
        signal_to_noise: its G/N.
        crossing: the batch size at which the line reaches C²: B* as the paper's figures draw it.
    """

    baseline: int
    signal_to_noise: float
    crossing: float

    @property
    def name(self) -> str:
        """What the line is called."""
        return f"slope 1 from {self.baseline}"


@dataclass(frozen=True)
class RatioTable:
    """What the predictions rest on.

    Attributes:
        rows: one per rung whose G/N is a positive number.
        left_out: batch sizes of rungs without a G/N to show.
        c2: C², the threshold in the paper's figures, which are about the linear rule; None along another one.
        lines: of the smallest and the largest baseline that predicts.
        slope: measured, of log G/N against log B; None when it is not known.
    """

    rows: list[RatioRow]
    left_out: list[int]
    c2: float | None
    lines: list[SlopeLine]
    slope: Estimate | None


def ratio_table(panel: LadderPanelFinding) -> RatioTable:
    """The rungs of the finding, as rows."""
    rows, left_out = [], []
    for rung in panel.rungs:
        ratio, low, high = rung.signal_to_noise, rung.signal_to_noise_low, rung.signal_to_noise_high
        if not (math.isfinite(ratio) and ratio > 0):
            left_out.append(rung.batch_size)
            continue
        rows.append(RatioRow(rung.batch_size, ratio, low if low > 0 else None, high if math.isfinite(high) else None))
    ratios = [
        (one.batch_size, one.linear.noise_to_signal.value)
        for one in panel.predictions
        if one.usable and one.linear.rule != "square_root"
    ]
    found = [SlopeLine(size, 1 / rho, size * (panel.c2 * rho)) for size, rho in ratios if math.isfinite(rho)]
    c2 = None if panel.adaptive else panel.c2
    return RatioTable(rows, left_out, c2, [*found[:1], *found[1:][-1:]], panel.slope)


def ratio_chart(found: RatioTable) -> look.Picture:
    """Points with intervals, the threshold G/N = C², and the slope-1 lines up to it."""
    known = [number for row in found.rows for number in (row.signal_to_noise, row.low, row.high) if number is not None]
    known += [] if found.c2 is None else [found.c2]
    bottom, top = min(known) / 1.5, max(known) * 1.5
    values = [{**asdict(row), "from": row.low or bottom, "to": row.high or top, "series": RATIO} for row in found.rows]
    series = [RATIO, *(line.name for line in found.lines)]
    scale = alt.Scale(type="log", domain=[bottom, top], nice=False)
    y = alt.Y("signal_to_noise:Q", title="G/N, signal over noise", scale=scale).axis(tickCount=6, format="~g")
    tooltip = [
        alt.Tooltip("series:N", title="what"),
        alt.Tooltip("batch_size:Q", title="batch size", format=",.0f"),
        alt.Tooltip("signal_to_noise:Q", title="G/N", format=".3g"),
    ]
    # a line has a bar in the legend, and no points
    colour, shapes = look.colour("series", series), look.shape("series", series[:1], grey=series[1:])
    base = alt.Chart(look.data(values)).encode(
        x=batch_axis(),
        color=colour,
        tooltip=[*tooltip, alt.Tooltip("low:Q", format=".3g"), alt.Tooltip("high:Q", format=".3g")],
    )
    layers = []
    if found.c2 is not None:
        rule = alt.Chart(look.data([{"signal_to_noise": found.c2, "said": f"C² = {found.c2:g}"}]))
        words = rule.mark_text(style="guide-words", align="left", baseline="bottom", dx=4, dy=-3)
        tip = [alt.Tooltip("signal_to_noise:Q", title="threshold C²")]
        layers += [
            rule.mark_rule(style="guide", strokeDash=[5, 4]).encode(y=y, tooltip=tip),
            words.encode(y=y, x=alt.value(0), text="said:N"),
        ]
        if ends := [end for line in found.lines for end in _ends(line, found.c2)]:
            lines = alt.Chart(look.data(ends)).mark_line(strokeWidth=2)
            dashes = look.dash("series", series, quiet=True)
            layers.append(lines.encode(x=batch_axis(), y=y, color=colour, strokeDash=dashes, tooltip=tooltip))
    layers += [
        base.mark_line().encode(y=y).add_params(look.zoom()),
        base.mark_rule(strokeWidth=2).encode(y=alt.Y("from:Q"), y2="to:Q"),
        base.mark_point(filled=True, size=80, opacity=1).encode(y=y, shape=shapes),
    ]
    return alt.layer(*layers).properties(width=look.WIDTH, height=280)


def _ends(line: SlopeLine, c2: float) -> list[dict[str, object]]:
    ends = ((float(line.baseline), line.signal_to_noise), (line.crossing, c2))
    return [{"batch_size": size, "signal_to_noise": ratio, "series": line.name} for size, ratio in ends]


def ratio_sentence(found: RatioTable) -> str:
    """The measured slope, what the lines are, and which rungs are not shown."""
    text = ""
    if found.slope is not None:
        one = found.slope
        limits = f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]"
        text = f"G/N grows with slope {limits} (log–log); at slope 1, B_simple would not depend on the batch. "
    if found.c2 is None:
        text += "Bars: 95% intervals."
    else:
        text += f"Dashed line: G/N = C² = {found.c2:g}, the threshold in the paper's figures."
    if found.lines:
        where = " and ".join(batch(line.crossing) for line in found.lines)
        text += (
            f" Coloured dashes: slope 1 from a baseline; they reach the threshold at {where}, the paper's plotted B*."
        )
    if found.left_out:
        text += f" Not shown, because G is not resolved or was not measured: B = {', '.join(map(str, found.left_out))}."
    return text
