"""G/N against batch size along the linear scaling rule, with the paper's slope-1 lines (fig:lsr_acc_gnr)."""

import math
from dataclasses import asdict, dataclass

import altair as alt

from svag.experiments.ladder_finding import LadderPanelFinding
from svag.experiments.wording import batch
from svag.findings.prices import Estimate
from svag.report import look
from svag.report.charts.ladder_regions import batch_axis

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
        c2: C², the threshold in the paper's figures.
        lines: of the smallest and the largest baseline that predicts.
        slope: measured, of log G/N against log B; None when it is not known.
    """

    rows: list[RatioRow]
    left_out: list[int]
    c2: float
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
        rows.append(RatioRow(rung.batch_size, ratio, low if low > 0 else None, high if math.isfinite(high) else None))
    found = [
        SlopeLine(one.batch_size, 1 / one.critical.noise_to_signal, one.critical.plotted)
        for one in panel.predictions
        if one.usable and math.isfinite(one.critical.plotted)
    ]
    return RatioTable(rows, left_out, panel.c2, [*found[:1], *found[1:][-1:]], panel.slope)


def chart(found: RatioTable) -> look.Picture:
    """Points with intervals, the threshold G/N = C², and the slope-1 lines up to it."""
    known = [number for row in found.rows for number in (row.signal_to_noise, row.low, row.high) if number is not None]
    bottom, top = min([*known, found.c2]) / 1.5, max([*known, found.c2]) * 1.5
    values = [{**asdict(row), "from": row.low or bottom, "to": row.high or top, "series": RATIO} for row in found.rows]
    series = [RATIO, *(line.name for line in found.lines)]
    scale = alt.Scale(type="log", domain=[bottom, top], nice=False)
    y = alt.Y("signal_to_noise:Q", title="G/N  (|∇L|² / Tr Σ)", scale=scale).axis(tickCount=6, format="~g")
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
    rule = alt.Chart(look.data([{"signal_to_noise": found.c2, "said": f"C² = {found.c2:g}"}]))
    words = rule.mark_text(style="guide-words", align="left", baseline="bottom", dx=4, dy=-3)
    layers = [
        rule.mark_rule(style="guide", strokeDash=[5, 4]).encode(
            y=y, tooltip=[alt.Tooltip("signal_to_noise:Q", title="threshold C²")]
        ),
        words.encode(y=y, x=alt.value(0), text="said:N"),
    ]
    if found.lines:
        ends = [end for line in found.lines for end in _ends(line, found.c2)]
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


def sentence(found: RatioTable) -> str:
    """The measured slope, what the lines are, and which rungs are not shown."""
    text = ""
    if found.slope is not None:
        one = found.slope
        limits = f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]"
        text = f"G/N grows with slope {limits}; at 1 the noise scale would not depend on the batch. "
    text += f"Dashed line: the threshold G/N = C² = {found.c2:g} of the paper's figures."
    if found.lines:
        where = " and ".join(batch(line.crossing) for line in found.lines)
        text += f" Lines of slope 1 from baselines that predict reach it at {where}, B* as the paper plots it."
    if found.left_out:
        text += f" Not shown, because G is not resolved or was not measured: B = {', '.join(map(str, found.left_out))}."
    return text
