"""The checks of Adam and RMSprop notice a wrong map of the settings, and the slopes reach −1 at a large l."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from svag.paper.exact.adaptive import AdaptiveProblem, AdaptiveSettings, UpdateOrder
from svag.paper.verify import adaptive
from svag.paper.verify.beds import COARSE, SECOND_MOMENT, YOUNG
from svag.paper.verify.check import Check
from svag.theory.adaptive import SquareRootFactors

right = SquareRootFactors.at


def wrong_factors(field: str, power: float) -> Callable[[float], SquareRootFactors]:
    """The square-root rule with one factor replaced by a power of κ."""
    return lambda kappa: replace(right(kappa), **{field: kappa**power})


@pytest.mark.parametrize(
    ("field", "power", "checks"),
    [
        ("lr", 1.0, adaptive.rmsprop_sde),
        ("forgetting", 0.5, adaptive.rmsprop_sde),
        ("eps", 0.0, adaptive.rmsprop_sde),
        ("lr", 1.0, adaptive.square_root_rule),
        ("eps", 0.0, adaptive.square_root_rule),
    ],
)
def test_a_wrong_rule_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
    field: str,
    power: float,
    checks: Callable[[np.random.Generator], Iterator[Check]],
) -> None:
    monkeypatch.setattr(SquareRootFactors, "at", wrong_factors(field, power))
    found = checks(np.random.default_rng(0))
    assert any(not check.passed for check in found if not check.control)


@pytest.mark.parametrize(("field", "power"), [("lr", 1.0), ("forgetting", 0.5), ("eps", 0.0), ("decoupled_decay", 0.0)])
def test_a_wrong_rule_is_noticed_with_momentum(monkeypatch: pytest.MonkeyPatch, field: str, power: float) -> None:
    monkeypatch.setattr(SquareRootFactors, "at", wrong_factors(field, power))
    slopes = adaptive.adaptive_order(COARSE, adaptive.ADAMW, ells=(8, 16)).slopes[-1]
    assert np.abs(slopes + 1).max() > 3 * adaptive.SLOPE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bed", "settings", "order"),
    [
        pytest.param(SECOND_MOMENT, adaptive.RMSPROP, "torch", id="rmsprop"),
        pytest.param(SECOND_MOMENT, adaptive.RMSPROP, "previous", id="rmsprop, previous v"),
        pytest.param(YOUNG, adaptive.ADAMW, "torch", id="adamw"),
        pytest.param(YOUNG, adaptive.ADAM, "torch", id="adam"),
        pytest.param(YOUNG, adaptive.PLAIN, "torch", id="adam without momentum"),
    ],
)
def test_the_slope_is_minus_one_at_a_large_ell(
    bed: AdaptiveProblem, settings: AdaptiveSettings, order: UpdateOrder
) -> None:
    slopes = adaptive.adaptive_order(bed, settings, ells=(64, 128), order=order).slopes[-1]
    print(slopes)
    np.testing.assert_allclose(slopes, -1, atol=0.01)
