"""A file of readings: one JSON object a line, appended to by one run or by several at once."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from svag.records.reading import Reading


def append_readings(path: str | Path, readings: Iterable[Reading]) -> None:
    """Append `readings` to a file in one write, so that runs which share the file do not cut each other's lines."""
    lines = "".join(reading.model_dump_json() + "\n" for reading in readings)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, lines.encode())
    finally:
        os.close(handle)


def load_readings(path: str | Path) -> list[Reading]:
    """Read the readings of a file in the order in which they were written.

    A last line without an end was cut by a crash and is left out; anything else that is not a reading is refused.
    """
    text = Path(path).read_text(encoding="utf-8")
    lines = text.split("\n")[:-1]
    return [_parse(line, path, number) for number, line in enumerate(lines, start=1) if line]


def _parse(line: str, path: str | Path, number: int) -> Reading:
    try:
        return Reading.model_validate(json.loads(line))
    except json.JSONDecodeError as error:
        raise ValueError(f"line {number} of {path} is not JSON ({error.msg}); remove it to read the others") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the line"
        raise ValueError(f"line {number} of {path} is not a reading: {where}: {first['msg']}") from error
