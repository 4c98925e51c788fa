"""Two SDEs with laws in closed form, to check the generators and the lemmas about one step against.

Both are Itô SDEs of SGD on affine gradients: with additive noise an Ornstein–Uhlenbeck process, whose law is Gaussian,
and with noise proportional to x a geometric Brownian motion, whose moments are exponentials.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import comb, erf

from svag.arrays import FloatArray
from svag.exact.affine import AffineProblem
from svag.exact.noise import Atoms


@dataclass(frozen=True)
class AdditiveNoise:
    """Gradient x − b with skewed b: b is `low` with probability p, `high` otherwise."""

    low: float = -0.3
    high: float = 1.2
    p: float = 0.7
    lr: float = 0.3
    start: float = 1.0

    @property
    def bed(self) -> AffineProblem:
        """The problem for the matrices on moments."""
        return AffineProblem(Atoms((1.0, 1.0), (self.low, self.high), (self.p, 1 - self.p)), self.lr, start=self.start)

    @property
    def mean(self) -> float:
        """E b, where the drift vanishes."""
        return self.p * self.low + (1 - self.p) * self.high

    @property
    def variance(self) -> float:
        """Var b, which is Σ."""
        return self.p * (1 - self.p) * (self.high - self.low) ** 2

    def increment(self, time: float) -> tuple[float, float]:
        """Mean and variance of X_t − x: X_t is Gaussian."""
        return (self.start - self.mean) * math.expm1(-time), -self.lr * self.variance * math.expm1(-2 * time) / 2

    def increment_moment(self, order: int, time: float) -> float:
        """E (X_t − x)^order."""
        mean, variance = self.increment(time)
        even = range(0, order + 1, 2)
        return float(sum(comb(order, k) * mean ** (order - k) * _odd_factorial(k) * variance ** (k / 2) for k in even))

    def mean_length(self, time: float) -> float:
        """E |X_t − x|: that of a folded Gaussian."""
        mean, variance = self.increment(time)
        tail = math.sqrt(2 * variance / math.pi) * math.exp(-(mean**2) / (2 * variance))
        return tail + mean * float(erf(mean / math.sqrt(2 * variance)))

    def mean_cosine(self, time: float) -> float:
        """E cos X_t."""
        mean, variance = self.increment(time)
        return math.exp(-variance / 2) * math.cos(self.start + mean)


@dataclass(frozen=True)
class ProportionalNoise:
    """Gradient (a ± s)x with equal probabilities."""

    slope: float = 0.9
    scatter: float = 0.7
    lr: float = 0.3
    start: float = 1.0

    @property
    def bed(self) -> AffineProblem:
        """The problem for the matrices on moments."""
        slopes = (self.slope + self.scatter, self.slope - self.scatter)
        return AffineProblem(Atoms(slopes, (0.0, 0.0), (0.5, 0.5)), self.lr, start=self.start)

    def rate(self, order: int) -> float:
        """c of E X_t^order = x^order e^(ct)."""
        return -order * self.slope + order * (order - 1) / 2 * self.lr * self.scatter**2

    def moment(self, order: int, time: float) -> float:
        """E X_t^order."""
        return self.start**order * math.exp(self.rate(order) * time)

    def increment_moment(self, order: int, time: float) -> float:
        """E (X_t − x)^order; with expm1, because what is left of the sum is small."""
        powers = range(1, order + 1)
        terms = (comb(order, j) * (-1) ** (order - j) * math.expm1(self.rate(j) * time) for j in powers)
        return self.start**order * float(sum(terms))


def moments_of(problem: AdditiveNoise | ProportionalNoise, degree: int, time: float) -> FloatArray:
    """E X_t^p, p = 1 … degree, in closed form."""
    if isinstance(problem, ProportionalNoise):
        return np.array([problem.moment(p, time) for p in range(1, degree + 1)])
    x = problem.start
    return np.array(
        [
            sum(comb(p, j) * x ** (p - j) * problem.increment_moment(j, time) for j in range(p + 1))
            for p in range(1, degree + 1)
        ]
    )


def _odd_factorial(order: int) -> float:
    """(k − 1)!!, the k-th moment of a standard Gaussian for even k."""
    return float(math.prod(range(1, order, 2)))
