import math

import numpy as np
import pytest
from scipy import stats

from svag.stats.means import Estimate, contrast, welch


def test_welch_is_the_textbook_test() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=4), 1 + 2 * rng.normal(size=7)
    reference = stats.ttest_ind(one, other, equal_var=False)
    found = welch(one, other)
    assert found.p_different() == pytest.approx(reference.pvalue, rel=1e-10)
    assert found.interval(0.9) == pytest.approx(tuple(reference.confidence_interval(0.9)), rel=1e-10)
    assert found.value == pytest.approx(one.mean() - other.mean(), rel=1e-12)


def test_equivalence_is_a_ninety_per_cent_interval_inside_the_margin() -> None:
    found = Estimate(0.2, 0.1, freedom=7.0)
    edge = found.interval(0.9)[1]
    assert found.p_equivalent(edge) == pytest.approx(0.05, rel=1e-10)
    assert Estimate(-0.2, 0.1, 7.0).p_equivalent(edge) == pytest.approx(0.05, rel=1e-10)
    assert found.p_equivalent(0.1) > 0.5


def test_a_difference_beyond_something_is_a_widened_interval_that_leaves_out_zero() -> None:
    found = Estimate(-0.5, 0.1, freedom=7.0)
    beyond = -found.interval(0.95)[1]
    assert found.p_different(beyond) == pytest.approx(0.05, rel=1e-10)
    assert found.p_different(0.6) == 1.0


def test_without_spread_everything_is_certain() -> None:
    same = welch(np.full(3, 0.1), np.full(3, 0.1))
    assert (same.error, same.freedom, same.p_different(), same.p_equivalent(0.1)) == (0.0, math.inf, 1.0, 0.0)
    apart = welch(np.full(3, 0.4), np.full(3, 0.1))
    assert (apart.p_different(), apart.p_equivalent(0.2)) == (0.0, 1.0)
    assert apart.interval() == (apart.value, apart.value)


def test_one_number_is_no_group() -> None:
    with pytest.raises(ValueError, match=r"at least two numbers, got groups of \[1, 3\]"):
        contrast([np.ones(1), np.ones(3)], [1, -1])
