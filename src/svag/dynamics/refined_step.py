"""The user's own torch.optim.SGD, stepped at η/l while everybody else reads η; the clock that counts its steps.

Where a run is: effective steps, the sub-steps inside one, and the settings held over them.

How fast running statistics move (BatchNorm) when one step of SGD becomes many.

One SGD step updates the running statistics once; one effective step of SVAG does so 2l times (l times when only one
batch is evaluated). Their momentum is refined so that they remember the same stretch of time.

The user's own torch.optim.SGD, stepped at η/l while everybody else reads η.
"""

from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import SGD, Optimizer

from svag.theory.optimizers import MomentumLimit, RefinedSGD, refined_average, refined_sgd

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle


@dataclass
class Clock:
    """Counts sub-steps and holds the settings that were read at the start of an effective step.

    A learning rate that changed between the sub-steps of one effective step would converge to another SDE, so what
    `held` says counts until the step ends, whatever a scheduler does meanwhile.

    >>> clock = Clock(ell=2)
    >>> clock.start([0.5]); clock.tick(); clock.start([0.1]); clock.held, clock.time
    ([0.5], 0.25)
    >>> clock.tick(); clock.effective_step, clock.time
    (1, 0.5)

    Attributes:
        ell: sub-steps in an effective step.
        effective_step: effective steps that have ended.
        substep: sub-steps done since then.
        begun: the time when the current effective step began.
        held: the learning rate of every parameter group in the current effective step.
        held_momentum: likewise the momentum.
    """

    ell: int
    effective_step: int = 0
    substep: int = 0
    begun: float = 0.0
    held: list[float] = field(default_factory=list)
    held_momentum: list[float] = field(default_factory=list)

    @property
    def boundary(self) -> bool:
        """Whether an effective step has just ended (or none has begun)."""
        return self.substep == 0

    @property
    def time(self) -> float:
        """Σ η/l over all sub-steps, η of the first parameter group; exactly Σ η at a boundary, for every l."""
        return self.begun if self.boundary else self.begun + self.held[0] * self.substep / self.ell

    @property
    def lr(self) -> float | None:
        """The held learning rate, if all parameter groups have the same."""
        return self.held[0] if len(set(self.held)) == 1 else None

    def start(self, lrs: list[float], momenta: list[float] | None = None) -> None:
        """Begin a sub-step; at a boundary, read the settings to hold."""
        if self.boundary:
            self.held, self.held_momentum = list(lrs), list(momenta or [0.0] * len(lrs))
        elif len(lrs) != len(self.held):
            raise ValueError(
                f"the optimizer had {len(self.held)} parameter groups when this effective step began and has "
                f"{len(lrs)} now: add groups when `boundary` is True"
            )

    def tick(self) -> None:
        """End a sub-step."""
        self.substep += 1
        if self.substep == self.ell:
            self.begun += self.held[0]
            self.effective_step += 1
            self.substep = 0

    def state_dict(self) -> dict[str, Any]:
        """All of it, as plain numbers."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go where `state_dict` was called."""
        if state["ell"] != self.ell:
            raise ValueError(f"the state was saved with {state['ell']} sub-steps in an effective step, not {self.ell}")
        restored = Clock(**state)
        vars(self).update(vars(restored))


class RunningStatistics:
    """The momentum of all running statistics, refined while a context is open."""

    def __init__(self, model: nn.Module, updates: int) -> None:
        self._layers = [
            module
            for module in model.modules()
            if isinstance(module, _NormBase) and module.momentum is not None and module.running_mean is not None
        ]
        self._updates = updates
        self._own: list[float | None] = []

    def refine(self) -> None:
        """μ → 1 − (1 − μ)^(1/updates). A cumulative average (momentum None) has no time scale and stays."""
        self._own = [layer.momentum for layer in self._layers]
        for layer in self._layers:
            if layer.momentum is not None:
                layer.momentum = refined_average(layer.momentum, self._updates)

    def restore(self) -> None:
        """Give every layer its own momentum back, bit for bit."""
        for layer, momentum in zip(self._layers, self._own, strict=True):
            layer.momentum = momentum


WHAT_WORKS = (
    "what works is torch.optim.SGD itself, with any schedule of a float lr, weight_decay, maximize, foreach, fused, "
    "several parameter groups, and momentum once its limit is named"
)


