import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from svag.arrays import FloatArray
from svag.stats.curves import compare_curves, gap_band, smallest_p


def walks(rng: np.random.Generator, curves: int, times: int = 40) -> FloatArray:
    """Curves as correlated in time as training curves are."""
    return np.asarray(rng.normal(size=(curves, times)).cumsum(axis=1))


def test_it_is_the_max_t_test_over_all_relabellings() -> None:
    rng = np.random.default_rng(0)
    curves = walks(rng, 7)
    curves[:3] += 2.0
    largest = []
    for chosen in combinations(range(7), 3):
        rest = [i for i in range(7) if i not in chosen]
        largest.append(np.abs(stats.ttest_ind(curves[list(chosen)], curves[rest]).statistic).max())
    found = compare_curves(curves[:3], curves[3:])
    assert found.p_value == pytest.approx(np.mean(np.array(largest) >= largest[0] - 1e-9), rel=1e-12)
    assert found.max_t == pytest.approx(largest[0], rel=1e-9)
    assert (found.relabellings, found.exact) == (35, True)
    t = np.abs(stats.ttest_ind(curves[:3], curves[3:]).statistic)
    assert found.index == int(t.argmax())


def test_three_against_three_can_never_reach_five_per_cent() -> None:
    apart = compare_curves(np.full((3, 4), 1.0) + 1e-3 * np.arange(12).reshape(3, 4), np.zeros((3, 4)))
    assert apart.p_value == apart.smallest_p == 0.1
    assert smallest_p(5, 5) == 2 / 252
    assert smallest_p(4, 5) == 1 / 126


def test_false_alarms_are_as_rare_as_promised_and_pointwise_tests_cry_wolf() -> None:
    # 800 pairs of groups of 5 equal walks: at most 5% below p = .05, 1e-6 quantile 9.2%; t tests at each of the 40
    # times, without correction, alarm in well over 10% of them.
    rng, repeats = np.random.default_rng(1), 800
    groups = [(walks(rng, 5), walks(rng, 5)) for _ in range(repeats)]
    limit = stats.binom.isf(1e-6, repeats, 0.05) / repeats
    assert np.mean([compare_curves(*pair).p_value < 0.05 for pair in groups]) < limit
    assert np.mean([stats.ttest_ind(*pair).pvalue.min() < 0.05 for pair in groups]) > limit


def test_the_band_is_the_quantile_of_permuted_residuals_times_the_pooled_error() -> None:
    rng = np.random.default_rng(4)
    one, other = walks(rng, 4) + 7.0, walks(rng, 5)
    residuals = np.concatenate([one - one.mean(axis=0), other - other.mean(axis=0)])
    largest = []
    for chosen in list(combinations(range(9), 4))[1:]:  # the first is the labelling that was seen
        rest = [i for i in range(9) if i not in chosen]
        largest.append(np.abs(stats.ttest_ind(residuals[list(chosen)], residuals[rest]).statistic).max())
    quantile = sorted([*largest, math.inf])[119]  # 120 of 126 are 95.2%, 119 would be 94.4%
    error = np.sqrt((3 * one.var(axis=0, ddof=1) + 4 * other.var(axis=0, ddof=1)) / 7 * (1 / 4 + 1 / 5))
    band = gap_band(one, other)
    gap = one.mean(axis=0) - other.mean(axis=0)
    np.testing.assert_allclose(band.gap, gap, rtol=1e-12)
    np.testing.assert_allclose(band.high, gap + quantile * error, rtol=1e-9)
    np.testing.assert_allclose(band.low, gap - quantile * error, rtol=1e-9)


@pytest.mark.parametrize(("n", "m"), [(5, 5), (4, 6)])
def test_the_band_holds_at_all_times_at_once_and_pointwise_limits_do_not(n: int, m: int) -> None:
    # 600 pairs of groups of walks that differ by a curve: the band leaves the true curve out at any of 40 times in at
    # most 5% of them (measured: 4.6% and 3.8%), 1e-6 quantile 10%; t limits at each time by itself in about 35%.
    rng, repeats, truth = np.random.default_rng(5), 600, np.linspace(0, 15, 40)
    limit = stats.binom.isf(1e-6, repeats, 0.05) / repeats
    missed = alone = 0
    for _ in range(repeats):
        one, other = walks(rng, n) + truth, walks(rng, m)
        band = gap_band(one, other)
        missed += not np.all((band.low <= truth) & (truth <= band.high))
        pointwise = stats.ttest_ind(one, other).confidence_interval(0.95)
        alone += not np.all((pointwise.low <= truth) & (truth <= pointwise.high))
    assert missed / repeats < limit
    assert alone / repeats > 2 * limit


def test_too_few_curves_have_no_limits_and_curves_without_spread_are_exact() -> None:
    rng = np.random.default_rng(6)
    three = gap_band(walks(rng, 3), walks(rng, 3))
    assert np.all(np.isneginf(three.low) & np.isposinf(three.high))
    assert np.all(np.isfinite(gap_band(walks(rng, 4), walks(rng, 4)).low))
    assert np.all(np.isfinite(gap_band(walks(rng, 3), walks(rng, 3), confidence=0.9).low))
    flat = gap_band(np.full((5, 2), 3.0), np.full((5, 2), 1.0))
    assert (flat.low.tolist(), flat.high.tolist()) == ([2.0, 2.0], [2.0, 2.0])


def test_the_band_of_many_curves_is_drawn_reproducibly() -> None:
    rng = np.random.default_rng(7)
    one, other = walks(rng, 10), walks(rng, 10)
    first, second = (gap_band(one, other, draws=999) for _ in range(2))
    assert np.array_equal(first.low, second.low)
    assert np.all(np.isfinite(first.low))


def test_a_late_gap_is_found_where_it_is() -> None:
    rng = np.random.default_rng(2)
    noise = rng.normal(size=(2, 5, 60))
    noise[0, :, 50:] += 8.0
    found = compare_curves(*noise)
    assert found.p_value == found.smallest_p
    assert found.index >= 50


def test_many_curves_are_relabelled_at_random_and_reproducibly() -> None:
    rng = np.random.default_rng(3)
    one, other = walks(rng, 10), walks(rng, 10)
    found = compare_curves(one, other, draws=999)
    assert (found.exact, found.relabellings, found.smallest_p) == (False, 999, 1 / 1000)
    assert found == compare_curves(one, other, draws=999)
    exact = compare_curves(one, other, draws=200_000)
    assert exact.exact
    # 999 draws: 4.9 standard errors of a share
    assert abs(found.p_value - exact.p_value) < 4.9 * math.sqrt(0.25 / 999)


def test_a_common_start_is_no_accident() -> None:
    one = np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 2.5]])
    assert compare_curves(one, one - np.array([0.0, 9.0])).index == 1
    equal = compare_curves(np.ones((3, 2)), np.ones((3, 2)))
    assert (equal.p_value, equal.max_t) == (1.0, 0.0)
    assert compare_curves(np.ones((3, 1)), np.zeros((3, 1))).max_t == math.inf


def test_bad_curves_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\b1 of other\b"):
        compare_curves(np.ones((2, 3)), [[1.0, 2.0, 3.0], [1.0, math.nan, 2.0]])
    with pytest.raises(ValueError, match="got 3 and 2"):
        compare_curves(np.ones((2, 3)), np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"^one\b"):
        compare_curves(np.ones((1, 3)), np.ones((1, 3)))
    with pytest.raises(ValueError, match=r"^one\b"):
        compare_curves(np.ones(3), np.ones((1, 3)))
