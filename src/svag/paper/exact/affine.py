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
from svag.paper.exact.noise import Atoms, Noise, cumulants_to_moments
from svag.paper.exact.processes import ExactLimit, ExactProcess, Levy, SecondOrder
from svag.theory.weights import svag_weights

X = Polynomial([0.0, 1.0])
ZERO = Polynomial([0.0])


@dataclass(frozen=True)
class AffineProblem:
    """SGD on a random affine gradient, from `start`, at learning rate `lr` and batch size `batch_size`.

    SVAG has the mean and the variance of Euler–Maruyama at the same step, not its third moment:

    >>> from svag.paper.exact.processes import EulerMaruyama, Svag
    >>> problem = AffineProblem(Atoms((1.0, 1.0), (1.0, -2.0), (2 / 3, 1 / 3)), lr=0.5, start=1.0)
    >>> problem.moments(Svag(2), steps=1, degree=3)[-1].round(3)
    array([1.   , 0.562, 0.707, 0.726])
    >>> problem.moments(EulerMaruyama(2), steps=1, degree=3)[-1].round(3)
    array([1.   , 0.562, 0.707, 0.837])
    """

    noise: Noise
    lr: float
    batch_size: int = 1
    start: float = 0.0

    def cumulants(self, degree: int) -> list[Polynomial]:
        """Cumulants of the gradient of one batch of B: κ_j / B^(j−1), at index j."""
        return [cumulant / float(self.batch_size) ** (j - 1) for j, cumulant in enumerate(self.noise.cumulants(degree))]

    def step_matrix(self, process: ExactProcess, degree: int) -> FloatArray:
        """Matrix that takes (1, E x, …, E x^degree) one step of η/l further."""
        h = self.lr / process.ell
        kappa = self.cumulants(degree)
        amplified = [kappa[0], *(process.cumulant_factor(j) * kappa[j] for j in range(1, degree + 1))]
        return _moment_matrix([(-h) ** j * moment for j, moment in enumerate(cumulants_to_moments(amplified))])

    def generator(self, limit: ExactLimit, degree: int) -> FloatArray:
        """Matrix A of d/dt (1, E X, …, E X^degree) = A (1, E X, …, E X^degree)."""
        kappa = self.cumulants(degree)
        if isinstance(limit, SecondOrder):
            slope = kappa[1].deriv()
            kappa[1] = kappa[1] + self.lr / 2 * slope * kappa[1]
            kappa[2:] = [second * (1 + self.lr * slope) if limit.corrected else second for second in kappa[2:]]
        rates = [ZERO, *((-1) ** j * self.lr ** (j - 1) * kappa[j] for j in range(1, degree + 1))]
        if not isinstance(limit, Levy):
            rates[3:] = [ZERO] * len(rates[3:])
        elif limit.printed:
            rates[3::2] = [-rate for rate in rates[3::2]]
        return _moment_matrix(rates)

    def moments(self, process: ExactProcess, steps: int, degree: int) -> FloatArray:
        """(1, E x, …, E x^degree) after each of `steps` × ell steps; row 0 is the start."""
        return orbit(self.step_matrix(process, degree), self._start(degree), steps * process.ell)

    def limit_moments(self, limit: ExactLimit, steps: int, degree: int, ell: int = 1) -> FloatArray:
        """(1, E X, …, E X^degree) at the times kη/ell, k = 0 … steps × ell."""
        flow = np.asarray(expm(self.lr / ell * self.generator(limit, degree)), dtype=np.float64)
        return orbit(flow, self._start(degree), steps * ell)

    def equilibrium(self, process: ExactProcess, degree: int) -> FloatArray:
        """(1, E x, …, E x^degree) of the stationary law, if these moments settle."""
        step = self.step_matrix(process, degree)
        if np.abs(np.diag(step)[1:]).max() >= 1:  # triangular: the eigenvalues stand on the diagonal
            raise ValueError(f"moments up to degree {degree} do not settle at lr={self.lr}: lower it")
        return null_vector(step - np.eye(degree + 1))

    def limit_equilibrium(self, limit: ExactLimit, degree: int) -> FloatArray:
        """(1, E X, …, E X^degree) of the stationary law of an SDE, if these moments settle."""
        generator = self.generator(limit, degree)
        if np.diag(generator)[1:].max() >= 0:
            raise ValueError(f"moments up to degree {degree} of the SDE do not settle at lr={self.lr}: lower it")
        return null_vector(generator)

    def recentred(self) -> "AffineProblem":
        """The same problem in the coordinate x − start, where the moments of one step are those of its increment."""
        return replace(self, noise=self.noise.shifted(self.start), start=0.0)

    def _start(self, degree: int) -> FloatArray:
        return self.start ** np.arange(degree + 1.0)


def orbit(matrix: FloatArray, start: FloatArray, steps: int) -> FloatArray:
    """start, matrix @ start, …, matrix^steps @ start, one row each.

    >>> orbit(np.array([[2.0]]), np.array([1.0]), 3).ravel()
    array([1., 2., 4., 8.])
    """
    rows = np.empty((steps + 1, *start.shape))
    rows[0] = start
    for k in range(steps):
        rows[k + 1] = matrix @ rows[k]
    return rows


def _moment_matrix(increments: list[Polynomial]) -> FloatArray:
    """Row p holds the coefficients of Σ_j C(p, j) x^(p−j) c_j(x), c_j(x) being E Δ^j at x, or its rate."""
    degree = len(increments) - 1
    matrix = np.zeros((degree + 1, degree + 1))
    for p in range(degree + 1):
        row = sum((comb(p, j) * X ** (p - j) * increments[j] for j in range(p + 1)), ZERO)
        coefficients = np.trim_zeros(row.coef, "b")
        matrix[p, : coefficients.size] = coefficients
    return matrix


def null_vector(matrix: FloatArray) -> FloatArray:
    """The m with m_0 = 1 and matrix @ m = 0; the first row of the matrix is 0."""
    return np.concatenate([[1.0], np.linalg.solve(matrix[1:, 1:], -matrix[1:, 0])])


def reused_batch_moments(problem: AffineProblem, ell: int, steps: int, degree: int) -> FloatArray:
    """Moments of SVAG when its second batch is the previous step's first one: x ← x − (η/l)(a g_k + b g_{k−1}).

    A plausible mistake, not an algorithm of the paper: the noise a·ξ_k + b·ξ_{k−1} of consecutive steps nearly cancels,
    because a + b = 1, so the amplification is lost. The pair (weights, last example) is a Markov chain, so its moments
    are exact too; they have the shape that `AffineProblem.moments` returns.
    """
    noise = problem.noise
    if not isinstance(noise, Atoms) or problem.batch_size != 1:
        raise ValueError("reuse is followed exactly for batches of one example out of finitely many")
    a, b = svag_weights(ell)
    h, atoms = problem.lr / ell, len(noise.slopes)
    step = np.zeros((atoms, degree + 1, atoms, degree + 1))
    for new, fresh in enumerate(noise.gradients):
        for old, reused in enumerate(noise.gradients):
            move = X - h * (a * fresh + b * reused)
            for p in range(degree + 1):
                step[new, p, old, : p + 1] = (noise.probabilities[new] * move**p).coef[: p + 1]
    start = np.multiply.outer(np.array(noise.probabilities), problem.start ** np.arange(degree + 1.0))
    states = orbit(step.reshape(start.size, start.size), start.ravel(), steps * ell)
    return np.asarray(states.reshape(-1, *start.shape).sum(axis=1), dtype=np.float64)
