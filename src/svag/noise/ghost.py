"""What cutting a batch does to BatchNorm: parts are normalised by their own statistics, and N and G change."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from svag.noise.batches import kept_position, mean_loss, split
from svag.noise.frozen import measure_noise
from svag.noise.undisturbed import undisturbed
from svag.records.reading import Reading

Batch = TypeVar("Batch")

# Whole and cut batches share their noise, so that few of them tell the ratio; an endless loader must still end.
MOST_BATCHES = 20


@dataclass(frozen=True)
class PartsComparison:
    """The same batches at the same weights, measured whole and in parts.

    Attributes:
        whole: the frozen reading: what the run sees when it is not probed.
        parts: a frozen reading of the micro-batched step: what the in-run probe's readings are an estimate of.
    """

    whole: Reading
    parts: Reading

    @property
    def ratio(self) -> float | None:
        """N/G in parts over N/G whole: 1 without BatchNorm, up to rounding; None when either G is not resolved."""
        if min(self.whole.grad_sq, self.parts.grad_sq, self.whole.noise_trace) <= 0:
            return None
        whole = self.whole.noise_trace / self.whole.grad_sq
        return self.parts.noise_trace / self.parts.grad_sq / whole

    def to_dict(self) -> dict[str, Any]:
        """Both readings and the ratio, as JSON values."""
        return {"whole": self.whole.to_dict(), "parts": self.parts.to_dict(), "ratio": self.ratio}

    def __str__(self) -> str:
        ratio = "not resolved: give more batches" if self.ratio is None else f"{self.ratio:.3g}"
        return f"whole: {self.whole}\nparts: {self.parts}\nN/G in parts over N/G whole: {ratio}"


def compare_parts(
    model: nn.Module,
    loss_fn: Callable[[Batch], Tensor],
    batches: Iterable[Batch],
    parts: int = 4,
    *,
    max_batches: int | None = None,
    parameters: Iterable[Tensor] | None = None,
) -> PartsComparison:
    """Measure independent batches whole and cut into `parts`, at frozen weights and without a trace.

    On ordinary networks with BatchNorm parts of 16 examples are off by some 10%, on an over-fitted one by a factor.

    Args:
        model: the model, in the mode in which it trains.
        loss_fn: takes a batch, whole or a part, returns its mean loss.
        batches: independent batches of the training size; all are kept in memory.
        parts: in how many parts each is cut.
        max_batches: use no more of them than this.
        parameters: measure only these.
    """
    if parts < 2:
        raise ValueError(f"parts must be at least 2, got {parts}: a whole batch is what the parts are compared with")
    measured = None if parameters is None else list(parameters)
    with undisturbed(model), kept_position(batches):
        kept = list(islice(batches, max_batches))

    def in_parts(batch: Batch) -> Tensor:
        return torch.stack([mean_loss(loss_fn, part) for part in split(batch, parts)]).mean()

    whole = measure_noise(model, loss_fn, kept, parameters=measured)
    cut = measure_noise(model, in_parts, kept, parameters=measured)
    return PartsComparison(whole, replace(cut, approximate=True))
