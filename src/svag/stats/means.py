"""Means of a few samples each: their contrasts, their limit as x → 0, and a bootstrap corrected for few samples.

A gap between two arms, a remaining bias and the value at a limit are all contrasts Σ w_i μ_i of group means. Groups may
have unequal spreads, so every contrast carries Welch's degrees of freedom.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # whose parts are imported when they are first used

from svag.arrays import FloatArray


@dataclass(frozen=True)
class Contrast:
    """An estimated combination of means.

    Attributes:
        value: the estimate.
        error: its standard error; 0 when the data have no spread at all.
        freedom: degrees of freedom of that error.
    """

    value: float
    error: float
    freedom: float

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Student interval, two-sided.

        >>> low, high = Contrast(1.0, 0.1, freedom=10).interval()
        >>> round(low, 4), round(high, 4)
        (0.7772, 1.2228)
        """
        half = float(scipy.special.stdtrit(self.freedom, (1 + confidence) / 2)) * self.error if self.error > 0 else 0.0
        return self.value - half, self.value + half

    def p_different(self, beyond: float = 0.0) -> float:
        """P value of the two-sided test that the truth is 0; or within ±`beyond` of it, which is conservative.

        It is below 5% exactly when the 95% interval, widened by `beyond`, leaves out 0.

        >>> round(Contrast(0.3228, 0.1, freedom=10).p_different(beyond=0.1), 3)  # t₁₀ = 2.228
        0.05
        """
        if self.error > 0:
            return min(1.0, 2 * float(scipy.special.stdtr(self.freedom, (beyond - abs(self.value)) / self.error)))
        return float(abs(self.value) <= beyond)

    def p_equivalent(self, margin: float) -> float:
        """P value of TOST, the two one-sided tests that the truth is at least `margin` away from 0.

        It is below 5% exactly when the 90% interval lies inside ±margin.

        >>> round(Contrast(0.0, 0.1, freedom=10).p_equivalent(0.1812), 3)  # t₁₀ = 1.812
        0.05
        """
        if self.error > 0:
            return float(scipy.special.stdtr(self.freedom, -(margin - abs(self.value)) / self.error))
        return float(abs(self.value) >= margin)


def contrast(groups: Sequence[FloatArray], weights: Sequence[float]) -> Contrast:
    r"""Estimate Σ w_i μ_i from samples of unequal spread, with the degrees of freedom of Welch and Satterthwaite.

    $$\mathrm{se}^2 = \sum_i w_i^2 \frac{s_i^2}{n_i},\qquad
      \nu = \mathrm{se}^4 \Big/ \sum_i \frac{(w_i^2 s_i^2/n_i)^2}{n_i - 1}$$

    >>> contrast([np.array([1.0, 3.0]), np.array([3.0, 5.0])], [1, -1])
    Contrast(value=-2.0, error=1.4142135623730951, freedom=2.0...)

    Every group needs two numbers; one whose numbers are all equal has no spread and contributes none.
    """
    if any(group.size < 2 for group in groups):
        raise ValueError(f"every group needs at least two numbers, got groups of {[group.size for group in groups]}")
    sizes = np.array([group.size for group in groups])
    means = np.array([group.mean() for group in groups])
    variances = np.array([group.var(ddof=1) if np.ptp(group) > 0 else 0.0 for group in groups])
    terms = np.square(weights) * variances / sizes
    total = float(terms.sum())
    freedom = total**2 / float((terms**2 / (sizes - 1)).sum()) if total > 0 else math.inf
    return Contrast(float(np.dot(weights, means)), math.sqrt(total), freedom)


def welch(one: FloatArray, other: FloatArray) -> Contrast:
    """Difference of two means, `one` minus `other`, by Welch's t."""
    return contrast([one, other], [1.0, -1.0])


def paired(one: FloatArray, other: FloatArray) -> Contrast:
    """Difference of two means, `one` minus `other`, from pairs that share part of their randomness.

    The shared part cancels, at the cost of half the degrees of freedom.

    >>> found = paired(np.array([0.71, 0.75, 0.79]), np.array([0.70, 0.75, 0.80]))
    >>> round(found.value, 12), round(found.error, 6), found.freedom
    (0.0, 0.005774, 2.0)
    """
    return contrast([one - other], [1.0])


@dataclass(frozen=True)
class LimitFit:
    """Least-squares line through all samples.

    Attributes:
        slope: c, the distance E(1) − E(0) of x = 1 from the limit.
        limit: E(0).
        lack_of_fit: p value of the F test that the group means lie on a line; None with only two groups.
        limit_weights: of the group means in the limit, for contrasts with other groups.
    """

    slope: Contrast
    limit: Contrast
    lack_of_fit: float | None
    limit_weights: tuple[float, ...]


