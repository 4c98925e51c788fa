"""Affine gradients in d dimensions, as in linear regression: first and second moments by Kronecker products.

With y = (1, x) the gradient of example i is H_i y, and vec E yyᵀ obeys a linear recursion for SVAG and NGD alike, and a
linear differential equation for the Itô SDE. When gradients are affine, these moments decide every quadratic loss.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import expm

from svag.arrays import FloatArray
from svag.exact.affine import orbit
from svag.theory import domain


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

    def __post_init__(self) -> None:
        n, d = self.targets.shape
        if self.hessians.shape != (n, d, d) or self.start.shape != (d,):
            raise ValueError(
                "hessians, targets and start must have shapes n×d×d, n×d and d, got "
                f"{self.hessians.shape}, {self.targets.shape} and {self.start.shape}"
            )
        domain.positive("lr", self.lr)
        domain.whole("batch_size", self.batch_size)

    def moments(self, steps: int, ell: int = 1, noise: float = 1.0) -> FloatArray:
        """E yyᵀ after each of `steps` × ell steps of SVAG(ell), or equally of NGD; `noise=0` is gradient descent."""
        drift, spread = self._drift(), self._spread()
        h = self.lr / domain.whole("ell", ell)
        one = np.eye(drift.shape[0]) - h * drift
        return self._orbit(np.kron(one, one) + noise * h**2 * ell * spread, steps * ell)

    def sde_moments(self, steps: int, ell: int = 1) -> FloatArray:
        """E yyᵀ of the Itô SDE at the times kη/ell, k = 0 … steps × ell."""
        drift = self._drift()
        generator = -kronecker_sum(drift) + self.lr * self._spread()
        return self._orbit(np.asarray(expm(self.lr / ell * generator), dtype=np.float64), steps * ell)

    def loss(self, moments: FloatArray) -> FloatArray:
        """Expected quadratic loss ½xᵀH̄x − b̄ᵀx for each E yyᵀ (symmetric Hessians)."""
        hessian, target = self.hessians.mean(axis=0), self.targets.mean(axis=0)
        return np.asarray(
            0.5 * np.einsum("kij,ij->k", moments[:, 1:, 1:], hessian) - moments[:, 0, 1:] @ target, dtype=np.float64
        )

    def _drift(self) -> FloatArray:
        return np.asarray(self._augmented().mean(axis=0), dtype=np.float64)

    def _spread(self) -> FloatArray:
        """K = (1/nB) Σ (H_i − H̄) ⊗ (H_i − H̄) on y."""
        return kronecker_covariance(self._augmented()) / self.batch_size

    def _augmented(self) -> FloatArray:
        """H_i on y = (1, x): the constant stays, the weights move by H_i x − b_i."""
        n, d = self.targets.shape
        augmented = np.zeros((n, d + 1, d + 1))
        augmented[:, 1:, 0], augmented[:, 1:, 1:] = -self.targets, self.hessians
        return augmented

    def _orbit(self, matrix: FloatArray, steps: int) -> FloatArray:
        y = np.concatenate([[1.0], self.start])
        return orbit(matrix, np.outer(y, y).ravel(), steps).reshape(-1, y.size, y.size)


def stable_lr(hessians: FloatArray, batch_size: int, ell: float = 1.0, noise: float = 1.0) -> float:
    r"""Learning rate below which E|x − x*|² stays bounded (mean-square stability).

    $$\eta^* = 1/\lambda_{\max}\bigl[(\bar H\oplus\bar H)^{-1}(\bar H\otimes\bar H/l + K)\bigr]$$

    where l is the argument `ell`: 1 is SGD, `math.inf` the Itô SDE; `noise=0` drops K and gives gradient descent,
    2/λ_max(H̄). Since −η(H̄⊕H̄) + η²(…) keeps the cone of covariances, stability is lost at an eigenvalue 1.
    """
    if not ell >= 1:
        raise ValueError(f"ell must be at least 1, got {ell}")
    mean = hessians.mean(axis=0)
    if np.linalg.eigvals(mean).real.min() <= 0:
        raise ValueError("the mean Hessian must be positive definite: otherwise no learning rate is stable")
    growth = np.kron(mean, mean) / ell + noise * kronecker_covariance(hessians) / domain.whole("batch_size", batch_size)
    strongest = float(np.linalg.eigvals(np.linalg.solve(kronecker_sum(mean), growth)).real.max())
    return 1 / strongest if strongest > 0 else np.inf


def kronecker_sum(matrix: FloatArray) -> FloatArray:
    """M ⊕ M = M ⊗ I + I ⊗ M."""
    one = np.eye(matrix.shape[0])
    return np.kron(matrix, one) + np.kron(one, matrix)


def kronecker_covariance(matrices: FloatArray) -> FloatArray:
    """Mean of (M_i − M̄) ⊗ (M_i − M̄)."""
    centred = matrices - matrices.mean(axis=0)
    n, d, _ = centred.shape
    return np.asarray(np.einsum("iab,icd->acbd", centred, centred).reshape(d * d, d * d) / n, dtype=np.float64)
