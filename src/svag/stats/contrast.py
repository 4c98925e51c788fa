"""An estimated difference with Welch's degrees of freedom: gaps and biases are contrasts of group means."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from svag.arrays import FloatArray


@dataclass(frozen=True)
class Estimate:
    """A number that was estimated.

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

        >>> low, high = Estimate(1.0, 0.1, freedom=10).interval()
        >>> round(low, 4), round(high, 4)
        (0.7772, 1.2228)
        """
        half = float(special.stdtrit(self.freedom, (1 + confidence) / 2)) * self.error if self.error > 0 else 0.0
        return self.value - half, self.value + half

    def p_different(self, beyond: float = 0.0) -> float:
        """P value of the two-sided test that the truth is 0; or within ±`beyond` of it, which is conservative.

        It is below 5% exactly when the 95% interval, widened by `beyond`, leaves out 0.

        >>> round(Estimate(0.3228, 0.1, freedom=10).p_different(beyond=0.1), 3)  # t₁₀ = 2.228
        0.05
        """
        if self.error > 0:
            return min(1.0, 2 * float(special.stdtr(self.freedom, (beyond - abs(self.value)) / self.error)))
        return float(abs(self.value) <= beyond)

    def p_equivalent(self, margin: float) -> float:
        """P value of TOST, the two one-sided tests that the truth is at least `margin` away from 0.

        It is below 5% exactly when the 90% interval lies inside ±margin.

        >>> round(Estimate(0.0, 0.1, freedom=10).p_equivalent(0.1812), 3)  # t₁₀ = 1.812
        0.05
        """
        if self.error > 0:
            return float(special.stdtr(self.freedom, -(margin - abs(self.value)) / self.error))
        return float(abs(self.value) >= margin)


def contrast(groups: Sequence[FloatArray], weights: Sequence[float]) -> Estimate:
    r"""Estimate Σ w_i μ_i from samples of unequal spread, with the degrees of freedom of Welch and Satterthwaite.

    $$\mathrm{se}^2 = \sum_i w_i^2 \frac{s_i^2}{n_i},\qquad
      \nu = \mathrm{se}^4 \Big/ \sum_i \frac{(w_i^2 s_i^2/n_i)^2}{n_i - 1}$$

    >>> contrast([np.array([1.0, 3.0]), np.array([3.0, 5.0])], [1, -1])
    Estimate(value=-2.0, error=1.4142135623730951, freedom=2.0...)

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
    return Estimate(float(np.dot(weights, means)), math.sqrt(total), freedom)


def welch(one: FloatArray, other: FloatArray) -> Estimate:
    """Difference of two means, `one` minus `other`, by Welch's t."""
    return contrast([one, other], [1.0, -1.0])
