"""A weighted backward pass into `.grad`, checks of pairs of batches, and undoing a step that is refused."""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from svag.noise.batches import mean_loss, split, tensors_of
from svag.noise.undisturbed import put_back, snapshot

Batch: TypeAlias = Any  # whatever the user's loss function takes
LossFn: TypeAlias = Callable[[Batch], Tensor]


class GradientPass:
    """Adds weight · ∇L_γ to `.grad`, so that several batches share one gradient and one graph is alive at a time.

    On request the batch is cut into chunks. The ranks of a DistributedDataParallel model communicate only in the last
    one.
    """

    def __init__(self, model: nn.Module, chunks: int) -> None:
        self._parallel = model if isinstance(model, DistributedDataParallel) else None
        self._chunks = chunks
        self.ranks = dist.get_world_size(self._parallel.process_group) if self._parallel else 1

    def __call__(self, weight: float, loss_fn: LossFn, batch: Batch, *, synchronise: bool) -> Tensor:
        """Back-propagate weight · L_γ and return L_γ, detached; wrapped ranks average their gradients on request."""
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
        if self._parallel and not synchronise:
            with self._parallel.no_sync():
                return _back_propagate(weight, loss_fn, batch)
        return _back_propagate(weight, loss_fn, batch)


def _back_propagate(weight: float, loss_fn: LossFn, batch: Batch) -> Tensor:
    loss = mean_loss(loss_fn, batch)
    torch.autograd.backward(loss, torch.full_like(loss, weight))
    return loss.detach()


def check_pair(first: Batch, second: Batch) -> None:
    """Refuse two batches that cannot be independent draws of the same kind."""
    if second is None:
        raise ValueError("the second batch is missing: only with ell equal to split does a step need just one")
    if first is second:
        raise ValueError("the two batches of a pair must be drawn independently, got one batch twice")
    one, other = list(tensors_of(first)), list(tensors_of(second))
    if [(t.ndim, t.dtype) for t in one] != [(t.ndim, t.dtype) for t in other]:
        raise ValueError(
            f"the two batches of a pair must be alike, got one of {_kinds(one)} and one of {_kinds(other)}: "
            "if this is one batch (inputs, targets) and not a pair, svag.independent_pairs(loader) makes pairs"
        )
    if {t.device for t in one} != {t.device for t in other}:
        raise ValueError(
            "the two batches of a pair must be on the same device, got "
            f"{', '.join(sorted({str(t.device) for t in one + other}))}: move both before the step"
        )
    if one and one[0].ndim and len(one[0]) != len(other[0]):
        raise ValueError(
            f"the two batches of a pair must have the same size, got {len(one[0])} and {len(other[0])} examples: "
            "let the loader drop its last, smaller batch"
        )


def _kinds(found: list[Tensor]) -> str:
    return ", ".join(f"{t.ndim}-d {str(t.dtype).removeprefix('torch.')}" for t in found) or "no tensors"


class Before:
    """A copy of the model's buffers, and with `weights` also of the weights and the optimizer's state.

    A single update needs no copy of the weights, as it is refused before it touches them; several updates do.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, *, weights: bool) -> None:
        self._optimizer, self._buffers, self._records = optimizer, snapshot(model), torch.is_grad_enabled()
        moved = [p for group in optimizer.param_groups for p in group["params"]] if weights else []
        self._weights = [(p, p.detach().clone()) for p in moved]
        self._state = {p: _copy(mine) for p, mine in optimizer.state.items()} if weights else None

    def restore(self) -> None:
        """Restore that state."""
        torch.set_grad_enabled(self._records)  # an interrupt while entering torch.no_grad() would leave it switched on
        put_back(self._buffers)
        with torch.no_grad():
            for parameter, content in self._weights:
                parameter.copy_(content)
        if self._state is not None:
            self._optimizer.state.clear()
            self._optimizer.state.update(self._state)


def _copy(state: dict[str, Any]) -> dict[str, Any]:
    return {key: value.clone() if isinstance(value, Tensor) else value for key, value in state.items()}
