"""Affine gradients in one dimension: every process and every SDE by matrices on the moments (thm:sde_svag).

The cumulants of an affine gradient are polynomials κ_j(x) of degree j, so E x′^p of the next step is a combination of
1, E x, …, E x^p: a step is a lower-triangular matrix on the vector of moments, an SDE is the exponential of one.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.polynomial import Polynomial
from scipy.linalg import expm
from scipy.special import comb

from svag.arrays import FloatArray
from svag.exact.noise import Noise, cumulants_to_moments
from svag.exact.processes import Levy, Limit, Process, SecondOrder
from svag.theory import domain

X = Polynomial([0.0, 1.0])


@dataclass(frozen=True)
class AffineProblem:
    """SGD on a random affine gradient, from `start`, at learning rate `lr` and batch size `batch_size`."""

    noise: Noise
    lr: float
    batch_size: int = 1
    start: float = 0.0

    def __post_init__(self) -> None:
        domain.positive("lr", self.lr)
        domain.whole("batch_size", self.batch_size)
        domain.finite("start", self.start)

    def cumulants(self, degree: int) -> list[Polynomial]:
        """Cumulants of the gradient of one batch of B: κ_j / B^(j−1), at index j."""
        return [cumulant / float(self.batch_size) ** (j - 1) for j, cumulant in enumerate(self.noise.cumulants(degree))]

    def step_matrix(self, process: Process, degree: int) -> FloatArray:
        """Matrix that takes (1, E x, …, E x^degree) one step of η/l further."""
        h = self.lr / process.ell
        cumulants = [
            process.cumulant_factor(j) * kappa if j else kappa for j, kappa in enumerate(self.cumulants(degree))
        ]
        moments = cumulants_to_moments(cumulants)
        return _rows(
            [
                sum((comb(p, i) * (-h) ** i * X ** (p - i) * moments[i] for i in range(p + 1)), Polynomial([0.0]))
                for p in range(degree + 1)
            ],
            degree,
        )

    def generator(self, limit: Limit, degree: int) -> FloatArray:
        """Matrix A of d/dt (1, E X, …, E X^degree) = A (1, E X, …, E X^degree)."""
        kappa = self.cumulants(max(degree, 2))
        if isinstance(limit, SecondOrder):
            slope = kappa[1].deriv()
            kappa[1] = kappa[1] + self.lr / 2 * slope * kappa[1]
            kappa[2] = kappa[2] * (1 + self.lr * slope) if limit.corrected else kappa[2]
        jumps = degree if isinstance(limit, Levy) else min(degree, 2)
        sign = [-1.0 if j % 2 and not (j > 2 and limit == Levy(printed=True)) else 1.0 for j in range(degree + 1)]
        rows = [
            sum(
                (
                    sign[j] * self.lr ** (j - 1) * comb(p, j) * X ** (p - j) * kappa[j]
                    for j in range(1, min(p, jumps) + 1)
                ),
                Polynomial([0.0]),
            )
            for p in range(degree + 1)
        ]
        return _rows(rows, degree)

    def moments(self, process: Process, steps: int, degree: int) -> FloatArray:
        """(1, E x, …, E x^degree) after each of `steps` × ell steps; row 0 is the start."""
        return _orbit(self.step_matrix(process, degree), self._start(degree), steps * process.ell)

    def limit_moments(self, limit: Limit, steps: int, degree: int, ell: int = 1) -> FloatArray:
        """(1, E X, …, E X^degree) at the times kη/ell, k = 0 … steps × ell."""
        flow = np.asarray(expm(self.lr / ell * self.generator(limit, degree)), dtype=np.float64)
        return _orbit(flow, self._start(degree), steps * ell)

    def equilibrium(self, process: Process, degree: int) -> FloatArray:
        """(1, E x, …, E x^degree) of the stationary law of a stable process."""
        return _null_vector(self.step_matrix(process, degree) - np.eye(degree + 1))

    def limit_equilibrium(self, limit: Limit, degree: int) -> FloatArray:
        """(1, E X, …, E X^degree) of the stationary law of a stable SDE."""
        return _null_vector(self.generator(limit, degree))

    def recentred(self) -> "AffineProblem":
        """The same problem in the coordinate x − start, where the moments of one step are those of its increment."""
        return replace(self, noise=self.noise.shifted(self.start), start=0.0)

    def _start(self, degree: int) -> FloatArray:
        return self.start ** np.arange(degree + 1.0)


def _rows(polynomials: list[Polynomial], degree: int) -> FloatArray:
    """The coefficients of each polynomial as a row; none may exceed `degree`."""
    rows = np.zeros((len(polynomials), degree + 1))
    for row, polynomial in zip(rows, polynomials, strict=True):
        coefficients = np.trim_zeros(polynomial.coef, "b")
        row[: coefficients.size] = coefficients
    return rows


def _orbit(matrix: FloatArray, start: FloatArray, steps: int) -> FloatArray:
    orbit = np.empty((steps + 1, start.size))
    orbit[0] = start
    for k in range(steps):
        orbit[k + 1] = matrix @ orbit[k]
    return orbit


def _null_vector(matrix: FloatArray) -> FloatArray:
    """The m with m_0 = 1 and matrix @ m = 0; the first row of the matrix is 0."""
    return np.concatenate([[1.0], np.linalg.solve(matrix[1:, 1:], -matrix[1:, 0])])
