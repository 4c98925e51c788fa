"""Third moments of affine gradients in d dimensions, which tell SVAG from what only shares its mean and covariance.

With y = (1, x) a step is y ← (I − hM)y, M the weighted sum of the augmented Hessians of its batches. E y⊗y⊗y then
follows E (I − hM)⊗(I − hM)⊗(I − hM), by enumerating the batches, and under the SDE a linear differential equation.
"""

from collections.abc import Callable, Iterator
from itertools import combinations_with_replacement, product

import numpy as np
from scipy.linalg import expm

from svag.arrays import FloatArray
from svag.exact.affine import orbit
from svag.exact.regression import RegressionProblem, kronecker_covariance
from svag.exact.weak_order import WeakOrder, measure_weak_order
from svag.theory.weights import svag_weights

# One step's matrix M and its probability, for every way to draw its batches.
Draws = Iterator[tuple[FloatArray, float]]
ELLS = (16, 64, 256)


def third_moment_order(
    bed: RegressionProblem, steps: int, draws: Callable[[RegressionProblem, int], Draws]
) -> WeakOrder:
    """Order in l of E x_i x_j x_k, maximum over effective steps, of steps drawn by `draws` against the Itô SDE."""
    start = _cube(np.concatenate([[1.0], bed.start]))
    columns = _columns(bed.start.size)
    limit = orbit(np.asarray(expm(bed.lr * _generator(bed)), dtype=np.float64), start, steps)[:, columns]

    def path(ell: int) -> FloatArray:
        one, h = np.eye(bed.start.size + 1), bed.lr / ell
        step = sum(p * np.kron(np.kron(one - h * m, one - h * m), one - h * m) for m, p in draws(bed, ell))
        return orbit(np.asarray(step), start, steps * ell)[::ell, columns]

    return measure_weak_order(ELLS, path, lambda ell: limit)


def svag_draws(bed: RegressionProblem, ell: int) -> Draws:
    """SVAG: every pair of batches."""
    a, b = svag_weights(ell)
    for (one, p), (two, q) in product(list(_batches(bed)), repeat=2):
        yield a * one + b * two, p * q


def root_draws(bed: RegressionProblem, ell: int) -> Draws:
    """A mistake: one batch, its deviation from the mean amplified by √l; mean and covariance are SVAG's."""
    mean = augmented(bed).mean(axis=0)
    for one, p in _batches(bed):
        yield mean + np.sqrt(ell) * (one - mean), p


def augmented(bed: RegressionProblem) -> FloatArray:
    """H_i on y = (1, x), by the definition of the gradient H_i x − b_i."""
    n, d = bed.targets.shape
    found = np.zeros((n, d + 1, d + 1))
    found[:, 1:, 0], found[:, 1:, 1:] = -bed.targets, bed.hessians
    return found


def _batches(bed: RegressionProblem) -> Draws:
    """The mean of every batch of B examples, drawn with replacement, with its probability."""
    each = augmented(bed)
    for chosen in product(range(len(each)), repeat=bed.batch_size):
        yield each[list(chosen)].mean(axis=0), 1 / len(each) ** bed.batch_size


def _generator(bed: RegressionProblem) -> FloatArray:
    """−(D⊗I⊗I + …) + η(K on each pair of the three factors), K = Cov of one batch's matrix."""
    each = augmented(bed)
    drift, one = each.mean(axis=0), np.eye(each.shape[1])
    spread, d = kronecker_covariance(each) / bed.batch_size, each.shape[1]
    alone = np.kron(np.kron(drift, one), one) + np.kron(np.kron(one, drift), one) + np.kron(np.kron(one, one), drift)
    outer = np.einsum("abcd,ef->aebcfd", spread.reshape((d,) * 4), one)  # K on the first and the third factor
    pairs = np.kron(spread, one) + np.kron(one, spread) + outer.reshape(d**3, d**3)
    return np.asarray(-alone + bed.lr * pairs, dtype=np.float64)


def _cube(y: FloatArray) -> FloatArray:
    return np.kron(np.kron(y, y), y)


def _columns(d: int) -> list[int]:
    """Where x_i x_j x_k with i ≤ j ≤ k stand in y⊗y⊗y; products that hold the 1 of y are lower moments."""
    size = d + 1
    return [i * size**2 + j * size + k for i, j, k in combinations_with_replacement(range(1, size), 3)]
