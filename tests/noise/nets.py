"""Small networks and the state that a measurement must leave alone."""

import random
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD

Norm = Literal["batch", "group", "layer", "none"]
Pair = tuple[Tensor, Tensor]


def net(norm: Norm = "none", seed: int = 0, dropout: bool = False, dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(seed)
    norms: dict[Norm, Callable[[], nn.Module]] = {
        "batch": lambda: nn.BatchNorm1d(8),
        "group": lambda: nn.GroupNorm(2, 8),
        "layer": lambda: nn.LayerNorm(8),
        "none": nn.Identity,
    }
    return nn.Sequential(
        nn.Linear(4, 8), norms[norm](), nn.Tanh(), nn.Dropout(0.5 if dropout else 0.0), nn.Linear(8, 3)
    ).to(dtype)


def loss_of(model: nn.Module) -> Callable[[Pair], Tensor]:
    return lambda batch: nn.functional.cross_entropy(model(batch[0]), batch[1])


def data(n: int, seed: int = 1, dtype: torch.dtype = torch.float64) -> Pair:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 4, generator=generator, dtype=dtype), torch.randint(3, (n,), generator=generator)


def batches(count: int, size: int, seed: int = 1) -> list[Pair]:
    x, y = data(count * size, seed)
    return list(zip(x.split(size), y.split(size), strict=True))


def gradient(model: nn.Module, batch: Pair) -> Tensor:
    """Reference: one batch's gradient as one vector."""
    found = torch.autograd.grad(loss_of(model)(batch), [p for p in model.parameters() if p.requires_grad])
    return torch.cat([g.reshape(-1) for g in found])


def everything(model: nn.Module, *generators: torch.Generator) -> list[object]:
    """All state that a measurement could disturb, as comparable values."""
    return [
        {name: value.clone().numpy().tobytes() for name, value in model.state_dict().items()},
        {name: None if p.grad is None else p.grad.numpy().tobytes() for name, p in model.named_parameters()},
        [module.training for module in model.modules()],
        torch.get_rng_state().numpy().tobytes(),
        random.getstate(),
        np.random.get_state()[1].tobytes(),  # type: ignore[index]  # noqa: NPY002  # the legacy state
        [generator.get_state().numpy().tobytes() for generator in generators],
    ]


def sgd(model: nn.Module) -> SGD:
    return SGD(model.parameters(), lr=0.1, weight_decay=0.01)
