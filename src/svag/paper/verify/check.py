"""One check of one claim: a number, and where it must lie."""

import math
from dataclasses import dataclass

import numpy as np

from svag.arrays import FloatArray
from svag.as_json import json_fields

Z_LIMIT = 4.9  # two-sided α = 1e-6


@dataclass(frozen=True)
class Check:
    """A measured number and the range in which the claim holds.

    Attributes:
        label: the LaTeX label in the paper.
        claim: what is claimed, in words.
        measured: the number that decides.
        low: smallest value for which the claim holds.
        high: largest value for which the claim holds.
        control: whether this is a negative control, which shows that the wrong thing would be caught.
    """

    label: str
    claim: str
    measured: float
    low: float
    high: float
    control: bool = False

    @property
    def passed(self) -> bool:
        """Whether the number lies in its range (NaN does not)."""
        return self.low <= self.measured <= self.high

    @property
    def tolerance(self) -> str:
        """The range as people write it."""
        if math.isinf(self.low):
            return f"≤ {self.high:.4g}"
        if math.isinf(self.high):
            return f"≥ {self.low:.4g}"
        return f"{(self.low + self.high) / 2:.4g} ± {(self.high - self.low) / 2:.2g}"

    def to_dict(self) -> dict[str, object]:
        """JSON-ready fields."""
        return {**json_fields(vars(self)), "passed": self.passed}


@dataclass(frozen=True)
class Claim:
    """The label under which checks are made; `control` marks them as negative controls."""

    label: str
    control: bool = False

    def near(self, claim: str, measured: float, expected: float, tolerance: float) -> Check:
        """The number must be `expected` up to `tolerance`."""
        return Check(self.label, claim, float(measured), expected - tolerance, expected + tolerance, self.control)

    def at_most(self, claim: str, measured: float, bound: float) -> Check:
        """The number must not exceed `bound`."""
        return Check(self.label, claim, float(measured), -math.inf, bound, self.control)

    def at_least(self, claim: str, measured: float, bound: float) -> Check:
        """The number must reach `bound`."""
        return Check(self.label, claim, float(measured), bound, math.inf, self.control)


def claims(label: str) -> tuple[Claim, Claim]:
    """The claim of a label, and its negative control."""
    return Claim(label), Claim(label, control=True)


def z_score(differences: FloatArray) -> float:
    """The mean of independent differences in units of its standard error: beyond ±Z_LIMIT it is not 0."""
    return float(differences.mean() / (differences.std(ddof=1) / np.sqrt(differences.size)))


def raw_moments(values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """E v, E v ⊗ v and E v ⊗ v ⊗ v of rows of equal probability."""
    n = len(values)
    second = np.einsum("ni,nj->ij", values, values) / n
    return values.mean(axis=0), second, np.einsum("ni,nj,nk->ijk", values, values, values) / n


def relative_error(value: FloatArray, reference: FloatArray) -> float:
    """Largest absolute difference, over the largest reference."""
    return float(np.abs(value - reference).max() / np.abs(reference).max())
