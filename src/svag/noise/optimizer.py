"""The one place that reads and writes the state of a torch optimizer: its kind, its settings, its velocity, its v.

Wrappers of other packages are taken off an optimizer first (`unwrapped`). Its settings then have two readers.
A `Reading` writes down what it can learn about any optimizer (`state_of`, `velocities`). SVAG and noisy gradient
descent need the settings of an optimizer that the theory covers (`refinable_settings`), and put refined ones in their
place for the duration of one step, and with them the second moment of Adam and RMSprop in the units of such a step
(`SubstepState`).
"""

import math
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, NAdam, Optimizer, RAdam, RMSprop

from svag.noise.parameters import by_device, on_this_rank, precise, refuse_deepspeed, total
from svag.theory.adaptive import WHAT_REFINES, AdamSettings, RMSpropSettings
from svag.theory.optimizers import DECOUPLED, WHAT_WORKS, OptimizerSettings, SGDSettings, optimizer_kind

_SECOND_MOMENT: dict[type[Optimizer], str] = {Adam: "exp_avg_sq", AdamW: "exp_avg_sq", RMSprop: "square_avg"}
_REFINED_SETTINGS: dict[type[OptimizerSettings], tuple[str, ...]] = {
    SGDSettings: ("lr", "momentum", "dampening"),
    AdamSettings: ("lr", "betas", "eps", "weight_decay"),
    RMSpropSettings: ("lr", "alpha", "eps"),
}

_HOLDS_NONE = "the optimizer holds none of the measured parameters: give the one that trains this model"

# Wrappers that forward to a torch optimizer: module, class, and the attribute that holds it. Anything else that holds
# an optimizer may change its steps, as Lookahead does, and counts as a different optimizer.
_WRAPPERS = [
    ("accelerate.optimizer", "AcceleratedOptimizer", "optimizer"),
    ("lightning.pytorch.core.optimizer", "LightningOptimizer", "_optimizer"),
    ("lightning.fabric.wrappers", "_FabricOptimizer", "_optimizer"),
    ("pytorch_lightning.core.optimizer", "LightningOptimizer", "_optimizer"),
    ("lightning_fabric.wrappers", "_FabricOptimizer", "_optimizer"),
]


def unwrapped(optimizer: Optimizer) -> Optimizer:
    """Return the torch optimizer inside the wrappers of Accelerate, Lightning and Fabric; refuse anything else.

    The packages need not be installed: a caller that holds one of their objects has imported them.
    """
    anything: Any = optimizer
    refuse_deepspeed(anything)
    for module, name, attribute in _WRAPPERS:
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and isinstance(anything, kind):
            return unwrapped(getattr(anything, attribute))
    if not isinstance(anything, Optimizer):
        raise TypeError(
            f"the optimizer must be a torch.optim.Optimizer, got {type(anything).__name__}: make the optimizer of this "
            "model first, and give it"
        )
    return anything


def all_unwrapped(optimizer: Optimizer | Sequence[Optimizer]) -> list[Optimizer]:
    """The torch optimizers inside one, or inside each of several that train different parameters of a model."""
    given = list(optimizer) if isinstance(optimizer, Sequence) else [optimizer]
    if not given:
        raise ValueError("the list of optimizers is empty: give those that train this model")
    return [unwrapped(wrapped) for wrapped in given]


BY_GAIN_RULE: WeakSet[Optimizer] = WeakSet()
"""Optimizers stepped by a gain rule: their groups hold the settings of the baseline, but steps use other settings."""


@dataclass(frozen=True)
class ReadingSettings:
    """Settings that all measured parameters have in common; None where they differ or the optimizer has none.

    `lr`, `betas` and `second_moment`, the V of the moment, are tensors where the optimizer keeps them on the device;
    reading them waits until the reading is asked for.
    """

    optimizer: str
    lr: float | Tensor | None
    weight_decay: float | None
    momentum: float | None
    betas: tuple[float | Tensor, float | Tensor] | None = None
    eps: float | None = None
    second_moment: Tensor | None = None
    dimension: int | None = None

    def reading_fields(self) -> dict[str, Any]:
        """The fields of a `Reading` that they fill; what is on the device is fetched."""
        # squares overflow before gradients do, and an infinite V is useless
        moment = None if self.second_moment is None else float(self.second_moment)
        known = moment is not None and math.isfinite(moment)
        return {
            **vars(self),
            "lr": None if self.lr is None else float(self.lr),
            "betas": None if self.betas is None else tuple(float(beta) for beta in self.betas),
            "second_moment": moment if known else None,
            "dimension": self.dimension if known else None,
        }


