"""G and N at no extra cost: the two gradients of an SVAG step are an independent pair at one point."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from svag.noise.optimizer import ReadingSettings
from svag.noise.parameters import inner_product, square_norm
from svag.noise.pending import PendingReadings
from svag.noise.reading import Reading
from svag.theory.estimators import u_statistic


@dataclass(frozen=True)
class PairReading:
    """The reading of one pair.

    Attributes:
        numbers: |g₁|² + |g₂|², |g₁ + g₂|², R, ⟨x,g⟩ and, with momentum, |v|².
        to_batch: N of the SGD run's batch over N of one of the pair's batches.
        batch_size: of the SGD run; a tensor if it is a sum over ranks.
        step: the effective step.
        settings: of the optimizer.
        ell: SVAG's refinement.
        population: size of the data set, when the examples of a batch are distinct.
        may_overflow: never: there is no GradScaler here.
    """

    numbers: Tensor
    to_batch: float
    batch_size: int | Tensor
    step: int
    settings: ReadingSettings
    ell: int
    population: int | None
    may_overflow: bool = False

    def fetch(self) -> list[float]:
        """Return the numbers; this waits for the device."""
        found: list[float] = self.numbers.tolist()
        return found

    def reading(self, numbers: list[float]) -> Reading:
        """Make the reading."""
        sum_sq, sq_sum, param_sq, param_dot_grad, *velocity = numbers
        estimate, settings = u_statistic(sum_sq, sq_sum, n=2), self.settings
        return Reading(
            grad_sq=estimate.grad_sq,
            noise_trace=self.to_batch * estimate.noise_trace,
            param_sq=param_sq,
            param_dot_grad=param_dot_grad,
            batch_size=round(float(self.batch_size)),
            n=2,
            step=self.step,
            **settings.reading_fields(),
            population=self.population,
            ell=self.ell,
            velocity_sq=velocity[0] if velocity else None,
        )


class PairNoise:
    """Collects one pair a sub-step without waiting for the device; the numbers are fetched when they are asked for."""

    def __init__(self, ell: int, population: int | None) -> None:
        self._ell = ell
        self._population = population
        self._pending = PendingReadings("effective step", "pairs")
        self._staged: list[PairReading] = []
        self._first: list[Tensor | None] = []

    def keep_first(self, parameters: Sequence[nn.Parameter]) -> None:
        """Remember a·g₁, to which the second pass will be added."""
        self._first = [None if p.grad is None else p.grad.detach().clone() for p in parameters]

    def measure(
        self,
        parameters: Sequence[nn.Parameter],
        weights: tuple[float, float],
        *,
        batch_size: int | Tensor,
        step: int,
        settings: ReadingSettings,
        velocity: Sequence[Tensor],
    ) -> None:
        """Measure the pair whose weighted sum a·g₁ + b·g₂ is in `.grad`; it counts once the step has been taken."""
        a, b = weights
        trained = [(p, p.grad, kept) for p, kept in zip(parameters, self._first, strict=True) if p.grad is not None]
        first = _real([torch.zeros_like(p) if kept is None else kept for p, _, kept in trained])
        second = torch._foreach_sub(_real([grad.detach() for _, grad, _ in trained]), first)
        both = torch._foreach_add(first, second, alpha=a / b)  # a (g₁ + g₂)
        self._first = []
        numbers = torch.stack(
            [
                square_norm(first) / a**2 + square_norm(second) / b**2,
                square_norm(both) / a**2,
                square_norm(_real(parameters)),
                inner_product(_real([p for p, _, _ in trained]), both) / (2 * a),
                *([square_norm(_real(velocity))] if velocity else []),
            ]
        )
        # the step's covariance, (a² + b²) times that of one of these batches, is l times that of the SGD run's batch
        to_batch = (a**2 + b**2) / self._ell
        self._staged.append(PairReading(numbers, to_batch, batch_size, step, settings, self._ell, self._population))

    def settle(self, *, taken: bool) -> None:
        """Keep what was measured since the last time if its step was taken, forget it if not."""
        if taken:
            # moved in one call into C, so that none is lost or doubled wherever this is cut short and called again
            self._pending.add(map(self._staged.pop, [0] * len(self._staged)))
        else:
            self._staged = []

    def collect(self) -> list[Reading]:
        """Return all readings. Pairs with gradients that are not finite are left out, with a warning at the first."""
        return list(self._pending.collect())


def _real(tensors: Sequence[Tensor]) -> list[Tensor]:
    """View a complex parameter as two real ones, as torch's optimizers do."""
    return [torch.view_as_real(tensor.detach().resolve_conj()) if tensor.is_complex() else tensor for tensor in tensors]
