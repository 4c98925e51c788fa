import json
import math

import numpy as np
import pytest
from scipy import stats
from scipy.signal import lfilter

from svag.arrays import FloatArray
from svag.stats.series import stationarity_test, trend_test

# 2,000 stationary series, integrated autocorrelation time 9, 200 of them long. Promise: false alarms in 4 to 6% of the
# series at the 5% level; bounds are the 1e-6 quantiles of the binomial at those ends, 2.2% and 9.0%.
REPEATS = 2000
BOUNDS = stats.binom.ppf(1e-6, REPEATS, 0.04) / REPEATS, stats.binom.isf(1e-6, REPEATS, 0.06) / REPEATS


def stationary(seed: int, n: int = 1800, phi: float = 0.8) -> FloatArray:
    noise = np.random.default_rng(seed).normal(size=(REPEATS, n + 50))
    return np.asarray(lfilter([1.0], [1.0, -phi], noise)[:, 50:] * math.sqrt(1 - phi**2))


@pytest.mark.parametrize("test", [trend_test, stationarity_test])
def test_false_alarms_are_as_rare_as_promised(test: object) -> None:
    run = trend_test if test is trend_test else stationarity_test
    assert BOUNDS[0] < np.mean([run(row).drifts() for row in stationary(1)]) < BOUNDS[1]


def test_negative_control_a_test_for_independent_readings_cries_wolf() -> None:
    for run in (trend_test, stationarity_test):
        assert np.mean([run(row, independent=True).drifts() for row in stationary(2)[:200]]) > 0.3


def test_a_drift_is_found_although_it_looks_like_correlation() -> None:
    # A drift of 2 (standard deviation 1) over 200 autocorrelation times is 8 standard errors of its estimate.
    rows = stationary(3)[:100]
    line = np.linspace(-1, 1, rows.shape[1])
    assert np.mean([trend_test(row + line).drifts(1e-3) for row in rows]) > 0.8
    found = trend_test(rows[0] + line)
    assert found.change == pytest.approx(2.0, abs=1.2)  # 4.9 standard errors of √(12 × 9/1800) = .24
    there_and_back = 4 * np.abs(line)
    assert np.mean([trend_test(row + there_and_back).drifts() for row in rows]) < 0.3
    assert np.mean([stationarity_test(row + there_and_back).drifts() for row in rows]) > 0.9


def test_the_slope_and_the_f_test_are_the_textbook_ones() -> None:
    row = np.random.default_rng(4).normal(size=24)
    reference = stats.linregress(np.arange(24.0), row)
    found = trend_test(row, independent=True)
    assert found.p_value == pytest.approx(reference.pvalue, rel=1e-9)
    assert found.change == pytest.approx(24 * reference.slope, rel=1e-9)
    assert stationarity_test(row, independent=True).p_value == pytest.approx(
        stats.f_oneway(*row.reshape(4, 6)).pvalue, rel=1e-9
    )


def test_constant_and_short_series() -> None:
    for run in (trend_test, stationarity_test):
        assert run(np.full(400, 0.3)).p_value == 1.0
        short = run(np.random.default_rng(0).normal(size=30))
        assert (short.p_value, short.enough) == (1.0, False)
        assert "series too short" in short.status
        assert json.loads(json.dumps(short.to_dict(), allow_nan=False))["enough"] is False
        with pytest.raises(ValueError, match="at least"):
            run([1.0])
