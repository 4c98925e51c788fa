"""Which parameters are measured, and their squared norms in double precision."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn


def measured_parameters(model: nn.Module, parameters: Iterable[Tensor] | None = None) -> dict[str, nn.Parameter]:
    """Return the trainable parameters of `model` by name, each once; only those among `parameters` if these are given.

    A tied parameter is one parameter; a frozen one is left out.
    """
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


def row_norms(tensor: Tensor) -> Tensor:
    """Norms of the rows of a tensor, as one vector in at least single precision.

    One single-precision sum over a million entries can be off by 1e-3, which a difference of norms does not forgive:
    rows are summed in single precision, and `total_square` sums rows in double.
    """
    if tensor.layout != torch.strided:
        raise ValueError("sparse gradients cannot be measured: build the embedding with sparse=False")
    wide = tensor.detach() if tensor.dtype.itemsize >= 4 else tensor.detach().float()
    if wide.ndim >= 2:
        norms: Tensor = torch.linalg.vector_norm(wide, dim=tuple(range(1, wide.ndim)))
        return norms
    return torch.stack([torch.linalg.vector_norm(chunk) for chunk in wide.reshape(-1).split(8192)])


def total_square(norms: list[Tensor]) -> Tensor:
    """Sum of the squares of many norms, as a 0-d tensor that stays on its device."""
    device = norms[0].device
    joined = torch.cat([norm.to(device) for norm in norms])
    return joined.to(precise(device)).square().sum()


def square_norm(tensors: Iterable[Tensor]) -> Tensor:
    """Squared norm of several tensors taken as one vector."""
    return total_square([row_norms(tensor) for tensor in tensors])


def inner_product(one: Iterable[Tensor], other: Iterable[Tensor]) -> Tensor:
    """Inner product of two lists of tensors taken as vectors."""
    products = [
        torch.dot(a.detach().reshape(-1).to(b.dtype), b.detach().reshape(-1)) for a, b in zip(one, other, strict=True)
    ]
    device = products[0].device
    return torch.stack([product.to(device, precise(device)) for product in products]).sum()


def precise(device: torch.device) -> torch.dtype:
    """Double precision where the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64
