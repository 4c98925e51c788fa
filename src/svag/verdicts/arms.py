"""The arms of a comparison, as a mapping from a number to one final metric per seed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from svag.arrays import FloatArray
from svag.as_json import json_number
from svag.theory import domain


@dataclass(frozen=True)
class ArmSummary:
    """The summary of one arm.

    Attributes:
        key: what the arms differ in: ell, or the batch size.
        seeds: how many seeds were run.
        diverged: how many of them diverged.
        mean: mean metric of the others; NaN if there are none.
    """

    key: int
    seeds: int
    diverged: int
    mean: float

    def to_dict(self, key: str) -> dict[str, float | int | None]:
        """Return the fields for a JSON document, `key` being the name of the key."""
        return {key: self.key, "seeds": self.seeds, "diverged": self.diverged, "mean": json_number(self.mean)}


@dataclass(frozen=True, eq=False)
class Arm:
    """The outcomes of one arm.

    Attributes:
        key: what the arms differ in: ell, or the batch size.
        finite: the metric of the seeds that finished.
        diverged: how many did not: their metric is NaN or infinite.
    """

    key: int
    finite: FloatArray
    diverged: int

    @property
    def seeds(self) -> int:
        """How many seeds were run."""
        return self.finite.size + self.diverged

    @property
    def has_spread(self) -> bool:
        """Whether two seeds finished with different values."""
        return self.finite.size > 1 and float(np.ptp(self.finite)) > 0

    def summary(self) -> ArmSummary:
        """Return the summary."""
        return ArmSummary(
            self.key, self.seeds, self.diverged, float(self.finite.mean()) if self.finite.size else math.nan
        )


def read_arms(name: str, arms: Mapping[int, ArrayLike], key: str) -> list[Arm]:
    """Return the arms in increasing order of their key; refuse anything but one row of numbers for each.

    NaN, infinity and None stand for a diverged seed.

    >>> [(arm.key, arm.seeds, arm.diverged) for arm in read_arms("finals", {4: [1.0, None], 1: [2.0]}, "ell")]
    [(1, 1, 0), (4, 2, 1)]
    """
    given: object = arms
    if not isinstance(given, Mapping) or not given:
        raise ValueError(
            f"{name} must map each {key} to one number per seed, as in {{1: [0.61, 0.63]}}, got {domain.shown(arms)}"
        )
    return sorted((_read(name, arms[value], value, key) for value in arms), key=lambda arm: arm.key)


def _read(name: str, values: ArrayLike, value: int, key: str) -> Arm:
    if isinstance(value, str):
        raise ValueError(f"the keys of {name} are numbers ({key}), got the text {value!r}: convert it with int()")
    try:
        row = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        row = np.empty((0, 0))
    if row.ndim != 1 or row.size == 0:
        raise ValueError(f"{name}[{value}] must be a list with one number per seed, got {values!r}")
    finite = row[np.isfinite(row)]
    return Arm(domain.whole(key, value), finite, row.size - finite.size)


def describe(arms: Sequence[ArmSummary], key: str) -> str:
    """Say how many seeds each arm has and how many of them diverged.

    >>> describe([ArmSummary(1, 5, 0, 0.3), ArmSummary(4, 5, 2, 0.3)], "ell")
    '5, 5 seeds at ell = 1, 4; diverged: 2 of 5 at ell=4'
    """
    seeds = ", ".join(str(arm.seeds) for arm in arms)
    text = f"{seeds} seeds at {key} = {', '.join(str(arm.key) for arm in arms)}"
    lost = ", ".join(f"{arm.diverged} of {arm.seeds} at {key}={arm.key}" for arm in arms if arm.diverged)
    return f"{text}; diverged: {lost}" if lost else text
