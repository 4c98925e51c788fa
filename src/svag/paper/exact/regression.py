"""Affine gradients in d dimensions, as in linear regression: the first three moments by Kronecker products.

With y = (1, x) the gradient of example i is H_i y, and vec E yyᵀ obeys a linear recursion for SVAG and NGD alike, and a
linear differential equation for the Itô SDE. When gradients are affine, these moments decide every quadratic loss.

Third moments tell SVAG from what only shares its mean and covariance. A step is y ← (I − hM)y, with M the weighted sum
of the augmented Hessians of its batches, so E y⊗y⊗y follows E (I − hM)⊗(I − hM)⊗(I − hM), by enumerating the batches.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement, product

import numpy as np
from scipy.linalg import expm

from svag.arrays import FloatArray
from svag.paper.exact.affine import null_vector, orbit
from svag.paper.exact.processes import WeakOrder, measure_weak_order
from svag.theory.weights import svag_weights


@dataclass(frozen=True)
class RegressionProblem:
    """Per-example gradients `hessians[i] @ x − targets[i]` in batches drawn with replacement.

    Attributes:
        hessians: n × d × d.
        targets: n × d.
        start: the initial weights, d.
    """

    hessians: FloatArray
    targets: FloatArray
    lr: float
    batch_size: int
    start: FloatArray

    def augmented(self) -> FloatArray:
        """H_i on y = (1, x): the constant stays, the weights move by H_i x − b_i."""
        n, d = self.targets.shape
        augmented = np.zeros((n, d + 1, d + 1))
        augmented[:, 1:, 0], augmented[:, 1:, 1:] = -self.targets, self.hessians
        return augmented

    def drift(self) -> FloatArray:
        """The mean of these matrices."""
        return np.asarray(self.augmented().mean(axis=0), dtype=np.float64)

    def spread(self) -> FloatArray:
        """K = (1/nB) Σ (H_i − H̄) ⊗ (H_i − H̄) on y."""
        return kronecker_covariance(self.augmented()) / self.batch_size

    def moments(self, steps: int, ell: int = 1, noise: float = 1.0) -> FloatArray:
        """E yyᵀ after each of `steps` × ell steps of SVAG(ell), or equally of NGD; `noise=0` is gradient descent."""
        drift, spread = self.drift(), self.spread()
        h = self.lr / ell
        step = np.eye(drift.shape[0]) - h * drift
        return self._orbit(np.kron(step, step) + noise * h**2 * ell * spread, steps * ell)

    def equilibrium(self) -> FloatArray:
        """E yyᵀ of the stationary law of SGD, if it settles."""
        drift = self.drift()
        contraction = np.eye(drift.shape[0]) - self.lr * drift
        step = np.kron(contraction, contraction) + self.lr**2 * self.spread()
        if np.abs(np.linalg.eigvals(step[1:, 1:])).max() >= 1:
            raise ValueError(f"second moments do not settle at lr={self.lr}: lower it")
        return null_vector(step - np.eye(len(step))).reshape(contraction.shape)

    def sde_moments(self, steps: int, ell: int = 1) -> FloatArray:
        """E yyᵀ of the Itô SDE at the times kη/ell, k = 0 … steps × ell."""
        generator = -kronecker_sum(self.drift()) + self.lr * self.spread()
        return self._orbit(np.asarray(expm(self.lr / ell * generator), dtype=np.float64), steps * ell)

    def loss(self, moments: FloatArray) -> FloatArray:
        """Expected quadratic loss ½xᵀH̄x − b̄ᵀx for each E yyᵀ (symmetric Hessians)."""
        hessian, target = self.hessians.mean(axis=0), self.targets.mean(axis=0)
        return np.asarray(
            0.5 * np.einsum("kij,ij->k", moments[:, 1:, 1:], hessian) - moments[:, 0, 1:] @ target, dtype=np.float64
        )

    def _orbit(self, matrix: FloatArray, steps: int) -> FloatArray:
        y = np.concatenate([[1.0], self.start])
        return orbit(matrix, np.outer(y, y).ravel(), steps).reshape(-1, y.size, y.size)


def stable_lr(hessians: FloatArray, batch_size: int, ell: float = 1.0) -> float:
    r"""Learning rate below which E|x − x*|² stays bounded (mean-square stability).

    $$\eta^* = 1/\lambda_{\max}\bigl[(\bar H\oplus\bar H)^{-1}(\bar H\otimes\bar H/l + K)\bigr]$$

    where l is the argument `ell`: 1 is SGD, `math.inf` the Itô SDE; the mean Hessian is positive definite. Since
    −η(H̄⊕H̄) + η²(…) keeps the cone of covariances, stability is lost at an eigenvalue 1.
    """
    mean = hessians.mean(axis=0)
    growth = np.kron(mean, mean) / ell + kronecker_covariance(hessians) / batch_size
    return 1 / float(np.linalg.eigvals(np.linalg.solve(kronecker_sum(mean), growth)).real.max())


def kronecker_sum(matrix: FloatArray) -> FloatArray:
    """M ⊕ M = M ⊗ I + I ⊗ M."""
    identity = np.eye(matrix.shape[0])
    return np.kron(matrix, identity) + np.kron(identity, matrix)


def kronecker_covariance(matrices: FloatArray) -> FloatArray:
    """Mean of (M_i − M̄) ⊗ (M_i − M̄)."""
    centred = matrices - matrices.mean(axis=0)
    n, d, _ = centred.shape
    return np.asarray(np.einsum("iab,icd->acbd", centred, centred).reshape(d * d, d * d) / n, dtype=np.float64)


# One step's matrix M and its probability, for every way to draw its batches.
Draws = Iterator[tuple[FloatArray, float]]
ELLS = (16, 64, 256)


def third_moment_order(
    bed: RegressionProblem, steps: int, draws: Callable[[RegressionProblem, int], Draws]
) -> WeakOrder:
    """Order in l of E x_i x_j x_k, maximum over effective steps, of steps drawn by `draws` against the Itô SDE."""
    y = np.concatenate([[1.0], bed.start])
    start = np.kron(np.kron(y, y), y)
    columns = _columns(bed.start.size)
    limit = orbit(np.asarray(expm(bed.lr * _generator(bed)), dtype=np.float64), start, steps)[:, columns]

    def path(ell: int) -> FloatArray:
        identity, h = np.eye(bed.start.size + 1), bed.lr / ell
        step = sum(
            p * np.kron(np.kron(identity - h * m, identity - h * m), identity - h * m) for m, p in draws(bed, ell)
        )
        return orbit(np.asarray(step), start, steps * ell)[::ell, columns]

    return measure_weak_order(ELLS, path, lambda ell: limit)


def svag_draws(bed: RegressionProblem, ell: int) -> Draws:
    """SVAG: every pair of batches."""
    a, b = svag_weights(ell)
    for (one, p), (two, q) in product(list(_batches(bed)), repeat=2):
        yield a * one + b * two, p * q


def root_draws(bed: RegressionProblem, ell: int) -> Draws:
    """A mistake: one batch, its deviation from the mean amplified by √l; mean and covariance are SVAG's."""
    mean = bed.drift()
    for one, p in _batches(bed):
        yield mean + np.sqrt(ell) * (one - mean), p


