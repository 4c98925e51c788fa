"""Poisson gradients: linear scaling holds for every batch size and the Itô SDE never does (sec:counterexample).

The gradient of one example is Poisson with mean 1, whatever the weights. Here η is the learning rate *per example*: a
batch of B uses Bη. After T examples every law is known point by point, and none depends on B; two distances say how far
it is from the normal law of the SDE.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import poisson

from svag.arrays import FloatArray
from svag.paper.exact.processes import ExactProcess, SmallerBatches, Svag
from svag.theory.weights import svag_weights


@dataclass(frozen=True)
class NormalLaw:
    """N(mean, sd²)."""

    mean: float
    sd: float

    def cdf(self, x: FloatArray) -> FloatArray:
        """P(X ≤ x)."""
        return np.asarray(ndtr((x - self.mean) / self.sd), dtype=np.float64)

    def quantile(self, probability: FloatArray) -> FloatArray:
        """The x with P(X ≤ x) = probability."""
        return np.asarray(self.mean + self.sd * ndtri(probability), dtype=np.float64)

    def cdf_integral(self, x: FloatArray) -> FloatArray:
        """∫ P(X ≤ u) du over u ≤ x."""
        z = (x - self.mean) / self.sd
        density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
        return np.asarray(self.sd * (z * ndtr(z) + density), dtype=np.float64)


@dataclass(frozen=True)
class DiscreteLaw:
    """Finitely many points, in increasing order, with their probabilities."""

    points: FloatArray
    probabilities: FloatArray

    def cdf(self, x: FloatArray) -> FloatArray:
        """P(X ≤ x)."""
        below = np.searchsorted(self.points, x, side="right")
        return np.concatenate([[0.0], np.cumsum(self.probabilities)])[below]

    def cumulant(self, j: int) -> float:
        """The j-th cumulant, j = 1, 2, 3."""
        mean = float(self.probabilities @ self.points)
        return mean if j == 1 else float(self.probabilities @ (self.points - mean) ** j)


def poisson_law(mean: float) -> DiscreteLaw:
    """The Poisson law, cut where less than 1e-16 of it is left."""
    spread = 10 * np.sqrt(mean) + 20
    points = np.arange(max(0.0, np.floor(mean - spread)), np.ceil(mean + spread) + 1)
    return DiscreteLaw(points, np.asarray(poisson.pmf(points, mean), dtype=np.float64))


def repeated(law: DiscreteLaw, times: int) -> DiscreteLaw:
    """The law of the sum of `times` independent copies of a law on consecutive whole numbers."""
    if np.any(np.diff(law.points) != 1):
        raise ValueError("only laws on consecutive whole numbers can be summed by convolution")
    probabilities = np.ones(1)
    for _ in range(times):
        probabilities = np.convolve(probabilities, law.probabilities)
    return DiscreteLaw(times * law.points[0] + np.arange(probabilities.size), probabilities)


def combine(first: DiscreteLaw, second: DiscreteLaw, a: float, b: float) -> DiscreteLaw:
    """The law of aX + bY for independent X, Y; points of less than 1e-18 are left out."""
    points = np.add.outer(a * first.points, b * second.points).ravel()
    probabilities = np.multiply.outer(first.probabilities, second.probabilities).ravel()
    points, probabilities = points[probabilities > 1e-18], probabilities[probabilities > 1e-18]
    order = np.argsort(points)
    points, probabilities = points[order], probabilities[order]
    # 2·3 − 1·1 and 2·2 + 1·1 may differ by rounding; what is closer than that is one point
    new = np.concatenate([[True], np.diff(points) > 1e-9 * max(abs(a), abs(b))])
    return DiscreteLaw(points[new], np.add.reduceat(probabilities, np.flatnonzero(new)))


def kolmogorov(law: DiscreteLaw, normal: NormalLaw) -> float:
    """Largest distance between the two distribution functions, reached at a point of the discrete law."""
    above = np.cumsum(law.probabilities)
    below = np.concatenate([[0.0], above[:-1]])
    smooth = normal.cdf(law.points)
    return float(max(np.abs(above - smooth).max(), np.abs(below - smooth).max()))


def wasserstein(law: DiscreteLaw, normal: NormalLaw) -> float:
    """Wasserstein-1 distance ∫ |F − Φ|, each piece between two points in closed form."""
    left, right = law.points[:-1], law.points[1:]
    level = np.clip(np.cumsum(law.probabilities)[:-1], 0.0, 1.0)
    crossing = np.clip(normal.quantile(level), left, right)
    integral = normal.cdf_integral
    before = level * (crossing - left) - (integral(crossing) - integral(left))
    after = (integral(right) - integral(crossing)) - level * (right - crossing)
    tails = integral(law.points[:1]) + integral(law.points[-1:]) - (law.points[-1:] - normal.mean)
    return float((before + after).sum() + tails.item())


@dataclass(frozen=True)
class PoissonProblem:
    """SGD from 0 over `examples` examples (the T of the paper) at the per-example learning rate `lr`."""

    lr: float
    examples: float

    def law(self, process: Svag | SmallerBatches) -> DiscreteLaw:
        """Law of the last iterate: −ηZ for the ladder, −(ηm/l)(aP₁ + bP₂) with P_i ~ Poi(lT/m) for SVAG(l, m)."""
        if isinstance(process, SmallerBatches):
            count = poisson_law(self.examples)
            return DiscreteLaw(-self.lr * count.points[::-1], count.probabilities[::-1])
        ell, m = process.ell, process.split
        a, b = svag_weights(ell, m)
        step = -self.lr * m / ell
        count = poisson_law(ell * self.examples / m)
        unused = DiscreteLaw(np.zeros(1), np.ones(1))
        return combine(count, count if b else unused, step * a, step * b)

    def sde_law(self) -> NormalLaw:
        """Law of the Itô SDE, and of NGD at every batch size: N(−ηT, η²T)."""
        return NormalLaw(-self.lr * self.examples, self.lr * float(np.sqrt(self.examples)))

    def cumulant(self, j: int, process: ExactProcess) -> float:
        """The j-th cumulant in closed form: (−η)^j T f_j / l^(j−1), f_j the factor of the process."""
        factor = process.cumulant_factor(j) / process.ell ** (j - 1)
        return float((-self.lr) ** j * self.examples * factor)
