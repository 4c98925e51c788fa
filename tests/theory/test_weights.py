"""The weights against enumerated batches: nothing is sampled."""

import math
from fractions import Fraction
from itertools import combinations, product
from statistics import fmean, pvariance

import numpy as np
import pytest

from svag.theory.weights import (
    IndependentSampling,
    copy_weights,
    cumulant_factor,
    finite_population_weights,
    noise_amplitude,
    pair_cost,
    power_sum,
    sde_step_moments,
    svag_step_moments,
    svag_weights,
    symmetrise,
)

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


def test_an_effective_step_costs_its_pairs_and_sgd_one_batch() -> None:
    """l steps of two batches of B/m each; nothing is paid for a batch of weight 0."""
    assert [pair_cost(ell, split) for ell, split in ((1, 1), (4, 1), (4, 2), (1, 2))] == [1.0, 8.0, 4.0, 1.0]


@pytest.mark.parametrize("copies", [2, 3, 5])
@pytest.mark.parametrize("ell", [0.5, 1, 4, 2.5, 1e6])
def test_several_copies_keep_the_mean_amplify_the_covariance_and_cancel_the_rest(ell: float, copies: int) -> None:
    weights = copy_weights(ell, copies)
    assert len(weights) == copies
    assert math.fsum(weights) == pytest.approx(1, rel=1e-12)
    assert math.fsum(w**2 for w in weights) == pytest.approx(ell, rel=1e-12)
    linear = 1 / copies**2 + 3 * (ell - 1 / copies) / copies  # nothing grows like l^(3/2)
    assert math.fsum(w**3 for w in weights) == pytest.approx(linear, rel=1e-9)


@pytest.mark.parametrize("ell", [1, 2, 8, 2.5])
def test_two_copies_are_svag(ell: float) -> None:
    assert copy_weights(ell, 2) == pytest.approx(svag_weights(ell), rel=1e-14)


@pytest.mark.parametrize(("ell", "copies"), [(0.3, 3), (0, 3), (math.nan, 3), (4, 1), (4, 2.5)])
def test_copies_without_real_weights(ell: float, copies: float) -> None:
    with pytest.raises(ValueError, match=r"ell|copies"):
        copy_weights(ell, copies)  # type: ignore[arg-type]


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
    with pytest.raises(ValueError, match=r"ell=1, split=2\b"):
        finite_population_weights(1, 2, batch_size=4, population=6)


@pytest.mark.parametrize("sampling", ["without_replacement", "with_replacement"])
@pytest.mark.parametrize("batch_size", [1, 2, 4])
def test_the_covariance_is_that_of_all_batches(sampling: IndependentSampling, batch_size: int) -> None:
    g = np.array([0.3, -1.0, 2.5, 0.8])
    n = g.size
    draws = combinations(g, batch_size) if sampling == "without_replacement" else product(g, repeat=batch_size)
    variance = np.var([np.mean(batch) for batch in draws])
    for refine in (1, 5):
        alpha = noise_amplitude(batch_size, n, sampling=sampling, refine=refine)
        # Var Σ α(z_i − z̄)g_i = α² Σ(g_i − ḡ)²
        assert alpha**2 * np.square(g - g.mean()).sum() == pytest.approx(refine * variance, rel=1e-12, abs=1e-15)


def test_an_amplitude_without_meaning_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^batch_size\b.*dataset_size=4"):
        noise_amplitude(5, 4)
    with pytest.raises(ValueError, match=r"^sampling\b"):
        noise_amplitude(2, 4, sampling="shuffle")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^dataset_size\b"):
        noise_amplitude(1, 1)


@pytest.mark.parametrize(("ell", "split"), [(1, 1), (3, 1), (2.5, 1), (1, 2), (4, 2)])
def test_one_step_by_enumeration(ell: float, split: int) -> None:
    """Batches of B = `split` examples with replacement, cut into `split` parts of one example each."""
    examples = np.array([[1.0, 0.0], [-2.0, 1.0], [0.5, 4.0]])
    mean = examples.mean(axis=0)
    centred = examples - mean
    covariance = np.einsum("ni,nj->ij", centred, centred) / 3 / split
    skewness = np.einsum("ni,nj,nk->ijk", centred, centred, centred) / 3 / split**2
    a, b = svag_weights(ell, split)
    moves = np.array([-0.7 / ell * (a * one + b * two) for one, two in product(examples, repeat=2)])
    step = svag_step_moments(mean, covariance, skewness, lr=0.7, ell=ell, split=split)
    np.testing.assert_allclose(step.first, moves.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(step.second, np.einsum("ni,nj->ij", moves, moves) / 9, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(step.third, np.einsum("ni,nj,nk->ijk", moves, moves, moves) / 9, rtol=1e-12)


def test_the_sde_has_the_leading_terms() -> None:
    grad, covariance = np.array([1.0, 2.0]), np.array([[2.0, 0.5], [0.5, 1.0]])
    fine = svag_step_moments(grad, covariance, np.ones((2, 2, 2)), lr=0.5, ell=1e6)
    sde = sde_step_moments(grad, covariance, lr=0.5, ell=1e6)
    np.testing.assert_allclose(sde.first, fine.first)
    np.testing.assert_allclose(sde.second, fine.second, rtol=1e-5)
    assert np.abs(fine.third).max() < 1e-11
    assert not sde.third.any()


def test_symmetrise() -> None:
    tensor = np.arange(8.0).reshape(2, 2, 2)
    symmetric = symmetrise(tensor)
    np.testing.assert_allclose(symmetric, symmetric.transpose(2, 0, 1))
    assert symmetric[0, 0, 1] == pytest.approx((1 + 2 + 4) / 3)
