"""Readings that still live on the device: they become numbers only when someone asks."""

import math
from dataclasses import dataclass

from torch import Tensor

from svag.noise.optimizer import Settings
from svag.records.reading import Reading
from svag.theory.estimators import disjoint_parts

# So many steps are kept on the device before they are fetched together: memory stays bounded, waiting rare.
_FETCH_EVERY = 1024


@dataclass(frozen=True)
class _Step:
    numbers: Tensor
    parts: int
    step: int
    settings: Settings
    approximate: bool
    parts_ratio: float | None
    may_overflow: bool


class PendingReadings:
    """Turns the device's numbers of each step into readings, many steps at a time."""

    def __init__(self, batch_size: int, population: int | None, run: str) -> None:
        self._batch_size, self._population, self._run = batch_size, population, run
        self._waiting: list[_Step] = []
        self._readings: list[Reading] = []
        self._broken: list[int] = []

    def add(
        self,
        numbers: Tensor,
        *,
        parts: int,
        step: int,
        settings: Settings,
        approximate: bool,
        parts_ratio: float | None,
        may_overflow: bool,
    ) -> None:
        """Keep Σ|g_i|², |Σg_i|², R, ⟨x,g⟩ and, with momentum, |v|² of one step, without waiting for the device."""
        self._waiting.append(_Step(numbers, parts, step, settings, approximate, parts_ratio, may_overflow))
        if len(self._waiting) >= _FETCH_EVERY:
            self._fetch()

    def collect(self) -> list[Reading]:
        """Return all readings. A step with gradients that are not finite is left out, and reported once as an error.

        Under a GradScaler such a step is part of the plan: the scaler skips it, and so does this.
        """
        self._fetch()
        broken, self._broken = self._broken, []
        if broken:
            raise ValueError(
                f"the gradients of step {broken[0]} are not finite ({len(broken)} such steps): the run has diverged or "
                "overflowed; ask again for the readings of the other steps"
            )
        return list(self._readings)

    def _fetch(self) -> None:
        waiting, self._waiting = self._waiting, []
        for step in waiting:
            numbers = step.numbers.tolist()
            if all(math.isfinite(number) for number in numbers):
                self._readings.append(self._reading(step, numbers))
            elif not step.may_overflow:
                self._broken.append(step.step)

    def _reading(self, step: _Step, numbers: list[float]) -> Reading:
        sum_sq, sq_sum, param_sq, param_dot_grad, *velocity = numbers
        part_size = self._batch_size / step.parts
        estimate = disjoint_parts(
            sum_sq, sq_sum, step.parts, part_size=part_size, batch_size=self._batch_size, population=self._population
        )
        settings = step.settings
        return Reading(
            grad_sq=estimate.grad_sq,
            noise_trace=estimate.noise_trace,
            param_sq=param_sq,
            batch_size=self._batch_size,
            n=step.parts,
            step=step.step,
            lr=None if settings.lr is None else float(settings.lr),
            weight_decay=settings.weight_decay,
            momentum=settings.momentum,
            optimizer=settings.optimizer,
            population=self._population,
            velocity_sq=velocity[0] if velocity else None,
            param_dot_grad=param_dot_grad,
            approximate=step.approximate,
            parts_ratio=step.parts_ratio,
            run=self._run,
        )
