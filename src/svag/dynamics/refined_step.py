"""The user's own torch.optim.SGD, stepped at η/l while everybody else reads η."""

from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import SGD, Optimizer

from svag.dynamics.clock import Clock
from svag.theory.refinement import MomentumLimit, RefinedSGD, refined_sgd

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

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
