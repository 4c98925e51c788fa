"""Which parameters are measured, which models cannot be, and squared norms and products in double precision."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors
from torch.nn.modules.batchnorm import _BatchNorm

# Entries that are summed in single precision: six digits are kept.
_ROW = 1024

TensorLike = TypeVar("TensorLike", bound=Tensor)


def measured_parameters(model: nn.Module, parameters: Iterable[Tensor] | None = None) -> dict[str, nn.Parameter]:
    """Return the trainable parameters of `model` by name, each once; only those among `parameters` if these are given.

    A tied parameter is one parameter; a frozen one is left out.
    """
    anything: object = model
    if not isinstance(anything, nn.Module):
        raise TypeError(f"the model must be a torch.nn.Module, got {type(anything).__name__}")
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


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors of one device as one vector in at least single precision, filled up with zeros to whole rows."""
    with torch.no_grad():
        missing = -sum([tensor.numel() for tensor in tensors]) % _ROW
        try:  # one call for all of them, and no question before it: an in-run probe does this at every micro-batch
            flat: Tensor = _flatten_dense_tensors([*tensors, tensors[0].new_zeros(missing)])
        except (RuntimeError, NotImplementedError):
            if all(tensor.layout == torch.strided for tensor in tensors):
                raise
            raise ValueError("sparse gradients cannot be measured: build the embedding with sparse=False") from None
        return flat if flat.dtype.itemsize >= 4 else flat.float()


def flat_square(flat: Tensor) -> Tensor:
    """Squared norm of what `flatten` returned, in double precision, as a 0-d tensor that stays on its device.

    One single-precision sum over ten million entries is off by 4e-3, which a difference of squares does not forgive:
    rows are summed in single precision, and their sums in double.
    """
    return sum_squares(flat_norms(flat))


def flat_norms(flat: Tensor) -> Tensor:
    """Norms of the rows of what `flatten` returned."""
    norms: Tensor = torch.linalg.vector_norm(flat.view(-1, _ROW), dim=1)
    return norms


def sum_squares(norms: Tensor) -> Tensor:
    """Sum of squares in double precision."""
    return norms.to(precise(norms.device)).square().sum()


def by_device(tensors: Iterable[TensorLike]) -> list[list[TensorLike]]:
    """Group tensors by the device they live on."""
    groups: dict[torch.device, list[TensorLike]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.device, []).append(tensor)
    return list(groups.values())


def total(numbers: Sequence[Tensor]) -> Tensor:
    """Sum of 0-d tensors, on the device of the first."""
    if len(numbers) == 1:
        return numbers[0]
    device = numbers[0].device
    return torch.stack([number.to(device) for number in numbers]).sum()


def square_norm(tensors: Iterable[Tensor]) -> Tensor:
    """Squared norm of several tensors taken as one vector."""
    return total([flat_square(flatten(group)) for group in by_device(tensors)])


def flat_product(one: Tensor, other: Tensor) -> Tensor:
    """Inner product of two vectors that `flatten` returned."""
    wide = torch.promote_types(one.dtype, other.dtype)
    return torch.dot(one.to(wide), other.to(wide)).to(precise(one.device))


def inner_product(one: Sequence[Tensor], other: Sequence[Tensor]) -> Tensor:
    """Inner product of two lists of tensors taken as vectors."""
    pairs = zip(by_device(one), by_device(other), strict=True)
    return total([flat_product(flatten(a), flatten(b)) for a, b in pairs])


def precise(device: torch.device) -> torch.dtype:
    """Double precision where the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


def refuse_sharded(model: nn.Module) -> None:
    """Refuse models whose parameters are spread over ranks: no rank ever holds its own whole gradient."""
    if not dist.is_available():
        return
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.tensor import DTensor

    if any(isinstance(module, FullyShardedDataParallel) for module in model.modules()) or any(
        isinstance(parameter, DTensor) for parameter in model.parameters()
    ):
        raise TypeError(
            "FSDP shards the gradients before a rank can see its own: measure under DistributedDataParallel, or with "
            "svag.measure_noise on an unsharded copy"
        )


def refuse_sparse(model: nn.Module, parameters: Iterable[nn.Parameter]) -> None:
    """Refuse embeddings with sparse gradients, before one of them arrives in the middle of a backward pass."""
    measured = {id(parameter) for parameter in parameters}
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse and id(module.weight) in measured:
            raise TypeError(
                f"{name or 'the model'} has sparse gradients, which cannot be measured: build it with sparse=False, or "
                "leave it out of parameters="
            )


def batch_norms(model: nn.Module, synchronised_only: bool = False) -> list[nn.Module]:
    """BatchNorm modules that normalise by the batch at hand: their parts see other statistics than the whole batch.

    Under data parallelism each rank has its own statistics anyway, so there only a SyncBatchNorm couples the parts.
    """
    kind = nn.SyncBatchNorm if synchronised_only else _BatchNorm
    return [
        module
        for module in model.modules()
        if isinstance(module, kind) and (module.training or not module.track_running_stats)
    ]
