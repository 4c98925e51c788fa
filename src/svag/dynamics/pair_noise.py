"""G and N for free: the two gradients of an SVAG step are an independent pair at one point."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from svag.noise.measured import inner_product, square_norm
from svag.noise.optimizer import Settings
from svag.records.reading import Reading
from svag.theory.estimators import u_statistic

# So many pairs are kept on the device before they are fetched together: memory stays bounded, waiting rare.
_FETCH_EVERY = 1024


@dataclass(frozen=True)
class _Pair:
    """What one pair measured, still on the device, and the circumstances."""

    numbers: Tensor
    to_batch: float
    batch_size: int
    step: int
    settings: Settings


class PairNoise:
    """Collects one pair a sub-step without waiting for the device; the numbers are fetched when they are asked for."""

    def __init__(self, ell: int, population: int | None) -> None:
        self._ell = ell
        self._population = population
        self._staged: list[_Pair] = []
        self._waiting: list[_Pair] = []
        self._readings: list[Reading] = []
        self._broken: list[int] = []
        self._first: list[Tensor | None] = []

    def keep_first(self, parameters: Sequence[nn.Parameter]) -> None:
        """Remember a·g₁, which the second pass will be added to."""
        self._first = [None if p.grad is None else p.grad.detach().clone() for p in parameters]

    def measure(
        self,
        parameters: Sequence[nn.Parameter],
        weights: tuple[float, float],
        *,
        batch_size: int,
        step: int,
        settings: Settings,
        velocity: Sequence[Tensor],
    ) -> None:
        """Measure the pair whose weighted sum a·g₁ + b·g₂ is in `.grad`; it counts once the step has been taken."""
        a, b = weights
        trained = [(p, p.grad, kept) for p, kept in zip(parameters, self._first, strict=True) if p.grad is not None]
        first = [torch.zeros_like(p) if kept is None else kept for p, _, kept in trained]
        second = torch._foreach_sub([grad.detach() for _, grad, _ in trained], first)
        both = torch._foreach_add(first, second, alpha=a / b)  # a (g₁ + g₂)
        self._first = []
        numbers = torch.stack(
            [
                square_norm(first) / a**2 + square_norm(second) / b**2,
                square_norm(both) / a**2,
                square_norm(parameters),
                inner_product([p for p, _, _ in trained], both) / (2 * a),
                *([square_norm(velocity)] if velocity else []),
            ]
        )
        # the step's covariance, (a² + b²) times that of one of these batches, is l times that of the SGD run's batch
        self._staged.append(_Pair(numbers, (a**2 + b**2) / self._ell, batch_size, step, settings))

    def settle(self, *, taken: bool) -> None:
        """Keep what was measured since the last time if its step was taken, forget it if not."""
        staged, self._staged = self._staged, []
        if taken:
            self._waiting.extend(staged)
        if len(self._waiting) >= _FETCH_EVERY:
            self._fetch()

    def collect(self) -> list[Reading]:
        """Return all readings. Pairs with gradients that are not finite are left out, and reported once as an error."""
        self._fetch()
        broken, self._broken = self._broken, []
        if broken:
            raise ValueError(
                f"the gradients of effective step {broken[0]} are not finite ({len(broken)} such pairs): the run has "
                "diverged; ask again for the readings of the other steps"
            )
        return list(self._readings)

    def _fetch(self) -> None:
        waiting, self._waiting = self._waiting, []
        for pair in waiting:
            numbers = pair.numbers.tolist()
            if all(math.isfinite(number) for number in numbers):
                self._readings.append(self._reading(pair, numbers))
            else:
                self._broken.append(pair.step)

    def _reading(self, pair: _Pair, numbers: list[float]) -> Reading:
        sum_sq, sq_sum, param_sq, param_dot_grad, *velocity = numbers
        estimate, settings = u_statistic(sum_sq, sq_sum, n=2), pair.settings
        return Reading(
            grad_sq=estimate.grad_sq,
            noise_trace=pair.to_batch * estimate.noise_trace,
            param_sq=param_sq,
            param_dot_grad=param_dot_grad,
            batch_size=pair.batch_size,
            n=2,
            step=pair.step,
            lr=None if settings.lr is None else float(settings.lr),
            weight_decay=settings.weight_decay,
            momentum=settings.momentum,
            optimizer=settings.optimizer,
            population=self._population,
            ell=self._ell,
            velocity_sq=velocity[0] if velocity else None,
        )
