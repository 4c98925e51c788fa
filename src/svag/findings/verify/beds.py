"""The problems on which the theorems are checked: small, but with every feature that could break a claim."""

import numpy as np

from svag.arrays import FloatArray
from svag.exact.affine import AffineProblem
from svag.exact.circle import CircleProblem
from svag.exact.noise import Atoms, CompoundPoisson
from svag.exact.rayleigh import ChainAverages, ChainProcess, RayleighProblem, simulate
from svag.exact.regression import RegressionProblem
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
) -> ChainAverages:
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
