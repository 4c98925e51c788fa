"""Inputs and outputs of tests: finite rows, checked levels, rank correlation, and results as JSON values."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from numbers import Real
from typing import Any

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


def json_number(value: float) -> float | None:
    """Return `value` for a JSON document, which knows neither infinity nor NaN: those become null.

    >>> json_number(2.0), json_number(math.inf)
    (2.0, None)
    """
    return float(value) if math.isfinite(value) else None


def json_fields(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of a flat record for a JSON document, floats by `json_number` and the rest as they are.

    >>> json_fields({"low": 0.5, "high": math.inf, "name": "a"})
    {'low': 0.5, 'high': None, 'name': 'a'}
    """
    return {name: json_number(value) if isinstance(value, float) else value for name, value in fields.items()}


class JsonRow:
    """Adds `to_dict` to a dataclass.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Gap(JsonRow):
    ...     value: float
    ...     limits: tuple[float, float]
    >>> Gap(0.5, (0.25, float("inf"))).to_dict()
    {'value': 0.5, 'limits': [0.25, None]}
    """

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for a JSON document; numbers that are unknown or infinite are null."""
        return json_fields_of(self, *vars(self))


def json_fields_of(result: object, *names: str) -> dict[str, Any]:
    """Some attributes of a result as JSON values."""
    return {name: json_value(getattr(result, name)) for name in names}


def json_value(value: object) -> object:
    """A number, a text, a dataclass or another result that has a `to_dict`, or several of them, as a JSON value."""
    if isinstance(value, float):
        return json_number(value)
    if isinstance(value, tuple | list):
        return [json_value(part) for part in value]
    to_dict = getattr(value, "to_dict", None)
    if to_dict is not None:
        return to_dict()
    return json_fields_of(value, *vars(value)) if is_dataclass(value) else value


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
