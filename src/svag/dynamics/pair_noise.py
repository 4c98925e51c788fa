"""G and N for free: the two gradients of an SVAG step are an independent pair at one point."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from svag.records.reading import Reading
from svag.theory.estimators import u_statistic


@dataclass(frozen=True)
class _Pair:
    """What one pair measured: |g₁|² + |g₂|², |g₁ + g₂|² and R on the device, and the circumstances."""

    sums: Tensor
    to_batch: float
    batch_size: int
    step: int
    lr: float
    weight_decay: float
    momentum: float


class PairNoise:
    """Collects one pair a sub-step without waiting for the device; the numbers are fetched when they are asked for."""

    def __init__(self, ell: int, population: int | None) -> None:
        self._ell = ell
        self._population = population
        self._pending: list[_Pair] = []
        self._readings: list[Reading] = []
        self._first: list[Tensor | None] = []

    @property
    def count(self) -> int:
        """How many pairs were measured."""
        return len(self._readings) + len(self._pending)

    def forget_after(self, count: int) -> None:
        """Drop all pairs but the first `count`."""
        self._pending = self._pending[: max(count - len(self._readings), 0)]

    def keep_first(self, parameters: Sequence[Tensor]) -> None:
        """Remember a·g₁, which the second pass will be added to."""
        self._first = [None if p.grad is None else p.grad.detach().clone() for p in parameters]

    def measure(
        self,
        parameters: Sequence[Tensor],
        weights: tuple[float, float],
        *,
        batch_size: int,
        step: int,
        lr: float,
        weight_decay: float,
        momentum: float,
    ) -> None:
        """Measure the pair whose weighted sum a·g₁ + b·g₂ is in `.grad`; N is stored at `batch_size`."""
        a, b = weights
        trained = [(p, kept) for p, kept in zip(parameters, self._first, strict=True) if p.grad is not None]
        first = [torch.zeros_like(p) if kept is None else kept for p, kept in trained]
        second = torch._foreach_sub([p.grad.detach() for p, _ in trained if p.grad is not None], first)
        both = torch._foreach_add(first, second, alpha=a / b)
        sums = torch.stack(
            [
                _sum_sq(first) / a**2 + _sum_sq(second) / b**2,
                _sum_sq(both) / a**2,
                _sum_sq([p.detach() for p in parameters]),
            ]
        )
        self._first = []
        # the step's covariance, (a² + b²) times that of one of these batches, is l times that of the SGD run's batch
        to_batch = (a**2 + b**2) / self._ell
        self._pending.append(_Pair(sums, to_batch, batch_size, step, lr, weight_decay, momentum))

    def readings(self) -> list[Reading]:
        """All readings so far."""
        pending, self._pending = self._pending, []
        if pending:
            fetched = torch.stack([pair.sums for pair in pending]).tolist()
            self._readings.extend(
                self._reading(pair, *sums)
                for pair, sums in zip(pending, fetched, strict=True)
                if _finite(sums, pair.step)
            )
        return self._readings

    def _reading(self, pair: _Pair, sum_sq: float, sq_sum: float, param_sq: float) -> Reading:
        estimate = u_statistic(sum_sq, sq_sum, n=2)
        return Reading(
            grad_sq=estimate.grad_sq,
            noise_trace=pair.to_batch * estimate.noise_trace,
            param_sq=param_sq,
            batch_size=pair.batch_size,
            n=2,
            step=pair.step,
            lr=pair.lr,
            weight_decay=pair.weight_decay,
            momentum=pair.momentum,
            optimizer="SGD",
            population=self._population,
            ell=self._ell,
        )


def _sum_sq(tensors: Sequence[Tensor]) -> Tensor:
    """Σ|t|² in double precision: the estimate of G is a small difference of such sums."""
    device = tensors[0].device
    precise = torch.float32 if device.type == "mps" else torch.float64
    norms = torch._foreach_norm(list(tensors), 2, dtype=precise)
    return torch.stack([norm.to(device) for norm in norms]).square().sum()


def _finite(sums: list[float], step: int) -> bool:
    finite = all(abs(value) < float("inf") for value in sums)
    if not finite:
        warnings.warn(f"the gradients of effective step {step} are not finite: no reading there", stacklevel=4)
    return finite
