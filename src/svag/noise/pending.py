"""Readings that still live on the device: they become numbers only when someone asks."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from svag.noise.optimizer import ReadingSettings
from svag.records.reading import Reading
from svag.theory.estimators import disjoint_parts

# So many are kept on the device before they are fetched together: memory stays bounded, waiting rare.
_FETCH_EVERY = 1024


class Pending(Protocol):
    """What one reading will be made of: a vector of numbers that is still on the device, and the circumstances."""

    @property
    def numbers(self) -> Tensor:
        """What was measured."""
        ...

    @property
    def step(self) -> int:
        """The step it belongs to."""
        ...

    @property
    def may_overflow(self) -> bool:
        """Whether a GradScaler was at work: it skips a step whose gradients are not finite, and so do we."""
        ...

    def reading(self, numbers: list[float]) -> Reading:
        """Make the reading of the numbers, once they are here."""
        ...


@dataclass(frozen=True)
class StepReading:
    """The reading of one step that was cut into parts.

    Attributes:
        numbers: Σ|g_i|², |Σg_i|², R, ⟨x,g⟩ and, with momentum, |v|².
        step: number of the step.
        batch_size: examples of the step.
        population: size of the data set, when the examples of a batch are distinct.
        parts: their number; a tensor where ranks have counted them together.
        expected: the number that the ranks must have counted, if this one can tell.
        settings: of the optimizer.
        approximate: BatchNorm saw the parts, not the batch.
        parts_ratio: what is known about the difference.
        run: name of the run.
        may_overflow: a GradScaler was at work.
    """

    numbers: Tensor
    step: int
    batch_size: int
    population: int | None
    parts: int | Tensor
    expected: int | None
    settings: ReadingSettings
    approximate: bool
    parts_ratio: float | None
    run: str
    may_overflow: bool

    def reading(self, numbers: list[float]) -> Reading:
        """Make the reading, or refuse parts of different sizes on different ranks."""
        sum_sq, sq_sum, param_sq, param_dot_grad, *velocity = numbers
        n, settings = round(float(self.parts)), self.settings
        if self.expected not in (None, n):
            raise ValueError(
                f"the ranks had {n} parts in step {self.step}, but batch_size={self.batch_size} is {self.expected} "
                "parts of the size that they have on this rank: give every rank its own share, cut into parts of one "
                "size"
            )
        estimate = disjoint_parts(
            sum_sq,
            sq_sum,
            n,
            part_size=self.batch_size / n,
            batch_size=self.batch_size,
            population=self.population,
        )
        return Reading(
            grad_sq=estimate.grad_sq,
            noise_trace=estimate.noise_trace,
            param_sq=param_sq,
            batch_size=self.batch_size,
            n=n,
            step=self.step,
            **settings.reading_fields(),
            population=self.population,
            velocity_sq=velocity[0] if velocity else None,
            param_dot_grad=param_dot_grad,
            approximate=self.approximate,
            parts_ratio=self.parts_ratio,
            run=self.run,
        )


class PendingReadings:
    """Fetches many readings at a time, without making a training step wait for the device.

    Args:
        step: what a step is called in an error.
        unit: what several readings are called there.
    """

    def __init__(self, step: str, unit: str) -> None:
        self._step, self._unit = step, unit
        self._waiting: list[Pending] = []
        self._readings: list[Reading] = []
        self._broken: list[int] = []
        self._refused: list[ValueError] = []

    def add(self, found: Iterable[Pending]) -> None:
        """Keep these for later."""
        self._waiting.extend(found)
        if len(self._waiting) >= _FETCH_EVERY:
            self._fetch()

    def collect(self) -> list[Reading]:
        """Return all readings. Those with gradients that are not finite are left out, and reported once as an error."""
        self._fetch()
        if self._refused:
            refused, self._refused = self._refused, []
            raise refused[0]
        broken, self._broken = self._broken, []
        if broken:
            raise ValueError(
                f"the gradients of {self._step} {broken[0]} are not finite ({len(broken)} such {self._unit}): the run "
                "has diverged or overflowed; ask again for the readings of the other steps"
            )
        return list(self._readings)

    def _fetch(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            numbers = one.numbers.tolist()
            if not all(math.isfinite(number) for number in numbers):
                self._broken += [] if one.may_overflow else [one.step]
                continue
            try:
                self._readings.append(one.reading(numbers))
            except ValueError as error:  # a long run goes on; whoever asks for its readings is told
                self._refused.append(error)
