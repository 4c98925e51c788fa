"""The processes of the paper, each by what it does to the law of one batch gradient.

Every discrete process here moves by −(η/l) times a gradient with the mean of the batch gradient. What tells them apart
is the law of that gradient, given twice: as a factor on each cumulant, and as a log-characteristic function made from
the one of the batch gradient. A problem with a known law uses whichever it can evaluate.

>>> Svag(8).cumulant_factor(2), EulerMaruyama(8).cumulant_factor(2), SmallerBatches(8).cumulant_factor(2)
(8.0, 8.0, 8.0)
>>> Svag(8).cumulant_factor(3), EulerMaruyama(8).cumulant_factor(3), SmallerBatches(8).cumulant_factor(3)
(11.5, 0.0, 64.0)

All three amplify the covariance by l. They differ from the third cumulant on, which decides whether the Itô SDE is the
limit.

How fast errors fall as l grows (def:weak_approx), and Richardson's trick, are at the end.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from svag.arrays import FloatArray
from svag.theory.weights import cumulant_factor, svag_weights

ComplexArray: TypeAlias = NDArray[np.complex128]
LogCharacteristic: TypeAlias = Callable[[FloatArray], ComplexArray]


class ExactProcess(Protocol):
    """A process that takes `ell` steps of η/ell in the time of one SGD step."""

    @property
    def ell(self) -> int:
        """How many steps make one effective step."""

    def cumulant_factor(self, j: int) -> float:
        """By what the j-th cumulant of the batch gradient is multiplied."""


class CharacteristicProcess(ExactProcess, Protocol):
    """A process that also knows the whole law of its step."""

    def log_characteristic(self, batch: LogCharacteristic, theta: FloatArray, variance: FloatArray) -> ComplexArray:
        """log E exp(iθ(g − ∇L)) of the step's gradient g, from that of the batch gradient and its variance."""


@dataclass(frozen=True)
class Svag:
    """SVAG with refinement `ell`, its batches cut into `split` parts (eq:svag_iter); `Svag(1)` is SGD."""

    ell: int
    split: int = 1

    def cumulant_factor(self, j: int) -> float:
        """m^(j−1)(a^j + b^j)."""
        return cumulant_factor(j, self.ell, self.split)

    def log_characteristic(self, batch: LogCharacteristic, theta: FloatArray, variance: FloatArray) -> ComplexArray:
        """Sum over both weights w of ψ(mwθ)/m, where ψ(mθ)/m belongs to a batch of B/m."""
        m = self.split
        a, b = svag_weights(self.ell, m)
        return (batch(m * a * theta) + batch(m * b * theta)) / m


@dataclass(frozen=True)
class Copies:
    """One step of η/l from several independent batches with these weights (the remark after lem:D)."""

    ell: int
    weights: tuple[float, ...]

    def cumulant_factor(self, j: int) -> float:
        """Σ w^j: the cumulants of independent numbers add."""
        return math.fsum(weight**j for weight in self.weights)


@dataclass(frozen=True)
class EulerMaruyama:
    """Euler–Maruyama at η/l: Gaussian noise of l times the covariance (eq:em); l = 1 is noisy GD (eq:noisy_gd)."""

    ell: int

    def cumulant_factor(self, j: int) -> float:
        """Mean kept, covariance amplified, nothing else."""
        return {1: 1.0, 2: float(self.ell)}.get(j, 0.0)

    def log_characteristic(self, batch: LogCharacteristic, theta: FloatArray, variance: FloatArray) -> ComplexArray:
        """−lθ²σ²/2."""
        return (-0.5 * self.ell * theta**2 * variance).astype(np.complex128)


@dataclass(frozen=True)
class SmallerBatches:
    """The linear scaling rule downwards: batches of B/l at η/l (def:lsr, def:glsr). Its limit is not the Itô SDE.

    A genuine process where a batch can be divided (eq:divisible_noise), formal cumulant algebra elsewhere.
    """

    ell: int

    def cumulant_factor(self, j: int) -> float:
        """l^(j−1)."""
        return float(self.ell ** (j - 1))

    def log_characteristic(self, batch: LogCharacteristic, theta: FloatArray, variance: FloatArray) -> ComplexArray:
        """ψ(lθ)/l."""
        return batch(self.ell * theta) / self.ell


SGD = Svag(1)
NGD = EulerMaruyama(1)


@dataclass(frozen=True)
class Ito:
    """dX = −∇L dt + (ηΣ)^½ dW (eq:motivating_sde)."""


@dataclass(frozen=True)
class SecondOrder:
    """The Itô SDE with the drift −∇(L + (η/4)|∇L|²) (eq:app_2nd_sde_wd).

    Attributes:
        corrected: use ηΣ + (η²/2)(HΣ + ΣH) for the diffusion, without which a noise-dominated equilibrium comes out
            worse than at first order.
    """

    corrected: bool = False


@dataclass(frozen=True)
class Levy:
    """The limit of the linear-scaling ladder, dX = −∇L dt − ησ(X) dZ_{t/η} (eq:levy_sde).

    Attributes:
        printed: take the + of the paper instead, which is another process when the noise is skewed.
    """

    printed: bool = False


ExactLimit: TypeAlias = Ito | SecondOrder | Levy


@dataclass(frozen=True)
class WeakOrder:
    """How fast a process approaches a limit, per test function.

    Attributes:
        refinements: the values of l (or of 1/η), increasing.
        errors: the weak error, one row a refinement, one column a test function.
    """

    refinements: tuple[float, ...]
    errors: FloatArray

    @property
    def slopes(self) -> FloatArray:
        """Local slopes d log error / d log refinement between neighbouring refinements, one row a pair."""
        rise: FloatArray = np.diff(np.log(self.errors), axis=0)
        run: FloatArray = np.diff(np.log(self.refinements))
        return rise / run[:, None]

    @property
    def order(self) -> FloatArray:
        """The order per test function: minus the slope between the two finest refinements."""
        finest: FloatArray = self.slopes[-1]
        return -finest


def measure_weak_order(
    refinements: Sequence[int], path: Callable[[int], FloatArray], limit: Callable[[int], FloatArray]
) -> WeakOrder:
    """Weak error, *maximum over k* as in thm:sde_svag, of `path(l)` against `limit(l)` for each refinement l.

    Both return expectations with one row a step and one column a test function.
    """
    errors = [np.abs(path(ell) - limit(ell)).max(axis=0) for ell in refinements]
    return WeakOrder(tuple(float(ell) for ell in refinements), np.array(errors))


def richardson(coarse: FloatArray, fine: FloatArray) -> FloatArray:
    """Cancel the leading error c/l of the values at l and at 2l: 2E_{2l} − E_l.

    >>> richardson(np.array([1 + 1 / 4]), np.array([1 + 1 / 8]))
    array([1.])
    """
    return 2 * fine - coarse
