"""Which parameters are measured, which models cannot be, and sums over many tensors in double precision."""

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter, methodcaller
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors
from torch.nn.modules.batchnorm import _BatchNorm

# Number of entries that are summed in single precision, which keeps six digits.
_ROW = 1024
# If a GradScaler's factor is at least this, gradients are divided by it before they are squared: in single precision
# the squares of gradients around 1 overflow at 2⁶⁴. Below it, norms are divided, which is cheaper.
LARGE_SCALE = 2.0**32

TensorLike = TypeVar("TensorLike", bound=Tensor)


def measured_parameters(model: nn.Module, parameters: Iterable[Tensor] | None = None) -> dict[str, nn.Parameter]:
    """Return the trainable parameters of `model` by name, each once; only those among `parameters` if these are given.

    A tied parameter counts once; frozen ones are left out.
    """
    anything: object = model
    if not isinstance(anything, nn.Module):
        raise TypeError(f"the model must be a torch.nn.Module, got {type(anything).__name__}")
    refuse_deepspeed(model)
    if isinstance(parameters, Tensor):
        raise TypeError("parameters must be several parameters, got one tensor: pass a list")
    chosen = None if parameters is None else {id(parameter) for parameter in parameters}
    named = dict(model.named_parameters())
    if chosen is not None and (strangers := len(chosen - {id(parameter) for parameter in named.values()})):
        raise ValueError(
            f"{strangers} of the given parameters do not belong to the model: take them from its parameters()"
        )
    found = {
        name: parameter
        for name, parameter in named.items()
        if parameter.requires_grad and (chosen is None or id(parameter) in chosen)
    }
    if not found:
        raise ValueError("nothing to measure: no parameter requires a gradient (is the model frozen?)")
    for name, parameter in found.items():
        if parameter.is_complex():
            raise TypeError(f"parameter {name} is complex: the probes measure real parameters only")
    return found


_trains, _values = attrgetter("requires_grad"), methodcaller("values")


class Watched:
    """Detects in a few microseconds whether parameters of a model were frozen, unfrozen, added or replaced.

    >>> model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    >>> watched = Watched(model)
    >>> watched.changed()
    False
    >>> model[1] = nn.Linear(1, 1)
    >>> watched.changed()
    True
    """

    def __init__(self, model: nn.Module) -> None:
        self._parameters = list(model.parameters())
        self._trained = list(map(_trains, self._parameters))
        modules = list(model.modules())
        self._tables: list[dict[str, Any]] = [module._modules for module in modules]
        if not is_sharded(self._parameters):  # fully_shard puts other tensors in their place in every pass
            self._tables += [module._parameters for module in modules]
        self._members = self._present()  # kept alive, so that no new object gets the id of an old one
        self._ids = list(map(id, self._members))

    def changed(self) -> bool:
        """Whether anything has changed since this object was made."""
        return list(map(id, self._present())) != self._ids or list(map(_trains, self._parameters)) != self._trained

    def _present(self) -> list[object]:
        return list(chain.from_iterable(map(_values, self._tables)))


