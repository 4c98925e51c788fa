"""A reading as a row of metrics.jsonl: what it holds, without what it leaves at its default."""

from dataclasses import fields
from typing import Any

from svag.records.reading import Reading

KIND = "reading"
_DEFAULTS = {field.name: field.default for field in fields(Reading)}


def row_of(reading: Reading) -> dict[str, Any]:
    """The row of a reading.

    >>> row_of(Reading(0.5, 8.0, 100.0, 128, 4, step=7))
    {'kind': 'reading', 'grad_sq': 0.5, 'noise_trace': 8.0, 'param_sq': 100.0, 'batch_size': 128, 'n': 4, 'step': 7}
    """
    return {"kind": KIND, **{name: value for name, value in reading.to_dict().items() if value != _DEFAULTS[name]}}


def reading_of(row: dict[str, Any]) -> Reading:
    """The reading of a row."""
    return Reading(**{name: value for name, value in row.items() if name != "kind"})
