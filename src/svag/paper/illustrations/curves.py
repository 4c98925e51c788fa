"""The tables behind the pictures of SVAG and its SDE: weak errors, sample paths, Poisson laws, learning rates.

Each function evaluates or simulates a problem whose law is known and returns frozen rows, in an object that says in one
sentence what they show. `svag reproduce LABEL` draws them; `svag verify LABEL` tests the same claims.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from svag.arrays import FloatArray
from svag.lab.specs.schedules import Constant, Cosine, Steps, Triangle
from svag.paper.exact.affine import AffineProblem
from svag.paper.exact.poisson import DiscreteLaw, NormalLaw, PoissonProblem, kolmogorov
from svag.paper.exact.processes import SGD, EulerMaruyama, ExactLimit, ExactProcess, Ito, Levy, SmallerBatches, Svag
from svag.paper.exact.rayleigh import example_weights
from svag.paper.exact.regression import RegressionProblem
from svag.paper.verify.beds import SKEWED, ornstein_uhlenbeck
from svag.paper.verify.svag_limit import DEGREES, affine_order

Row = TypeVar("Row")


@dataclass(frozen=True)
class Illustration(Generic[Row]):
    """A table to be drawn, with what it shows in a sentence."""

    rows: tuple[Row, ...]
    said: str

    def __str__(self) -> str:
        return self.said


# Weak errors (thm:sde_svag)

REFERENCE = "slope −1"
_ORDER_ONE = -0.9  # a slope below this is that of an error of order 1/ell, not yet quite at its asymptote
_PAIRS: tuple[tuple[str, Callable[[int], ExactProcess], ExactLimit], ...] = (
    ("SVAG → Itô", Svag, Ito()),
    ("NGD → Itô", EulerMaruyama, Ito()),
    ("ladder → Itô", SmallerBatches, Ito()),
    ("ladder → Lévy", SmallerBatches, Levy()),
)


@dataclass(frozen=True)
class WeakError:
    """The largest error over all steps of E x^degree; or a point of the line that an error of order 1 follows."""

    series: str
    degree: int
    ell: int
    error: float


@dataclass(frozen=True)
class WeakErrors:
    """How fast processes approach their limits.

    Attributes:
        rows: errors of every process in every degree, and a line of slope −1 below all of them.
        slopes: process → d log error / d log ell between the two largest ell, in the degree that falls slowest.
    """

    rows: tuple[WeakError, ...]
    slopes: Mapping[str, float]

    def __str__(self) -> str:
        arrive = [name for name, slope in self.slopes.items() if slope < _ORDER_ONE]
        stay = [name for name in self.slopes if name not in arrive]
        said = f"Error of order 1/ell in every degree: {', '.join(arrive) or 'none'}."
        return said + (f" Not in every degree: {', '.join(stay)}." if stay else "")


def weak_errors(
    problem: AffineProblem = SKEWED, ells: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128, 256)
) -> WeakErrors:
    """Exact weak errors of SVAG, NGD and the ladder against ell (thm:sde_svag).

    >>> print(weak_errors(ells=(64, 256)))
    Error of order 1/ell in every degree: SVAG → Itô, NGD → Itô, ladder → Lévy. Not in every degree: ladder → Itô.
    """
    degrees = range(1, DEGREES + 1)
    orders = {name: affine_order(problem, process, limit, ells) for name, process, limit in _PAIRS}
    rows = [
        WeakError(name, degree, ell, float(order.errors[i, degree - 1]))
        for name, order in orders.items()
        for degree in degrees
        for i, ell in enumerate(ells)
    ]
    for degree in degrees:
        lowest = min(row.error for row in rows if row.degree == degree and row.ell == ells[-1])
        rows += [WeakError(REFERENCE, degree, ell, lowest / 3 * ells[-1] / ell) for ell in ells]
    return WeakErrors(tuple(rows), {name: float(order.slopes[-1].max()) for name, order in orders.items()})


# Sample paths (fig:proof_concept)

_LEVELS = (0.5, 0.9, 0.99)
_STEPS, _ELL, _FINE = 12, 16, 64


@dataclass(frozen=True)
class PathPoint:
    """A point of a sample path; `order` counts the steps of η/ell."""

    process: str
    path: int
    order: int
    x: float
    y: float


@dataclass(frozen=True)
class LevelPoint:
    """A point of the ellipse that holds the last weight of the SDE with probability `level`."""

    level: float
    order: int
    x: float
    y: float


@dataclass(frozen=True)
class SamplePaths:
    """Sample paths, and the density of the SDE in which they should end.

    Attributes:
        paths: a few of every process.
        levels: ellipses of the SDE's exact law at the end.
        inside: process → share of many last points inside the 90% ellipse.
    """

    paths: tuple[PathPoint, ...]
    levels: tuple[LevelPoint, ...]
    inside: Mapping[str, float]

    def __str__(self) -> str:
        shares = "; ".join(f"{name}: {share:.1%}" for name, share in self.inside.items())
        return f"Last points inside the 90% region of the SDE. {shares}."


def sample_paths(*, paths: int = 2, chains: int = 2000, seed: int = 0) -> SamplePaths:
    """Paths of the SDE, SVAG and SGD on an Ornstein–Uhlenbeck problem (fig:proof_concept).

    The density comes from the exact moments of the SDE, which is Gaussian here.

    >>> len(sample_paths(paths=1, chains=10).paths)  # 12 steps of η, of η/16 and of η/64, and three starts
    975

    Args:
        paths: how many of each process to keep.
        chains: how many of each process to simulate.
        seed: of the simulation, the same for every process.
    """
    problem = ornstein_uhlenbeck(lr=0.5)
    moments = problem.sde_moments(_STEPS)[-1]
    mean = moments[0, 1:]
    root = np.linalg.cholesky(moments[1:, 1:] - np.outer(mean, mean))
    levels = [
        LevelPoint(level, i, *map(float, mean + _radius(level) * root @ (np.cos(angle), np.sin(angle))))
        for level in _LEVELS
        for i, angle in enumerate(np.linspace(0, 2 * np.pi, 61))
    ]
    points, inside = [], {}
    for name, process in (
        (f"SDE (Euler–Maruyama at η/{_FINE})", EulerMaruyama(_FINE)),
        (f"SVAG, ell = {_ELL}", Svag(_ELL)),
        ("SGD", SGD),
    ):
        found = _simulate(problem, process, chains, np.random.default_rng(seed))
        for path in range(paths):
            points += [PathPoint(name, path, k, float(x), float(y)) for k, (x, y) in enumerate(found[:, path])]
        away = np.linalg.solve(root, (found[-1] - mean).T)
        inside[name] = float(((away**2).sum(axis=0) <= _radius(0.9) ** 2).mean())
    return SamplePaths(tuple(points), tuple(levels), inside)


def _radius(probability: float) -> float:
    """The radius of the disc that holds a standard normal point of the plane with this probability."""
    return math.sqrt(-2 * math.log(1 - probability))


def _simulate(
    problem: RegressionProblem, process: Svag | EulerMaruyama, chains: int, rng: np.random.Generator
) -> FloatArray:
    """All weights, one row a step of η/ell: the Hessian is the same for every example, the targets are the noise."""
    h, hessian = problem.lr / process.ell, problem.hessians[0]
    draw = example_weights(process, len(problem.targets), problem.batch_size, chains)
    x = np.broadcast_to(problem.start, (chains, problem.start.size))
    found = [x]
    for _ in range(_STEPS * process.ell):
        x = x - h * (x @ hessian - draw(rng) @ problem.targets)
        found.append(x)
    return np.array(found)


# Poisson gradients (sec:counterexample)

POISSON = PoissonProblem(lr=0.1, examples=9.0)
_ALONG: tuple[tuple[str, type[Svag | SmallerBatches]], ...] = (
    ("SVAG", Svag),
    ("ladder (linear scaling)", SmallerBatches),
)


@dataclass(frozen=True)
class CdfPoint:
    """P(x ≤ `x`) of the last iterate."""

    law: str
    x: float
    probability: float


@dataclass(frozen=True)
class LawDistance:
    """Kolmogorov distance of the law of a process from that of the SDE."""

    process: str
    ell: int
    distance: float


def poisson_cdfs(
    problem: PoissonProblem = POISSON, ells: Sequence[int] = (2, 8), points: int = 401
) -> tuple[CdfPoint, ...]:
    """Distribution functions of SGD, SVAG and the SDE, over four standard deviations around the mean.

    >>> [(row.law, round(row.probability, 3)) for row in poisson_cdfs(ells=(8,), points=6)[3::6]]  # at −0.66
    [('SGD, at every batch size of the ladder', 0.793), ('SVAG, ell = 8', 0.787), ('Itô SDE and NGD', 0.788)]
    """
    sde = problem.sde_law()
    grid = np.linspace(sde.mean - 4 * sde.sd, sde.mean + 4 * sde.sd, points)
    laws: dict[str, DiscreteLaw | NormalLaw] = {
        "SGD, at every batch size of the ladder": problem.law(SmallerBatches(1)),
        **{f"SVAG, ell = {ell}": problem.law(Svag(ell)) for ell in ells},
        "Itô SDE and NGD": sde,
    }
    return tuple(
        CdfPoint(name, float(x), float(p))
        for name, law in laws.items()
        for x, p in zip(grid, law.cdf(grid), strict=True)
    )


def poisson_distances(
    problem: PoissonProblem = POISSON, ells: Sequence[int] = (1, 2, 4, 8, 16, 32, 64)
) -> Illustration[LawDistance]:
    """Distances from the SDE, along SVAG and along the ladder (sec:counterexample).

    >>> print(poisson_distances(ells=(1, 16)))
    Linear scaling is exact at every batch size and stays 0.087 away from the SDE; SVAG is 0.0026 away at ell = 16.
    """
    sde = problem.sde_law()
    rows = [
        LawDistance(name, ell, kolmogorov(problem.law(process(ell)), sde)) for name, process in _ALONG for ell in ells
    ]
    svag, ladder = (next(row for row in rows[::-1] if row.process == name) for name, _ in _ALONG)
    said = (
        f"Linear scaling is exact at every batch size and stays {ladder.distance:.3f} away from the SDE; "
        f"SVAG is {svag.distance:.4f} away at ell = {svag.ell}."
    )
    return Illustration(tuple(rows), said)


# Learning rates (fig:app_exotic_lr)

_PAPER: Mapping[str, Constant | Steps | Cosine | Triangle] = {
    "cosine": Cosine(floor=0.00125),
    "triangle": Triangle(peaks=(1.0, 0.5), floor=0.00125),
}


@dataclass(frozen=True)
class LearningRate:
    """The learning rate in one update of SVAG: `lr`, η, is held over an effective step, `applied` is η/ell."""

    schedule: str
    ell: int
    effective_step: float
    lr: float
    applied: float


def learning_rates(
    schedules: Mapping[str, Constant | Steps | Cosine | Triangle] = _PAPER,
    *,
    lr: float = 0.8,
    steps: int = 62_400,
    ells: Sequence[int] = (1, 4, 16),
    points: int = 81,
) -> Illustration[LearningRate]:
    """η and η/ell at `points` moments of a run of `steps` effective steps, each in the update in which it falls.

    >>> start, middle, end = learning_rates({"cosine": Cosine()}, steps=10, ells=(4,), points=3).rows
    >>> (start.lr, start.applied), (middle.effective_step, middle.lr), end.effective_step
    ((0.8, 0.2), (5.0, 0.4), 9.75)
    """
    rows = []
    for name, schedule in schedules.items():
        for ell in ells:
            for i in range(points):
                update = min(round(i * (steps * ell) / (points - 1)), steps * ell - 1)
                rate = lr * schedule.multiplier(update // ell, steps)
                rows.append(LearningRate(name, ell, update / ell, rate, rate / ell))
    said = (
        f"Against effective steps the learning rate of the run is one curve for ell = "
        f"{', '.join(map(str, sorted(ells)))}; each update applies it divided by ell."
    )
    return Illustration(tuple(rows), said)
