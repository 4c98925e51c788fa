"""Several questions at once: Holm for "any of them differs", intersection–union for "all of them agree"."""

from collections.abc import Sequence

import numpy as np

from svag.stats.samples import finite_row


def holm(p_values: Sequence[float]) -> list[float]:
    """P values adjusted so that rejecting those below α makes any false rejection with probability at most α.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = _checked(p_values)
    order = np.argsort(p)
    adjusted = np.minimum(np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1)), 1.0)
    result = np.empty_like(p)
    result[order] = adjusted
    return [float(value) for value in result]


def intersection_union(p_values: Sequence[float]) -> float:
    """P value of "every one of these holds", given one p value each: the largest. No correction is needed.

    >>> intersection_union([0.01, 0.04, 0.03])
    0.04
    """
    return float(_checked(p_values).max())


def _checked(p_values: Sequence[float]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    p = finite_row("p_values", p_values)
    if np.any((p < 0) | (p > 1)):
        raise ValueError(f"p values must lie in [0, 1], got {p.tolist()}")
    return p
