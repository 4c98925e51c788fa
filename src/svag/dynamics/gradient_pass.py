"""One weighted backward pass into `.grad`, in chunks if asked for; data-parallel ranks talk only in the last one."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from svag.dynamics.batch import Batch
from svag.noise.batches import split
from svag.noise.losses import mean_loss

LossFn: TypeAlias = Callable[[Batch], Tensor]


class GradientPass:
    """Adds weight · ∇L_γ to `.grad`, so that several batches share one gradient and one graph is alive at a time."""

    def __init__(self, model: nn.Module, chunks: int, average: Callable[[], None] | None = None) -> None:
        self._parallel = model if isinstance(model, DistributedDataParallel) else None
        self._chunks, self._average = chunks, average
        self.ranks = dist.get_world_size(self._parallel.process_group) if self._parallel else 1

    def __call__(self, weight: float, loss_fn: LossFn, batch: Batch, *, synchronise: bool) -> Tensor:
        """Back-propagate weight · L_γ and return L_γ, detached; ranks add up their gradients if `synchronise`."""
        if self._chunks == 1:
            return self._piece(weight, loss_fn, batch, synchronise)
        pieces = split(batch, self._chunks)
        losses = [
            self._piece(weight / self._chunks, loss_fn, piece, synchronise and piece is pieces[-1]) for piece in pieces
        ]
        return torch.stack(losses).mean()

    def all_finite(self, loss: Tensor) -> bool:
        """Whether the loss is finite on every rank; all ranks get the same answer, so that all can refuse together."""
        finite = torch.isfinite(loss).to(torch.float32)
        if self._parallel:
            dist.all_reduce(finite, dist.ReduceOp.MIN, group=self._parallel.process_group)
        return bool(finite.item())

    def _piece(self, weight: float, loss_fn: LossFn, batch: Batch, synchronise: bool) -> Tensor:
        with self._silence(synchronise):
            loss = mean_loss(loss_fn, batch)
            torch.autograd.backward(loss, torch.full_like(loss, weight))
        if synchronise and self._average is not None:
            self._average()
        return loss.detach()

    def _silence(self, synchronise: bool) -> AbstractContextManager[None]:
        return nullcontext() if synchronise or self._parallel is None else self._parallel.no_sync()
