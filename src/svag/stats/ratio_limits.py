"""Two confidence sets for a ratio of two positive means, from independent pairs: log-delta and Fieller."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from svag.arrays import FloatArray


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
        return float(special.stdtrit(self.count - 1, (1 + confidence) / 2))

    def relative_halfwidths(self, confidence: float) -> tuple[float, float]:
        """Half-width over mean of the interval of the numerator and of the denominator; infinite at a mean ≤ 0."""
        t = self.t_quantile(confidence)
        return _relative(self.num, self.var_num, t), _relative(self.den, self.var_den, t)


def _relative(mean: float, variance: float, t: float) -> float:
    return t * math.sqrt(variance) / mean if mean > 0 else math.inf


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
    variance = (
        pairs.var_num / pairs.num**2 - 2 * pairs.cov / (pairs.num * pairs.den) + pairs.var_den / pairs.den**2
    )  # a square of a linear form: negative only by rounding
    half = pairs.t_quantile(confidence) * math.sqrt(max(variance, 0.0))
    ratio = pairs.num / pairs.den
    return ratio * math.exp(-half), ratio * math.exp(half) if half < 700 else math.inf


def fieller(pairs: PairMoments, confidence: float = 0.95) -> tuple[float, float] | None:
    r"""Fieller's set of the r ≥ 0 with (n̄ − r d̄)² ≤ t²·Var(n̄ − r d̄): exact for Gaussian pairs, also near d̄ = 0.

    For r ≥ 0 it is an interval; or [low, ∞) when the denominator is not significantly above 0; or [0, ∞), which says
    nothing, when the numerator is not either; or None, the empty set, when one of the two is significantly *negative*,
    which contradicts that both means are positive.

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
