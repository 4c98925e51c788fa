"""Series stay apart without colour, and colours stay theirs."""

import math
from itertools import pairwise
from typing import Any

import altair as alt

from svag.lab.report import look


def scale(encoding: alt.Color | alt.StrokeDash | alt.Shape) -> dict[str, Any]:
    fields = encoding.to_dict()
    assert isinstance(fields, dict)
    found: dict[str, Any] = fields["scale"]
    return found


def test_a_number_that_json_cannot_say_is_left_out_of_its_row() -> None:
    rows: list[dict[str, object]] = [{"x": 1.5, "lr": math.nan}, {"x": math.inf, "lr": 2, "name": "a"}]
    assert look.data(rows).to_dict() == {"values": [{"x": 1.5}, {"lr": 2, "name": "a"}]}


def test_twelve_series_are_twelve_looks_and_each_colour_has_two_dashes() -> None:
    series = [f"s{i}" for i in range(12)]
    drawn = look.DrawnSeries("x", series)
    colours, dashes, shapes = (scale(each)["range"] for each in (drawn.colour, drawn.dash(), drawn.shape))
    assert len({(c, tuple(d)) for c, d in zip(colours, dashes, strict=True)}) == 12
    assert len(set(zip(colours, shapes, strict=True))) == 12
    assert len({tuple(dash) for dash in dashes[:6]}) == 6


def test_a_reference_is_grey_and_does_not_take_a_colour() -> None:
    assert scale(look.DrawnSeries("x", ["a"], grey=["limit"]).colour) == {
        "domain": ["a", "limit"],
        "range": [look.COLOURS[0], look.GREY],
    }


def test_the_first_colours_differ_in_lightness_for_greyscale_and_all_can_be_seen_by_night() -> None:
    def lightness(colour: str) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    values = [lightness(colour) for colour in look.COLOURS]
    assert all(later / earlier > 1.15 for earlier, later in pairwise(values[:3]))  # the rest have dashes and shapes
    night = lightness("#14181d")
    assert min((value + 0.05) / (night + 0.05) for value in values) > 3


def test_by_night_the_ink_is_light() -> None:
    assert look.LIGHT["axis"]["labelColor"] < "#4" < "#a" < look.DARK["axis"]["labelColor"]
