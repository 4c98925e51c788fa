"""G/N against batch size along the linear scaling rule, both axes logarithmic (fig:lsr_acc_gnr)."""

import math
from dataclasses import asdict, dataclass

import altair as alt

from svag.experiments.ladder_finding import LadderPanelFinding
from svag.report import look
from svag.report.charts.ladder_regions import Region, batch_axis, draw, names, regions, said


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
class RatioTable:
    """What the predictions rest on.

    Attributes:
        rows: one per rung whose G/N is a positive number.
        left_out: batch sizes of rungs without a G/N to show.
        c2: C², the threshold in the paper's figures.
        regions: observed and predicted failure.
    """

    rows: list[RatioRow]
    left_out: list[int]
    c2: float
    regions: list[Region]


def table(panel: LadderPanelFinding) -> RatioTable:
    """The rungs of the finding, as rows."""
    rows, left_out = [], []
    for rung in panel.rungs:
        ratio, low, high = rung.signal_to_noise, rung.signal_to_noise_low, rung.signal_to_noise_high
        if not (math.isfinite(ratio) and ratio > 0):
            left_out.append(rung.batch_size)
            continue
        rows.append(RatioRow(rung.batch_size, ratio, low if low > 0 else None, high if math.isfinite(high) else None))
    return RatioTable(rows, left_out, panel.c2, regions(panel))


def chart(found: RatioTable) -> look.Picture:
    """Points with intervals, the threshold G/N = C², and the regions."""
    known = [number for row in found.rows for number in (row.signal_to_noise, row.low, row.high) if number is not None]
    bottom, top = min([*known, found.c2]) / 1.5, max([*known, found.c2]) * 1.5
    values = [
        {**asdict(row), "from": row.low or bottom, "to": row.high or top, "series": "G/N with 95% interval"}
        for row in found.rows
    ]
    series = ["G/N with 95% interval"]
    y = alt.Y(
        "signal_to_noise:Q", title="G/N  (|∇L|² / Tr Σ)", scale=alt.Scale(type="log", domain=[bottom, top], nice=False)
    )
    y = y.axis(tickCount=6, format="~g")
    base = alt.Chart(look.data(values)).encode(
        x=batch_axis(),
        color=look.colour("series", series),
        tooltip=[
            alt.Tooltip("batch_size:Q", title="batch size"),
            alt.Tooltip("signal_to_noise:Q", title="G/N", format=".3g"),
            alt.Tooltip("low:Q", format=".3g"),
            alt.Tooltip("high:Q", format=".3g"),
        ],
    )
    rule = alt.Chart(look.data([{"signal_to_noise": found.c2}])).mark_rule(style="guide", strokeDash=[5, 4])
    layers = [
        *draw(found.regions),
        *names(found.regions, found.rows[0].batch_size),
        rule.encode(y=y, tooltip=[alt.Tooltip("signal_to_noise:Q", title="threshold C²")]),
        base.mark_line().encode(y=y).add_params(look.zoom()),  # a layer that has both axes: the fields have no y
        base.mark_rule(strokeWidth=2).encode(y=alt.Y("from:Q"), y2="to:Q"),
        base.mark_point(filled=True, size=80, opacity=1).encode(y=y, shape=look.shape("series", series)),
    ]
    return alt.layer(*layers).properties(width=look.WIDTH, height=280)


def sentence(found: RatioTable) -> str:
    """What the threshold is, and which rungs are not shown."""
    text = f"Dashed line: the threshold G/N = C² = {found.c2:g} of the paper's figures.{said(found.regions)}"
    if found.left_out:
        text += f" Not shown, because G is not resolved or was not measured: B = {', '.join(map(str, found.left_out))}."
    return text
