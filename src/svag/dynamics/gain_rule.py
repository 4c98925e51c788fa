r"""Train at a larger batch and end where the smaller one ended: your own optimizer, at the settings of the gain rule.

`_Measured` takes the gain of a step from the readings of a probe, `_Planned` from a `svag.GainPlan`; `GainRule` applies
it.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.optim import SGD, Adam, AdamW, NAdam, Optimizer, RAdam, RMSprop

from svag.dynamics.refined_step import refuse_strange_state
from svag.dynamics.running_gain import RunningGain
from svag.noise.optimizer import BY_GAIN_RULE, trained_parameters, unwrapped
from svag.noise.probe import NoiseProbe
from svag.noise.uninterrupted import Uninterrupted
from svag.prices.plan import GainPlan
from svag.theory import domain
from svag.theory.gain import Factors
from svag.theory.optimizers import Rule

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from svag.noise.pending import ClosedStep

# Relative to a gain: a remainder this small before the end is rounding, and gets no step.
_ROUNDING = 1e-6
# bitsandbytes need not be installed: a caller that holds one of its optimizers has imported it.
_EIGHT_BIT = {
    f"{paged}{kind}{bits}" for paged in ("", "Paged") for kind in ("Adam", "AdamW") for bits in ("", "8bit", "32bit")
}
_RULES: dict[type[Optimizer], Rule] = {
    SGD: "linear",
    **dict.fromkeys((Adam, AdamW, NAdam, RAdam, RMSprop), "square_root"),
}


@dataclass(frozen=True)
class GainProgress:
    """The progress of a run by the gain rule, replaced as a whole, so that an interrupt never finds half an update.

    Attributes:
        time: τ, baseline steps passed.
        before: τ before the last step; equal to `time` when the last one was skipped.
        steps: steps taken.
        kappas: Σκ over them, the examples used in batches of the baseline.
        gain: gain of the last step.
    """

    time: float = 0.0
    before: float = 0.0
    steps: int = 0
    kappas: float = 0.0
    gain: float | None = None

    def after(self, gain: float, time: float, kappa: float) -> "GainProgress":
        """The progress after a step with this gain."""
        return GainProgress(time, self.time, self.steps + 1, self.kappas + kappa, gain)


class _Measured:
    """Gains from the readings of a probe, including that of the current step, so that the gain reacts at once."""

    def __init__(self, probe: NoiseProbe, base_batch_size: int, base_steps: int | None) -> None:
        base = domain.whole("base_batch_size", base_batch_size)
        if probe.population is not None:
            domain.population(probe.population, base)
        self._probe, self._base_steps, self._running = probe, base_steps, RunningGain(base, probe.population)
        self._taken: ClosedStep | None = probe.last_step
        self._read: ClosedStep | None = None
        self._held: float | None = None
        self._changes = probe.changes
        probe.measure_short = True

    @property
    def moved_on(self) -> bool:
        """Whether a step was closed after the last one taken: if so, a GradScaler has skipped it."""
        return self._probe.last_step is not None and self._probe.last_step is not self._taken

    def next_step(self, time: float) -> tuple[float, float, float]:
        """Gain of the step at baseline time `time`, the time after it, and its κ."""
        step = self._probe.last_step
        if step is None or step is self._taken:
            raise RuntimeError(
                "the gain of this step is not known, because the probe has closed no step since the last one: call "
                "probe.backward(), or probe.micro_batch() and probe.close_step(), before every optimizer step"
            )
        running, changes = self._running, self._changes
        if step is not self._read and step.reading is not None:
            found = step.reading.estimate()
            # gradients that are not finite tell nothing, and a GradScaler skips such a step
            if found is not None:
                # averages over other parameters say nothing of these
                same, changes = changes == self._probe.changes, self._probe.changes
                running = replace(running) if same else RunningGain(running.base_batch_size, running.population)
                running.add(found, step.reading.batch_size)
        # in one call into C: a step that is repeated after an error or an interrupt is read once
        vars(self).update(_running=running, _read=step, _changes=changes)
        kappa = (step.batch_size or self._probe.batch_size) / self._running.base_batch_size
        # ranks do not know how many examples the others have in a short batch, and must not disagree
        held = self._held if step.batch_size is None else None
        gain = self._running.gain(step.batch_size or self._probe.batch_size) if held is None else held
        self._held = gain
        if self._base_steps is not None and time + gain * (1 + _ROUNDING) >= self._base_steps:
            return self._base_steps - time, float(self._base_steps), kappa
        return gain, time + gain, kappa

    def stepped(self) -> None:
        """Note that the step is over."""
        self._taken = self._read

    def state_dict(self) -> dict[str, Any]:
        return {"held": self._held, "base_batch_size": self._running.base_batch_size, **self._running.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        refuse_strange_state(state, self.state_dict())
        if state["base_batch_size"] != self._running.base_batch_size:
            raise ValueError(
                f"the state was saved by a rule with base_batch_size={state['base_batch_size']}, not "
                f"{self._running.base_batch_size}: give the one that the run was started with"
            )
        self._running.load_state_dict(state)
        self._held, self._taken, self._changes = state["held"], self._probe.last_step, self._probe.changes

    def close(self) -> None:
        self._probe.measure_short = False


class _Planned:
    """Gains from a plan."""

    def __init__(self, optimizer: Optimizer, plan: GainPlan, base_steps: int | None) -> None:
        self._optimizer, self._plan, self._base_steps = optimizer, plan, base_steps
        self.moved_on = False  # whether gradients were computed since the last step taken
        self._handle: RemovableHandle | None = None

    def next_step(self, time: float) -> tuple[float, float, float]:
        """Gain of the step at baseline time `time`, the time after it, and its κ."""
        return *self._plan.next_step(time, self._base_steps), self._plan.kappa

    def stepped(self) -> None:
        """Note that the step is over."""
        self.moved_on = False
        if self._handle is None:
            # torch does not report a step that a GradScaler skipped; the gradient hook of one parameter does
            used = next((p for p in trained_parameters(self._optimizer) if p.grad is not None), None)
            self._handle = None if used is None else used.register_post_accumulate_grad_hook(self._notice)

    def _notice(self, parameter: Tensor) -> None:
        self.moved_on = True

    def state_dict(self) -> dict[str, Any]:
        return {"plan": self._plan.to_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        refuse_strange_state(state, self.state_dict())
        if GainPlan.from_dict(state["plan"]) != self._plan:
            raise ValueError("the state was saved by a rule with another plan: give planned() the same one")
        self.moved_on = False

    def close(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None


class GainRule:
    r"""Take the steps of a larger batch so that the run ends where the baseline, the run at a smaller one, ended.

    Set optimizer and schedulers as for the baseline. One step at κ times its batch then counts as `gain` baseline
    steps: it is taken at the baseline's settings multiplied by `svag.theory.gain.Factors`,

    $$\eta\to\eta\cdot\text{gain}\;\text{(SGD)}, \qquad
      \eta\to\eta\sqrt{\text{gain}},\;\text{eps}\to\text{eps}/\sqrt{\text{gain}},\;
      \lambda\to\lambda\sqrt{\text{gain}}\;\text{(Adam and its kin; λ if it is decoupled)},
      \qquad \tau\to\tau+\text{gain}$$

    with gain = κ(1 + ρ)/(κ + ρ), where ρ = N/G at the baseline's batch size is measured as the run goes on
    (`RunningGain`). Momentum and betas are kept. At κ = 1 it is the optimizer itself, bit for bit.

    `GainRule.planned` takes the gains from a plan instead, without a probe.

    The settings are multiplied right before the optimizer's update and restored right after it, by a hook of the
    optimizer. So `optimizer.step()`, `scaler.step(optimizer)` and the wrapped steps of Accelerate and Lightning all
    take the step of the rule, while schedulers, loggers, hooks, readings of the probe and checkpoints see the
    baseline's settings:

        for batch in batches:
            optimizer.zero_grad()
            probe.backward(loss_fn, batch)
            optimizer.step()
            for _ in range(rule.due):
                scheduler.step()
            if rule.done:
                break

    Time passes only if the optimizer has stepped: a GradScaler's overflow costs none. Ctrl-C (any signal whose handler
    raises) finds a step taken and counted, or not begun: one that comes while the weights move waits until they have.
    A second one does not wait; after that, as after any error in hooks or in the optimizer, the settings are those of
    the baseline, and time has passed if the update was applied. If the update itself fails, no time passes, and its
    weights are what the optimizer left.

    A measured step waits for the device once, for a few numbers, which keeps the processor from running ahead of it.
    Under DistributedDataParallel, `fully_shard` and `process_group` these are sums over all ranks, and the gain is the
    same on all of them to the last bit. With the probe's `every` the averages are held between readings. The batch size
    may change (`probe.batch_size`): κ is that of the step. A short batch at the end of an epoch is measured at its own
    size, if it has several pieces (`parts`); otherwise the averages are held, and on several ranks the gain itself.

    >>> import torch
    >>> model = torch.nn.Linear(1, 1, bias=False)
    >>> _ = torch.nn.init.ones_(model.weight)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    >>> probe = NoiseProbe(model, optimizer, batch_size=4)
    >>> rule = GainRule(probe, base_batch_size=2, base_steps=100)
    >>> _ = probe.backward(lambda x: model(x).mean(), torch.tensor([[1.0], [1.0], [3.0], [3.0]]), parts=2)
    >>> optimizer.step()
    >>> rule.gain, rule.time, rule.due  # G = 3 and N = 1 at batch size 4, so N/G = 2/3 at 2: (5/3)/(4/3)
    (1.25, 1.25, 1)
    >>> optimizer.param_groups[0]["lr"], round(1 - model.weight.item(), 6)  # lr · gain · 2
    (0.5, 1.25)

    Args:
        probe: measures at the larger batch; its optimizer, of which there must be only one, is stepped.
        base_batch_size: batch size of the baseline.
        base_steps: number of steps of the baseline, at which the run ends: the last gain is cut. None: there is no end.

    Reference: Johnson et al. (2020, AdaScale) for SGD; the estimator, Adam and the plan are ours.
    """

    def __init__(self, probe: NoiseProbe, base_batch_size: int, base_steps: int | None = None) -> None:
        if not isinstance(probe, NoiseProbe):
            raise TypeError(
                f"probe must be a svag.NoiseProbe, got {domain.shown(probe)}: GainRule.planned(optimizer, plan) needs "
                "none"
            )
        end, optimizer = _checked_end(base_steps), probe.optimizer
        if isinstance(optimizer, Sequence):
            raise ValueError(
                f"the probe has {len(optimizer)} optimizers, and a measured gain rule steps one: give all parameters "
                "to one optimizer, in several groups, or attach GainRule.planned(optimizer, plan) to each of them"
            )
        rule = _rule_of(unwrapped(optimizer))
        self._attach(optimizer, rule, _Measured(probe, base_batch_size, end), end)

    @classmethod
    def planned(cls, optimizer: Optimizer, plan: GainPlan, base_steps: int | None = None) -> "GainRule":
        """Take the gains from a plan: `plan.steps(base_steps)` steps, with no probe.

        >>> import torch
        >>> x = torch.nn.Parameter(torch.zeros(1))
        >>> optimizer = torch.optim.AdamW([x], lr=0.5)
        >>> rule = GainRule.planned(optimizer, GainPlan(16, 64, ((0, 2.0), (3, 4.0)), 9, "square_root"))
        >>> while not rule.done:
        ...     x.grad = torch.ones(1)
        ...     optimizer.step()
        ...     print(rule.gain, rule.time, rule.due)
        2.0 2.0 2
        1.0 3.0 1
        4.0 7.0 4
        2.0 9.0 2

        Args:
            optimizer: set as for the baseline.
            plan: of a price list (`price.plan`), or made by hand.
            base_steps: number of steps of the baseline; by default that of the plan.
        """
        if not isinstance(plan, GainPlan):
            raise TypeError(
                f"plan must be a svag.GainPlan, got {domain.shown(plan)}: take price.plan of found.prices([…])[0]"
            )
        end, inner = _checked_end(plan.base_steps if base_steps is None else base_steps), unwrapped(optimizer)
        rule = _rule_of(inner)
        if rule != plan.rule:
            raise ValueError(
                f"the plan is for the {plan.rule.replace('_', '-')} rule, and {type(inner).__name__} scales by the "
                f"{rule.replace('_', '-')} rule: plan from a baseline with the same optimizer"
            )
        made = cls.__new__(cls)
        made._attach(optimizer, rule, _Planned(inner, plan, end), end)
        return made

    def _attach(self, optimizer: Optimizer, rule: Rule, source: "_Measured | _Planned", end: int | None) -> None:
        self._stepper, self._optimizer = optimizer, unwrapped(optimizer)
        self._rule, self._source, self._end = rule, source, end
        self._progress = GainProgress()
        self._rates: list[Any] | None = None  # of the step before, until somebody asks how much time has passed
        self._asked = False
        # The pre-hook hands the step to an optimizer of the same kind that holds nothing: its step only calls the
        # closure, which takes the real step. So settings are multiplied and restored in one block, which no exception
        # can leave halfway, while the hooks that others have registered run before and after it. A pair of hooks would
        # not do: torch skips post-hooks when a step raises, and the settings would stay multiplied. A replaced
        # `optimizer.step` would not do: hooks run inside it and would see the multiplied settings, and schedulers and
        # Accelerate replace that attribute too.
        self._idle = object.__new__(type(self._optimizer))
        vars(self._idle).update(vars(self._optimizer), param_groups=[])
        self._own_step: Callable[[Optimizer], Any] = vars(type(self._optimizer).step)["__wrapped__"]  # without hooks
        self._handle: RemovableHandle | None = self._optimizer.register_step_pre_hook(self._before_step)
        BY_GAIN_RULE.add(self._optimizer)

    @property
    def time(self) -> float:
        """τ, the baseline steps passed."""
        self._asked = True
        return self._progress.time

    @property
    def due(self) -> int:
        """Whole baseline steps that passed with the last step: call `scheduler.step()` that often.

        0 before the first step and after one that was skipped.
        """
        return self.passed(1)

    def passed(self, every: float) -> int:
        """How many multiples of `every` baseline steps passed with the last step: for epochs, evaluation, checkpoints.

        `every` may be a fraction; an epoch of the baseline has as many steps as its loader has batches.
        """
        every, self._asked = domain.positive("every", every), True
        if self._source.moved_on:
            return 0
        return math.floor(self._progress.time / every) - math.floor(self._progress.before / every)

    @property
    def done(self) -> bool:
        """Whether the baseline has ended; never without `base_steps`."""
        return self._end is not None and self._progress.time >= self._end

    @property
    def gain(self) -> float | None:
        """Gain of the last step; None before the first."""
        return self._progress.gain

    @property
    def price(self) -> float | None:
        """Examples used so far over those of the baseline, κ·steps/time; None before the first step."""
        return self._progress.kappas / self._progress.time if self._progress.time else None

    def step(self, scaler: GradScaler | None = None) -> None:
        """Short for `optimizer.step()` or `scaler.step(optimizer)`; you still call `scaler.update()` yourself."""
        self._refuse_closed()
        self._progress = replace(self._progress, before=self._progress.time)
        if scaler is None:
            self._stepper.step()
        else:
            scaler.step(self._optimizer)

    def state_dict(self) -> dict[str, Any]:
        """Where the rule is, for a checkpoint between two steps: plain numbers. The probe has a state of its own."""
        return {**asdict(self._progress), "source": self._source.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was called."""
        refuse_strange_state(state, self.state_dict())
        progress = GainProgress(**{name: state[name] for name in asdict(self._progress)})
        if self._end is not None and domain.non_negative("time", progress.time) > self._end:
            raise ValueError(
                f"the state is at baseline step {progress.time:g}, beyond base_steps={self._end}: give the number of "
                "steps that the run was started with"
            )
        self._source.load_state_dict(state["source"])
        self._progress = progress

    def close(self) -> None:
        """Take the rule off the optimizer, which steps by itself again."""
        if self._handle is not None:
            self._handle.remove()
            BY_GAIN_RULE.discard(self._optimizer)
            self._source.close()
        self._handle = None

    def __repr__(self) -> str:
        end = "" if self._end is None else f" of {self._end}"
        gain = "" if self.gain is None else f", gain {self.gain:.4g}"
        return f"<svag.GainRule at baseline step {self._progress.time:.6g}{end}: {self._progress.steps} steps{gain}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        self._warn_of_a_schedule_by_steps()

        def step_by_the_rule() -> Any:
            # with a closure, as in Lightning, the gradient and so the gain are known only after it was called
            loss = None if closure is None else closure()
            with Uninterrupted():
                self._take_step()
            return loss

        return (self._idle, step_by_the_rule), {}

    def _warn_of_a_schedule_by_steps(self) -> None:
        """Warn of a learning rate that changes although nobody has asked how much time has passed."""
        rates = [group["lr"] for group in self._optimizer.param_groups]
        if self._asked or any(isinstance(rate, Tensor) for rate in rates):  # a comparison would wait for the device
            return
        if self._rates not in (None, rates):
            self._asked = True  # said once
            warnings.warn(
                "the learning rate has changed, but rule.due was never asked: a schedule that counts the steps of this "
                "run ends too late, because the baseline takes more; for _ in range(rule.due): scheduler.step()",
                stacklevel=2,
            )
        self._rates = rates

    def _take_step(self) -> None:
        """Find the gain of this step, take the step at its settings, and count it."""
        if self.done:
            raise RuntimeError(
                f"the baseline ends at step {self._end}, and so does this run: leave the loop when rule.done, or close "
                "the rule to train on without it"
            )
        gain, time, kappa = self._source.next_step(self._progress.time)
        coming, moved = self._progress.after(gain, time, kappa), False
        groups = self._optimizer.param_groups
        factors = [Factors.at(gain, self._rule, _is_decoupled(self._optimizer, group)) for group in groups]
        changed = [
            (group, name, _copied(group[name]), factor)
            for group, of_group in zip(groups, factors, strict=True)
            for name, factor in vars(of_group).items()
            if factor != 1
        ]
        try:
            try:
                for group, name, _, factor in changed:
                    if isinstance(group[name], Tensor):
                        group[name].mul_(factor)  # in place: a captured graph reads this very tensor
                    else:
                        group[name] *= factor
                self._own_step(self._optimizer)
                moved = True
            finally:
                self._end_step(changed, coming if moved else None)
        finally:  # an error or a second signal may have cut the first short
            self._end_step(changed, coming if moved else None)

    def _end_step(self, changed: Sequence[tuple[dict[str, Any], str, Any, float]], coming: GainProgress | None) -> None:
        """Restore the settings, and count the step if the weights have moved; a second time, it changes nothing."""
        for group, name, value, _ in changed:
            if isinstance(value, Tensor):
                group[name].copy_(value)
            else:
                group[name] = value
        if coming is not None:
            # a fused optimizer skips a step by itself
            overflow = getattr(self._optimizer, "found_inf", None)
            skipped = overflow is not None and bool(overflow)
            self._progress = replace(self._progress, before=self._progress.time) if skipped else coming
            self._source.stepped()

    def _refuse_closed(self) -> None:
        if self._handle is None:
            raise RuntimeError("this rule is closed: step the optimizer itself, or make a new rule")


