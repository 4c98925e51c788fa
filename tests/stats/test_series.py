import math

import numpy as np
import pytest
from scipy import stats
from scipy.signal import lfilter

from svag.arrays import FloatArray
from svag.stats.series import independent_blocks, integrated_autocorrelation_time, plan_blocks, trend_test


def test_the_sum_over_lags_is_the_definition() -> None:
    row = lfilter([1.0], [1.0, -0.7], np.random.default_rng(3).normal(size=400))
    centred = row - row.mean()
    rho = [centred[t:] @ centred[: row.size - t] / (centred @ centred) for t in range(200)]
    tau = 1 + 2 * np.cumsum([0.0, *rho[1:]])
    stop = next(lag for lag in range(200) if lag >= 5 * max(tau[lag], 1.0))
    expected = tau[stop] * (1 + (2 * stop + 1) / row.size)
    assert integrated_autocorrelation_time(row) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("phi", "tau"), [(0.0, 1.0), (0.8, 9.0)])
def test_it_finds_the_time_of_an_autoregression(phi: float, tau: float) -> None:
    # n = 200,000: the standard error of τ̂ is τ√(2(2M+1)/n), M = 5τ; 4.9 of them is α = 1e-6, and the truncation at
    # M leaves out a share e^(−10) of the sum.
    n = 200_000
    row = lfilter([1.0], [1.0, -phi], np.random.default_rng(1).normal(size=n))
    assert abs(integrated_autocorrelation_time(row) - tau) < 4.9 * tau * np.sqrt(2 * (10 * tau + 1) / n)


def test_scale_and_offset_do_not_matter() -> None:
    row = np.random.default_rng(0).normal(size=500)
    assert integrated_autocorrelation_time(1e-9 * row - 3e-8) == pytest.approx(integrated_autocorrelation_time(row))


def test_constant_and_alternating_series_count_as_independent() -> None:
    assert integrated_autocorrelation_time(np.full(100, 0.1)) == 1.0
    assert integrated_autocorrelation_time([1.0, -1.0] * 100) == 1.0


@pytest.mark.parametrize("n", [2, 3, 5, 6])
def test_a_handful_of_readings_is_no_accident(n: int) -> None:
    assert 1 <= integrated_autocorrelation_time(np.arange(n)) <= n


def test_the_oldest_readings_that_fill_no_block_are_left_out() -> None:
    plan = plan_blocks(207, iact=1.0)
    assert (plan.blocks, plan.length) == (20, 10)
    assert plan.means(np.arange(207.0))[0] == np.arange(7.0, 17.0).mean()
    assert plan.means(np.arange(207.0))[-1] == np.arange(197.0, 207.0).mean()


def test_blocks_never_get_shorter_than_ten_autocorrelation_times() -> None:
    assert plan_blocks(199, iact=1.0).blocks == 19
    assert plan_blocks(1000, iact=7.01).length == 71
    assert not plan_blocks(1000, iact=7.01).enough
    assert plan_blocks(5, iact=1.0).blocks == 0


def test_a_plan_is_for_one_length() -> None:
    with pytest.raises(ValueError, match=r"\b40 .*got 41"):
        independent_blocks(40).means(np.zeros(41))
    assert np.array_equal(independent_blocks(3).means([3.0, 1.0, 2.0]), [3.0, 1.0, 2.0])


# 2,000 stationary series, integrated autocorrelation time 9, 200 of them long. Promise: false alarms in 4 to 6% of the
# series at the 5% level; bounds are the 1e-6 quantiles of the binomial at those ends, 2.2% and 9.0%.
REPEATS = 2000
BOUNDS = stats.binom.ppf(1e-6, REPEATS, 0.04) / REPEATS, stats.binom.isf(1e-6, REPEATS, 0.06) / REPEATS


def stationary(seed: int, n: int = 1800, phi: float = 0.8) -> FloatArray:
    noise = np.random.default_rng(seed).normal(size=(REPEATS, n + 50))
    return np.asarray(lfilter([1.0], [1.0, -phi], noise)[:, 50:] * math.sqrt(1 - phi**2))


def test_false_alarms_are_as_rare_as_promised() -> None:
    assert BOUNDS[0] < np.mean([trend_test(row).drifts() for row in stationary(1)]) < BOUNDS[1]


def test_negative_control_a_test_for_independent_readings_cries_wolf() -> None:
    assert np.mean([trend_test(row, independent=True).drifts() for row in stationary(2)[:200]]) > 0.3


def test_a_drift_is_found_although_it_looks_like_correlation() -> None:
    # A drift of 2 (standard deviation 1) over 200 autocorrelation times is 8 standard errors of its estimate.
    rows = stationary(3)[:100]
    line = np.linspace(-1, 1, rows.shape[1])
    assert np.mean([trend_test(row + line).drifts(1e-3) for row in rows]) > 0.8
    found = trend_test(rows[0] + line)
    assert found.change == pytest.approx(2.0, abs=1.2)  # 4.9 standard errors of √(12 × 9/1800) = .24


def test_the_slope_is_the_textbook_one() -> None:
    row = np.random.default_rng(4).normal(size=24)
    reference = stats.linregress(np.arange(24.0), row)
    found = trend_test(row, independent=True)
    assert found.p_value == pytest.approx(reference.pvalue, rel=1e-9)
    assert found.change == pytest.approx(24 * reference.slope, rel=1e-9)


def test_constant_and_short_series() -> None:
    assert trend_test(np.full(400, 0.3)).p_value == 1.0
    short = trend_test(np.random.default_rng(0).normal(size=30))
    assert (short.p_value, short.plan.enough) == (1.0, False)
    with pytest.raises(ValueError, match=r"^series\b"):
        trend_test([1.0])
