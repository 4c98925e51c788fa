"""The atlas under the printed rules: ratios by hand, criteria that can fail, and a range that leaves ladders out."""

import math
from typing import Any

import pytest

from svag.paper.atlas.atlas import Setting
from svag.paper.atlas.gain_atlas import GainAtlas, GainPair, GainResult, calibration, coverage, successes

SETTING = Setting("one", "mlp", "a table", "sgd", "constant", 0.0, 0.1, False)


def result(loss: float = 1.0, ratios: tuple[float, ...] = (1.0, 1.0, 1.0), drift: float | None = None) -> GainResult:
    return GainResult((loss, loss), 2.0, ((0.1, 0.1),), ratios, drift)


def atlas(price: float = 2.0, arms: dict[str, GainResult] | None = None) -> GainAtlas:
    given: Any = {"planned": result(), "on_line": result(), **(arms or {})}
    return GainAtlas((GainPair(SETTING, 16, 512, price, given),), {}, {})


def met(found: GainAtlas) -> list[tuple[int, int]]:
    return [(one.met, one.of) for one in successes(found)]


def test_the_ratio_is_over_levels_that_were_reached() -> None:
    assert result(ratios=(1.0, 4.0, math.inf)).ratio == pytest.approx(2.0)
    assert math.isinf(result(loss=1.2, ratios=(1.0, 4.0, math.inf)).ratio)  # it ended above: not reached is a miss
    assert math.isinf(result(ratios=(math.inf,) * 3).ratio)


def test_a_diverged_seed_is_an_infinite_loss() -> None:
    assert math.isinf(GainResult((1.0, math.inf), 2.0, ()).loss)


@pytest.mark.parametrize(
    ("arms", "criterion"),
    [
        ({"planned": result(loss=1.08)}, 0),
        ({"planned": result(ratios=(1.31,) * 3)}, 1),
        ({"on_line": result(loss=1.06)}, 2),
        ({"on_line": result(ratios=(0.83,) * 3)}, 3),
    ],
)
def test_each_criterion_can_fail(arms: dict[str, GainResult], criterion: int) -> None:
    assert met(atlas())[criterion] == (1, 1)
    assert met(atlas(arms=arms))[criterion] == (0, 1)


def test_planned_pairs_are_judged_up_to_their_price() -> None:
    assert met(atlas(price=4.1))[:2] == [(0, 0), (0, 0)]


def test_drift_is_judged_where_the_linear_rule_moved() -> None:
    moved = {"planned": result(drift=1.5), "linear": result(ratios=(), drift=3.0)}
    assert met(atlas(arms=moved))[5] == (1, 1)
    assert met(atlas(arms=moved | {"planned": result(drift=1.6)}))[5] == (0, 1)
    assert met(atlas(arms=moved | {"linear": result(ratios=(), drift=1.9)}))[5] == (0, 0)


def test_a_range_from_the_other_ladders_misses_an_outlier() -> None:
    ladders = {str(one): (1.0 + one / 100,) for one in range(20)}
    inside, of = coverage({**ladders, "far": (9.0,)})
    assert of == 21
    assert inside < of
    assert calibration(atlas()) == {"one": (1.0,)}
