"""The in-run probe of several processes: the parts of a batch are divided among the ranks."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from svag.lab.ranks import Ranks
from svag.lab.streams import Batch
from svag.lab.training import Training
from svag.noise.batches import split
from svag.noise.measured import batch_norms, flat_product, flat_square, flatten, measured_parameters
from svag.noise.probe import NoiseProbe
from svag.noise.recorders import StepSums
from svag.records.reading import Reading


class SharedParts:
    """Collects the sums of a step whose parts are spread over ranks; closing it averages `.grad` over them.

    A part's gradient is what `.grad` gained since the part before, times parts/ranks: each loss was multiplied by
    ranks/parts, so that the mean of `.grad` over the ranks is the mean over the parts.
    """

    def __init__(self, model: nn.Module, ranks: Ranks, parts: int) -> None:
        self._parameters = list(measured_parameters(model).values())
        self._ranks, self._parts = ranks, parts
        self._before: Tensor | None = None
        self._squares: list[Tensor] = []

    def micro_batch(self, scale: float) -> None:
        """One part has been back-propagated."""
        now = self._flat_gradient()
        self._squares.append(flat_square(now if self._before is None else now - self._before))
        self._before = now

    def close(self) -> StepSums:
        """Return the sums of the step and start the next one."""
        sum_sq = torch.stack(self._squares).sum() * (self._parts / self._ranks.size) ** 2
        self.forget()
        self._ranks.average_gradients(self._parameters)
        mean, weights = self._flat_gradient(), flatten(self._parameters)
        return StepSums(
            sum_sq=self._ranks.total(sum_sq),
            sq_sum=flat_square(mean) * self._parts**2,
            param_sq=flat_square(weights),
            param_dot_grad=flat_product(weights, mean),
            parts=self._parts,
            scaled=False,
        )

    def forget(self) -> None:
        """Drop what was recorded since the last step."""
        self._before, self._squares = None, []

    def remove(self) -> None:
        """Stop recording: nothing was attached to the model."""
        self.forget()

    def _flat_gradient(self) -> Tensor:
        return flatten([torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters])


class SharedProbe:
    """What the ladder asks of a probe, with the same readings as one process has, to rounding."""

    def __init__(self, training: Training, batch_size: int, parts: int) -> None:
        self._model, self._ranks = training.model, training.ranks
        self._probe = NoiseProbe(
            training.model,
            training.optimizer,
            batch_size=batch_size,
            population=training.population,
            recorder=SharedParts(training.model, training.ranks, parts),
        )

    @property
    def readings(self) -> list[Reading]:
        """One reading per step."""
        return self._probe.readings

    def backward(self, loss_fn: Callable[[Batch], Tensor], batch: Batch, parts: int, *, step: int) -> Tensor:
        """Back-propagate this rank's parts, put the gradient of the whole batch into `.grad`, and take a reading.

        `loss_fn` is the mean loss of a part, all of it on this rank. The mean over the ranks of what is returned is the
        mean loss of the batch.
        """
        losses = []
        for piece in split(batch, parts)[self._ranks.share(parts)]:
            loss = loss_fn(piece) * (self._ranks.size / parts)
            loss.backward()
            self._probe.micro_batch()
            losses.append(loss.detach())
        self._probe.close_step(step=step, approximate=bool(batch_norms(self._model)))
        return torch.stack(losses).sum()

    def close(self) -> None:
        """Take no more readings."""
        self._probe.close()