def settings_of(
    optimizer: Optimizer, parameters: Collection[nn.Parameter], groups: Sequence[dict[str, Any]] | None = None
) -> ReadingSettings:
    """Read the settings of the groups that hold any of `parameters`; any optimizer will do.

    Pass an earlier copy of the optimizer's groups as `groups` to read that copy instead.
    """
    ids = {id(parameter) for parameter in parameters}
    present = optimizer.param_groups if groups is None else groups
    groups = [group for group in present if any(id(p) in ids for p in group["params"])]
    if not groups:
        raise ValueError(_HOLDS_NONE)
    rates = [group["lr"] for group in groups]
    decays = {float(group.get("weight_decay", 0.0)) for group in groups}
    momenta = {float(group["momentum"]) for group in groups if "momentum" in group}
    kind = _kind(optimizer, groups)
    adaptive = optimizer_kind(kind).family == "second_moment"
    return ReadingSettings(
        kind,
        _one_rate(rates),
        _one(decays),
        _one(momenta) if momenta else None,
        betas=_betas(groups) if adaptive else None,
        eps=_one({float(group["eps"]) for group in groups}) if adaptive else None,
    )


def state_of(
    optimizer: Optimizer, parameters: Collection[nn.Parameter], whole: Callable[[Tensor], Tensor] | None = None
) -> ReadingSettings:
    """Read the settings, and the current V if the optimizer has one; `whole` sums over the shards."""
    settings, moment = settings_of(optimizer, parameters), second_moment(optimizer, parameters)
    if moment is None:
        return settings
    moment = moment if whole is None else whole(moment)
    return replace(settings, second_moment=moment, dimension=sum(parameter.numel() for parameter in parameters))


def state_for_later(
    optimizers: Sequence[Optimizer], parameters: Collection[nn.Parameter], whole: Callable[[Tensor], Tensor]
) -> Callable[[], ReadingSettings]:
    """Record what `state_of` would read now, to evaluate it later: within a training step that would take up to 0.1 ms.

    For several optimizers, the result holds the settings on which they agree.
    """
    if len(optimizers) == 1:
        return _state_for_later(optimizers[0], parameters, whole)
    later = [_state_for_later(optimizer, own, whole) for optimizer, own in shares(optimizers, parameters)]
    return lambda: _together([settings() for settings in later])


def shares(
    optimizers: Sequence[Optimizer], parameters: Collection[nn.Parameter]
) -> list[tuple[Optimizer, Collection[nn.Parameter]]]:
    """Return the optimizers that hold any of the parameters, each with the ones it holds; refuse if none does."""
    found: list[tuple[Optimizer, Collection[nn.Parameter]]] = []
    for optimizer in optimizers:
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if own := [p for p in parameters if id(p) in held]:
            found.append((optimizer, own))
    if not found:
        raise ValueError(_HOLDS_NONE)
    return found


def _together(settings: Sequence[ReadingSettings]) -> ReadingSettings:
    """Combine the settings of several optimizers. Different kinds together count as a separate kind."""
    if len(settings) == 1:
        return settings[0]
    fields = [own.reading_fields() for own in settings]
    kinds = list(dict.fromkeys(own.optimizer for own in settings))
    common = {
        name: fields[0][name] if all(own[name] == fields[0][name] for own in fields) else None
        for name in ("lr", "weight_decay", "momentum", "betas", "eps")
    }
    moments = [own.second_moment for own in settings if own.second_moment is not None]
    known = len(kinds) == 1 and len(moments) == len(settings)
    return ReadingSettings(
        " + ".join(kinds),
        **common,
        second_moment=total(moments) if known else None,
        dimension=sum(own.dimension or 0 for own in settings) if known else None,
    )


def _state_for_later(
    optimizer: Optimizer, parameters: Collection[nn.Parameter], whole: Callable[[Tensor], Tensor]
) -> Callable[[], ReadingSettings]:
    groups = optimizer.param_groups
    if not isinstance(optimizer, SGD) or any(isinstance(group["lr"], Tensor) for group in groups):
        state = state_of(optimizer, parameters, whole)  # tensors change in place
        return lambda: state
    return partial(settings_of, optimizer, parameters, [dict(group) for group in groups])


