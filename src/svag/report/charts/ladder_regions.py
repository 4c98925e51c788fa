"""The two regions that every ladder chart shows: where linear scaling was seen to fail, and where it was predicted to."""

import math
from dataclasses import dataclass

import altair as alt

from svag.findings.experiments.ladder_finding import LadderPanelFinding

OBSERVED, PREDICTED = "observed failure, 95% interval", "predictions of B*, smallest to largest"


@dataclass(frozen=True)
class Region:
    """An interval of batch sizes.

    Attributes:
        kind: observed or predicted.
        low: where it begins; the axis's own end if it is not bounded.
        high: where it ends; likewise.
        value: the estimate itself, if it is one.
    """

    kind: str
    low: float
    high: float
    value: float | None = None


def regions(panel: LadderPanelFinding) -> list[Region]:
    """The regions of a panel; what is unbounded ends a factor 2 beyond the ladder."""
    sizes = [rung.batch_size for rung in panel.rungs]
    if not sizes:
        return []
    first, last = sizes[0] / 2, 2 * sizes[-1]
    found = []
    scaling = panel.scaling
    if scaling is not None and scaling.observed is not None:
        low, high = max(scaling.low, first), scaling.high if math.isfinite(scaling.high) else last
        found.append(Region(OBSERVED, low, high, scaling.observed))
    for one in panel.ranges:
        if one.form == "sharp" and math.isfinite(one.smallest):
            found.append(Region(PREDICTED, one.smallest, one.largest if math.isfinite(one.largest) else last))
    return found


def batch_axis() -> alt.X:
    """The batch size, in powers of two."""
    return alt.X("batch_size:Q", title="batch size", scale=alt.Scale(type="log", base=2, nice=False, padding=18)).axis(
        format="~d"
    )


def draw(found: list[Region]) -> list[alt.Chart]:
    """A filled field for what was observed, an outlined one for what was predicted: told apart without colour."""
    layers = []
    for kind, colour, fill, dash in ((OBSERVED, "#D55E00", 0.16, [1, 0]), (PREDICTED, "#0072B2", 0.0, [6, 4])):
        values = [
            {"batch_size": one.low, "end": one.high, "value": one.value, "region": kind} for one in found if one.kind == kind
        ]
        if not values:
            continue
        base = alt.Chart(alt.Data(values=values))
        tip = ["region:N", alt.Tooltip("batch_size:Q", title="from", format=",.0f"), alt.Tooltip("end:Q", title="to", format=",.0f")]
        box = base.mark_rect(color=colour, fillOpacity=fill, strokeDash=dash, stroke=colour, strokeOpacity=0.8)
        layers.append(box.encode(x=batch_axis(), x2="end:Q", tooltip=tip))
        if any(one["value"] is not None for one in values):
            middle = base.transform_calculate(batch_size="datum.value").mark_rule(color=colour, strokeWidth=2)
            layers.append(middle.encode(x=batch_axis(), tooltip=[alt.Tooltip("value:Q", title="observed failure", format=",.0f")]))
    return layers


def said(found: list[Region]) -> str:
    """The legend of the fields, in words, as far as they are there."""
    kinds = {one.kind for one in found}
    parts = ["filled field and line: observed failure with its 95% interval"] if OBSERVED in kinds else []
    parts += ["dashed field: from the smallest to the largest predicted B*"] if PREDICTED in kinds else []
    text = "; ".join(parts)
    return f" {text[0].upper()}{text[1:]}." if text else ""
