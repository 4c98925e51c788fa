"""The limit of SVAG as ell grows: the SDE's value of a metric, from the final metrics at several ell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from svag.arrays import FloatArray
from svag.as_json import JsonRow
from svag.lab.experiments import wording
from svag.lab.experiments.experiment import Metric
from svag.lab.experiments.finding import finished
from svag.stats.means import Contrast, contrast, fit_limit

LimitMethod = Literal["fit", "richardson", "largest_ell", "collapsed", "plan"]
Finals = Mapping[int, Mapping[int, float]]
"""Ell → final metric by seed; NaN for a diverged seed."""

_LEVEL = 0.05


@dataclass(frozen=True)
class Limit(JsonRow):
    """An estimate of the limit of SVAG.

    Attributes:
        value: the estimate.
        low: lower 95% limit.
        high: upper 95% limit.
        source: "fit" (E_∞ of E_ell = E_∞ + c/ell), "richardson" (the same through the two largest ell),
            "largest_ell" (the line does not fit), "collapsed" (the largest ell too, because an arm collapsed), or
            "plan" (weights that were chosen beforehand).
        ells: the ell that it was computed from.
        diverged: number of seeds left out because they diverged.
    """

    value: float
    low: float
    high: float
    source: LimitMethod
    ells: tuple[int, ...]
    diverged: int

    def said(self, metric: Metric) -> str:
        """The limit with its interval, and the number of seeds left out."""
        low, high = (wording.value(wording.within(edge, metric), metric) for edge in (self.low, self.high))
        lost = f", {self.diverged} diverged left out" if self.diverged else ""
        return f"{wording.value(self.value, metric)} ({low} to {high}){lost}"


@dataclass(frozen=True, eq=False)
class LimitEstimate:
    """A limit as a weighted sum of means, so that differences from it have intervals.

    Attributes:
        limit: the estimate.
        groups: the finished seeds by ell.
        weights: weights of their means in the limit, in the same order.
    """

    limit: Limit
    groups: Mapping[int, FloatArray]
    weights: tuple[float, ...]

    @property
    def trusted(self) -> bool:
        """Whether it can be taken for the SDE: 1/ell fits, and every seed finished."""
        return self.limit.source in {"fit", "plan"} and not self.limit.diverged

    def minus(self, other: FloatArray) -> Contrast:
        """The limit minus the mean of other runs."""
        return contrast([*self.groups.values(), other], [*self.weights, -1.0])

    def minus_limit(self, other: "LimitEstimate") -> Contrast:
        """The limit minus another one, from other runs."""
        groups = [*self.groups.values(), *other.groups.values()]
        return contrast(groups, [*self.weights, *(-weight for weight in other.weights)])

    def minus_sgd(self) -> Contrast:
        """The limit minus the mean of SGD, which is one of its own arms: it is not independent of it."""
        weights = [weight - (own == 1) for own, weight in zip(self.groups, self.weights, strict=True)]
        return contrast(list(self.groups.values()), weights)


def fitted_limit(finals: Finals, *, extrapolate: bool = True) -> LimitEstimate | None:
    """The limit from all ell, ell = 1 being SGD, or from the largest when 1/ell does not fit; None without spread.

    If an arm collapsed (`extrapolate` is False), no line is fitted: the limit is the largest ell.

    >>> estimate = fitted_limit({1: {0: 3.0, 1: 5.0}, 4: {0: 1.0, 1: 1.0}})
    >>> estimate.limit.source, round(estimate.limit.value, 12)
    ('fit', 0.0)
    """
    used, diverged = _finished(finals)
    if len(used) < 2:
        return None
    fit = fit_limit([1 / ell for ell in used], list(used.values()))
    if extrapolate and (fit.lack_of_fit is None or fit.lack_of_fit >= _LEVEL):
        return _weighted(used, fit.limit_weights, "fit", tuple(used), diverged)
    largest = max(used)
    source: LimitMethod = "largest_ell" if extrapolate else "collapsed"
    return _weighted(used, [float(ell == largest) for ell in used], source, (largest,), diverged)


def planned_limit(finals: Finals, weights: Mapping[int, float], bias: float) -> LimitEstimate | None:
    """The limit by weights that were chosen beforehand, its interval widened by `bias`; None while an arm is missing.

    >>> arms = {1: {0: 1.0, 1: 1.0}, 4: {0: 1.0, 1: 1.0}, 16: {0: 2.0, 1: 4.0}}
    >>> estimate = planned_limit(arms, {16: 1.0}, bias=0.5)
    >>> estimate.limit.value, estimate.limit.source
    (3.0, 'plan')
    """
    used, diverged = _finished(finals)
    if set(weights) - set(used):
        return None
    groups = {ell: used[ell] for ell in weights}
    estimate = _weighted(groups, list(weights.values()), "plan", tuple(weights), diverged)
    limit = estimate.limit
    return replace(estimate, limit=replace(limit, low=limit.low - bias, high=limit.high + bias))


def richardson_limit(finals: Finals) -> LimitEstimate | None:
    """The limit from the two largest ell: (r E_rl − E_l)/(r − 1), which is of second order in 1/ell; None without two.

    >>> estimate = richardson_limit({1: {0: 9.0, 1: 9.5}, 4: {0: 3.0, 1: 3.2}, 16: {0: 2.0, 1: 2.2}})
    >>> round(estimate.limit.value, 12)  # (4 × 2.1 − 3.1)/3
    1.766666666667
    """
    used, diverged = _finished(finals)
    if len(used) < 2:
        return None
    last = {ell: used[ell] for ell in sorted(used)[-2:]}
    fit = fit_limit([1 / ell for ell in last], list(last.values()))
    return _weighted(last, fit.limit_weights, "richardson", tuple(last), diverged)


def _finished(finals: Finals) -> tuple[dict[int, FloatArray], int]:
    """The finished seeds of the arms that have two or more, and how many seeds diverged in all."""
    finite = {ell: finished(by_seed) for ell, by_seed in sorted(finals.items())}
    diverged = sum(map(len, finals.values())) - sum(values.size for values in finite.values())
    return {ell: values for ell, values in finite.items() if values.size > 1}, diverged


def _weighted(
    groups: Mapping[int, FloatArray],
    weights: Sequence[float],
    source: LimitMethod,
    ells: tuple[int, ...],
    diverged: int,
) -> LimitEstimate:
    estimate = contrast(list(groups.values()), weights)
    limit = Limit(estimate.value, *estimate.interval(), source, ells, diverged)
    return LimitEstimate(limit, groups, tuple(weights))