def second_moment(optimizer: Optimizer, parameters: Collection[nn.Parameter]) -> Tensor | None:
    """Return V = Σv̂ over `parameters`, or over this rank's shards of them, without waiting for the device.

    v̂ is what Adam, AdamW or RMSprop itself divides by: each group has its own bias correction. A parameter that never
    had a gradient contributes nothing, here as in G and N. None before the first step, and for optimizers that divide
    by something else (amsgrad, centered, subclasses).
    """
    if type(optimizer) not in _SECOND_MOMENT:
        return None
    ids = {id(parameter) for parameter in parameters}
    known: dict[float, list[Tensor]] = {}  # by their bias correction
    waiting: list[tuple[Tensor, Tensor]] = []  # with a bias correction that is still on the device
    for group in optimizer.param_groups:
        states = [optimizer.state[p] for p in group["params"] if id(p) in ids and p in optimizer.state]
        if states and (group.get("amsgrad") or group.get("centered")):
            return None
        for state in states:
            if isinstance(optimizer, RMSprop):
                known.setdefault(1.0, []).append(state["square_avg"])
                continue
            correction = 1 - _unfetched(group["betas"][1]) ** _unfetched(state["step"])
            if isinstance(correction, Tensor):
                waiting.append((correction, state["exp_avg_sq"]))
            else:
                known.setdefault(correction, []).append(state["exp_avg_sq"])
    sums = [
        _sums(own).sum() / correction for correction, all_ in known.items() for own in by_device(on_this_rank(all_))
    ]
    far = on_this_rank(moment for _, moment in waiting)
    for own in by_device(far):
        here = [c for (c, _), moment in zip(waiting, far, strict=True) if moment.device == own[0].device]
        sums.append((_sums(own) / torch.stack(here)).sum())
    return total(sums) if sums else None


def _unfetched(value: float | Tensor) -> Any:
    """Return a number, or a double-precision tensor if fetching the number would wait for the device."""
    return value.to(precise(value.device)) if isinstance(value, Tensor) and _is_far(value) else float(value)


def _is_far(value: Tensor) -> bool:
    return not value.is_cpu


def _sums(moments: Sequence[Tensor]) -> Tensor:
    """Return the sums of several non-negative tensors on one device, as one vector in double precision.

    On a GPU this is a single kernel launch. A CPU sums in pairs, which keeps seven digits in single precision.
    """
    wide = torch.promote_types(moments[0].dtype, torch.float32)
    if _is_far(moments[0]):
        each = list(torch._foreach_norm(list(moments), 1, dtype=wide))
    else:
        each = [moment.sum(dtype=wide) for moment in moments]
    return torch.stack(each).to(precise(moments[0].device))


def all_velocities(optimizers: Sequence[Optimizer], parameters: Collection[nn.Parameter]) -> list[Tensor]:
    """The `velocities` of several optimizers, or nothing unless every measured parameter has one."""
    if len(optimizers) == 1:
        return velocities(optimizers[0], parameters)
    found = [buffer for optimizer, own in shares(optimizers, parameters) for buffer in velocities(optimizer, own)]
    return found if len(found) == len(parameters) else []


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
    if type(optimizer) is not SGD and type(optimizer) not in _SECOND_MOMENT:
        raise ValueError(
            f"optimizer is {type(optimizer).__name__}, which has no SVAG here: {WHAT_WORKS}, or torch.optim.Adam, "
            "AdamW and RMSprop"
        )
    return [_refinable(optimizer, number, group) for number, group in enumerate(optimizer.param_groups)]


def sgd_settings(optimizer: Optimizer, what: str, way_out: str) -> list[SGDSettings]:
    """Read the settings of every parameter group for `what`, which exists only for SGD; refuse other optimizers."""
    if type(optimizer) in _SECOND_MOMENT:
        raise ValueError(f"optimizer is {type(optimizer).__name__}, and {what} exists only for SGD: {way_out}")
    return [settings for settings in refinable_settings(optimizer) if isinstance(settings, SGDSettings)]


