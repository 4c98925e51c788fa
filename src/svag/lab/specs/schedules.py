"""Learning-rate schedules as pure functions of the effective step, which can be drawn and checked without training.

A schedule gives a *multiplier* of the learning rate of the spec, so that scaling the learning rate with the batch
scales the schedule too. It is constant during an effective step.
"""

import math
from itertools import pairwise
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, field_validator

from svag.lab.specs.fields import Factor, Share, SpecError, SpecPart, When, step_of


class _Schedule(SpecPart):
    """A linear warm-up, multiplied with the schedule itself."""

    warmup: When = 0

    def multiplier(self, step: int, steps: int) -> float:
        """Multiplier of the learning rate in effective step `step` (counted from 0) of a run of `steps`."""
        rising = step_of(self.warmup, steps)
        return min(1.0, (step + 1) / rising) * self._shape(step, steps) if rising else self._shape(step, steps)

    @property
    def top(self) -> float:
        """The largest multiplier in a run."""
        return 1.0

    def check(self, steps: int) -> None:
        """Refuse what does not fit into a run of `steps`."""
        if self.warmup and step_of(self.warmup, steps) >= steps:
            raise SpecError("schedule.warmup", f"must end before the budget of {steps} steps")

    def _shape(self, step: int, steps: int) -> float:
        raise NotImplementedError


class Constant(_Schedule):
    """The constant learning rate of the spec.

    >>> Constant(warmup=2).multiplier(0, 10), Constant(warmup=2).multiplier(5, 10)
    (0.5, 1.0)
    """

    kind: Literal["constant"] = "constant"

    def _shape(self, step: int, steps: int) -> float:
        return 1.0


class Steps(_Schedule):
    """Multiplied by `factor` at each time of `at`.

    >>> Steps(at=(0.5, 8), factor=0.1).multiplier(7, 10)
    0.1
    """

    kind: Literal["steps"] = "steps"
    at: tuple[When, ...]
    factor: Factor = 0.1

    @field_validator("at")
    @classmethod
    def _some(cls, at: tuple[float, ...]) -> tuple[float, ...]:
        if not at:
            raise ValueError("must name at least one time: use kind: constant for none")
        if len(at) > 50:
            raise ValueError(f"must name at most 50 times, got {len(at)}: use kind: cosine for a smooth decay")
        return at

    @property
    def top(self) -> float:
        """The largest multiplier: above 1 when `factor` is."""
        return max(1.0, self.factor ** len(self.at))

    def check(self, steps: int) -> None:
        """Refuse decays that come after the end, before the first step, or out of order."""
        super().check(steps)
        decays = [step_of(when, steps) for when in self.at]
        for when, step in zip(self.at, decays, strict=True):
            if step >= steps:
                raise SpecError("schedule.at", f"a decay at {when} comes after the end of {steps} steps")
            if step == 0:
                raise SpecError("schedule.at", f"a decay at {when} comes before the first step: lower lr instead")
        if any(later <= earlier for earlier, later in pairwise(decays)):
            raise SpecError("schedule.at", f"must increase, got the steps {', '.join(map(str, decays))}")

    def _shape(self, step: int, steps: int) -> float:
        return self.factor ** sum(step >= step_of(when, steps) for when in self.at)


class Cosine(_Schedule):
    """Half a cosine from the learning rate of the spec down to `floor` times it.

    >>> round(Cosine(floor=0.5).multiplier(5, 10), 12)
    0.75
    """

    kind: Literal["cosine"] = "cosine"
    floor: Share = 0.0

    def _shape(self, step: int, steps: int) -> float:
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * step / steps)) / 2


class Triangle(_Schedule):
    """Up and down in straight lines, once for each of `peaks`, from `floor` and back; all times the learning rate.

    The paper's .001 → .8 → .001 → .4 → .001 at lr .8 is `peaks: [1.0, 0.5]`, `floor: 0.00125`.

    >>> schedule = Triangle(peaks=(1.0, 0.5), floor=0.0)
    >>> [schedule.multiplier(step, 40) for step in (0, 5, 10, 20, 30)]
    [0.0, 0.5, 1.0, 0.0, 0.5]
    """

    kind: Literal["triangle"] = "triangle"
    peaks: tuple[Factor, ...] = (1.0, 0.5)
    floor: Share = 0.00125

    @field_validator("peaks")
    @classmethod
    def _some(cls, peaks: tuple[float, ...]) -> tuple[float, ...]:
        if not peaks:
            raise ValueError("must name at least one peak")
        if len(peaks) > 50:
            raise ValueError(f"must name at most 50 peaks, got {len(peaks)}")
        return peaks

    @property
    def top(self) -> float:
        """The largest multiplier: the highest peak."""
        return max(self.floor, *self.peaks)

    def _shape(self, step: int, steps: int) -> float:
        position = 2 * len(self.peaks) * step / steps  # counted in straight lines, two for each peak
        line = int(position)
        up, peak = line % 2 == 0, self.peaks[line // 2]
        start, end = (self.floor, peak) if up else (peak, self.floor)
        return start + (end - start) * (position - line)


Schedule: TypeAlias = Annotated[Constant | Steps | Cosine | Triangle, Field(discriminator="kind")]
