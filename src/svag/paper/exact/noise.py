"""Laws of the gradient of one example: finitely many, or a shower of them (compound Poisson)."""

import math
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from numpy.polynomial import Polynomial
from scipy.special import comb

from svag.theory.weights import svag_weights


@dataclass(frozen=True)
class Atoms:
    """One of finitely many affine gradients g(x) = slope·x − intercept, with these probabilities."""

    slopes: tuple[float, ...]
    intercepts: tuple[float, ...]
    probabilities: tuple[float, ...]

    @property
    def gradients(self) -> tuple[Polynomial, ...]:
        """The gradient of each atom as a polynomial in x."""
        return tuple(
            Polynomial([-intercept, slope]) for slope, intercept in zip(self.slopes, self.intercepts, strict=True)
        )

    def raw_moments(self, degree: int) -> list[Polynomial]:
        """E g^j as polynomials in x, j = 0 … degree."""
        return [
            sum((p * g**j for p, g in zip(self.probabilities, self.gradients, strict=True)), Polynomial([0.0]))
            for j in range(degree + 1)
        ]

    def cumulants(self, degree: int) -> list[Polynomial]:
        """Cumulants κ_j as polynomials in x, j = 1 … degree, at index j; index 0 is 0."""
        return moments_to_cumulants(self.raw_moments(degree))

    def shifted(self, by: float) -> "Atoms":
        """The same law in the coordinate x − by."""
        moved = (b - a * by for a, b in zip(self.slopes, self.intercepts, strict=True))
        return Atoms(self.slopes, tuple(moved), self.probabilities)


@dataclass(frozen=True)
class CompoundPoisson:
    """A sure gradient plus the sum of a Poisson number (mean 1) of atoms.

    Infinitely divisible (eq:divisible_noise): a batch can be halved for ever.

    Attributes:
        atoms: what arrives.
        sure: slope and intercept of the part without noise.
    """

    atoms: Atoms
    sure: tuple[float, float] = (0.0, 0.0)

    def cumulants(self, degree: int) -> list[Polynomial]:
        """κ_j is the j-th raw moment of the atoms, at index j; index 0 is 0; κ_1 includes the sure part."""
        slope, intercept = self.sure
        cumulants = [Polynomial([0.0]), *self.atoms.raw_moments(degree)[1:]]
        cumulants[1] = cumulants[1] + Polynomial([-intercept, slope])
        return cumulants

    def shifted(self, by: float) -> "CompoundPoisson":
        """The same law in the coordinate x − by."""
        slope, intercept = self.sure
        return CompoundPoisson(self.atoms.shifted(by), (slope, intercept - slope * by))


Noise: TypeAlias = Atoms | CompoundPoisson
NoiseLaw: TypeAlias = tuple[tuple[float, float], ...]
"""Pairs of a probability and a value."""


@dataclass(frozen=True)
class TwoValues:
    """Noise of mean 0 and variance 1 with two values; the upper one has the probability `chance`."""

    chance: float

    def batch(self, kappa: int = 1) -> NoiseLaw:
        """The law at κ times the batch: the mean of κ independent values.

        >>> TwoValues(0.5).batch(2)
        ((0.25, -1.0), (0.5, 0.0), (0.25, 1.0))
        """
        p, upper = self.chance, math.sqrt((1 - self.chance) / self.chance)
        return tuple(
            (math.comb(kappa, k) * p**k * (1 - p) ** (kappa - k), (k * upper - (kappa - k) / upper) / kappa)
            for k in range(kappa + 1)
        )

    def svag(self, ell: int) -> NoiseLaw:
        """The law of az₁ + bz₂ with the weights of SVAG: mean 0, variance l.

        >>> TwoValues(0.5).svag(5)
        ((0.25, -1.0), (0.25, -3.0), (0.25, 3.0), (0.25, 1.0))
        """
        a, b = svag_weights(ell)
        return tuple((p * q, a * y + b * z) for (p, y), (q, z) in product(self.batch(), repeat=2))


def moments_to_cumulants(moments: list[Polynomial]) -> list[Polynomial]:
    """Cumulants from raw moments: κ_n = m_n − Σ_{j<n} C(n−1, j−1) κ_j m_{n−j}."""
    cumulants = [Polynomial([0.0])]
    for n in range(1, len(moments)):
        lower = (comb(n - 1, j - 1) * cumulants[j] * moments[n - j] for j in range(1, n))
        cumulants.append(moments[n] - sum(lower, Polynomial([0.0])))
    return cumulants


def cumulants_to_moments(cumulants: list[Polynomial]) -> list[Polynomial]:
    """Raw moments from cumulants: m_n = Σ_j C(n−1, j−1) κ_j m_{n−j}, m_0 = 1."""
    moments = [Polynomial([1.0])]
    for n in range(1, len(cumulants)):
        terms = (comb(n - 1, j - 1) * cumulants[j] * moments[n - j] for j in range(1, n + 1))
        moments.append(sum(terms, Polynomial([0.0])))
    return moments