def refuse_coarse(optimizer: Optimizer, refined: Sequence[OptimizerSettings]) -> None:
    """Refuse parameters whose dtype rounds away the small change that one sub-step makes to a moving average."""
    for number, (group, settings) in enumerate(zip(optimizer.param_groups, refined, strict=True)):
        forgotten = min((1 - rate for rate in _averages(settings)), default=1.0)
        for dtype in {p.dtype for p in group["params"]}:
            if forgotten < torch.finfo(dtype).eps:
                raise ValueError(
                    f"parameter group {number} is in {str(dtype).removeprefix('torch.')}, which cannot hold a moving "
                    f"average that forgets {forgotten:.2g} a sub-step: keep the parameters in float32 (autocast may "
                    "compute in less), or lower ell"
                )


class SubstepState:
    """The settings and the state of an optimizer during one sub-step, in the place of its own.

    Nothing is refined in place: an optimizer's own groups and state lie aside untouched while it steps with copies
    (`use`), and both changes of place are one call into C, which no error and no signal handler can divide. So at every
    moment the optimizer has either its own or those of the sub-step, and after an update that failed its own can come
    back exactly (`put_back`). After one that was taken, `keep` writes the result into its own tensors; it may be called
    again if it was cut short.

    The gradient of a sub-step has l times the variance, and l sub-steps are one step. So second moments and counts of
    steps are l times those of the optimizer meanwhile; what a division by l has rounded in a count is rounded back. SGD
    has neither. With dampening, a velocity that does not exist yet is started at 0: torch would start it at the whole,
    undamped gradient. RMSprop does not correct the bias of a second moment that begins at 0, and refined it has no
    limit from there: a parameter without one is refused.

    Args:
        optimizer: the one that takes the sub-step.
        settings: those of one sub-step, for every parameter group.
        ell: sub-steps in a step.
    """

    def __init__(self, optimizer: Optimizer, settings: Sequence[OptimizerSettings], ell: int) -> None:
        self._optimizer, self._ell = optimizer, ell
        self._own: dict[str, Any] = {"param_groups": optimizer.param_groups, "state": optimizer.state}
        self._groups = [
            {**group, **{name: getattr(setting, name) for name in _REFINED_SETTINGS[type(setting)]}}
            for group, setting in zip(optimizer.param_groups, settings, strict=True)
        ]
        self._state = optimizer.state.copy()
        self._state.update({p: dict(mine) for p, mine in self._state.items()})
        for group, setting in zip(self._groups, settings, strict=True):
            if isinstance(setting, SGDSettings) and setting.dampening != 0:
                for p in group["params"]:
                    if p.grad is not None and self._state[p].get("momentum_buffer") is None:
                        self._state[p]["momentum_buffer"] = torch.zeros_like(p)
        if ell > 1:
            self._to_substep_units()

    def use(self) -> None:
        """Give the optimizer the settings and the state of the sub-step."""
        vars(self._optimizer).update(param_groups=self._groups, state=self._state)

    def keep(self) -> None:
        """The update was taken: its result becomes the optimizer's own, in its own units."""
        own, counted = self._own["state"], ("step", _SECOND_MOMENT.get(type(self._optimizer), ""))
        try:
            for name in counted if self._ell > 1 else ():
                found = [(own[p], mine[name]) for p, mine in self._state.items() if name in mine]
                self._in_own_units(name, [(kept, value) for kept, value in found if value is not kept.get(name)])
            for p, mine in self._state.items():
                for name, value in mine.items():
                    if self._ell == 1 or name not in counted:
                        own[p][name] = value
        finally:
            self.put_back()

    def put_back(self) -> None:
        """Give the optimizer its own settings and state back, as they are."""
        vars(self._optimizer).update(self._own)

    def _in_own_units(self, name: str, found: Sequence[tuple[dict[str, Any], Tensor]]) -> None:
        """Write tensors divided by l into the states they belong to, or begin them there."""
        if not found:
            return
        divided = torch._foreach_div([value for _, value in found], self._ell)
        pairs = [(kept[name], own) for (kept, _), own in zip(found, divided, strict=True) if name in kept]
        if pairs:
            torch._foreach_copy_([tensor for tensor, _ in pairs], [own for _, own in pairs])
        for (kept, _), own in zip(found, divided, strict=True):
            kept.setdefault(name, own)

    def _to_substep_units(self) -> None:
        name = _SECOND_MOMENT.get(type(self._optimizer), "")
        moving = [p for group in self._own["param_groups"] for p in group["params"] if p.grad is not None]
        present = [self._state[p] for p in moving if name in self._state.get(p, {})]
        if name == _SECOND_MOMENT[RMSprop] and len(present) < len(moving):
            raise ValueError(
                "this RMSprop has no second moment to start from, and from 0 it has no limit with "
                f"ell={self._ell}: take some steps with ell=1 first, or use torch.optim.Adam with betas=(0.0, alpha), "
                "which corrects the bias"
            )
        if present:
            moments = torch._foreach_mul([mine[name] for mine in present], self._ell)
            steps = torch._foreach_mul([mine["step"] for mine in present], self._ell)
            torch._foreach_round_(steps)
            for mine, moment, step in zip(present, moments, steps, strict=True):
                mine.update({name: moment, "step": step})


