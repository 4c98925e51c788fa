"""The one place that reads and writes the state of a torch optimizer: its kind, its settings, its velocity.

Two readers need it. A `Reading` writes down what it can learn about any optimizer (`settings_of`, `velocities`). SVAG
and noisy gradient descent need the settings of an optimizer that the theory covers (`refinable_settings`), and put
refined ones in their place for the duration of one step (`write_settings`).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from svag.theory.optimizers import WHAT_WORKS, OptimizerSettings, SGDSettings


@dataclass(frozen=True)
class ReadingSettings:
    """Settings that all measured parameters have in common; None where they differ or the optimizer has none.

    `lr` is a tensor when the optimizer keeps it on the device; reading it waits until the reading is asked for.
    """

    optimizer: str
    lr: float | Tensor | None
    weight_decay: float | None
    momentum: float | None

    def reading_fields(self) -> dict[str, Any]:
        """The fields of a `Reading` that they fill; a learning rate on the device is fetched."""
        return {**vars(self), "lr": None if self.lr is None else float(self.lr)}


def settings_of(optimizer: Optimizer, parameters: Collection[nn.Parameter]) -> ReadingSettings:
    """Read the settings of the groups that hold any of `parameters`; any optimizer will do."""
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
    return ReadingSettings(_kind(optimizer, groups), lr, _one(decays), _one(momenta) if momenta else None)


def velocities(optimizer: Optimizer, parameters: Collection[nn.Parameter]) -> list[Tensor]:
    """Return the momentum buffers of torch.optim.SGD, or nothing unless every measured parameter has one."""
    if not isinstance(optimizer, SGD) or not any(group["momentum"] for group in optimizer.param_groups):
        return []
    buffers = [optimizer.state[p].get("momentum_buffer") for p in parameters if p in optimizer.state]
    present = [buffer for buffer in buffers if isinstance(buffer, torch.Tensor)]
    return present if len(present) == len(parameters) else []


def trained_parameters(optimizer: Optimizer) -> list[nn.Parameter]:
    """Return the parameters that a step of the optimizer may change, in the order of its groups."""
    return [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]


def refinable_settings(optimizer: Optimizer) -> list[OptimizerSettings]:
    """Read the settings of every parameter group, or refuse an optimizer whose steps cannot be refined."""
    # a subclass may do anything in its step
    if type(optimizer) is not SGD:
        raise ValueError(f"optimizer is {type(optimizer).__name__}, which has no SVAG here: {WHAT_WORKS}")
    return [_refinable(number, group) for number, group in enumerate(optimizer.param_groups)]


def write_settings(optimizer: Optimizer, settings: Sequence[OptimizerSettings]) -> list[dict[str, Any]]:
    """Put the settings of one sub-step into the parameter groups, and return what was there; weight decay stays.

    With dampening, a velocity that does not exist yet is started at 0: torch would start it at the whole, undamped
    gradient.
    """
    before = [{name: group[name] for name in ("lr", "momentum", "dampening")} for group in optimizer.param_groups]
    for group, setting in zip(optimizer.param_groups, settings, strict=True):
        group.update(lr=setting.lr, momentum=setting.momentum, dampening=setting.dampening)
        if setting.dampening == 0:
            continue
        for p in group["params"]:
            if p.grad is not None and optimizer.state[p].get("momentum_buffer") is None:
                optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p)
    return before


def _refinable(number: int, group: dict[str, Any]) -> OptimizerSettings:
    if isinstance(group["lr"], Tensor):
        raise ValueError(f"parameter group {number} has a tensor for lr, give lr.item(): {WHAT_WORKS}")
    found = SGDSettings(
        lr=float(group["lr"]),
        weight_decay=float(group["weight_decay"]),
        momentum=float(group["momentum"]),
        dampening=group["dampening"],
        nesterov=group["nesterov"],
    )
    if problem := found.without_limit or ("differentiable=True" if group["differentiable"] else ""):
        raise ValueError(f"parameter group {number} has {problem}, which has no limit: {WHAT_WORKS}")
    return found


def _kind(optimizer: Optimizer, groups: list[dict[str, Any]]) -> str:
    if not isinstance(optimizer, SGD):
        return type(optimizer).__name__
    if any(group["nesterov"] for group in groups):
        return "SGD with Nesterov momentum"
    if any(group["momentum"] and group["dampening"] for group in groups):
        return "SGD with dampening"
    return "SGD"


def _one(values: set[float]) -> float | None:
    return values.pop() if len(values) == 1 else None
