"""How many seeds would decide an open claim, guessing that the truth is what the seeds so far have shown."""

import math

from svag.lab.experiments.wording import Remedy

# Beyond this many, another setting is the better remedy.
_MOST_SEEDS = 200
_ARMS = 2
# With a standard error of 1/2.9 of the distance to the margin, a test at 5% decides four times in five.
_ERRORS = 2.9


def for_gap(
    value: float, low: float, high: float, seeds: int, margin: float, arms: tuple[str, ...] = ()
) -> Remedy | None:
    """For the difference of two arms, with its 95% limits, that should lie within a margin, or clearly beyond it.

    >>> print(for_gap(0.1, -0.6, 0.8, seeds=5, margin=0.5))
    25 seeds would probably decide (40 more runs)
    >>> print(for_gap(0.49, 0.4, 0.58, seeds=5, margin=0.5))
    too close to the margin for more seeds to decide
    """
    if seeds < 2 or not math.isfinite(high - low):
        return None
    from scipy import special  # here, as the list of figures starts without it

    error = (high - low) / 2 / float(special.stdtrit(_ARMS * (seeds - 1), 0.975))
    return _until(seeds, _ERRORS * error, abs(margin - abs(value)), arms)


def for_curves(apart: float, reach: float, seeds: int, close: float, arms: tuple[str, ...] = ()) -> Remedy | None:
    """For two curves that are known to be at least `apart` and at most `reach` from each other somewhere.

    The limits narrow like 1/√seeds around what lies between them; if they include 0, at most half of `reach` does.

    >>> print(for_curves(0.0, 0.06, seeds=8, close=0.05))
    18 seeds would probably decide (20 more runs)
    """
    if seeds < 2 or not math.isfinite(reach):
        return None
    seen = (apart + reach) / 2
    return _until(seeds, reach - seen, abs(close - seen), arms)


def _until(seeds: int, spread: float, distance: float, arms: tuple[str, ...]) -> Remedy:
    """Enough seeds for a spread that shrinks like 1/√seeds to be smaller than a distance."""
    if spread > distance * math.sqrt(_MOST_SEEDS / seeds):
        return Remedy("margin")
    needed = max(math.ceil(round(seeds * (spread / distance) ** 2, 6)), seeds + 1)
    return Remedy("seeds", needed, _ARMS * (needed - seeds), arms)
