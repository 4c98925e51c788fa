"""Intervals for ratios of positive numbers: average first, divide last.

`ratio_interval` is for two series that are read together, such as N and G along a run: it averages both over nearly
independent blocks and divides the averages. `successive_ratio` is for series too short for blocks, and makes a weaker
statement. Two confidence sets are in use, log-delta where both averages are far from 0 and Fieller's otherwise.
`quotient` is for two independent numbers that come with intervals of their own.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy  # whose parts are imported when they are first used
from numpy.typing import ArrayLike

from svag.arrays import FloatArray
from svag.stats.samples import finite_row, probability
from svag.stats.series import BlockPlan, independent_blocks, integrated_autocorrelation_time, plan_blocks

# Below this half-width/mean of both averages the two methods agree to within a few per cent of the width.
_WELL_RESOLVED = 0.3
# Scatter below this share of the averages is ignored.
_SCATTER = 1e-3


@dataclass(frozen=True)
class PairMoments:
    """Means of a numerator and a denominator, and the covariance matrix of these two means, from `count` pairs."""

    num: float
    den: float
    var_num: float
    var_den: float
    cov: float
    count: int

    def t_quantile(self, confidence: float) -> float:
        """Two-sided Student quantile with count − 1 degrees of freedom: 2.093 for 20 pairs at 95%."""
        return float(scipy.special.stdtrit(self.count - 1, (1 + confidence) / 2))

    def relative_halfwidths(self, confidence: float) -> tuple[float, float]:
        """Half-width over mean of the interval of the numerator and of the denominator; infinite at a mean ≤ 0."""
        t = self.t_quantile(confidence)
        num, den = (
            t * math.sqrt(variance) / mean if mean > 0 else math.inf
            for mean, variance in ((self.num, self.var_num), (self.den, self.var_den))
        )
        return num, den


def pair_moments(num: FloatArray, den: FloatArray) -> PairMoments:
    """Moments of the means of `num` and `den`, whose pairs are independent of each other.

    >>> pair_moments(np.array([1.0, 3.0]), np.array([2.0, 2.0]))
    PairMoments(num=2.0, den=2.0, var_num=1.0, var_den=0.0, cov=0.0, count=2)
    """
    count = num.size
    covariance = np.cov(num, den) / count
    return PairMoments(
        float(num.mean()),
        float(den.mean()),
        float(covariance[0, 0]),
        float(covariance[1, 1]),
        float(covariance[0, 1]),
        count,
    )


def log_delta(pairs: PairMoments, confidence: float = 0.95) -> tuple[float, float]:
    r"""Interval for num/den by the delta method on its logarithm; good when both means are far from 0.

    $$\log\frac{\bar n}{\bar d} \pm t\sqrt{\frac{v_n}{\bar n^2} - \frac{2v_{nd}}{\bar n\bar d} + \frac{v_d}{\bar d^2}}$$

    >>> low, high = log_delta(PairMoments(2.0, 1.0, 0.0, 0.0025, 0.0, count=20))
    >>> round(low, 4), round(high, 4)  # 2·exp(∓2.093 × 0.05)
    (1.8013, 2.2206)
    """
    if not (pairs.num > 0 and pairs.den > 0):
        raise ValueError(f"log-delta needs positive means, got {pairs.num} and {pairs.den}: use fieller")
    # the variance of a linear form, which can be negative only by rounding
    variance = pairs.var_num / pairs.num**2 - 2 * pairs.cov / (pairs.num * pairs.den) + pairs.var_den / pairs.den**2
    half = pairs.t_quantile(confidence) * math.sqrt(max(variance, 0.0))
    ratio = pairs.num / pairs.den
    return ratio * math.exp(-half), ratio * math.exp(half) if half < 700 else math.inf


def fieller(pairs: PairMoments, confidence: float = 0.95) -> tuple[float, float] | None:
    r"""Fieller's set of the r ≥ 0 with (n̄ − r d̄)² ≤ t²·Var(n̄ − r d̄): exact for Gaussian pairs, also near d̄ = 0.

    For r ≥ 0 it is an interval; or [low, ∞) when the denominator is not significantly above 0; or [0, ∞), which is no
    information, when the numerator is not either; or None, the empty set, when one of the two is significantly
    *negative*, which contradicts that both means are positive.

    >>> fieller(PairMoments(2.0, 0.01, 0.0, 1.0, 0.0, count=20))  # 2/(0.01 + 2.093): d is somewhere below that
    (0.951..., inf)
    >>> fieller(PairMoments(2.0, -5.0, 0.0, 1.0, 0.0, count=20)) is None
    True
    """
    t2 = pairs.t_quantile(confidence) ** 2
    a = pairs.den**2 - t2 * pairs.var_den
    b = pairs.num * pairs.den - t2 * pairs.cov
    c = pairs.num**2 - t2 * pairs.var_num
    if (a > 0 and pairs.den < 0) or (c > 0 and pairs.num < 0):
        return None
    root = math.sqrt(max(b * b - a * c, 0.0))
    if a > 0:
        return max((b - root) / a, 0.0), (b + root) / a
    if c > 0 and b + root > 0:  # the positive root of a r² − 2 b r + c, written so that a = 0 is no special case
        return c / (b + root), math.inf
    return 0.0, math.inf


def successive_moments(num: FloatArray, den: FloatArray, starts: Sequence[int] = (0,)) -> PairMoments:
    """Moments of the means of two series that are read together, from the differences of successive readings.

    The means are over exactly these times: changes along the series, and differences between groups of readings, are
    part of the answer and not of its error. This requires that the errors of the readings are independent; the measured
    quantity itself may follow any smooth path. Differences of n readings determine their variance as well as about 2n/3
    independent numbers would.

    >>> path = np.linspace(0.0, 100.0, 300)  # a trend that would swamp the spread of any blocks
    >>> noise = np.random.default_rng(0).normal(size=300)
    >>> found = successive_moments(path + noise, path - noise)
    >>> round(found.num, 1), round(found.var_num * 300, 2), found.count
    (50.0, 1.06, 200)

    Args:
        num: one reading per time.
        den: the readings at the same times.
        starts: index at which each group begins; no difference is taken across groups.

    Reference: von Neumann et al. (1941), the mean square successive difference.
    """
    inside = np.setdiff1d(np.arange(1, num.size), starts)
    if inside.size < 2:
        raise ValueError(f"needs two pairs of successive readings at least, got {inside.size}")
    first, second = num[inside] - num[inside - 1], den[inside] - den[inside - 1]
    scale = 2 * inside.size * num.size
    return PairMoments(
        float(num.mean()),
        float(den.mean()),
        float(first @ first) / scale,
        float(second @ second) / scale,
        float(first @ second) / scale,
        1 + 2 * inside.size // 3,
    )


@dataclass(frozen=True)
class RatioInterval:
    """A ratio of two positive averages with its confidence interval; no number in it is ever negative.

    Attributes:
        value: the ratio of the averages; `math.inf` when the average of the denominator is not positive; NaN when
            `kind` is "empty".
        low: lower confidence limit; 0 when nothing is known.
        high: upper confidence limit, `math.inf` where unbounded.
        kind: "bounded"; "unbounded" (high is infinite: the denominator is not resolved from 0); "empty" (an average
            is significantly negative although both should be positive: low and high are NaN).
        method: "log_delta", "fieller", or "none" when the series has fewer than two blocks.
        confidence: the confidence level.
        blocks: number of blocks.
        block_length: readings per block.
        iact: integrated autocorrelation time, in readings.
        enough: whether the series was long enough for the promised coverage (20 blocks).
        at_these_times: the limits are those of `successive_ratio`, about exactly the times of the readings.
    """

    value: float
    low: float
    high: float
    kind: Literal["bounded", "unbounded", "empty"]
    method: Literal["log_delta", "fieller", "none"]
    confidence: float
    blocks: int
    block_length: int
    iact: float
    enough: bool
    at_these_times: bool = False


def ratio_interval(
    numerator: ArrayLike,
    denominator: ArrayLike,
    *,
    confidence: float = 0.95,
    independent: bool = False,
    plan: BlockPlan | None = None,
) -> RatioInterval:
    """Ratio of the average of `numerator` to that of `denominator`, both positive quantities, with its interval.

    The series, read in pairs, may be correlated in time and single readings may be negative. It is cut into 20 blocks
    of at least 10 integrated autocorrelation times (the largest of the numerator's, the denominator's and that of
    num − ratio·den, whose mean is what is uncertain); a shorter series is cut into
    fewer blocks, and `enough` is False.

    >>> rng = np.random.default_rng(0)
    >>> found = ratio_interval(2 + rng.normal(size=4000), 1 + rng.normal(size=4000))
    >>> found.kind, found.method, found.blocks, found.low < 2 < found.high
    ('bounded', 'log_delta', 20, True)

    Args:
        numerator: one reading per time.
        denominator: the readings at the same times.
        confidence: level of the two-sided interval.
        independent: readings are known to be independent: each is its own block.
        plan: how to cut the series, instead of the default.

    The ratio is that of the averages over all readings; only its spread is that of the blocks.
    """
    probability("confidence", confidence)
    num, den = finite_row("numerator", numerator), finite_row("denominator", denominator)
    if num.size != den.size:
        raise ValueError(f"numerator and denominator must be read together, got {num.size} and {den.size} readings")
    plan = plan or (independent_blocks(num.size) if independent else blocks_of_ratio(num, den))
    pairs = None
    if plan.blocks >= 2:
        pairs = pair_moments(plan.means(num), plan.means(den))
        pairs = replace(pairs, num=float(num.mean()), den=float(den.mean()))
    return _interval(pairs, _positive_ratio(float(num.mean()), float(den.mean())), confidence, plan)


def successive_ratio(
    numerator: ArrayLike,
    denominator: ArrayLike,
    *,
    starts: Sequence[int] = (0,),
    confidence: float = 0.95,
    plan: BlockPlan,
) -> RatioInterval:
    """Ratio of two averages over exactly the times of the readings, with its interval by `successive_moments`.

    A weaker statement than that of `ratio_interval`, which is about the distribution of a stationary series: this one
    is about the path that was taken, and requires only that the errors of readings are independent.

    Args:
        numerator: one reading per time.
        denominator: the readings at the same times.
        starts: where each group of readings begins.
        confidence: level of the two-sided interval.
        plan: the blocks that were too few, which the result reports.
    """
    probability("confidence", confidence)
    num, den = finite_row("numerator", numerator), finite_row("denominator", denominator)
    pairs = successive_moments(num, den, starts)
    return replace(_interval(pairs, _positive_ratio(pairs.num, pairs.den), confidence, plan), at_these_times=True)


def _interval(pairs: PairMoments | None, value: float, confidence: float, plan: BlockPlan) -> RatioInterval:
    """The interval from the moments of the averages; unbounded without moments."""
    limits: tuple[float, float] | None
    method: Literal["log_delta", "fieller", "none"]
    if pairs is None:
        method, limits = "none", (0.0, math.inf)
    elif max(pairs.relative_halfwidths(confidence)) < _WELL_RESOLVED:
        method, limits = "log_delta", log_delta(pairs, confidence)
    else:
        method, limits = "fieller", fieller(pairs, confidence)
    kind: Literal["bounded", "unbounded", "empty"] = "empty"
    if limits is not None:
        kind = "bounded" if math.isfinite(limits[1]) else "unbounded"
    low, high = (math.nan, math.nan) if limits is None else limits
    return RatioInterval(
        value=math.nan if limits is None else value,
        low=low,
        high=high,
        kind=kind,
        method=method,
        confidence=confidence,
        blocks=plan.blocks,
        block_length=plan.length,
        iact=plan.iact,
        enough=plan.enough,
    )


def blocks_of_ratio(
    num: FloatArray, den: FloatArray, level: Callable[[FloatArray], FloatArray] = lambda row: row
) -> BlockPlan:
    """Blocks of ten autocorrelation times of the two series and of num − ratio·den, as that is what is uncertain.

    Args:
        num: one reading per time.
        den: the readings at the same times.
        level: takes out of a series what is no autocorrelation, such as a trend.
    """
    if num.size < 2:
        return plan_blocks(num.size, 1.0)
    scale = float(den.mean())
    residual = num - float(num.mean()) / scale * den if scale > 0 else num
    rows = [level(row) for row in (num, den, residual)]
    # where numbers hardly scatter, all that is left is the curve of the schedule, which is not autocorrelation
    felt = [row for row in rows if row.std() > _SCATTER * np.abs((num, den)).mean()]
    return plan_blocks(num.size, max((integrated_autocorrelation_time(row) for row in felt), default=1.0))


def _positive_ratio(num: float, den: float) -> float:
    return max(num, 0.0) / den if den > 0 else math.inf


@dataclass(frozen=True)
class Interval:
    """A positive number and its limits; the lower one may be 0, and the upper one infinite if unbounded."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not (self.value > 0 and 0 <= self.low <= self.value <= self.high):
            raise ValueError(f"an interval of a positive number needs 0 ≤ low ≤ value ≤ high, got {self}")


