"""A number with its interval."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from svag.as_json import JsonRow
from svag.printed import Printed


@dataclass(frozen=True, repr=False)
class Estimate(JsonRow, Printed):
    """A number with its interval; `float(x)` is the number.

    >>> found = Estimate(229.4, 212.1, 248.7)
    >>> print(found)
    229 [212, 249]
    >>> float(found)
    229.4
    >>> print(Estimate(1.5, 1.25, math.inf))
    1.5 [1.25, ∞]

    Attributes:
        value: the number.
        low: lower end of its interval.
        high: upper end, `math.inf` where unbounded.
    """

    value: float
    low: float
    high: float

    def __float__(self) -> float:
        return self.value

    def mapped(self, function: Callable[[float], float]) -> "Estimate":
        """Apply a monotone function to the number and its limits; a decreasing one swaps the limits.

        >>> Estimate(2.0, 1.0, 4.0).mapped(lambda x: 1 / x)
        <svag.Estimate: 0.5 [0.25, 1]>
        """
        value, low, high = function(self.value), function(self.low), function(self.high)
        return Estimate(value, min(low, high), max(low, high))

    @property
    def has_range(self) -> bool:
        """Whether an end of its interval is known: the lower above 0, or the upper finite."""
        return self.low > 0 or math.isfinite(self.high)

    def __str__(self) -> str:
        return f"{short(self.value)} [{short(self.low)}, {short(self.high)}]"


def short(value: float) -> str:
    """Three significant digits, whole numbers in full.

    >>> short(1.2345), short(12345.6), short(math.inf), short(math.nan)
    ('1.23', '12346', '∞', '–')
    """
    if math.isnan(value):
        return "–"
    if not math.isfinite(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"
