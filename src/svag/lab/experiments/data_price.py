"""How many more examples a larger batch really took to the same training loss: D as McCandlish et al. read it.

The distortion D(κ) is also an estimate of the factor in data that κ times the batch costs. A ladder measures that
factor directly: at several levels of the training loss, examples that the larger batch needed over those that the
baseline needed. It is an empirical number beside D; no theorem connects the two.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from svag.arrays import FloatArray
from svag.prices.estimate import Estimate
from svag.stats.means import welch

# Shares of the baseline's examples at which its loss becomes a level to be reached.
SHARES = (0.25, 0.5, 0.75)

Curve = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class DataPrice:
    """The factor in examples between two rungs.

    Attributes:
        baseline: batch size of the smaller rung.
        batch_size: of the larger one.
        levels: training losses of the baseline at which the two are compared, decreasing.
        factors: examples of the larger rung over those of the baseline at each level; `math.inf` where the larger
            one does not get there, with the least that it can be as the lower limit.
    """

    baseline: int
    batch_size: int
    levels: tuple[float, ...]
    factors: tuple[Estimate, ...]

    @property
    def reached(self) -> tuple[float, ...]:
        """The factors at the levels that the larger rung reached."""
        return tuple(factor.value for factor in self.factors if math.isfinite(factor.value))

    @property
    def at_least(self) -> float:
        """The largest bound from levels that the larger rung did not reach; 1 when it reached all of them."""
        return max((factor.low for factor in self.factors if math.isinf(factor.value)), default=1.0)

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document; what is not known is null."""
        factors = [factor.to_dict() for factor in self.factors]
        return {**vars(self), "levels": list(self.levels), "factors": factors}


def data_prices(
    curves: Mapping[int, Sequence[Curve]], confidence: float = 0.95, shares: Sequence[float] = SHARES
) -> tuple[DataPrice, ...]:
    """Measure the factor in examples of every rung over every smaller one.

    >>> def falling(pace):  # loss 1/examples, reached `pace` times later
    ...     return [(e, pace / e) for e in range(100, 10_000, 100)]
    >>> found = data_prices({32: [falling(1.0), falling(1.0)], 64: [falling(1.5), falling(1.5)]})
    >>> [round(factor.value, 1) for factor in found[0].factors]
    [1.5, 1.5, inf]

    Args:
        curves: batch size → one curve per seed: (examples seen, mean training loss up to there since the point
            before), over the same share of training and at one learning rate.
        confidence: of the intervals, which come from the spread of the seeds; infinite with fewer than two of each.
        shares: of the baseline's examples, at which its mean loss is the level to be reached.
    """
    usable = {size: [one for one in seeds if len(one) > 2] for size, seeds in sorted(curves.items())}
    sizes = [size for size, seeds in usable.items() if seeds]
    prices = []
    for index, base in enumerate(sizes[:-1]):
        levels = tuple(_level(usable[base], share) for share in shares)
        for size in sizes[index + 1 :]:
            factors = tuple(_factor(usable[base], usable[size], level, confidence) for level in levels)
            prices.append(DataPrice(base, size, levels, factors))
    return tuple(prices)


def _level(seeds: Sequence[Curve], share: float) -> float:
    """The mean over seeds of the lowest loss that had been seen at a share of the examples."""
    losses = []
    for curve in seeds:
        examples, lowest = _falling(curve)
        losses.append(float(np.interp(share * examples[-1], examples, lowest)))
    return math.fsum(losses) / len(losses)


def _factor(base: Sequence[Curve], other: Sequence[Curve], level: float, confidence: float) -> Estimate:
    """Ratio of geometric means over seeds, with Welch's interval of the difference of logarithms."""
    groups = [np.log([_reached(curve, level) for curve in seeds]) for seeds in (other, base)]
    if not np.isfinite(groups[1]).all():
        return Estimate(math.inf, 0.0, math.inf)
    if not np.isfinite(groups[0]).all():
        longest = max(float(_falling(curve)[0][-1]) for curve in other)
        return Estimate(math.inf, longest / float(np.exp(groups[1].mean())), math.inf)
    if min(group.size for group in groups) < 2:
        return Estimate(math.exp(groups[0].mean() - groups[1].mean()), 0.0, math.inf)
    found = welch(*groups)
    low, high = found.interval(confidence)
    return Estimate(math.exp(found.value), math.exp(low), math.exp(high))


def _reached(curve: Curve, level: float) -> float:
    """Examples at which the lowest loss so far first falls to a level, linear between points; infinite if never."""
    examples, lowest = _falling(curve)
    below = lowest <= level
    if not below.any():
        return math.inf
    at = int(below.argmax())
    if at == 0:
        return float(examples[0])
    share = (lowest[at - 1] - level) / (lowest[at - 1] - lowest[at])
    return float(examples[at - 1] + share * (examples[at] - examples[at - 1]))


def _falling(curve: Curve) -> tuple[FloatArray, FloatArray]:
    """Middle of each interval that a loss is the mean of, and the lowest loss up to it."""
    table = np.array(curve, dtype=np.float64)
    starts = np.concatenate([[0.0], table[:-1, 0]])
    return (starts + table[:, 0]) / 2, np.minimum.accumulate(table[:, 1])
