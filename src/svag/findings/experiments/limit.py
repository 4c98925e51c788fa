"""The SDE limit of a metric, from SVAG at a few ell: fitted, and by Richardson from the two largest."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from svag.arrays import FloatArray
from svag.findings.experiments.runs import plain
from svag.stats.contrast import Estimate, contrast
from svag.stats.extrapolation import fit_limit

Source = Literal["fit", "richardson", "largest_ell"]
_LEVEL = 0.05


@dataclass(frozen=True)
class Limit:
    """An estimate of where SVAG converges to.

    Attributes:
        value: the estimate.
        low: lower 95% limit.
        high: upper 95% limit.
        source: "fit" (E_∞ of E_ell = E_∞ + c/ell), "richardson" (the same through the two largest ell), or
            "largest_ell" (the line does not fit).
        ells: the ell it was made of.
        diverged: seeds that diverged there, and are not in it.
    """

    value: float
    low: float
    high: float
    source: Source
    ells: tuple[int, ...]
    diverged: int

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document."""
        return {**plain(asdict(self)), "ells": list(self.ells)}

    def __str__(self) -> str:
        how = {"fit": "E_∞ + c/ell", "richardson": "Richardson", "largest_ell": "the largest ell"}[self.source]
        ells = ", ".join(map(str, self.ells))
        return f"limit by {how} from ell = {ells}: {self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


@dataclass(frozen=True, eq=False)
class LimitEstimate:
    """A limit and what it was made of, for further arithmetic.

    Attributes:
        limit: the estimate.
        groups: the finished seeds by ell.
        weights: of their means in the limit, in the same order.
    """

    limit: Limit
    groups: Mapping[int, FloatArray]
    weights: tuple[float, ...]

    def minus(self, other: FloatArray) -> Estimate:
        """The limit minus the mean of other runs."""
        return contrast([*self.groups.values(), other], [*self.weights, -1.0])

    def minus_arm(self, ell: int) -> Estimate:
        """The limit minus the mean of one of its own arms, which it is not independent of."""
        return contrast(
            list(self.groups.values()), [w - (own == ell) for own, w in zip(self.groups, self.weights, strict=True)]
        )


def fitted_limit(finals: Mapping[int, FloatArray]) -> LimitEstimate | None:
    """The limit from all ell, ell = 1 being SGD, or from the largest when 1/ell does not fit; None without spread.

    >>> found = fitted_limit({1: np.array([3.0, 5.0]), 4: np.array([1.0, 1.0])})
    >>> found.limit.source, round(found.limit.value, 12)
    ('fit', 0.0)
    """
    used, diverged = _usable(finals)
    if len(used) < 2:
        return None
    fit = fit_limit([1 / ell for ell in used], list(used.values()))
    if fit.lack_of_fit is None or fit.lack_of_fit >= _LEVEL:
        return _result(used, fit.limit_weights, "fit", tuple(used), diverged)
    largest = max(used)
    return _result(used, [float(ell == largest) for ell in used], "largest_ell", (largest,), diverged)


def richardson_limit(finals: Mapping[int, FloatArray]) -> LimitEstimate | None:
    """The limit from the two largest ell: (r E_rl − E_l)/(r − 1), which is of second order in 1/ell; None without two.

    >>> found = richardson_limit({1: np.array([9.0, 9.5]), 4: np.array([3.0, 3.2]), 16: np.array([2.0, 2.2])})
    >>> round(found.limit.value, 12)  # (4 × 2.1 − 3.1)/3
    1.766666666667
    """
    used, diverged = _usable(finals)
    if len(used) < 2:
        return None
    last = {ell: used[ell] for ell in sorted(used)[-2:]}
    fit = fit_limit([1 / ell for ell in last], list(last.values()))
    return _result(last, fit.limit_weights, "richardson", tuple(last), diverged)


def _usable(finals: Mapping[int, FloatArray]) -> tuple[dict[int, FloatArray], int]:
    finite = {ell: values[np.isfinite(values)] for ell, values in sorted(finals.items())}
    diverged = sum(values.size for values in finals.values()) - sum(values.size for values in finite.values())
    return {ell: values for ell, values in finite.items() if values.size > 1}, diverged


def _result(
    groups: Mapping[int, FloatArray], weights: Sequence[float], source: Source, ells: tuple[int, ...], diverged: int
) -> LimitEstimate:
    estimate = contrast(list(groups.values()), weights)
    low, high = estimate.interval()
    return LimitEstimate(Limit(estimate.value, low, high, source, ells, diverged), groups, tuple(weights))