def check_sgd(optimizer: Optimizer) -> SGD:
    """Return the optimizer, or refuse one that the theory does not cover."""
    if type(optimizer) is not SGD:
        raise ValueError(f"optimizer is {type(optimizer).__name__}, which has no SVAG here: {WHAT_WORKS}")
    for i, group in enumerate(optimizer.param_groups):
        for setting, covered in (("nesterov", False), ("dampening", 0), ("differentiable", False)):
            if group[setting] != covered:
                raise ValueError(
                    f"parameter group {i} has {setting}={group[setting]}, which has no limit: {WHAT_WORKS}"
                )
        if isinstance(group["lr"], torch.Tensor):
            raise ValueError(f"parameter group {i} has a tensor for lr, give lr.item(): {WHAT_WORKS}")
    return optimizer


class RefinedStep:
    """One step of the optimizer at the held settings, refined; a context inside which nobody else may step it.

    The refined rate is put into the parameter groups after all step pre-hooks have run (by the closure that SGD calls
    first) and taken out again before any step post-hook runs: loggers, schedulers and hooks only ever see η.
    """

    def __init__(self, optimizer: Optimizer, ell: int, momentum_limit: MomentumLimit | None) -> None:
        self.optimizer = check_sgd(optimizer)
        self._ell = ell
        self._momentum_limit = momentum_limit
        self._handles: list[RemovableHandle] = []
        self._visible: list[RefinedSGD] = []
        self._ours = False
        self.settings([float(group["lr"]) for group in self.optimizer.param_groups], self._momenta())

    def __enter__(self) -> "RefinedStep":
        guard = self.optimizer.register_step_pre_hook(self._refuse_strangers)
        restore = self.optimizer.register_step_post_hook(self._restore)
        hooks = restore.hooks_dict_ref()
        if hooks is not None:
            hooks.move_to_end(restore.id, last=False)
        self._handles = [guard, restore]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def begin(self, clock: Clock) -> None:
        """Read η and β at the start of an effective step; refuse settings that were changed to unsuitable ones."""
        check_sgd(self.optimizer)
        clock.start([float(group["lr"]) for group in self.optimizer.param_groups], self._momenta())
        self.settings(clock.held, clock.held_momentum)

    def settings(self, lrs: list[float], momenta: list[float]) -> list[RefinedSGD]:
        """The settings of one sub-step, for every parameter group."""
        return [
            refined_sgd(self._ell, lr=lr, momentum=momentum, momentum_limit=self._momentum_limit)
            for lr, momentum in zip(lrs, momenta, strict=True)
        ]

    def step(self, clock: Clock) -> None:
        """x ← x − (η/l)·.grad, by the optimizer itself."""
        refined = self.settings(clock.held, clock.held_momentum)

        def refine() -> None:
            self._visible = [RefinedSGD(g["lr"], g["momentum"], g["dampening"]) for g in self.optimizer.param_groups]
            self._write(refined)
            self._velocity_from_rest(refined)

        self._ours = True
        try:
            self.optimizer.step(refine)
        finally:
            self._ours = False
            self._restore()

    def _momenta(self) -> list[float]:
        return [float(group["momentum"]) for group in self.optimizer.param_groups]

    def _write(self, settings: list[RefinedSGD]) -> None:
        for group, setting in zip(self.optimizer.param_groups, settings, strict=True):
            group["lr"], group["momentum"], group["dampening"] = setting.lr, setting.momentum, setting.dampening

    def _restore(self, *_: Any) -> None:
        if self._visible:
            self._write(self._visible)
            self._visible = []

    def _velocity_from_rest(self, settings: list[RefinedSGD]) -> None:
        """Start a velocity at 0 when there is dampening: SGD would start it at the whole, undamped gradient."""
        for group, setting in zip(self.optimizer.param_groups, settings, strict=True):
            if setting.dampening == 0:
                continue
            for p in group["params"]:
                if p.grad is not None and self.optimizer.state[p].get("momentum_buffer") is None:
                    self.optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p)

    def _refuse_strangers(self, *_: Any) -> None:
        if not self._ours:
            raise RuntimeError(
                "optimizer.step() was called inside an open svag context, whose own step() takes its place "
                "(a GradScaler steps the optimizer too and is not supported: use bfloat16 or float32)"
            )
