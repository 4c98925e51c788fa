import math

import numpy as np
import pytest

from svag.stats.ratios import PairMoments, fieller, log_delta, pair_moments

TWENTY = PairMoments(3.0, 1.0, 0.04, 0.05, 0.01, count=20)


def rejects(pairs: PairMoments, ratio: float) -> bool:
    """Student's test of n̄ − r d̄ = 0, which Fieller's set inverts."""
    variance = pairs.var_num - 2 * ratio * pairs.cov + ratio**2 * pairs.var_den
    return abs(pairs.num - ratio * pairs.den) > pairs.t_quantile(0.95) * math.sqrt(variance)


def test_twenty_blocks_have_nineteen_degrees_of_freedom() -> None:
    assert TWENTY.t_quantile(0.95) == pytest.approx(2.0930240544, abs=1e-9)


def test_moments_are_those_of_the_means() -> None:
    num, den = np.random.default_rng(0).normal(size=(2, 7))
    pairs = pair_moments(num, den)
    assert pairs.var_num == pytest.approx(np.var(num, ddof=1) / 7, rel=1e-12)
    assert pairs.cov == pytest.approx(float((num - num.mean()) @ (den - den.mean())) / 42, rel=1e-12)


@pytest.mark.parametrize(
    "pairs",
    [
        TWENTY,
        PairMoments(3.0, 0.3, 0.04, 0.05, 0.01, count=20),  # denominator not resolved: [low, ∞)
        PairMoments(3.0, -0.2, 0.04, 0.05, 0.01, count=20),  # its estimate is negative: still [low, ∞)
        PairMoments(0.1, 1.0, 0.04, 0.05, 0.01, count=20),  # numerator not resolved: [0, high]
        PairMoments(0.1, 0.1, 0.04, 0.05, 0.0, count=20),  # neither: [0, ∞)
    ],
)
def test_fieller_is_the_set_of_ratios_that_the_test_keeps(pairs: PairMoments) -> None:
    limits = fieller(pairs)
    assert limits is not None
    for ratio in np.linspace(0.0, 60.0, 4001).tolist():
        assert (limits[0] <= ratio <= limits[1]) != rejects(pairs, ratio)


def test_fieller_is_empty_when_a_mean_is_significantly_negative() -> None:
    assert fieller(PairMoments(3.0, -1.0, 0.04, 0.05, 0.01, count=20)) is None
    assert fieller(PairMoments(-3.0, 1.0, 0.04, 0.05, 0.01, count=20)) is None
    assert fieller(PairMoments(-3.0, -1.0, 0.04, 0.05, 0.01, count=20)) is None


def test_without_spread_the_interval_is_the_value() -> None:
    sure = PairMoments(3.0, 2.0, 0.0, 0.0, 0.0, count=20)
    assert fieller(sure) == log_delta(sure) == (1.5, 1.5)
    assert fieller(PairMoments(3.0, 0.0, 0.0, 0.0, 0.0, count=20)) == (0.0, math.inf)


def test_turning_the_ratio_over_turns_the_interval_over() -> None:
    over = PairMoments(TWENTY.den, TWENTY.num, TWENTY.var_den, TWENTY.var_num, TWENTY.cov, 20)
    for limits in (log_delta, fieller):
        ends, swapped = limits(TWENTY), limits(over)
        assert ends is not None
        assert swapped is not None
        assert swapped == pytest.approx((1 / ends[1], 1 / ends[0]), rel=1e-10)


def test_both_methods_agree_when_the_spread_is_small() -> None:
    narrow = PairMoments(3.0, 1.0, 4e-6, 5e-6, 1e-6, count=20)
    assert fieller(narrow) == pytest.approx(log_delta(narrow), rel=1e-4)


def test_log_delta_refuses_a_mean_that_is_not_positive() -> None:
    with pytest.raises(ValueError, match="use fieller"):
        log_delta(PairMoments(3.0, -1.0, 0.04, 0.05, 0.01, count=20))