class FlatCopy:
    """One vector with room for copies of several tensors of one device, in at least single precision.

    An operation on its `views` is one call for all tensors, and so is a reduction of its `rows`. Views have the memory
    layout of the tensors, as only sums over all entries matter.

    >>> tensors = [torch.tensor([3.0, 0.0]), torch.tensor(4.0)]
    >>> room = FlatCopy(tensors)
    >>> _ = torch._foreach_copy_(room.views, tensors)
    >>> float(sum_squares(torch.linalg.vector_norm(room.rows, dim=1)))
    25.0

    Attributes:
        rows: all entries, padded with zeros to whole rows; each row is summed in single precision.
        views: the pieces, in the shapes of the tensors.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        dtype = torch.float32
        for tensor in tensors:
            dtype = torch.promote_types(dtype, tensor.dtype)
        sizes = [tensor.numel() for tensor in tensors]
        self.rows = torch.zeros(-(-sum(sizes) // _ROW), _ROW, dtype=dtype, device=tensors[0].device)
        pieces = self.rows.view(-1)[: sum(sizes)].split(sizes)
        self.views = [_laid_out(piece, tensor) for piece, tensor in zip(pieces, tensors, strict=True)]


def _laid_out(piece: Tensor, tensor: Tensor) -> Tensor:
    """View a piece of a vector in the shape of `tensor`, and in its memory order if that has no gaps."""
    if tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        return piece.as_strided(tensor.shape, tensor.stride())
    return piece.view(tensor.shape)


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """Copy tensors of one device into one vector in at least single precision, padded with zeros to whole rows."""
    with torch.no_grad():
        missing = -sum([tensor.numel() for tensor in tensors]) % _ROW
        try:  # one call for all tensors and no checks before it, since an in-run probe does this at every micro-batch
            flat: Tensor = _flatten_dense_tensors([*tensors, tensors[0].new_zeros(missing)])
        except RuntimeError:
            refuse_sparse_gradients(tensors)
            raise
        return flat if flat.dtype.itemsize >= 4 else flat.float()


def refuse_sparse_gradients(gradients: Iterable[Tensor]) -> None:
    """Refuse sparse gradients, as of an embedding with sparse=True."""
    if any(gradient.layout != torch.strided for gradient in gradients):
        raise ValueError("sparse gradients cannot be measured: build the embedding with sparse=False") from None


def flat_square(flat: Tensor) -> Tensor:
    """Squared norm of what `flatten` returned, in double precision, as a 0-d tensor that stays on its device.

    One single-precision norm of ten million entries is off by 4e-3, as torch does not add up squares in pairs, and a
    difference of squares magnifies such an error. So rows are summed in single precision, and their sums in double.
    """
    return sum_squares(torch.linalg.vector_norm(flat.view(-1, _ROW), dim=1))


def sum_squares(norms: Tensor) -> Tensor:
    """Sum of squares in double precision."""
    return norms.to(precise(norms.device)).square().sum()


def row_count(tensor: Tensor) -> int:
    """Number of norms that `NormsOf` writes for a tensor."""
    return max(-(-tensor.numel() // _ROW), 1)


class NormsOf:
    """Writes the norms of the rows of one tensor to its part of a vector that is shared with other tensors.

    Args:
        tensor: an example of the tensors to come, for its shape.
        norms: a vector of `row_count` numbers to write to.
    """

    def __init__(self, tensor: Tensor, norms: Tensor) -> None:
        self._whole = tensor.numel() // _ROW if len(norms) > 1 else 0
        self._rows, self._dtype = norms[: self._whole], norms.dtype
        self._rest = norms[self._whole] if self._whole < len(norms) else None

    def put(self, tensor: Tensor) -> None:
        """Write the norms of the rows of a tensor."""
        if not self._whole:
            torch.linalg.vector_norm(tensor, dtype=self._dtype, out=self._rest)
            return
        flat, length = tensor.reshape(-1), self._whole * _ROW
        torch.linalg.vector_norm(flat[:length].view(-1, _ROW), dim=1, dtype=self._dtype, out=self._rows)
        if self._rest is not None:
            torch.linalg.vector_norm(flat[length:], dtype=self._dtype, out=self._rest)


def by_device(tensors: Iterable[TensorLike]) -> list[list[TensorLike]]:
    """Group tensors by the device they live on."""
    groups: dict[torch.device, list[TensorLike]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.device, []).append(tensor)
    return list(groups.values())


def total(numbers: Sequence[Tensor]) -> Tensor:
    """Sum of tensors of one shape, on the device of the first."""
    if len(numbers) == 1:
        return numbers[0]
    device = numbers[0].device
    return torch.stack([number.to(device) for number in numbers]).sum(dim=0)


def square_norm(tensors: Iterable[Tensor]) -> Tensor:
    """Squared norm of several tensors taken as one vector; for sharded tensors, of this rank's shards."""
    return total([flat_square(flatten(group)) for group in by_device(on_this_rank(tensors))])


