"""The kinds of numbers that a spec holds, and how a field is refused: its path and the reason, in one sentence."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainValidator, ValidationError


class SpecError(Exception):
    """A spec that makes no sense. The message begins with the path of the field.

    Not a ValueError, because pydantic would wrap one into a report of several lines.

    >>> raise SpecError("process.ell", "must be at least 1, got 0")
    Traceback (most recent call last):
    svag.records.fields.SpecError: process.ell: must be at least 1, got 0
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


def spec_error(error: ValidationError, fields: Mapping[str, Sequence[str]]) -> SpecError:
    """Turn what pydantic found into one sentence about the first problem.

    `fields` holds the names that exist, by the path of what holds them, to guess what an unknown one was meant to be.
    """
    found = error.errors()
    # a misspelt name leaves the right one missing: the guess is the better sentence
    misspelt = [one for one in found if one["type"] == "extra_forbidden"]
    first = misspelt[0] if misspelt and found[0]["type"] == "missing" else found[0]
    path = [str(part) for part in first["loc"]]
    if len(path) > 1 and path[0] in {"process", "optimizer", "schedule", "probe", "budget"}:
        chosen = path.pop(1)  # the kind, by which pydantic chose the sub-spec
        if first["type"] == "extra_forbidden" and path[-1] in fields[path[0]]:
            return SpecError(".".join(path), f"kind {chosen} has no such field: name another {path[0]}.kind with it")
    reason = _reason(first["type"], dict(first.get("ctx", {})), first["input"], first["msg"], path, fields)
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return SpecError(".".join(path), reason + more)


def _reason(
    kind: str,
    context: dict[str, Any],
    value: object,
    message: str,
    path: list[str],
    fields: Mapping[str, Sequence[str]],
) -> str:
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return f"there is no such field; {near(path[-1], fields.get('.'.join(path[:-1]), ()))}"
    if kind == "union_tag_invalid":
        return f"kind must be one of {context['expected_tags'].replace(chr(39), '')}, got {shown(context['tag'])}"
    if kind == "union_tag_not_found":
        return "kind is missing"
    if kind == "literal_error":
        return f"must be one of {context['expected'].replace(chr(39), '')}, got {shown(value)}"
    if kind == "value_error":
        return str(context["error"])
    if kind in {"model_type", "model_attributes_type", "dict_type"}:
        return f"must be a mapping of fields, got {shown(value)}"
    rule, prefix = message.partition(",")[0], "Input should be "
    if not rule.startswith(prefix):
        return f"{message}: {shown(value)}"
    what = rule.removeprefix(prefix)
    return f"must be {what[:1].lower()}{what[1:]}, got {shown(value)}"


def near(name: str, known: Iterable[str]) -> str:
    """Say which of the `known` names was probably meant, or list them.

    >>> near("nrom", ["arch", "norm"])
    'did you mean norm?'
    """
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"


def shown(value: object) -> str:
    """A value as the user wrote it, not longer than a line."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _no_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"must be a number, got {shown(value)}")
    return value


def _whole(value: object) -> object:
    """What YAML takes for text, 1e3, is a whole number to a person."""
    if isinstance(value, str):
        with suppress(ValueError, OverflowError):
            number = float(value)
            return int(number) if number == int(number) else number
    return _no_bool(value)


def time_point(value: object) -> int | float:
    """A time in a run: a whole number is an effective step, a number with a point is a fraction of the budget.

    >>> time_point(500), time_point(0.5), time_point("0.5")
    (500, 0.5, 0.5)
    """
    if isinstance(value, str):
        for reads in (int, float):
            with suppress(ValueError):
                value = reads(value)
                break
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be an effective step (500) or a fraction of the budget (0.5), got {shown(value)}")
    if isinstance(value, float) and not 0 <= value <= 1:  # catches nan too
        raise ValueError(f"a fraction of the budget must lie in [0, 1], got {value}: an effective step has no point")
    if value < 0:
        raise ValueError(f"must not be negative, got {value}")
    return value


def step_of(when: float, steps: int) -> int:
    """The effective step that a time stands for in a run of `steps`.

    >>> step_of(500, 4000), step_of(0.5, 4000)
    (500, 2000)
    """
    return when if isinstance(when, int) else round(when * steps)


When = Annotated[int | float, PlainValidator(time_point)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(_no_bool)]
Factor = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False), BeforeValidator(_no_bool)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False), BeforeValidator(_no_bool)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), BeforeValidator(_no_bool)]
Count = Annotated[int, Field(ge=1, le=10**12), BeforeValidator(_whole)]
Whole = Annotated[int, Field(ge=0, le=10**12), BeforeValidator(_whole)]
Several = Annotated[int, Field(ge=2, le=10**9), BeforeValidator(_whole)]
Seed = Annotated[int, Field(ge=0, lt=2**63), BeforeValidator(_whole)]
