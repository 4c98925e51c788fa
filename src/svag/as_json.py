"""Results as JSON values."""

import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any


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