def fit_limit(x: Sequence[float], groups: Sequence[FloatArray]) -> LimitFit:
    """Fit E(x) = E(0) + c·x to samples at each of the `x`.

    The slope and the limit are contrasts of the group means, so their errors allow for unequal spreads; the test for
    lack of fit is the usual one, with a common spread.

    >>> fit = fit_limit([1.0, 0.25], [np.array([3.0, 5.0]), np.array([1.0, 1.0])])
    >>> fit.slope.value, round(fit.limit.value, 12)  # 3 per 0.75
    (4.0, 0.0)
    """
    if len(x) != len(groups) or len(set(x)) < 2:
        raise ValueError(f"a line needs samples at two different x, got {len(groups)} groups at x = {list(x)}")
    at = np.asarray(x, dtype=np.float64)
    sizes = np.array([group.size for group in groups], dtype=np.float64)
    centre = float(sizes @ at / sizes.sum())
    slope_weights = sizes * (at - centre) / float(sizes @ (at - centre) ** 2)
    limit_weights = sizes / sizes.sum() - centre * slope_weights
    slope, limit = contrast(groups, slope_weights.tolist()), contrast(groups, limit_weights.tolist())
    lack_of_fit = _lack_of_fit(groups, limit.value + slope.value * at)
    return LimitFit(slope, limit, lack_of_fit, tuple(limit_weights.tolist()))


def _lack_of_fit(groups: Sequence[FloatArray], fitted: FloatArray) -> float | None:
    means = np.array([group.mean() for group in groups])
    sizes = np.array([group.size for group in groups])
    missed = float(sizes @ (means - fitted) ** 2)
    pure = float(sum(np.square(group - mean).sum() for group, mean in zip(groups, means, strict=True)))
    lines, freedom = len(groups) - 2, int(sizes.sum()) - len(groups)
    if lines == 0:
        return None
    if missed <= 1e-24 * float(np.square(means).max()):  # rounding
        return 1.0
    return float(scipy.special.fdtrc(lines, freedom, (missed / lines) / (pure / freedom))) if pure > 0 else 0.0


def remaining_bias(x_one: float, x_other: float, one: FloatArray, other: FloatArray) -> Contrast:
    r"""Estimate the bias E(x₁) − E(0) from samples at x₁ and at a smaller x₂.

    $$E(x_1) - E(0) \approx \frac{x_1}{x_1 - x_2}\,(E(x_1) - E(x_2))$$

    With x = 1/l and a ladder of ratio 4 the factor is 4/3.

    >>> remaining_bias(1 / 4, 1 / 16, np.array([3.0, 3.0]), np.array([0.0, 0.0])).value
    4.0
    """
    if not x_one > x_other > 0:
        raise ValueError(f"x_one must exceed x_other and both be positive, got {x_one} and {x_other}")
    factor = x_one / (x_one - x_other)
    return contrast([one, other], [factor, -factor])


def mean_deviations(
    group: FloatArray, resamples: int, confidence: float, freedom: float, generator: np.random.Generator
) -> FloatArray:
    r"""Deviations of the means of `resamples` bootstrap samples of one group from its mean, as wide as Student's.

    A group is a row of numbers, or a table whose rows are drawn together, so that its columns stay correlated.

    The plain bootstrap of n numbers is too narrow for two reasons: its spread lacks a factor √(n/(n−1)), and its
    quantiles are normal instead of Student's. The deviations are therefore multiplied by

    $$\sqrt{n/(n-1)}\;t_\nu/z$$

    with the two quantiles at the level `confidence`, and ν the argument `freedom`: n − 1 for one group on its own, more
    for a group in a comparison. The factor is 2.7 for three numbers on their own, 1.4 for six, 1 for many.

    >>> drawn = mean_deviations(np.array([1.0, 2.0, 6.0]), 20_000, 0.95, 2, np.random.default_rng(0))
    >>> round(float(drawn.std() / math.sqrt(14 / 9)), 1)  # 14/9: variance of the mean of a plain resample
    2.7

    Reference: Hesterberg (2015), the expanded percentile interval.
    """
    n = len(group)
    if n < 2:
        raise ValueError(f"a bootstrap needs at least two numbers, got {n}")
    if not np.ptp(group, axis=0).any():
        return np.zeros((resamples, *group.shape[1:]))
    upper = (1 + confidence) / 2
    expand = math.sqrt(n / (n - 1)) * float(scipy.special.stdtrit(freedom, upper) / scipy.special.ndtri(upper))
    centred = group - group.mean(axis=0)
    return np.asarray(expand * centred[generator.integers(0, n, size=(resamples, n))].mean(axis=1))
