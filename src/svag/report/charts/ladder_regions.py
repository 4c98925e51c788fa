"""The regions that every ladder chart shows: where linear scaling was seen to fail, and where it was predicted to."""

import math
from dataclasses import dataclass

import altair as alt

from svag.experiments.ladder_finding import LadderPanelFinding
from svag.experiments.wording import unbounded
from svag.report import look

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
    if scaling is not None and scaling.observed is not None and not unbounded(scaling.low, scaling.high):
        low, high = max(scaling.low, first), scaling.high if math.isfinite(scaling.high) else last
        found.append(Region(OBSERVED, low, high, scaling.observed))
    sharp = [one for one in panel.ranges if one.form == "sharp" and math.isfinite(one.smallest)]
    return found + [Region(PREDICTED, one.smallest, min(one.largest, max(last, one.smallest))) for one in sharp]


def batch_axis(title: str = "batch size") -> alt.X:
    """The batch size, in powers of two."""
    return alt.X("batch_size:Q", title=title, scale=alt.Scale(type="log", base=2, nice=False, padding=18)).axis(
        format="~d"
    )


def draw(found: list[Region], title: str = "batch size") -> list[alt.Chart]:
    """A filled field for what was observed, an outlined one for what was predicted: told apart without colour."""
    layers = []
    for one in found:
        seen = one.kind == OBSERVED
        colour = look.COLOURS[1] if seen else look.COLOURS[2]
        x = batch_axis(title)
        row = {"batch_size": one.low, "end": one.high, "region": one.kind}
        base = alt.Chart(look.data([row])).encode(
            x=x,
            tooltip=[
                "region:N",
                alt.Tooltip("batch_size:Q", title="from", format=",.0f"),
                alt.Tooltip("end:Q", title="to", format=",.0f"),
            ],
        )
        opacity, width, dash = (0.16, 1.0, [1, 0]) if seen else (0.0, 2.5, [6, 4])
        box = base.mark_rect(color=colour, fillOpacity=opacity, strokeWidth=width, strokeDash=dash)
        layers.append(box.encode(x2="end:Q", stroke=alt.value(colour), strokeOpacity=alt.value(0.9)))
        if one.value is not None:
            middle = alt.Chart(look.data([{"batch_size": one.value}])).mark_rule(color=colour, strokeWidth=2)
            tip = [alt.Tooltip("batch_size:Q", title="observed failure", format=",.0f")]
            layers.append(middle.encode(x=x, tooltip=tip))
    return layers


def names(found: list[Region], first: float) -> list[alt.Chart]:
    """What the fields are, written beside their left edge, or inside when it would cross the edge of another."""
    layers = []
    for one in found:
        inside = one.low < 4 * first or any(other.low < one.low < other.high for other in found)
        words = "observed failure" if one.kind == OBSERVED else "predicted B*"
        text = alt.Chart(look.data([{"batch_size": one.low, "words": words}])).mark_text(
            style="guide-words", align="left" if inside else "right", dx=5 if inside else -5, baseline="middle"
        )
        layers.append(text.encode(x=batch_axis(), y=alt.value(12 if one.kind == OBSERVED else 30), text="words:N"))
    return layers


def said(found: list[Region]) -> str:
    """The legend of the fields, in words, as far as they are there."""
    kinds = {one.kind for one in found}
    parts = ["filled field and line: observed failure with its 95% interval"] if OBSERVED in kinds else []
    parts += ["dashed field: from the smallest to the largest predicted B*"] if PREDICTED in kinds else []
    text = "; ".join(parts)
    return f" {text[0].upper()}{text[1:]}." if text else ""
