"""The style of charts: colours, dashes and shapes that work with colour blindness, greyscale, light and dark pages.

The colours are those of Okabe and Ito without black and yellow, which are invisible on a dark or on a light page, and
two of Tol's for more series than six. No two series differ by colour alone: each also has its own dash or shape.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import altair as alt

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999933", "#AA4499")
DASHES = ((1, 0), (8, 3), (2, 3), (10, 3, 2, 3), (5, 2), (1, 2))
GREY = "#7f8893"  # for what is not a series: a reference, a limit
WARNING = "#D55E00"  # for a value outside its predicted range
BAR = "M-1,-.15H1V.15H-1Z"  # in the legend of a line without points
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")

_Encoding = TypeVar("_Encoding", alt.Color, alt.Shape, alt.StrokeDash)
Picture: TypeAlias = alt.LayerChart | alt.FacetChart | alt.HConcatChart

WIDTH, HEIGHT = 640, 320
ARROW = 6  # pixels from the end of a bar back to the middle of its arrowhead, so that none leaves the chart
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif"


def _config(ink: str, faint: str, grid: str, background: str | None) -> dict[str, Any]:
    words = {"labelColor": ink, "titleColor": ink, "labelFontSize": 12, "titleFontSize": 13, "titleFontWeight": 500}
    return {
        "background": background,
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            **words,
            "domainColor": faint,
            "tickColor": faint,
            "gridColor": grid,
            "labelOverlap": True,
            "labelSeparation": 5,
        },
        "legend": {
            **words,
            "orient": "top",
            "symbolSize": 110,
            "symbolStrokeWidth": 2,
            "symbolOpacity": 1,
            "labelLimit": 340,
            "columns": 4,
            "columnPadding": 28,  # browsers without the font of the layout draw wider labels
        },
        "header": {**words, "labelFontSize": 13},
        "title": {"color": ink, "subtitleColor": ink, "anchor": "start", "fontSize": 14, "subtitleFontSize": 12},
        "style": {
            "guide": {"color": faint, "strokeWidth": 1.5},
            "guide-words": {"color": ink, "fontSize": 12},
            "backdrop": {"color": faint, "fill": faint, "fillOpacity": 0.12, "strokeOpacity": 0.5},
        },
    }


LIGHT = _config("#24292f", "#6e7781", "#e4e7eb", "#ffffff")
DARK = _config("#d8dee6", "#8b949e", "#2c333b", "transparent")


def data(rows: "Sequence[Mapping[str, object] | DataclassInstance]") -> alt.Data:
    """Rows for a chart; numbers that are not finite are left out, since JSON cannot express them."""
    mappings = [row if isinstance(row, Mapping) else asdict(row) for row in rows]
    values = [{name: value for name, value in row.items() if _is_finite(value)} for row in mappings]
    return alt.Data(values=values)  # type: ignore[no-untyped-call]


def _is_finite(value: object) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def log_scale(base: float = 10) -> alt.Scale:
    """A logarithmic scale that ends where the data end."""
    return alt.Scale(type="log", base=base, nice=False, padding=12)


def log_axis(low: float, high: float, style: str = "~g") -> alt.Axis:
    """Ticks at 1, 2, 5, 10, 20 and so on, each with its label; only at powers of ten over more than three decades.

    A range with fewer than three of them gets ticks at equal distances.

    >>> log_axis(0.9, 12).to_dict()["values"], log_axis(3, 40_000).to_dict()["values"]
    ([1.0, 2.0, 5.0, 10.0], [10.0, 100.0, 1000.0, 10000.0])
    >>> log_axis(0.64, 1.42).to_dict()["values"]
    [0.8, 1.0, 1.2, 1.4]
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    digits = (1, 2, 5) if math.log10(high / low) <= 3 else (1,)
    ticks = [float(f"{digit}e{decade}") for decade in decades for digit in digits]
    shown = [tick for tick in ticks if low <= tick <= high]
    if len(shown) < 3 and high > low:
        power = 10.0 ** math.floor(math.log10((high - low) / 2))
        step = next(size * power for size in (1, 2, 5, 10) if (high - low) / (size * power) <= 5)
        shown = [float(f"{n * step:.6g}") for n in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return alt.Axis(values=shown, format=style)


def batch_axis() -> alt.X:
    """The batch size, in powers of two."""
    return alt.X("batch_size:Q", title="batch size", scale=alt.Scale(type="log", base=2, nice=False, padding=18)).axis(
        format="~d"
    )


def level(y: alt.Y, field: str, at: float, said: str) -> tuple[alt.Chart, alt.Chart]:
    """A dashed line across a chart, and the words at its left end."""
    chart = alt.Chart(data([{field: at, "said": said}]))
    rule = chart.mark_rule(style="guide", strokeDash=[5, 4])
    words = chart.mark_text(style="guide-words", align="left", baseline="bottom", dx=4, dy=-3)
    tip = [alt.Tooltip("said:N", title="level")]
    return rule.encode(y=y, tooltip=tip), words.encode(y=y, x=alt.value(0), text="said:N")


def tips(*names: str, **formats: str) -> list[alt.Tooltip]:
    """What is shown of a row under the mouse: names as they are, then numbers in their formats.

    >>> [tip.to_dict()["title"] for tip in tips("kind", batch_size=",d")]
    ['kind', 'batch size']
    """
    said = [alt.Tooltip(f"{name}:N", title=name.replace("_", " ")) for name in names]
    return said + [
        alt.Tooltip(f"{name}:Q", title=name.replace("_", " "), format=style) for name, style in formats.items()
    ]


class DrawnSeries:
    """Rows in series by a field: each series has its colour, dash and shape, and can be hidden.

    Args:
        field: the field that distinguishes the series.
        names: all of them, in order.
        grey: references, which are no series.
    """

    def __init__(self, field: str, names: Sequence[str], *, grey: Sequence[str] = ()) -> None:
        self.field, self.names, self.grey = field, list(dict.fromkeys(names)), list(grey)
        self.picked = shown(field, [*self.names, *self.grey])

    @property
    def colour(self) -> alt.Color:
        """The colour of each, the same however many of them are shown."""
        return self._encoded(alt.Color, COLOURS, GREY)

    @property
    def shape(self) -> alt.Shape:
        """The shape of each; a reference has none, and a bar in the legend."""
        return self._encoded(alt.Shape, SHAPES, BAR, turn=True)

    def dash(self, *, quiet: bool = False) -> alt.StrokeDash:
        """The dash of each; a ninth series has the first colour again, but with another dash.

        Args:
            quiet: keep the dash out of the legend, which shows filled shapes already.
        """
        encoding = self._encoded(alt.StrokeDash, [list(pattern) for pattern in DASHES], [4, 4], turn=True)
        return encoding.legend(symbolStrokeWidth=0) if quiet else encoding

    def _encoded(
        self, encoding: type[_Encoding], looks: Sequence[Any], reference: Any, *, turn: bool = False
    ) -> _Encoding:
        """The looks in order, from the start again after the last, where `turn` moves them by one."""
        n = len(looks)
        own = [looks[(i + (i // n if turn else 0)) % n] for i in range(len(self.names))]
        scale = alt.Scale(domain=[*self.names, *self.grey], range=own + [reference] * len(self.grey))
        return encoding(f"{self.field}:N", title=None, scale=scale)

    def base(
        self, rows: "Sequence[Mapping[str, object] | DataclassInstance]", x: alt.X, tooltip: Sequence[alt.Tooltip]
    ) -> alt.Chart:
        """The rows in their colours, without those that are hidden; marks and y are still to be added."""
        chart: alt.Chart = alt.Chart(data(rows)).transform_filter(self.picked)
        return chart.encode(x=x, color=self.colour, tooltip=[*tips(self.field), *tooltip])

    def lines(self, base: alt.Chart, y: alt.Y) -> alt.Chart:
        """Lines without points, which the legend shows as they are drawn."""
        legend = self.colour.legend(symbolType="stroke")
        lines: alt.Chart = base.mark_line().encode(y=y, color=legend, strokeDash=self.dash())
        return lines

    def points(self, base: alt.Chart, y: alt.Y, size: float = 50) -> list[alt.Chart]:
        """Lines with points, whose shapes are in the legend."""
        lines = base.mark_line().encode(y=y, strokeDash=self.dash(quiet=True))
        return [lines, base.mark_point(filled=True, size=size, opacity=1).encode(y=y, shape=self.shape)]

    def layered(self, *layers: alt.Chart, height: float = HEIGHT) -> Picture:
        """Layers as one chart, in which a click in the legend hides a series."""
        return alt.layer(*layers).add_params(self.picked, zoom()).properties(width=WIDTH, height=height)


def range_around(values: Sequence[float], ends: Sequence[float], shares: bool = False) -> tuple[float, float] | None:
    """The ends of an axis if bars of few seeds are much longer than the values differ; None if all bars fit.

    >>> range_around([0.2, 0.3], [0.25, math.nan]), range_around([0.2, 0.3], [1.5, 0.35])
    (None, (0.1, 0.4))
    >>> range_around([0.2, 0.9], [1.2, 0.95], shares=True)
    (0.0, 1.0)

    Args:
        values: in the middle of the bars.
        ends: the upper ones of the bars; NaN where there is no bar.
        shares: that the values are shares, at most 1.
    """
    span = max(values) - min(values) or max(values) or 1.0
    low, high = max(0.0, min(values) - span), min(max(values) + span, 1.0 if shares else math.inf)
    if not any(end > high for end in ends):
        return None
    return round(low, 6), round(high, 6)


def shown(field: str, series: Sequence[str]) -> alt.Parameter:
    """Which series are shown: a click on one in the legend hides it, or shows it again."""
    return alt.selection_point(
        name="shown",
        fields=[field],
        bind="legend",
        toggle="true",
        clear=False,
        empty=False,
        value=[{field: name} for name in series],
    )


def zoom(*axes: Literal["x", "y"]) -> alt.Parameter:
    """Drag to move, pinch or Ctrl + wheel to zoom, double click to go back; the bare wheel scrolls the page.

    Args:
        axes: the axes to zoom; both by default. An axis of names cannot be zoomed.
    """
    wheel = "wheel![event.ctrlKey || event.metaKey]"
    return alt.selection_interval(name="zoom", bind="scales", zoom=wheel, encodings=list(axes or ("x", "y")))
