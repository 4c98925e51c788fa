"""The user's own optimizer, stepped at refined settings that are hidden from all other code, and the clock of a run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import Optimizer

from svag.noise.optimizer import SubstepState, refinable_settings, refuse_coarse, trained_parameters
from svag.noise.parameters import refuse_deepspeed
from svag.noise.uninterrupted import completed
from svag.theory import domain
from svag.theory.optimizers import MomentumLimit, OptimizerSettings, SGDSettings, refined_average, settings_from


@dataclass
class Clock:
    """Counts sub-steps and holds the settings that were read at the start of an effective step.

    If the learning rate changed between the sub-steps of an effective step, the limit would be another SDE. So the
    settings in `held` apply until the step ends, whatever a scheduler does meanwhile.

    >>> from svag.theory.optimizers import SGDSettings
    >>> clock = Clock(ell=2)
    >>> clock.start([SGDSettings(lr=0.5)]); clock.tick(); clock.start([SGDSettings(lr=0.1)]); clock.lr, clock.time
    (0.5, 0.25)
    >>> clock.tick(); clock.effective_step, clock.time
    (1, 0.5)

    Attributes:
        ell: sub-steps in an effective step.
        effective_step: effective steps that have ended.
        substep: sub-steps done since then.
        begun: the time when the current effective step began.
        held: the settings of every parameter group in the current effective step.
    """

    ell: int
    effective_step: int = 0
    substep: int = 0
    begun: float = 0.0
    held: list[OptimizerSettings] = field(default_factory=list)

    @property
    def boundary(self) -> bool:
        """Whether an effective step has just ended (or none has begun)."""
        return self.substep == 0

    @property
    def time(self) -> float:
        """Σ η/l over all sub-steps, η of the first parameter group; exactly Σ η at a boundary, for every l."""
        return self.begun if self.boundary else self.begun + self.held[0].lr * self.substep / self.ell

    @property
    def lr(self) -> float | None:
        """The held learning rate, if all parameter groups have the same."""
        rates = {settings.lr for settings in self.held}
        return rates.pop() if len(rates) == 1 else None

    def start(self, settings: Sequence[OptimizerSettings]) -> None:
        """Begin a sub-step; at a boundary, read the settings to hold."""
        if self.boundary:
            self.held = list(settings)
        elif len(settings) != len(self.held):
            raise ValueError(
                f"the optimizer had {len(self.held)} parameter groups when this effective step began and has "
                f"{len(settings)} now: add groups when `boundary` is True"
            )

    def tick(self) -> None:
        """End a sub-step."""
        self.substep += 1
        if self.substep == self.ell:
            self.begun += self.held[0].lr
            self.effective_step += 1
            self.substep = 0

    def state_dict(self) -> dict[str, Any]:
        """The whole clock, as plain numbers."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called."""
        refuse_strange_state(state, self.state_dict())
        if state["ell"] != self.ell:
            raise ValueError(f"the state was saved with {state['ell']} sub-steps in an effective step, not {self.ell}")
        try:
            steps = [domain.whole(name, state[name], at_least=0) for name in ("effective_step", "substep")]
            held = [settings_from(fields) for fields in state["held"]]
            begun = domain.finite("begun", state["begun"])
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise ValueError(f"the state is damaged ({error}): load another one") from error
        if steps[1] >= self.ell or (steps[1] and not held):
            raise ValueError(f"the state is damaged (substep {steps[1]} of {self.ell}): load another one")
        self.effective_step, self.substep, self.begun, self.held = *steps, begun, held


def refuse_strange_state(state: object, like: Mapping[str, object]) -> None:
    """Refuse a state without the entries of `like`, which comes from `state_dict`."""
    if not isinstance(state, Mapping):
        raise TypeError(f"the state must be what state_dict() returned, got {type(state).__name__}")
    if missing := [name for name in like if name not in state]:
        raise ValueError(f"the state has no {', '.join(missing)}: give what state_dict() of the same class gave")


def refuse_other_model(model: nn.Module, optimizer: Optimizer) -> None:
    """Refuse an optimizer that trains nothing of the model."""
    refuse_deepspeed(model)
    if not {id(p) for p in trained_parameters(optimizer)} & {id(p) for p in model.parameters()}:
        raise ValueError("the optimizer trains no parameter of the model: build it from model.parameters()")


