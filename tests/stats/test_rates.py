import math

import numpy as np
import pytest
from scipy.stats import binom

from svag.stats.decisions import compare_rates


def rejection_rate(n: int, m: int, rate: float, p_value: dict[tuple[int, int], float]) -> float:
    """Exact probability of p < 5% when both groups fail with probability `rate`."""
    return sum(float(binom.pmf(i, n, rate) * binom.pmf(j, m, rate)) for (i, j), p in p_value.items() if p < 0.05)


@pytest.mark.parametrize(("n", "m"), [(3, 3), (5, 5), (6, 4), (10, 10)])
def test_false_alarms_are_below_five_per_cent_at_every_rate(n: int, m: int) -> None:
    p_value = {(i, j): compare_rates(i, n, j, m).p_value for i in range(n + 1) for j in range(m + 1)}
    assert max(rejection_rate(n, m, rate, p_value) for rate in np.linspace(0.02, 0.98, 49)) < 0.05


def test_negative_control_the_normal_approximation_cries_wolf() -> None:
    n = 8  # exactly 7.7% at a rate of one half
    p_value = {}
    for i in range(n + 1):
        for j in range(n + 1):
            rate = (i + j) / (2 * n)
            z = abs(i - j) / n / math.sqrt(2 * rate * (1 - rate) / n) if 0 < rate < 1 else 0.0
            p_value[i, j] = math.erfc(z / math.sqrt(2))
    assert max(rejection_rate(n, n, rate, p_value) for rate in np.linspace(0.02, 0.98, 49)) > 0.05


def test_the_best_that_these_sizes_can_do() -> None:
    for n, m in ((3, 3), (5, 5), (2, 5)):
        found = compare_rates(n, n, 0, m)
        assert found.p_value == pytest.approx(found.smallest_p, rel=1e-10)
    assert compare_rates(0, 3, 0, 3).p_value == 1.0


@pytest.mark.parametrize("failed", [-1, 4])
def test_counts_are_checked(failed: int) -> None:
    with pytest.raises(ValueError, match=f"got {failed} of 3"):
        compare_rates(0, 3, failed, 3)