def _refinable(optimizer: Optimizer, number: int, group: dict[str, Any]) -> OptimizerSettings:
    works = WHAT_REFINES if type(optimizer) in _SECOND_MOMENT else WHAT_WORKS
    if isinstance(group["lr"], Tensor):
        raise ValueError(f"parameter group {number} has a tensor for lr, give lr.item(): {works}")
    if any(isinstance(beta, Tensor) for beta in group.get("betas", ())):
        raise ValueError(f"parameter group {number} has tensors for betas, give floats: {works}")
    if group.get("capturable") and any(p.device.type != "cuda" for p in group["params"]):
        raise ValueError(f"parameter group {number} has capturable=True, which is for CUDA only: leave it out")
    found = _settings(group)
    if problem := found.without_limit or ("differentiable=True" if group["differentiable"] else ""):
        raise ValueError(f"parameter group {number} has {problem}, which has no limit: {works}")
    return found


def _settings(group: dict[str, Any]) -> OptimizerSettings:
    """The settings of a parameter group of any of the four optimizers, which name them differently."""
    lr, weight_decay = float(group["lr"]), float(group["weight_decay"])
    if "betas" in group:
        return AdamSettings(
            lr=lr,
            betas=tuple(group["betas"]),
            eps=float(group["eps"]),
            weight_decay=weight_decay,
            decoupled=group["decoupled_weight_decay"],
            amsgrad=group["amsgrad"],
        )
    if "alpha" in group:
        return RMSpropSettings(
            lr=lr,
            alpha=float(group["alpha"]),
            eps=float(group["eps"]),
            weight_decay=weight_decay,
            momentum=float(group["momentum"]),
            centered=group["centered"],
        )
    return SGDSettings(
        lr=lr,
        weight_decay=weight_decay,
        momentum=float(group["momentum"]),
        dampening=group["dampening"],
        nesterov=group["nesterov"],
    )


def _averages(settings: OptimizerSettings) -> tuple[float, ...]:
    """The rates of the moving averages of an adaptive optimizer."""
    if isinstance(settings, AdamSettings):
        return settings.betas
    return (settings.alpha,) if isinstance(settings, RMSpropSettings) else ()


def _kind(optimizer: Optimizer, groups: list[dict[str, Any]]) -> str:
    if type(optimizer) in (Adam, NAdam, RAdam) and all(group.get("decoupled_weight_decay") for group in groups):
        return AdamW.__name__ if type(optimizer) is Adam else f"{type(optimizer).__name__}{DECOUPLED}"
    if not isinstance(optimizer, SGD):
        return type(optimizer).__name__
    if any(group["nesterov"] for group in groups):
        return "SGD with Nesterov momentum"
    if any(group["momentum"] and group["dampening"] for group in groups):
        return "SGD with dampening"
    return "SGD"


def _one_rate(rates: Sequence[float | Tensor]) -> float | Tensor | None:
    if len(rates) == 1 and isinstance(rates[0], Tensor):
        return rates[0].detach().clone()
    return _one({float(rate) for rate in rates})


def _betas(groups: list[dict[str, Any]]) -> tuple[float | Tensor, float | Tensor] | None:
    """The rates of the two averages of Adam; RMSprop does not average the gradient itself."""
    pairs = [(0.0, group["alpha"]) if "alpha" in group else tuple(group["betas"]) for group in groups]
    first, second = (_one_rate([pair[index] for pair in pairs]) for index in range(2))
    return None if first is None or second is None else (first, second)


def _one(values: set[float]) -> float | None:
    return values.pop() if len(values) == 1 else None
