"""What the optimizer knows about the run: learning rate, weight decay, momentum, its kind, its velocity."""

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer


@dataclass(frozen=True)
class Settings:
    """Hyperparameters shared by all measured parameters; None where they differ or the optimizer has none.

    `lr` is a tensor when the optimizer keeps it on the device; reading it waits until the reading is asked for.
    """

    optimizer: str
    lr: float | Tensor | None
    weight_decay: float | None
    momentum: float | None


def settings_of(optimizer: Optimizer, parameters: Collection[nn.Parameter]) -> Settings:
    """Read the settings of the groups that hold any of `parameters`."""
    ids = {id(parameter) for parameter in parameters}
    groups = [group for group in optimizer.param_groups if any(id(p) in ids for p in group["params"])]
    if not groups:
        raise ValueError("the optimizer holds none of the measured parameters: give the one that trains this model")
    rates = [group["lr"] for group in groups]
    decays = {float(group.get("weight_decay", 0.0)) for group in groups}
    momenta = {float(group["momentum"]) for group in groups if "momentum" in group}
    if any(isinstance(rate, Tensor) for rate in rates):
        lr = rates[0].detach().clone() if len(rates) == 1 else _one({float(rate) for rate in rates})
    else:
        lr = _one({float(rate) for rate in rates})
    return Settings(_kind(optimizer, groups), lr, _one(decays), _one(momenta) if momenta else None)


def velocities(optimizer: Optimizer, parameters: Collection[nn.Parameter]) -> list[Tensor]:
    """Return the momentum buffers of torch.optim.SGD, or nothing unless every measured parameter has one."""
    if not isinstance(optimizer, SGD) or not any(group["momentum"] for group in optimizer.param_groups):
        return []
    buffers = [optimizer.state[p].get("momentum_buffer") for p in parameters if p in optimizer.state]
    present = [buffer for buffer in buffers if isinstance(buffer, torch.Tensor)]
    return present if len(present) == len(parameters) else []


def _kind(optimizer: Optimizer, groups: list[dict[str, object]]) -> str:
    if not isinstance(optimizer, SGD):
        return type(optimizer).__name__
    if any(group["nesterov"] for group in groups):
        return "SGD with Nesterov momentum"
    if any(group["momentum"] and group["dampening"] for group in groups):
        return "SGD with dampening"
    return "SGD"


def _one(values: set[float]) -> float | None:
    return values.pop() if len(values) == 1 else None
