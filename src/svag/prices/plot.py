"""The picture of a price list: what other batch sizes cost, and the noise scale along the run.

`plot_table` computes the numbers and `draw` shows them. Altair, from the extra `plot`, is imported in `draw` alone, so
that a price list needs it only when it is drawn.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from svag.prices import wording
from svag.prices.estimate import Estimate
from svag.prices.price import Throughput
from svag.prices.reasons import Code
from svag.theory.bounds import b_simple

if TYPE_CHECKING:
    import altair as alt

    from svag.prices.price_list import PriceList

Series = Literal["examples", "time"]
PricePicture: TypeAlias = "alt.VConcatChart"


@dataclass(frozen=True)
class PlottedPrice:
    """What one batch size costs, relative to the batch of the run.

    Attributes:
        series: what is counted.
        batch_size: the batch that is priced.
        rate: its learning rate, on average over the run.
        cost: with the range that is known.
    """

    series: Series
    batch_size: int
    rate: str
    cost: Estimate


@dataclass(frozen=True)
class NoisePhase:
    """The gradient noise scale in one phase of the run.

    Attributes:
        start: its first step.
        end: the step after its last one.
        noise_scale: B_simple with its sampling interval.
    """

    start: float
    end: float
    noise_scale: Estimate


@dataclass(frozen=True)
class PlotTable:
    """The numbers in the picture.

    Attributes:
        title: the answer in a sentence.
        notes: further sentences above the charts.
        batch_size: of the run.
        c2: C², the price that counts as too much.
        prices: the batch of the run first; empty if too little is known for a list.
        noise: phases in the order of time.
        has_steps: whether the readings know their steps; otherwise the one phase goes from 0 to 1.
    """

    title: str
    notes: tuple[str, ...]
    batch_size: int
    c2: float
    prices: tuple[PlottedPrice, ...]
    noise: tuple[NoisePhase, ...]
    has_steps: bool


def plot_table(
    found: "PriceList", batch_sizes: Iterable[int] | None = None, throughput: Throughput | None = None
) -> PlotTable:
    """Compute what the picture shows; the arguments are those of `PriceList.prices`."""
    setting, phases = found.setting, found.history.phases
    has_steps = all(phase.end is not None for phase in phases)
    noise = tuple(
        NoisePhase(
            float(phase.start) if has_steps else 0.0,
            float(phase.end) if has_steps and phase.end is not None else 1.0,
            phase.noise_to_signal.mapped(lambda ratio: b_simple(setting.batch_size, ratio, setting.population)),
        )
        for phase in phases
    )
    shaded = f"Shaded: {found.confidence:.0%} sampling interval of the noise scale."
    if not found.usable:
        notes = (str(found.reasons[0]), shaded)
        return PlotTable(wording.unusable(found), notes, setting.batch_size, found.c2, (), noise, has_steps)
    rows = found.prices(batch_sizes, throughput)
    points = []
    for row in (*found.prices([setting.batch_size], throughput), *rows):
        rate = setting.rate_at(row.gain)
        points.append(PlottedPrice("examples", row.batch_size, rate, row.examples))
        if row.time is not None:
            points.append(PlottedPrice("time", row.batch_size, rate, row.time))
    title = wording.first_line(found, throughput, rows)
    known = any(row.examples.has_range for row in rows)
    untested = [str(reason) for reason in found.reasons if reason.code == Code.UNTESTED_OPTIMIZER]
    bars = ("Bars: 80% range observed on our test networks; cut at the edge if longer or open.",) * known
    return PlotTable(title, (*bars, shaded, *untested), setting.batch_size, found.c2, tuple(points), noise, has_steps)


# An interval may reach this many times beyond the outermost estimate, and is cut at the edge of the chart otherwise:
# an interval of few readings can span several powers of ten.
_REACH = 4.0


def domain_of(found: Sequence[Estimate], also: Sequence[float]) -> tuple[float, float]:
    """Both ends of a logarithmic axis that shows all estimates, and their intervals as far as these are not too long.

    >>> domain_of([Estimate(2.0, 1.0, 3.0)], also=[1.0])
    (0.9, 3.3)
    >>> domain_of([Estimate(2.0, 0.0, math.inf)], also=[1.0])
    (0.9, 2.2)
    """
    values = [*(estimate.value for estimate in found if 0 < estimate.value < math.inf), *also]
    ends = [end for estimate in found for end in (estimate.low, estimate.high) if 0 < end < math.inf]
    low, high = min(values), max(values)
    bottom, top = max(min([low, *ends]), low / _REACH), min(max([high, *ends]), high * _REACH)
    return round(0.9 * bottom, 12), round(1.1 * top, 12)


_WIDTH, _HEIGHT = 600, 220
# Blue and vermilion of Okabe and Ito, which also differ in greyscale, and a grey for reference lines.
_COLOURS: dict[Series, str] = {"examples": "#0072B2", "time": "#D55E00"}
_SHAPES: dict[Series, str] = {"examples": "circle", "time": "square"}
_GREY, _INK, _GRID = "#6e7781", "#24292f", "#e4e7eb"


def draw(table: PlotTable) -> PricePicture:
    """Draw the table with Altair: the prices, if there are any, above the noise scale along the run."""
    try:
        import altair as alt
    except ImportError as error:
        raise ImportError('plot() draws with Altair, which is not installed: pip install "svag[plot]"') from error
    charts = [_noise_chart(alt, table)]
    if table.prices:
        charts.insert(0, _price_chart(alt, table))
    words = {"labelColor": _INK, "titleColor": _INK, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": 500}
    picture: PricePicture = (
        alt.vconcat(*charts, spacing=26)
        .properties(
            background="white",
            padding=12,
            title=alt.TitleParams(
                table.title, subtitle=_lines(table.notes), anchor="start", fontSize=14, subtitleColor=_GREY, offset=12
            ),
        )
        .configure_view(stroke=None)
        .configure_axis(**words, gridColor=_GRID, domainColor=_GREY, tickColor=_GREY)
        .configure_legend(**words, orient="top", symbolSize=90, symbolOpacity=1)
        .resolve_scale(color="independent", shape="independent")
    )
    return picture


def _lines(notes: Sequence[str]) -> list[str]:
    return [line for note in notes for line in wording.wrapped(note)]


def _price_chart(alt: Any, table: PlotTable) -> Any:
    domain = domain_of([point.cost for point in table.prices], also=[1.0, table.c2])
    rows = [
        {
            "series": point.series,
            "batch_size": point.batch_size,
            "rate": point.rate,
            "cost": point.cost.value,
            **(_interval(point.cost, domain) if point.cost.has_range else {}),
        }
        for point in table.prices
    ]
    names = list(dict.fromkeys(point.series for point in table.prices))
    rates = {point.batch_size: point.rate for point in table.prices}
    x = alt.X(
        "batch_size:Q",
        title="batch size and learning rate",
        scale=alt.Scale(type="log", base=2, nice=False, padding=24),
    ).axis(grid=False, values=sorted(rates), labelExpr=_labels(rates), labelOverlap=True)
    what = "examples" if names == ["examples"] else "examples and time"
    y = alt.Y("cost:Q", scale=_log(alt, domain), title=f"{what}, relative to batch {table.batch_size}").axis(
        values=_ticks(domain, (1, 1.5, 2, 3, 5, 7)), format="~g"
    )
    legend = alt.Legend(title=None) if len(names) > 1 else None
    colour = alt.Color("series:N", scale=_scale(alt, names, _COLOURS), legend=legend)
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=x,
        color=colour,
        tooltip=[
            alt.Tooltip("batch_size:Q", title="batch size"),
            alt.Tooltip("rate:N", title="learning rate"),
            alt.Tooltip("cost:Q", title="relative to the run", format=".3g"),
            *_ends_shown(alt),
        ],
    )
    return alt.layer(
        *_reference(alt, table.c2, f"{table.c2:g}×", left=True, domain=domain),
        base.mark_line(strokeWidth=2).encode(y=y),
        base.transform_filter("isValid(datum.from)")
        .mark_rule(strokeWidth=2, opacity=0.6)
        .encode(y=alt.Y("from:Q", scale=_log(alt, domain)), y2="to:Q"),
        base.mark_point(filled=True, size=70, opacity=1).encode(
            y=y, shape=alt.Shape("series:N", scale=_scale(alt, names, _SHAPES), legend=legend)
        ),
    ).properties(width=_WIDTH, height=_HEIGHT)


def _noise_chart(alt: Any, table: PlotTable) -> Any:
    domain = domain_of([phase.noise_scale for phase in table.noise], also=[table.batch_size])
    rows = [
        {"start": phase.start, "end": phase.end, **_interval(phase.noise_scale, domain)}
        | ({"noise_scale": phase.noise_scale.value} if math.isfinite(phase.noise_scale.value) else {})
        for phase in table.noise
    ]
    x = alt.X(
        "start:Q",
        scale=alt.Scale(domain=[0, max(phase.end for phase in table.noise)], nice=False),
        title="step of the run" if table.has_steps else "the whole run (its readings have no steps)",
    ).axis(grid=False, labels=table.has_steps, ticks=table.has_steps, tickCount=8)
    y = alt.Y("noise_scale:Q", scale=_log(alt, domain), title="gradient noise scale, in examples").axis(
        values=_ticks(domain, (1, 2, 5)), format=",~g"
    )
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=x,
        x2="end:Q",
        tooltip=[
            alt.Tooltip("start:Q", title="from step"),
            alt.Tooltip("noise_scale:Q", title="noise scale", format=".3g"),
            *_ends_shown(alt),
        ],
    )
    colour = _COLOURS["examples"]
    known = "isValid(datum.noise_scale) && datum.noise_scale > 0"  # averages of a few readings may be negative
    return alt.layer(
        *_reference(alt, table.batch_size, f"batch size {table.batch_size}", left=False, domain=domain),
        base.mark_rect(color=colour, opacity=0.2).encode(y=alt.Y("from:Q", scale=_log(alt, domain)), y2="to:Q"),
        base.transform_filter(known).mark_rule(color=colour, strokeWidth=2.5).encode(y=y),
    ).properties(width=_WIDTH, height=_HEIGHT)


def _interval(found: Estimate, domain: tuple[float, float]) -> dict[str, float]:
    """The ends of a bar inside the chart, and its true ends as far as they are known."""
    bottom, top = domain
    known = {name: end for name, end in (("low", found.low), ("high", found.high)) if 0 < end < math.inf}
    return {"from": min(max(found.low, bottom), top), "to": max(min(found.high, top), bottom), **known}


def _ends_shown(alt: Any) -> list[Any]:
    return [alt.Tooltip("low:Q", title="at least", format=".3g"), alt.Tooltip("high:Q", title="at most", format=".3g")]


def _reference(alt: Any, value: float, words: str, *, left: bool, domain: tuple[float, float]) -> list[Any]:
    """A dashed line across the chart, with a label at its left or right end."""
    base = alt.Chart(alt.Data(values=[{"at": value, "words": words}]))
    y = alt.Y("at:Q", scale=_log(alt, domain))
    text = base.mark_text(
        color=_GREY, align="left" if left else "right", baseline="bottom", dx=4 if left else -4, dy=-3
    )
    return [
        base.mark_rule(color=_GREY, strokeDash=[5, 4]).encode(y=y),
        text.encode(y=y, x=alt.value(0 if left else _WIDTH), text="words:N"),
    ]


def _log(alt: Any, domain: tuple[float, float]) -> Any:
    return alt.Scale(type="log", domain=list(domain), nice=False)


def _ticks(domain: tuple[float, float], mantissas: Sequence[float]) -> list[float]:
    """Round numbers within a logarithmic axis."""
    low, high = (math.floor(math.log10(end)) for end in domain)
    ticks = [mantissa * 10.0**power for power in range(low, high + 1) for mantissa in mantissas]
    return [round(tick, 12) for tick in ticks if domain[0] <= tick <= domain[1]]


def _scale(alt: Any, names: Sequence[Series], looks: Mapping[Series, str]) -> Any:
    return alt.Scale(domain=list(names), range=[looks[name] for name in names])


def _labels(rates: Mapping[int, str]) -> str:
    """The expression that writes the learning rate below each batch size."""
    cases = [f"datum.value == {size} ? ['{size}', 'lr {rate}'] : " for size, rate in rates.items()]
    return "".join(cases) + "datum.label"