def _checked_end(base_steps: int | None) -> int | None:
    return None if base_steps is None else domain.whole("base_steps", base_steps)


def _rule_of(optimizer: Optimizer) -> Rule:
    """Return the rule by which an optimizer scales; refuse an unknown one, and one that has a gain rule already."""
    if optimizer in BY_GAIN_RULE:  # two rules would multiply the settings twice
        raise ValueError("another gain rule steps this optimizer already: use that one, or close() it first")
    kind = type(optimizer)
    if kind in _RULES:
        return _RULES[kind]
    if _is_eight_bit(kind):
        return "square_root"
    raise ValueError(
        f"optimizer is {kind.__name__}, for which no gain rule is known: use torch.optim.SGD, Adam, AdamW, NAdam, "
        "RAdam or RMSprop, or Adam and AdamW of bitsandbytes; or multiply the settings of your own by the gain of a "
        "plan (svag.GainPlan.next_step)"
    )


def _is_eight_bit(kind: type[Optimizer]) -> bool:
    return kind.__module__.partition(".")[0] == "bitsandbytes" and kind.__name__ in _EIGHT_BIT


def _is_decoupled(optimizer: Optimizer, group: Mapping[str, Any]) -> bool:
    """Whether the weight decay of a group is decoupled from its gradient."""
    return (
        isinstance(optimizer, AdamW)
        or bool(group.get("decoupled_weight_decay", False))
        or (_is_eight_bit(type(optimizer)) and "AdamW" in type(optimizer).__name__)
    )


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value
