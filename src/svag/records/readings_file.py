"""A file of readings: one JSON object a line, appended to by one run or by several at once."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from svag.records.reading import Reading

_READING = TypeAdapter(Reading)


def append_readings(path: str | Path, readings: Iterable[Reading]) -> None:
    """Append `readings` to a file in one write, so that runs which share the file do not cut each other's lines.

    >>> import tempfile
    >>> reading = Reading(grad_sq=0.5, noise_trace=8.0, param_sq=100.0, batch_size=128, n=4, run="seed 0")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     append_readings(f"{folder}/readings.jsonl", [reading])
    ...     append_readings(f"{folder}/readings.jsonl", [reading])
    ...     len(load_readings(f"{folder}/readings.jsonl"))
    2
    """
    lines = "".join(json.dumps(reading.to_dict()) + "\n" for reading in readings)
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        size = os.fstat(handle).st_size
        torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"  # a crash cut the last line: start a new one
        os.write(handle, (("\n" if torn else "") + lines).encode())
    finally:
        os.close(handle)


def load_readings(path: str | Path) -> list[Reading]:
    """Read the readings of a file in the order in which they were written.

    A line that a crash cut short is left out; anything else that is not a reading is refused.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "readings.jsonl").write_text("")
    ...     load_readings(f"{folder}/readings.jsonl")
    []
    """
    lines = Path(path).read_text(encoding="utf-8").split("\n")
    return [_parse(line, path, number) for number, line in enumerate(lines, start=1) if line and not _torn(line)]


def _torn(line: str) -> bool:
    # a reading is one flat object, so that no proper beginning of it ends in a brace
    return line.startswith("{") and not line.endswith("}")


def _parse(line: str, path: str | Path, number: int) -> Reading:
    try:
        return _READING.validate_python(json.loads(line))
    except json.JSONDecodeError as error:
        raise ValueError(f"line {number} of {path} is not JSON ({error.msg}); remove it to read the others") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the line"
        raise ValueError(f"line {number} of {path} is not a reading: {where}: {first['msg']}") from error
