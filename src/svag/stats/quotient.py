"""The quotient of two estimates that each come with an interval of their own."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A positive number and its limits; the lower one may be 0 and the upper one infinite where nothing bounds it."""

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
    down = math.hypot(_ratio(one.value, one.low), _ratio(other.high, other.value))
    up = math.hypot(_ratio(one.high, one.value), _ratio(other.value, other.low))
    return Interval(value, value * math.exp(-down), value * math.exp(up) if math.isfinite(up) else math.inf)


def _ratio(larger: float, smaller: float) -> float:
    """The logarithm of a ratio that is at least 1, infinite where the limit is."""
    return math.log(larger / smaller) if smaller > 0 and math.isfinite(larger) else math.inf
