import numpy as np
import pytest
from scipy.signal import lfilter

from svag.stats.series import integrated_autocorrelation_time


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
