"""Signal over noise of the gradient against batch size, and the paper's lines of slope 1 (fig:lsr_acc_gnr)."""

import math
from dataclasses import asdict, dataclass

import altair as alt

from svag.lab.experiments.ladder_finding import LadderPanelFinding
from svag.lab.experiments.wording import batch
from svag.lab.report import look
from svag.prices.estimate import Estimate

RATIO = "G/N with 95% interval"


@dataclass(frozen=True)
class RatioRow:
    """G/N of one rung.

    Attributes:
        batch_size: B.
        signal_to_noise: G/N, a ratio of averages.
        low: lower 95% limit; NaN where it is 0, which a logarithmic axis cannot show.
        high: upper limit; infinite where unbounded.
    """

    batch_size: int
    signal_to_noise: float
    low: float
    high: float


@dataclass(frozen=True)
class SlopeLine:
    """The line of slope 1 through the point of a baseline: G/N if B_simple were the same at every batch size.

    Attributes:
        baseline: batch size of the baseline.
        signal_to_noise: its G/N.
        crossing: the batch size at which the line reaches C², which is B* in the paper's figures.
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
    """The measurements behind the predictions.

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


def table(panel: LadderPanelFinding) -> RatioTable:
    """The rungs of the finding, as rows."""
    rows, left_out = [], []
    for rung in panel.rungs:
        ratio, low, high = rung.signal_to_noise, rung.signal_to_noise_low, rung.signal_to_noise_high
        if not (math.isfinite(ratio) and ratio > 0):
            left_out.append(rung.batch_size)
            continue
        rows.append(RatioRow(rung.batch_size, ratio, low if low > 0 else math.nan, high))
    ratios = [
        (prediction.batch_size, prediction.linear.noise_to_signal.value)
        for prediction in panel.predictions
        if prediction.usable and prediction.linear.rule != "square_root"
    ]
    lines = [SlopeLine(size, 1 / rho, size * (panel.c2 * rho)) for size, rho in ratios if math.isfinite(rho)]
    c2 = None if panel.adaptive else panel.c2
    return RatioTable(rows, left_out, c2, [*lines[:1], *lines[1:][-1:]], panel.slope)


def chart(ratios: RatioTable) -> look.Picture:
    """Points with intervals, the threshold G/N = C², and the slope-1 lines up to it."""
    known = [end for row in ratios.rows for end in (row.signal_to_noise, row.low, row.high) if math.isfinite(end)]
    known += [] if ratios.c2 is None else [ratios.c2]
    bottom, top = min(known) / 1.5, max(known) * 1.5
    values = [
        {**asdict(row), "from": max(bottom, row.low), "to": min(row.high, top), "series": RATIO} for row in ratios.rows
    ]
    series = [RATIO, *(line.name for line in ratios.lines)]
    scale = alt.Scale(type="log", domain=[bottom, top], nice=False)
    y = alt.Y("signal_to_noise:Q", title="G/N, signal over noise", scale=scale).axis(look.log_axis(bottom, top))
    # a line has a bar in the legend, and no points
    drawn = look.DrawnSeries("series", series)
    colour, shapes = drawn.colour, look.DrawnSeries("series", series[:1], grey=series[1:]).shape
    x, tooltip = look.batch_axis(), look.tips("series", batch_size=",.0f", signal_to_noise=".3g")
    intervals = look.tips(low=".3g", high=".3g")
    base = alt.Chart(look.data(values)).encode(x=x, color=colour, tooltip=[*tooltip, *intervals])
    layers: list[alt.Chart] = []
    if ratios.c2 is not None:
        layers += look.level(y, "signal_to_noise", ratios.c2, f"C² = {ratios.c2:g}")
        if ends := [end for line in ratios.lines for end in _line_ends(line, ratios.c2)]:
            lines = alt.Chart(look.data(ends)).mark_line(strokeWidth=2)
            dashes = drawn.dash(quiet=True)
            layers.append(lines.encode(x=x, y=y, color=colour, strokeDash=dashes, tooltip=tooltip))
    layers += [
        base.mark_line().encode(y=y).add_params(look.zoom()),
        base.mark_rule(strokeWidth=2).encode(y=alt.Y("from:Q"), y2="to:Q"),
        base.mark_point(filled=True, size=80, opacity=1).encode(y=y, shape=shapes),
    ]
    return alt.layer(*layers).properties(width=look.WIDTH, height=280)


def _line_ends(line: SlopeLine, c2: float) -> list[dict[str, object]]:
    ends = ((float(line.baseline), line.signal_to_noise), (line.crossing, c2))
    return [{"batch_size": size, "signal_to_noise": ratio, "series": line.name} for size, ratio in ends]


def sentence(ratios: RatioTable) -> str:
    """The measured slope, what the lines are, and which rungs are not shown."""
    text = ""
    if ratios.slope is not None:
        limits = f"{ratios.slope.value:.2f} [{ratios.slope.low:.2f}, {ratios.slope.high:.2f}]"
        text = f"G/N grows with slope {limits} (log–log); at slope 1, B_simple would not depend on the batch. "
    if ratios.c2 is None:
        text += "Bars: 95% intervals."
    else:
        text += f"Dashed line: G/N = C² = {ratios.c2:g}, the threshold in the paper's figures."
    if ratios.lines:
        where = " and ".join(batch(line.crossing) for line in ratios.lines)
        text += (
            f" Coloured dashes: slope 1 from a baseline; they reach the threshold at {where}, the paper's plotted B*."
        )
    if ratios.left_out:
        text += (
            f" Not shown, because G is not resolved or was not measured: B = {', '.join(map(str, ratios.left_out))}."
        )
    return text