class RunningStatistics:
    """The momentum of all running statistics (BatchNorm), refined while a context is open.

    One SGD step updates the running statistics once; one effective step of SVAG does so 2l times (l times when only one
    batch is evaluated). Their momentum is refined so that they average over the same stretch of time.
    """

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


class RefinedStep:
    """One step of the optimizer at the held settings, refined; a context inside which no other code may step it.

    The refined settings take the place of the optimizer's own after all step pre-hooks have run (by the closure that
    the optimizer calls first) and leave it before any step post-hook runs: loggers, schedulers and hooks only ever see
    the user's own. The same goes for the units of the second moment of Adam and RMSprop and for their count of steps,
    so that a state of the optimizer never depends on `ell`. A step that is cut short by an error, or by a signal that
    was not held, is completed if the weights have moved; otherwise settings and state are as they were.
    """

    def __init__(self, optimizer: Optimizer, ell: int, momentum_limit: MomentumLimit | None) -> None:
        self.optimizer = optimizer
        self._ell = ell
        self._momentum_limit = momentum_limit
        self._substep: SubstepState | None = None
        self._taken: Callable[[], object] | None = None
        self._moved = False
        self._next = self._refined(refinable_settings(optimizer))
        if ell > 1:
            refuse_coarse(optimizer, self._next)

    def __enter__(self) -> "RefinedStep":
        try:
            self.optimizer.register_step_pre_hook(self._refuse_strangers)
            restore = self.optimizer.register_step_post_hook(self._after_update)
            hooks = restore.hooks_dict_ref()
            if hooks is not None:
                hooks.move_to_end(restore.id, last=False)
        except BaseException:
            completed(self._remove_hooks)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        completed(self._remove_hooks)

    def _remove_hooks(self) -> None:
        """Those that are there, found by whose they are: the handle of one may not have been written down."""
        for hooks in (self.optimizer._optimizer_step_pre_hooks, self.optimizer._optimizer_step_post_hooks):
            for number in [number for number, hook in hooks.items() if getattr(hook, "__self__", None) is self]:
                hooks.pop(number, None)

    def begin(self, clock: Clock) -> None:
        """Read the settings at the start of an effective step; refuse settings that have become unsuitable."""
        clock.start(refinable_settings(self.optimizer))
        self._next = self._refined(clock.held)

    def step(self, taken: Callable[[], object]) -> None:
        """Take the sub-step that has begun with `.grad`, by the optimizer itself; for SGD, x ← x − (η/l)·.grad.

        `taken` is called once the weights have moved, before any hook that others have registered can fail, and a
        second time if it was cut short. Call this with signals held (`Uninterrupted`): weights that have moved in part
        cannot be taken back.
        """
        self._taken, self._moved = taken, False
        try:
            self.optimizer.step(self._refine)  # type: ignore[arg-type]  # the loss of this closure is not used
        finally:
            completed(self._end)

    def _refine(self) -> None:
        self._substep = SubstepState(self.optimizer, self._next, self._ell)
        self._substep.use()

    def _refined(self, held: Sequence[OptimizerSettings]) -> list[OptimizerSettings]:
        """The settings of one sub-step, for every parameter group."""
        return [
            settings.refined(self._ell, self._momentum_limit)
            if isinstance(settings, SGDSettings)
            else settings.refined(self._ell)
            for settings in held
        ]

    def _after_update(self, *_: Any) -> None:
        self._moved = True
        self._end()

    def _end(self) -> None:
        """Forwards if the weights have moved, and back if not; called again wherever it was cut short."""
        try:
            if self._substep is not None:
                if self._moved:
                    self._substep.keep()
                else:
                    self._substep.put_back()
                self._substep = None
        finally:
            if self._moved and self._taken is not None:
                self._taken()
            self._taken = None

    def _refuse_strangers(self, *_: Any) -> None:
        if self._taken is None:
            raise RuntimeError(
                "optimizer.step() was called inside an open svag context, whose own step() takes its place "
                "(a GradScaler steps the optimizer too and is not supported: use bfloat16 or float32)"
            )
