"""Samples: finite rows, checked levels, rank correlation."""

import math
from collections.abc import Sequence
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike

from svag.arrays import FloatArray


def finite_row(name: str, values: ArrayLike, at_least: int = 1) -> FloatArray:
    """Return `values` as one row of floats, or refuse other shapes, NaN, infinity and too few of them.

    >>> finite_row("losses", [1, 2])
    array([1., 2.])
    """
    row = np.asarray(values, dtype=np.float64)
    if row.ndim != 1:
        raise ValueError(f"{name} must be one row of numbers, got shape {row.shape}")
    if row.size < at_least:
        raise ValueError(f"{name} must hold at least {at_least} numbers, got {row.size}")
    bad = np.flatnonzero(~np.isfinite(row))
    if bad.size:
        raise ValueError(f"{name}[{bad[0]}] is {row[bad[0]]}: {name} must be finite numbers")
    return row


def probability(name: str, value: float) -> float:
    """Return `value`, or refuse what is not strictly between 0 and 1."""
    if not 0 < _number(name, value) < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value}")
    return float(value)


def positive(name: str, value: float) -> float:
    """Return `value`, or refuse what is not a finite number above 0."""
    if not (math.isfinite(_number(name, value)) and value > 0):
        raise ValueError(f"{name} must be a positive finite number, got {value}")
    return float(value)


def _number(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got a {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} must be a finite number, got one beyond 1e308") from None


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's rank correlation of two samples in the same order; equal values share the mean of their ranks.

    >>> rank_correlation([1.0, 2.0, 4.0], [3.0, 5.0, 90.0]), rank_correlation([1.0, 2.0, 3.0], [7.0, 7.0, 7.0])
    (1.0, 0.0)
    """
    first, second = _ranks(one), _ranks(other)
    mean = (len(first) - 1) / 2
    top = math.fsum((x - mean) * (y - mean) for x, y in zip(first, second, strict=True))
    size = math.prod(math.fsum((x - mean) ** 2 for x in ranks) for ranks in (first, second))
    return top / math.sqrt(size) if size else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]