def quotient(one: Interval, other: Interval) -> Interval:
    r"""Interval of one/other from two independent intervals of the same level.

    $$\log\frac{a}{b} \;{}^{+\sqrt{(\log a_u - \log a)^2 + (\log b - \log b_l)^2}}
      _{-\sqrt{(\log a - \log a_l)^2 + (\log b_u - \log b)^2}}$$

    Each side keeps its own width, so that the asymmetry of the two intervals survives.

    >>> quotient(Interval(200.0, 100.0, 400.0), Interval(100.0, 100.0, 100.0))
    Interval(value=2.0, low=1.0, high=4.0)

    Reference: Donner and Zou (2012), the method of variance estimates recovery, on logarithms.
    """
    if math.isinf(one.value) or math.isinf(other.value):
        raise ValueError("an infinite number has no quotient: only the ends of its interval may be infinite")
    value = one.value / other.value
    down = math.hypot(_log_ratio(one.value, one.low), _log_ratio(other.high, other.value))
    up = math.hypot(_log_ratio(one.high, one.value), _log_ratio(other.value, other.low))
    return Interval(value, value * math.exp(-down), value * math.exp(up) if math.isfinite(up) else math.inf)


def _log_ratio(larger: float, smaller: float) -> float:
    """The logarithm of a ratio that is at least 1, infinite where the limit is."""
    return math.log(larger / smaller) if smaller > 0 and math.isfinite(larger) else math.inf
