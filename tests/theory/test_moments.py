from itertools import product

import numpy as np
import pytest

from svag.theory.weights import sde_step_moments, svag_step_moments, svag_weights, symmetrise


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
