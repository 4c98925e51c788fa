"""The kinds of numbers that a spec holds, each refusing what only looks like one."""

from contextlib import suppress
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainValidator

from svag.records.refusal import shown


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


def moment(value: object) -> int | float:
    """A moment of a run: a whole number is an effective step, a number with a point is a fraction of the budget.

    >>> moment(500), moment(0.5), moment("0.5")
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
    """The effective step that a moment stands for in a run of `steps`.

    >>> step_of(500, 4000), step_of(0.5, 4000)
    (500, 2000)
    """
    return when if isinstance(when, int) else round(when * steps)


Moment = Annotated[int | float, PlainValidator(moment)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(_no_bool)]
Factor = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False), BeforeValidator(_no_bool)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False), BeforeValidator(_no_bool)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), BeforeValidator(_no_bool)]
Count = Annotated[int, Field(ge=1, le=10**12), BeforeValidator(_whole)]
Whole = Annotated[int, Field(ge=0, le=10**12), BeforeValidator(_whole)]
Several = Annotated[int, Field(ge=2, le=10**9), BeforeValidator(_whole)]
Seed = Annotated[int, Field(ge=0, lt=2**63), BeforeValidator(_whole)]