def on_this_rank(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Replace sharded tensors by the shards that this rank holds; return the others as they are."""
    if not dist.is_available():
        return list(tensors)
    from torch.distributed.tensor import DTensor

    with torch.no_grad():  # to_local() would otherwise be recorded for autograd
        return [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]


def flat_product(one: Tensor, other: Tensor) -> Tensor:
    """Inner product of two vectors that `flatten` returned."""
    wide = torch.promote_types(one.dtype, other.dtype)
    return torch.dot(one.to(wide), other.to(wide)).to(precise(one.device))


def inner_product(one: Sequence[Tensor], other: Sequence[Tensor]) -> Tensor:
    """Inner product of two lists of tensors taken as vectors."""
    pairs = zip(by_device(one), by_device(other), strict=True)
    return total([flat_product(flatten(a), flatten(b)) for a, b in pairs])


def gradient_sums(parameters: Iterable[nn.Parameter], scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """|g|², |x|² and ⟨x, g⟩ where `.grad` is g times `scale`, and a missing gradient is 0."""
    found = []
    divisor = scale if scale > LARGE_SCALE else 1.0
    for group in by_device(parameters):
        gradient = flatten([torch.zeros_like(p) if p.grad is None else p.grad for p in group])
        if divisor != 1:
            gradient = gradient / divisor
        weights = flatten(group)
        found.append(torch.stack([flat_square(gradient), flat_square(weights), flat_product(weights, gradient)]))
    square, weights_sq, product = total(found).unbind()
    rest = scale / divisor
    return square / rest**2, weights_sq, product / rest


def precise(device: torch.device) -> torch.dtype:
    """Double precision where the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


def refuse_sharded(model: nn.Module) -> None:
    """Refuse models whose parameters are spread over ranks: no rank ever holds its own whole gradient."""
    refuse_flat_shards(model)
    if is_sharded(model.parameters()):
        raise TypeError(
            "FSDP shards the gradients before a rank can see its own: measure with svag.NoiseProbe, under "
            "DistributedDataParallel, or with svag.measure_noise on an unsharded copy"
        )


def refuse_flat_shards(model: nn.Module) -> None:
    """Refuse the older FullyShardedDataParallel, which shards its parameters as pieces of one flat vector."""
    if not dist.is_available():
        return
    from torch.distributed.fsdp import FullyShardedDataParallel

    if any(isinstance(module, FullyShardedDataParallel) for module in model.modules()):
        raise TypeError(
            "FSDP in its first version, FullyShardedDataParallel, cannot be measured: shard the model with "
            "torch.distributed.fsdp.fully_shard, or measure with svag.measure_noise on an unsharded copy"
        )


def refuse_deepspeed(*owners: object) -> None:
    """Refuse a DeepSpeed engine, or the optimizer that it returns: its gradients are in private buffers."""
    # by the package that its classes come from: importing it here would be a new dependency
    if any(kind.__module__.partition(".")[0] == "deepspeed" for owner in owners for kind in type(owner).__mro__):
        raise TypeError(
            "DeepSpeed keeps its gradients to itself, so that svag can neither measure nor step here: "
            "use DistributedDataParallel or fully_shard, or give what deepspeed.initialize() has not yet taken"
        )


def is_sharded(parameters: Iterable[Tensor]) -> bool:
    """Whether any of them is a DTensor, as `fully_shard` makes them."""
    if not dist.is_available():
        return False
    from torch.distributed.tensor import DTensor

    return any(isinstance(parameter, DTensor) for parameter in parameters)


def refuse_sparse(model: nn.Module, parameters: Iterable[nn.Parameter]) -> None:
    """Refuse embeddings with sparse gradients in advance, not in the middle of a backward pass."""
    measured = {id(parameter) for parameter in parameters}
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse and id(module.weight) in measured:
            raise TypeError(
                f"{name or 'the model'} has sparse gradients, which cannot be measured: build it with sparse=False, or "
                "leave it out of parameters="
            )


def refuse_stale_gradients(model: nn.Module) -> None:
    """Refuse gradients that an earlier step has left behind."""
    stale = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    if stale and bool(square_norm(stale) != 0):
        raise ValueError(
            "gradients of an earlier step are still there: call optimizer.zero_grad() before probe.backward(), or "
            "model.zero_grad() if some weights are in no optimizer"
        )


def refuse_stale(before: Tensor | None) -> None:
    """Refuse a first micro-batch whose gradient was added to an existing one, of the norm `before` or its square."""
    if before is not None and bool(before != 0):
        raise ValueError(
            "gradients of an earlier step are still there and would count as part of the first micro-batch: call "
            "optimizer.zero_grad() before the first backward() of a step"
        )


def batch_norms(model: nn.Module, synchronised_only: bool = False) -> list[nn.Module]:
    """BatchNorm modules that normalise by batch statistics, which differ between the parts and the whole batch.

    Under data parallelism each rank has its own statistics anyway, so there only a SyncBatchNorm couples the parts.
    """
    kind = nn.SyncBatchNorm if synchronised_only else _BatchNorm
    return [
        module
        for module in model.modules()
        if isinstance(module, kind) and (module.training or not module.track_running_stats)
    ]
