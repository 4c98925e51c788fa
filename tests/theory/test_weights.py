import math
from fractions import Fraction

import pytest

from svag.theory.weights import cumulant_factor, finite_population_weights, power_sum, svag_weights

VALID = [(ell, split) for ell in (1, 2, 3, 8, 2.5) for split in (1, 2, 4) if split <= 2 * ell]


@pytest.mark.parametrize(("ell", "split"), VALID)
def test_mean_is_kept_and_covariance_amplified(ell: float, split: int) -> None:
    a, b = svag_weights(ell, split)
    assert a + b == pytest.approx(1, rel=1e-14)
    assert split * (a**2 + b**2) == pytest.approx(ell, rel=1e-14)
    assert a >= b


@pytest.mark.parametrize(("ell", "split"), VALID)
@pytest.mark.parametrize("p", [1, 2, 3, 4, 7, 8])
def test_power_sums_are_sums_of_powers(p: int, ell: float, split: int) -> None:
    a, b = svag_weights(ell, split)
    assert power_sum(p, ell, split) == pytest.approx(a**p + b**p, rel=1e-12)


@pytest.mark.parametrize("ell", [1, 2, 5, 16])
def test_power_sums_of_the_paper(ell: int) -> None:
    assert power_sum(3, ell) == Fraction(3 * ell - 1, 2)
    assert power_sum(4, ell) == Fraction(ell**2 + 2 * ell - 1, 2)


def test_third_cumulant_factor_of_split_svag() -> None:
    assert cumulant_factor(3, 8, 2) == (3 * 8 * 2 - 4) / 2


@pytest.mark.parametrize("ell", [1, 2, 4])
def test_split_equal_to_ell_is_the_ladder(ell: int) -> None:
    assert svag_weights(ell, ell) == (1.0, 0.0)
    assert svag_weights(ell, 2 * ell) == (0.5, 0.5)


def test_ell_1_is_sgd_exactly() -> None:
    assert svag_weights(1) == (1.0, 0.0)


@pytest.mark.parametrize(("ell", "split"), [(0.4, 1), (1, 3), (1.9, 4), (0, 1), (-1, 1), (math.nan, 1), (math.inf, 1)])
def test_no_real_weights(ell: float, split: int) -> None:
    with pytest.raises(ValueError, match="ell"):
        svag_weights(ell, split)


@pytest.mark.parametrize("split", [0, -1, 1.5, math.nan])
def test_split_must_be_whole(split: float) -> None:
    with pytest.raises(ValueError, match="split"):
        svag_weights(4, split)  # type: ignore[arg-type]


def test_finite_population_restores_the_covariance_by_enumeration() -> None:
    """All batches of 4 and of 2 out of 6 numbers: the variance of the weighted sum is l times that of a batch."""
    from itertools import combinations
    from statistics import fmean, pvariance

    values = [0.0, 1.0, 3.0, 4.0, 9.0, 11.0]
    batch = pvariance([fmean(chosen) for chosen in combinations(values, 4)])
    half = pvariance([fmean(chosen) for chosen in combinations(values, 2)])
    a, b = finite_population_weights(8, 2, batch_size=4, population=6)
    assert a + b == pytest.approx(1)
    assert (a**2 + b**2) * half == pytest.approx(8 * batch, rel=1e-12)
    plain_a, plain_b = svag_weights(8, 2)
    assert (plain_a**2 + plain_b**2) * half > 1.5 * 8 * batch, "the plain weights would overshoot"


def test_finite_population_needs_more_examples_than_a_batch() -> None:
    with pytest.raises(ValueError, match="population"):
        finite_population_weights(2, 1, batch_size=8, population=8)


def test_finite_population_can_leave_no_real_weights() -> None:
    with pytest.raises(ValueError, match="raise ell or lower split"):
        finite_population_weights(1, 2, batch_size=4, population=6)
