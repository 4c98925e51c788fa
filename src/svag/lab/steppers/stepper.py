"""What the loop asks of a process."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import fsum
from typing import Any, Protocol

from torch import Tensor

from svag.records.reading import Reading


class Stepper(Protocol):
    """A process that takes effective steps, can measure them, and can be saved."""

    @property
    def examples(self) -> int:
        """Examples that one effective step looks at."""
        ...

    def set_rate(self, lr: float) -> None:
        """Set η of the next effective step; the process refines it itself."""
        ...

    def step(self, number: int, *, measure: bool) -> Tensor:
        """Take effective step `number`; return its mean loss, detached."""
        ...

    def collect(self) -> list[Reading]:
        """The readings of the measured steps since the last call, one for each."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Where the process is; valid when all readings have been collected."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called."""
        ...

    def close(self) -> None:
        """Give the model back as it was, its weights apart."""
        ...


def one_per_step(readings: Sequence[Reading]) -> list[Reading]:
    """Average the readings of the sub-steps of each effective step: G, N and R first, no ratio before."""
    by_step: dict[int | None, list[Reading]] = {}
    for reading in readings:
        by_step.setdefault(reading.step, []).append(reading)
    return [_average(group) if len(group) > 1 else group[0] for group in by_step.values()]


def _average(group: list[Reading]) -> Reading:
    velocities = [reading.velocity_sq for reading in group if reading.velocity_sq is not None]
    products = [reading.param_dot_grad for reading in group if reading.param_dot_grad is not None]
    return replace(
        group[0],
        grad_sq=fsum(reading.grad_sq for reading in group) / len(group),
        noise_trace=fsum(reading.noise_trace for reading in group) / len(group),
        param_sq=fsum(reading.param_sq for reading in group) / len(group),
        velocity_sq=fsum(velocities) / len(group) if len(velocities) == len(group) else None,
        param_dot_grad=fsum(products) / len(group) if len(products) == len(group) else None,
        n=sum(reading.n for reading in group),
    )


def without_broken(collect: Callable[[], list[Reading]]) -> list[Reading]:
    """Readings of the steps whose gradients were finite: a probe reports the others once, as an error.

    A run that goes on to diverge is noticed by its loss; its last readings are not a failure of the program.
    """
    try:
        return collect()
    except ValueError:
        return collect()
