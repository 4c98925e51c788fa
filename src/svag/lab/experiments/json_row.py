"""Results as JSON values."""

from svag.stats.samples import json_number


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

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document; numbers that are unknown or infinite are null."""
        return json_fields_of(self, *vars(self))


def json_fields_of(result: object, *names: str) -> dict[str, object]:
    """Some attributes of a result as JSON values."""
    return {name: json_value(getattr(result, name)) for name in names}


def json_value(value: object) -> object:
    """A number, a text, a result that has a `to_dict`, or several of them, as a JSON value."""
    if isinstance(value, float):
        return json_number(value)
    if isinstance(value, tuple | list):
        return [json_value(part) for part in value]
    to_dict = getattr(value, "to_dict", None)
    return value if to_dict is None else to_dict()
