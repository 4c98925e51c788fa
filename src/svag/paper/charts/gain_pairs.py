"""The two pictures of the gain rule: where each larger batch ended, and whether its price was right."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import altair as alt

from svag.lab.report import look
from svag.paper.atlas.atlas import AtlasPair
from svag.paper.atlas.gain_atlas import GainArm, GainPair

NAMES: dict[GainArm, str] = {
    "on_line": "on line",
    "planned": "planned",
    "linear": "linear or square-root",
}
_RULES, _GREY = [NAMES["on_line"], NAMES["planned"]], NAMES["linear"]
_COLOUR = look.DrawnSeries("arm", _RULES, grey=[_GREY]).colour
_SHAPE = look.DrawnSeries("arm", list(NAMES.values())).shape
WORST, BEST = 4.0, 0.55
"""Where the axis of losses ends; runs beyond it, which stopped training, lie on the edge."""


@dataclass(frozen=True)
class LossPoint:
    """Where one arm of a ladder ended.

    Attributes:
        ladder: its name.
        setting: in words.
        arm: which rule.
        loss: final training loss over the baseline's.
        drawn: the same, within the axis.
    """

    ladder: str
    setting: str
    arm: str
    loss: float | None
    drawn: float


def loss_points(pairs: Sequence[GainPair], kappa: float) -> list[LossPoint]:
    """One point per setting and rule, at κ times the batch."""
    return [
        LossPoint(
            pair.setting.ladder,
            str(pair.setting),
            name,
            loss if math.isfinite(loss) else None,
            min(max(loss, BEST), WORST),
        )
        for pair in pairs
        if pair.kappa == kappa
        for arm, name in NAMES.items()
        if arm in pair.arms
        for loss in (pair.arms[arm].loss,)
    ]


def loss_chart(points: Sequence[LossPoint]) -> look.Picture:
    """One row per setting; the line is where the baseline ended."""
    picked = look.shown("arm", list(NAMES.values()))
    x = alt.X("drawn:Q", title="final training loss over that of the small batch").axis(values=[0.7, 1, 1.5, 2, 3, 4])
    x = x.scale(type="log", domain=[BEST, WORST], nice=False, clamp=True)
    # room for the longest name in fonts that are wider than the one of the layout
    y = alt.Y("ladder:N", title=None, sort=sorted({point.ladder for point in points})).axis(minExtent=150)
    line = alt.Chart(look.data([{"drawn": 1.0}])).mark_rule(style="guide", strokeDash=[5, 4]).encode(x=x)
    dots = (
        alt.Chart(look.data(points))
        .transform_filter(picked)
        .mark_point(size=70, filled=True, opacity=0.85)
        .encode(
            x=x,
            y=y,
            color=_COLOUR,
            shape=_SHAPE,
            tooltip=look.tips("ladder", "setting", "arm", loss=".3f"),
        )
    )
    height = 22 * len({point.ladder for point in points})
    return alt.layer(line, dots).add_params(picked).properties(width=look.WIDTH, height=height)


@dataclass(frozen=True)
class AnnouncedPrice:
    """What one larger batch took against what was announced.

    Attributes:
        pair: ladder and batch sizes.
        arm: which rule.
        price: announced; of the on-line rule its bill, which is known when it ends.
        examples: to the same training loss.
    """

    pair: str
    arm: str
    price: float
    examples: float


def price_points(pairs: Sequence[GainPair], linear: Sequence[AtlasPair]) -> list[AnnouncedPrice]:
    """Planned and measured arms, and every pair of the ladders by the linear rule that reached the loss."""
    points = []
    for pair in pairs:
        for arm in ("planned", "on_line"):
            if arm in pair.arms and math.isfinite(ratio := pair.arms[arm].ratio):
                price = pair.price if arm == "planned" else pair.arms[arm].examples
                name = f"{pair.setting.ladder}: {pair.baseline} → {pair.batch_size}"
                points.append(AnnouncedPrice(name, NAMES[arm], price, price * ratio))
    for other in linear:
        if other.factor is not None:
            name = f"{other.setting.ladder}: {other.drift.baseline} → {other.drift.batch_size}"
            points.append(AnnouncedPrice(name, NAMES["linear"], other.predicted.value, other.factor.value))
    return points


def price_chart(points: Sequence[AnnouncedPrice]) -> look.Picture:
    """Both axes logarithmic; on the dashed line the price was right."""
    end = 1.1 * max(max(point.price, point.examples) for point in points)
    start = 0.9 * min(1.0, *(point.examples for point in points))
    axes = [
        encoding(field, title=title).axis(format="~g", tickCount=6).scale(type="log", domain=[start, end], nice=False)
        for encoding, field, title in (
            (alt.X, "price:Q", "price announced, or on-line bill at the end (times the examples)"),
            (alt.Y, "examples:Q", "examples to the same training loss"),
        )
    ]
    ends = look.data([{"price": start, "examples": start}, {"price": end, "examples": end}])
    line = alt.Chart(ends).mark_line(style="guide", strokeDash=[5, 4]).encode(x=axes[0], y=axes[1])
    rows = sorted((asdict(point) for point in points), key=lambda row: row["arm"] != _GREY)
    dots = (
        alt.Chart(look.data(rows))
        .mark_point(size=60, filled=True, opacity=0.75)
        .encode(
            x=axes[0],
            y=axes[1],
            color=_COLOUR,
            shape=_SHAPE,
            tooltip=look.tips("pair", "arm", price=".3g", examples=".3g"),
        )
    )
    return alt.layer(line, dots).add_params(look.zoom()).properties(width=look.WIDTH, height=400)
