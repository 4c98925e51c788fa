"""What cutting a batch does to BatchNorm: parts are normalised by their own statistics, and N and G change."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor, nn

from svag.noise.batches import split
from svag.noise.frozen import measure_noise
from svag.records.reading import Reading

Batch = TypeVar("Batch")


@dataclass(frozen=True)
class PartsComparison:
    """The same batches at the same weights, measured whole and in parts.

    Attributes:
        whole: the frozen reading: what the run itself sees.
        parts: what the in-run probe sees, averaged over the batches.
    """

    whole: Reading
    parts: Reading

    @property
    def ratio(self) -> float | None:
        """N/G in parts over N/G whole: 1 without BatchNorm, up to noise; None when either G is not resolved."""
        if min(self.whole.grad_sq, self.parts.grad_sq, self.whole.noise_trace) <= 0:
            return None
        whole = self.whole.noise_trace / self.whole.grad_sq
        return self.parts.noise_trace / self.parts.grad_sq / whole

    def __str__(self) -> str:
        ratio = "not resolved: give more batches" if self.ratio is None else f"{self.ratio:.3g}"
        return f"whole: {self.whole}\nparts: {self.parts}\nN/G in parts over N/G whole: {ratio}"


def compare_parts(
    model: nn.Module, loss_fn: Callable[[Batch], Tensor], batches: Iterable[Batch], parts: int = 4
) -> PartsComparison:
    """Measure independent batches whole and cut into `parts`, at frozen weights and without a trace.

    Do it once on a network with BatchNorm before trusting its in-run readings: on ordinary networks parts of 16
    examples are off by some 10%, on an over-fitted one by a factor.
    """
    if parts < 2:
        raise ValueError(f"parts must be at least 2, got {parts}: a whole batch is what the parts are compared with")
    kept = list(batches)
    whole = measure_noise(model, loss_fn, kept)
    cut = [measure_noise(model, loss_fn, split(batch, parts)) for batch in kept]
    return PartsComparison(
        whole,
        Reading(
            grad_sq=sum(reading.grad_sq for reading in cut) / len(cut),
            # N of a part; that of the whole batch is `parts` times smaller
            noise_trace=sum(reading.noise_trace for reading in cut) / len(cut) / parts,
            param_sq=whole.param_sq,
            batch_size=whole.batch_size,
            n=parts * len(cut),
            approximate=True,
        ),
    )
