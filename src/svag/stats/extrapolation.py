"""The limit of E(x) = E(0) + c·x as x → 0, from a few samples at each x, and how far each x still is from it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from svag.arrays import FloatArray
from svag.stats.contrast import Estimate, contrast


@dataclass(frozen=True)
class LimitFit:
    """Least-squares line through all samples.

    Attributes:
        slope: c, the distance E(1) − E(0) of x = 1 from the limit.
        limit: E(0).
        lack_of_fit: p value of the F test that the group means lie on a line; None when two groups leave nothing.
        limit_weights: of the group means in the limit, for contrasts with other groups.
    """

    slope: Estimate
    limit: Estimate
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
    return float(special.fdtrc(lines, freedom, (missed / lines) / (pure / freedom))) if pure > 0 else 0.0


def remaining_bias(x_one: float, x_other: float, one: FloatArray, other: FloatArray) -> Estimate:
    r"""Estimate E(x₁) − E(0), what x₁ still misses, from samples at x₁ and at a smaller x₂.

    $$E(x_1) - E(0) \approx \frac{x_1}{x_1 - x_2}\,(E(x_1) - E(x_2))$$

    With x = 1/l and a ladder of ratio 4 the factor is 4/3.

    >>> remaining_bias(1 / 4, 1 / 16, np.array([3.0, 3.0]), np.array([0.0, 0.0])).value
    4.0
    """
    if not x_one > x_other > 0:
        raise ValueError(f"x_one must exceed x_other and both be positive, got {x_one} and {x_other}")
    factor = x_one / (x_one - x_other)
    return contrast([one, other], [factor, -factor])
