"""The limit x → 0 of a mean at the lowest cost: which x to sample, and how many samples of each.

A sample at x has the mean E(x) = E(0) + c₁x + c₂x² + … and costs more the smaller x is. A combination Σ w_i E(x_i) of k
levels whose weights cancel the first k − 1 powers of x is far closer to E(0) than any one of them, and the samples can
be allocated so that a given variance costs least.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy import special

from svag.stats.decisions import chance_to_decide
from svag.stats.samples import positive


@dataclass(frozen=True)
class Level:
    """One x at which samples can be drawn.

    Attributes:
        x: distance from the limit; 1/l for SVAG(l).
        cost: of one sample.
        spread: standard deviation of one sample.
    """

    x: float
    cost: float
    spread: float


def extrapolation_weights(x: Sequence[float]) -> tuple[float, ...]:
    r"""Weights that give the value at 0 of every polynomial of degree below k from its values at k places.

    $$w_i = \prod_{j\ne i}\frac{x_j}{x_j - x_i},\qquad \sum_i w_i = 1,\quad \sum_i w_i x_i^p = 0\ (0 < p < k)$$

    which solves the Vandermonde system on the right. They leave ∓∏x_i of the next power.

    >>> extrapolation_weights([1 / 4, 1 / 8])  # Richardson: 2E(2l) − E(l)
    (-1.0, 2.0)
    """
    if not x or min(x) <= 0 or len(set(x)) < len(x):
        raise ValueError(f"x must be different positive numbers, got {list(x)}")
    return tuple(math.prod(other / (other - point) for other in x if other != point) for point in x)


@dataclass(frozen=True)
class Allocation:
    """How many samples of each level estimate a combination of their means.

    Attributes:
        levels: what is sampled.
        weights: of the means of the levels.
        samples: of each level, rounded only by `whole`.
        bias: upper bound on the distance of the combination's expectation from the limit.
    """

    levels: tuple[Level, ...]
    weights: tuple[float, ...]
    samples: tuple[float, ...]
    bias: float = 0.0

    @property
    def cost(self) -> float:
        """Cost of all samples."""
        return math.fsum(n * level.cost for n, level in zip(self.samples, self.levels, strict=True))

    @property
    def variance(self) -> float:
        """Σ w_i² σ_i²/n_i."""
        terms = zip(self.weights, self.levels, self.samples, strict=True)
        return math.fsum((w * level.spread) ** 2 / n for w, level, n in terms if w)

    @property
    def error(self) -> float:
        """Root-mean-square error: the root of bias² + variance."""
        return math.sqrt(self.bias**2 + self.variance)

    def with_samples(self, i: int, count: float) -> "Allocation":
        """The same with another number of samples of level i."""
        return replace(self, samples=(*self.samples[:i], float(count), *self.samples[i + 1 :]))

    def whole(self, at_least: Sequence[int] = ()) -> "Allocation":
        """The same with whole numbers of samples, rounded up: the variance can only be smaller."""
        fewest = at_least or [1] * len(self.samples)
        # Numbers that are whole up to rounding errors are not rounded up.
        up = (float(max(math.ceil(n - 1e-9), low)) for n, low in zip(self.samples, fewest, strict=True))
        return replace(self, samples=tuple(up))


def allocate(levels: Sequence[Level], weights: Sequence[float], variance: float, bias: float = 0.0) -> Allocation:
    r"""Allocate samples to the levels so that Σ w_i E_i has this variance at the least cost.

    $$n_i = \frac{|w_i|\sigma_i}{\sqrt{c_i}}\,\frac{S}{V},\qquad S = \sum_j |w_j|\sigma_j\sqrt{c_j},
      \qquad \text{cost} = S^2/V$$

    where V is the argument `variance`, σ and c are `spread` and `cost` of a level.

    >>> found = allocate([Level(1.0, 1.0, 2.0), Level(0.25, 4.0, 2.0)], [-1 / 3, 4 / 3], variance=0.5)
    >>> [round(n, 6) for n in found.samples], round(found.cost, 6), round(found.variance, 6)
    ([8.0, 16.0], 72.0, 0.5)
    """
    positive("variance", variance)
    terms = list(zip(weights, levels, strict=True))
    total = math.fsum(abs(w) * level.spread * math.sqrt(level.cost) for w, level in terms)
    samples = (abs(w) * level.spread / math.sqrt(level.cost) * total / variance for w, level in terms)
    return Allocation(tuple(levels), tuple(weights), tuple(samples), abs(bias))


Bias = Callable[[Sequence[Level], Sequence[float]], float]


def cheapest(
    levels: Sequence[Level], error: float, bias: Bias, *, most: int = 3, whole: bool = False
) -> Allocation | None:
    """The cheapest extrapolation from at most `most` of these levels with this root-mean-square error.

    None if the bias of every one of them is too large already.

    >>> menu = [Level(1 / ell, 2.0 * ell, 1.0) for ell in (2, 4, 8, 16, 32, 64, 128)]
    >>> def bias(chosen, weights):  # of E(0) + x + x²/2
    ...     return sum(w * (one.x + one.x**2 / 2) for w, one in zip(weights, chosen, strict=True))
    >>> plain, best = (cheapest(menu, error=0.03, bias=bias, most=most) for most in (1, 2))
    >>> [1 / level.x for level in plain.levels], [1 / level.x for level in best.levels]
    ([64.0], [2.0, 16.0])
    >>> round(plain.cost / best.cost, 1)
    2.8

    Args:
        levels: the levels to choose from, all on one curve E(x).
        error: the desired root-mean-square error.
        bias: of an extrapolation from these levels with these weights.
        most: how many levels an extrapolation may use.
        whole: compare plans with whole numbers of samples.
    """
    positive("error", error)
    found = []
    for chosen in (some for size in range(1, most + 1) for some in combinations(levels, size)):
        weights = extrapolation_weights([level.x for level in chosen])
        left = error**2 - bias(chosen, weights) ** 2
        if left > 0:
            plan = allocate(chosen, weights, left, bias(chosen, weights))
            found.append(plan.whole() if whole else plan)
    return min(found, key=lambda plan: plan.cost, default=None)


_SLICES = (np.arange(32) + 0.5) / 32  # quantiles of the true spread, given the spread of a pilot
_RUNGS, _RATIO = 360, 1.03  # numbers of samples to try: the last is 40,000 times the first
_MOST_SAMPLES = 10_000  # of one level: more would not be practical


def chance_of_equivalence(plan: Allocation, margin: float, *, pilot_freedom: float = math.inf) -> float:
    """Probability that TOST at 5% places Σ w_i E_i inside ±`margin` if its limit is 0, counting the bias against it.

    >>> sgd, svag = Level(1.0, 1.0, 0.5), Level(0.25, 8.0, 0.5)
    >>> round(chance_of_equivalence(Allocation((sgd, svag), (1.0, -1.0), (6.0, 6.0)), margin=1.0), 2)
    0.88

    Args:
        plan: with at least two samples of every level that counts.
        margin: the gap that would not matter.
        pilot_freedom: degrees of freedom of the pilot that the spreads come from: the probability is then averaged over
            the possible true spreads. Infinite if the spreads are known.
    """
    used = [i for i, weight in enumerate(plan.weights) if weight]
    n = np.array([plan.samples[i] for i in used])
    terms = np.array([(plan.weights[i] * plan.levels[i].spread) ** 2 for i in used]) / n
    total = float(terms.sum())
    # Welch's freedom as it will be estimated, E(Σt)²/E Σt²/(n − 1) with t ∝ χ²: 6.7 of 5 + 5 samples, not 8.
    freedom = (total**2 + 2 * float((terms**2 / (n - 1)).sum())) / float((terms**2 * (n + 1) / (n - 1) ** 2).sum())
    scales = np.sqrt(pilot_freedom / special.chdtri(pilot_freedom, _SLICES)) if pilot_freedom < math.inf else np.ones(1)
    errors = scales * math.sqrt(total)
    return float(chance_to_decide(plan.bias, errors, np.full(errors.shape, freedom), margin - plan.bias)[0].mean())


def plan_equivalence(
    levels: Sequence[Level],
    weights: Sequence[float],
    margin: float,
    *,
    bias: float = 0.0,
    at_least: Sequence[int],
    power: float = 0.8,
    pilot_freedom: float = math.inf,
) -> Allocation | None:
    """The fewest samples with which TOST at 5% says "equivalent" with probability `power` if the limit is 0.

    The samples are allocated by `allocate`, rounded up, and then removed again, the most expensive first, as long as
    the probability is kept. None if the bias fills too much of the margin, or if 10,000 samples of a level are not
    enough.

    >>> sgd, svag = Level(1.0, 1.0, 0.5), Level(0.25, 8.0, 0.5)
    >>> plan_equivalence([sgd, svag], [1.0, -1.0], margin=1.0, at_least=[2, 2]).samples
    (6.0, 5.0)
    """
    if 2 * bias >= margin:
        return None
    # With a known spread, equivalence requires a standard error of margin/2.9; the first size tried is far too small.
    base = allocate(levels, weights, 10 * (margin / 2.9) ** 2, bias)

    def rung(k: int) -> Allocation:
        return replace(base, samples=tuple(n * _RATIO**k for n in base.samples)).whole(at_least)

    def enough(plan: Allocation) -> bool:
        return chance_of_equivalence(plan, margin, pilot_freedom=pilot_freedom) >= power

    first = bisect_left(range(_RUNGS), True, key=lambda k: enough(rung(k)))
    plan = rung(first)
    if first == _RUNGS or max(plan.samples) > _MOST_SAMPLES:
        return None
    for i in sorted(range(len(levels)), key=lambda i: -levels[i].cost):
        fewer = [plan.with_samples(i, n) for n in range(at_least[i], int(plan.samples[i]) + 1)]
        plan = fewer[bisect_left(fewer, True, key=enough)]
    return plan


def plan_gap(
    first: Level,
    menu: Sequence[Level],
    margin: float,
    constant: float,
    *,
    begun: Mapping[Level, int],
    fewest: int = 3,
    most: int = 3,
    power: float = 0.8,
    pilot_freedom: float = math.inf,
) -> Allocation | None:
    r"""The cheapest plan to show that the mean of `first` is within `margin` of the limit x → 0, if it is the limit.

    The limit is an extrapolation from at most `most` levels of the menu. Its bias is taken to be

    $$c\prod_i x_i$$

    where c is the argument `constant`: what its weights leave of the first power that they do not cancel, if no
    coefficient of E(0) + c₁x + c₂x² + … is above c.

    >>> sgd, four, more = (Level(1 / ell, max(1.0, 2.0 * ell - 1), 0.5) for ell in (1, 4, 64))
    >>> plan = plan_gap(sgd, [four, more], margin=1.0, constant=20.0, begun={sgd: 4, four: 4})
    >>> [1 / level.x for level in plan.levels], plan.samples, plan.bias
    ([1.0, 4.0, 64.0], (15.0, 4.0, 5.0), 0.078125)

    Args:
        first: what is compared with the limit; usually x = 1.
        menu: levels that the limit may use.
        margin: the gap that would not matter.
        constant: c.
        begun: existing samples of `first` and of levels of the menu, which stay in the plan.
        fewest: minimum number of samples of every other level in the plan: two are just enough for a spread.
        most: how many levels an extrapolation may use.
        power: the desired probability.
        pilot_freedom: degrees of freedom of the pilot that the spreads come from.
    """
    found = []
    for chosen in (some for size in range(1, most + 1) for some in combinations(menu, size)):
        weights = dict(zip(chosen, extrapolation_weights([level.x for level in chosen]), strict=True))
        levels = sorted({first, *begun, *chosen}, key=lambda level: -level.x)
        plan = plan_equivalence(
            levels,
            [(level == first) - weights.get(level, 0.0) for level in levels],
            margin,
            bias=constant * math.prod(level.x for level in chosen),
            at_least=[begun.get(level, fewest) for level in levels],
            power=power,
            pilot_freedom=pilot_freedom,
        )
        found += [] if plan is None else [plan]
    return min(found, key=lambda plan: plan.cost, default=None)
