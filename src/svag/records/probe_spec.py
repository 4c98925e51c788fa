"""When and how a run measures G and N, and when it is evaluated."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, field_validator

from svag.records.numbers import Count, Moment, Several, step_of
from svag.records.refusal import SpecError


def _check_window(window: tuple[float, float], steps: int) -> tuple[int, int]:
    first, last = (step_of(when, steps) for when in window)
    if not first < last:
        raise SpecError("probe.window", f"must hold at least one effective step, got {first} to {last}")
    if last > steps:
        raise SpecError("probe.window", f"ends at {last}, after the end of {steps} effective steps")
    return first, last


def _positive(every: float, one: str) -> float:
    if every == 0:
        raise ValueError(f"must be positive: 1 {one}")
    return every


class NoProbe(BaseModel):
    """Measure nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["none"] = "none"


class InRunProbe(BaseModel):
    """One reading in every effective step of the window, or in some, from gradients that the run computes anyway.

    >>> InRunProbe(window=(0.5, 0.8), every=0.1).steps(100)
    range(50, 80, 10)

    Attributes:
        parts: SGD and glsr cut each batch into so many parts. SVAG's pairs need no cutting, and it is not used there.
        window: from (included) and to (not included).
        every: effective steps from one reading to the next, or a fraction of the budget.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["in_run"] = "in_run"
    parts: Several = 4
    window: tuple[Moment, Moment] = (0.0, 1.0)
    every: Moment = 1

    @field_validator("every")
    @classmethod
    def _some(cls, every: float) -> float:
        return _positive(every, "measures every effective step")

    def steps(self, steps: int) -> range:
        """The effective steps that are measured, in a run of `steps`."""
        return range(*_check_window(self.window, steps), max(1, step_of(self.every, steps)))


class FrozenProbe(BaseModel):
    """A number of readings at frozen weights, spread evenly over the window.

    >>> FrozenProbe(readings=3, window=(0.5, 0.8)).steps(100)
    [50, 60, 70]

    Attributes:
        readings: how many.
        window: from (included) and to (not included).
        batches: independent batches of the run's own size for each reading.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["frozen"] = "frozen"
    readings: Count = 60
    window: tuple[Moment, Moment] = (0.5, 0.8)
    batches: Several = 20

    def steps(self, steps: int) -> list[int]:
        """The effective steps before which a reading is taken, in a run of `steps`."""
        first, last = _check_window(self.window, steps)
        if self.readings > last - first:
            raise SpecError(
                "probe.readings", f"the window holds {last - first} effective steps, too few for {self.readings}"
            )
        return [first + number * (last - first) // self.readings for number in range(self.readings)]


Probe: TypeAlias = Annotated[NoProbe | InRunProbe | FrozenProbe, Field(discriminator="kind")]


class EvaluateSpec(BaseModel):
    """When the run is evaluated: before the first step, every so often, and at the end.

    Attributes:
        every: effective steps, or a fraction of the budget.
        train: evaluate the whole training set too, without augmentation.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    every: Moment = 0.05
    train: bool = False

    @field_validator("every")
    @classmethod
    def _some(cls, every: float) -> float:
        return _positive(every, "evaluates after every effective step")

    def interval(self, steps: int) -> int:
        """Effective steps between two evaluations."""
        return max(1, step_of(self.every, steps))


def named_probe(value: Any) -> Any:
    """Let `probe: none` stand for `probe: {kind: none}`."""
    return {"kind": "none"} if value is None or value == "none" else value
