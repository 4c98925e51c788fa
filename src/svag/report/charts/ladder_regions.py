"""Regions of batch sizes in the charts of a ladder: where test error fails, and the predictions of B*."""

import math
from dataclasses import dataclass

import altair as alt

from svag.experiments.ladder_finding import LadderPanelFinding
from svag.experiments.wording import unbounded
from svag.report import look

ERROR_FAILS, PREDICTED = "test error fails, 95% interval", "predictions of B*, smallest to largest"


@dataclass(frozen=True)
class Region:
    """An interval of batch sizes.

    Attributes:
        kind: failure of test error, or predictions of B*.
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
    last = 2 * panel.rungs[-1].batch_size if panel.rungs else 0
    sharp = [one for one in panel.ranges if one.form == "sharp" and math.isfinite(one.smallest)]
    found = [Region(PREDICTED, one.smallest, min(one.largest, max(last, one.smallest))) for one in sharp]
    return error_region(panel) + found


def error_region(panel: LadderPanelFinding) -> list[Region]:
    """Where test error fails, if it does."""
    scaling = panel.scaling
    if scaling is None or scaling.observed is None or unbounded(scaling.low, scaling.high):
        return []
    first, last = panel.rungs[0].batch_size / 2, 2 * panel.rungs[-1].batch_size
    high = scaling.high if math.isfinite(scaling.high) else last
    return [Region(ERROR_FAILS, max(scaling.low, first), high, scaling.observed)]


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
        colour = look.COLOURS[3] if seen else look.COLOURS[2]
        x = batch_axis()
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
            tip = [alt.Tooltip("batch_size:Q", title="test error fails", format=",.0f")]
            layers.append(middle.encode(x=x, tooltip=tip))
    return layers


def names(found: list[Region], first: float, last: float) -> list[alt.Chart]:
    """What the fields are, written beside them: test error to the right of its field, predictions to the left.

    A name stays inside its field where it would leave the chart or cross the edge of the other field.
    """
    layers = []
    for one in found:
        fails = one.kind == ERROR_FAILS
        edge, outside = (one.high, one.high < last / 1.5) if fails else (one.low, one.low > 4 * first)
        crosses = any(other is not one and other.low < edge < other.high for other in found)
        right = fails == (outside and not crosses)
        data = look.data([{"batch_size": edge, "words": "test error fails" if fails else "predicted B*"}])
        text = alt.Chart(data).mark_text(
            style="guide-words", align="left" if right else "right", dx=5 if right else -5, baseline="middle"
        )
        layers.append(text.encode(x=batch_axis(), y=alt.value(12 if fails else 30), text="words:N"))
    return layers


def said(found: list[Region]) -> str:
    """The legend of the fields, in words, as far as they are there."""
    kinds = {one.kind for one in found}
    parts = ["filled field and line: where test error fails, with its 95% interval"] if ERROR_FAILS in kinds else []
    parts += (
        ["dashed field: from the smallest to the largest predicted B*, which is about training statistics"]
        if PREDICTED in kinds
        else []
    )
    text = "; ".join(parts)
    return f" {text[0].upper()}{text[1:]}." if text else ""