def _batches(bed: RegressionProblem) -> Draws:
    """The mean of every batch of B examples, drawn with replacement, with its probability."""
    each = bed.augmented()
    for chosen in product(range(len(each)), repeat=bed.batch_size):
        yield each[list(chosen)].mean(axis=0), 1 / len(each) ** bed.batch_size


def _generator(bed: RegressionProblem) -> FloatArray:
    """−(D⊗I⊗I + …) + η(K on each pair of the three factors), K = Cov of one batch's matrix."""
    drift, spread, d = bed.drift(), bed.spread(), bed.start.size + 1
    identity = np.eye(d)
    alone = (
        np.kron(np.kron(drift, identity), identity)
        + np.kron(np.kron(identity, drift), identity)
        + np.kron(np.kron(identity, identity), drift)
    )
    outer = np.einsum("abcd,ef->aebcfd", spread.reshape((d,) * 4), identity)  # K on the first and the third factor
    pairs = np.kron(spread, identity) + np.kron(identity, spread) + outer.reshape(d**3, d**3)
    return np.asarray(-alone + bed.lr * pairs, dtype=np.float64)


def _columns(d: int) -> list[int]:
    """Where x_i x_j x_k with i ≤ j ≤ k stand in y⊗y⊗y; products that hold the 1 of y are lower moments."""
    size = d + 1
    return [i * size**2 + j * size + k for i, j, k in combinations_with_replacement(range(1, size), 3)]
