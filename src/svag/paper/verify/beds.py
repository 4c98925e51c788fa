"""The problems on which the theorems are checked: small, but with every feature that could break a claim.

Two SDEs have laws in closed form, which the generators and the lemmas about one step are checked against. Both are Itô
SDEs of SGD on affine gradients: with additive noise an Ornstein–Uhlenbeck process, whose law is Gaussian, and with
noise proportional to x a geometric Brownian motion, whose moments are exponentials.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import comb, erf

from svag.arrays import FloatArray
from svag.paper.exact.adaptive import AdaptiveProblem, CircleNodes, IntervalNodes
from svag.paper.exact.affine import AffineProblem
from svag.paper.exact.circle import CircleProblem
from svag.paper.exact.noise import Atoms, CompoundPoisson
from svag.paper.exact.rayleigh import ChainProcess, Paths, RayleighProblem, simulate
from svag.paper.exact.regression import RegressionProblem
from svag.theory.equilibrium import steps_to_equilibrium

EFFECTIVE_STEPS = 8

# Skewed noise that depends on the weights and can be divided, so that the ladder is a genuine process.
SKEWED = AffineProblem(CompoundPoisson(Atoms((0.4, 1.6), (-0.3, 1.2), (0.7, 0.3))), lr=0.3, start=1.0)

# The noise is symmetric at every weight (Λ = 0): only the fourth cumulant tells it from a Gaussian.
SYMMETRIC = AffineProblem(
    CompoundPoisson(Atoms((0.8, -0.8), (1.0, -1.0), (0.5, 0.5)), sure=(1.0, 0.3)), lr=0.3, start=1.0
)

# Three examples: what a data set is, and small enough to enumerate.
EXAMPLES = AffineProblem(Atoms((0.5, 1.5, 1.0), (0.0, -0.5, 1.0), (0.5, 0.2, 0.3)), lr=0.3, start=1.0)

# Gradients that are not affine.
CIRCLE = CircleProblem((0.3, -0.2, 0.1), (0.6, 1.0, 0.8), (0.0, 0.5, 2.0), (0.5, 0.2, 0.3), lr=0.5)

# Gradients for optimizers with a second moment, and for Adam with momentum after three steps: bias corrections count.
SECOND_MOMENT = AdaptiveProblem()
YOUNG = AdaptiveProblem(start=(0.8, 0.2, 0.36), age=3.0, theta=CircleNodes(17), second=IntervalNodes(0.2, 1.4, 9))
# Enough to see a mistake.
COARSE = replace(YOUNG, theta=CircleNodes(13), first=IntervalNodes(-2.0, 2.0, 7), second=IntervalNodes(0.2, 1.4, 7))

# The gradient is as large as its noise, so that the distortion of a larger batch is too.
STRONG = AdaptiveProblem(amplitude=0.8, second=IntervalNodes(0.3, 5.0, 14))


def regression(lr: float = 0.1) -> RegressionProblem:
    """Least squares on six random examples in three dimensions: noise that depends on the weights."""
    rng = np.random.default_rng(2021)
    inputs, outputs = rng.standard_normal((6, 3)), rng.standard_normal(6)
    hessians = np.einsum("ni,nj->nij", inputs, inputs)
    return RegressionProblem(hessians, outputs[:, None] * inputs, lr, 2, np.ones(3))


def ornstein_uhlenbeck(lr: float) -> RegressionProblem:
    """A quadratic in two dimensions with noise that does not depend on the weights (fig:proof_concept)."""
    hessian = np.array([[1.0, 0.3], [0.3, 0.5]])
    targets = np.array([[1.0, 0.2], [-1.0, 0.6], [0.4, -1.2], [-0.2, 0.8]])
    return RegressionProblem(np.broadcast_to(hessian, (4, 2, 2)), targets, lr, 1, np.array([2.0, -1.0]))


def rayleigh(examples: int = 12, dimension: int = 6) -> RayleighProblem:
    """Random vectors of unequal directions; the seed is part of the problem, not of the check."""
    scales = np.linspace(0.5, 2.0, dimension)
    return RayleighProblem(np.random.default_rng(2021).standard_normal((examples, dimension)) * scales)


def sphere(rng: np.random.Generator, chains: int, dimension: int = 6) -> FloatArray:
    """Random directions, one a chain."""
    x = rng.standard_normal((chains, dimension))
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True), dtype=np.float64)


def equilibrium_run(
    rng: np.random.Generator,
    process: ChainProcess,
    *,
    lr: float,
    weight_decay: float,
    chains: int,
    batch_size: int = 1,
    window: int = 200,
) -> Paths:
    """Averages over `window` effective steps of a process on the Rayleigh quotient, eight e-folds after its start."""
    burn = round(steps_to_equilibrium(lr, weight_decay, e_folds=8)) + 20
    paths = simulate(
        rayleigh(),
        process,
        lr=lr,
        weight_decay=weight_decay,
        batch_size=batch_size,
        steps=burn + window,
        start=sphere(rng, chains),
        rng=rng,
    )
    return paths.means(burn)


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
