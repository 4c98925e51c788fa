"""Laws under Poisson gradients against closed forms, and the distances against sums."""

import math

import numpy as np
import pytest
from scipy.stats import poisson

from svag.paper.exact.poisson import (
    DiscreteLaw,
    NormalLaw,
    PoissonProblem,
    combine,
    kolmogorov,
    poisson_law,
    repeated,
    wasserstein,
)
from svag.paper.exact.processes import EulerMaruyama, ExactProcess, SmallerBatches, Svag

PROBLEM = PoissonProblem(lr=0.1, examples=9.0)


@pytest.mark.parametrize("process", [Svag(1), Svag(4), Svag(8, 2), SmallerBatches(3)])
@pytest.mark.parametrize("j", [1, 2, 3])
def test_laws_have_the_cumulants_of_the_closed_form(process: Svag | SmallerBatches, j: int) -> None:
    assert PROBLEM.law(process).cumulant(j) == pytest.approx(PROBLEM.cumulant(j, process), rel=1e-9)


def test_the_printed_third_cumulant() -> None:
    for ell in (1, 4, 16):
        expected = -(0.1**3) * 9 * (3 * ell - 1) / (2 * ell**2)
        assert PROBLEM.cumulant(3, Svag(ell)) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("ell", [1, 3])
def test_split_equal_to_ell_is_the_ladder(ell: int) -> None:
    ladder, split = PROBLEM.law(SmallerBatches(ell)), PROBLEM.law(Svag(ell, ell))
    x = np.linspace(-3, 0, 50)
    np.testing.assert_allclose(split.cdf(x), ladder.cdf(x), atol=1e-14)


@pytest.mark.parametrize("process", [EulerMaruyama(1), EulerMaruyama(8)])
def test_ngd_has_the_law_of_the_sde(process: ExactProcess) -> None:
    law = PROBLEM.sde_law()
    assert PROBLEM.cumulant(1, process) == pytest.approx(law.mean)
    assert PROBLEM.cumulant(2, process) == pytest.approx(law.sd**2)
    assert PROBLEM.cumulant(3, process) == 0


def test_kolmogorov_by_hand() -> None:
    coin = DiscreteLaw(np.array([-1.0, 1.0]), np.array([0.5, 0.5]))
    normal = NormalLaw(0.0, 1.0)
    assert kolmogorov(coin, normal) == pytest.approx(0.5 - 0.5 * math.erfc(1 / math.sqrt(2)), rel=1e-12)


@pytest.mark.parametrize("law", [PROBLEM.law(Svag(1)), PROBLEM.law(Svag(2)), DiscreteLaw(np.array([0.3]), np.ones(1))])
def test_wasserstein_by_a_riemann_sum(law: DiscreteLaw) -> None:
    normal = PROBLEM.sde_law()
    x = np.linspace(-5, 3, 400_001)
    total = np.abs(law.cdf(x) - normal.cdf(x)).sum() * (x[1] - x[0])
    assert wasserstein(law, normal) == pytest.approx(total, rel=1e-4)


def test_sums_of_poissons_are_poisson() -> None:
    whole, parts = poisson_law(6.0), repeated(poisson_law(1.5), 4)
    x = np.arange(30.0)
    np.testing.assert_allclose(parts.cdf(x), whole.cdf(x), atol=1e-13)


def test_combine_by_hand() -> None:
    coin = DiscreteLaw(np.array([0.0, 1.0]), np.array([0.5, 0.5]))
    law = combine(coin, coin, 2.0, -1.0)
    np.testing.assert_allclose(law.points, [-1, 0, 1, 2])
    np.testing.assert_allclose(law.probabilities, 0.25)


@pytest.mark.parametrize("process", [Svag(1, 2), Svag(4, 8)])
def test_points_that_coincide_are_one_point(process: Svag) -> None:
    """m = 2l is the ladder too: the cdf is that of the Poisson law at its own points."""
    law, counts = PROBLEM.law(process), np.arange(25.0)
    np.testing.assert_allclose(law.cdf(-0.1 * counts + 1e-6), poisson.sf(counts - 1, 9.0), atol=1e-12)
    assert np.diff(law.points).min() > 1e-3


def test_sums_by_convolution_need_whole_numbers() -> None:
    with pytest.raises(ValueError, match="consecutive"):
        repeated(DiscreteLaw(np.array([0.0, 2.0]), np.array([0.5, 0.5])), 2)
