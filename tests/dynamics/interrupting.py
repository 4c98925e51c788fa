"""Runs that are interrupted at a random bytecode of a step, and the question what that left."""

import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from types import FrameType
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

import svag

Batch = tuple[Tensor, Tensor]
State = list[Any]


def batch(seed: int, size: int = 6) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, 3, generator=generator), torch.randn(size, generator=generator)


def network(norm: bool) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4) if norm else nn.Tanh(), nn.Linear(4, 1))


def losses_of(model: nn.Module) -> Callable[[Batch], Tensor]:
    return lambda batch: (model(batch[0]).squeeze(1) - batch[1]).square()


def loss_of(model: nn.Module) -> Callable[[Batch], Tensor]:
    return lambda batch: losses_of(model)(batch).mean()


def settings(optimizer: Optimizer) -> list[dict[str, Any]]:
    return [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]


MAKE: dict[str, Callable[[nn.Module], Optimizer]] = {
    "sgd": lambda model: SGD(model.parameters(), lr=0.1, momentum=0.9),
    "adam": lambda model: Adam(model.parameters(), lr=0.01),
    "loop": lambda model: AdamW(model.parameters(), lr=0.01, foreach=False),
    "rmsprop": lambda model: RMSprop(model.parameters(), lr=0.01),
}


class Refined:
    """SVAG with three sub-steps, with everything that it changes."""

    def __init__(self, kind: str, atomic: bool) -> None:
        self.model = network(norm=True)
        self.optimizer = MAKE[kind](self.model)
        self.loss = loss_of(self.model)
        for number in range(2):
            self.optimizer.zero_grad()
            torch.autograd.backward(self.loss(batch(100 + number)))
            self.optimizer.step()
        self.optimizer.zero_grad()
        limit: Any = "underdamped" if kind == "sgd" else None
        self.sim = svag.SVAG(
            self.model, self.optimizer, ell=3, momentum_limit=limit, track_noise=True, atomic=atomic
        ).__enter__()
        self.pairs = iter([(batch(2 * k), batch(2 * k + 1)) for k in range(3)])

    def step(self) -> object:
        return self.sim.step(self.loss, self.pairs)

    def substep(self) -> object:
        return self.sim.substep(self.loss, *next(self.pairs))

    def others(self) -> State:
        momenta = [module.momentum for module in self.model.modules() if isinstance(module, nn.BatchNorm1d)]
        clock = {**self.sim.state_dict()["clock"], "held": None}  # read again at the next boundary
        return [clock, [reading.grad_sq for reading in self.sim.noise], momenta, torch.is_grad_enabled()]


class Noisy:
    """Noisy gradient descent in the middle of an effective step."""

    def __init__(self) -> None:
        self.model = network(norm=False)
        self.optimizer = SGD(self.model.parameters(), lr=0.1)
        self.generator = torch.Generator().manual_seed(1)
        self.gd = svag.NoisyGD(
            self.model, self.optimizer, batch_size=2, dataset_size=6, generator=self.generator, refine=2
        )
        self.step()

    def step(self) -> object:
        return self.gd.step(losses_of(self.model), [batch(0, 4), batch(1, 2)])

    substep = step  # the smallest part of it that may be taken alone

    def others(self) -> State:
        """What has to be right besides model and optimizer."""
        clock = {**self.gd.state_dict()["clock"], "held": None}
        hooks = len(self.optimizer._optimizer_step_pre_hooks)
        return [clock, self.generator.get_state(), hooks, torch.is_grad_enabled()]


class Ruled:
    """The gain rule, measured or planned, after one step; the gradient of the next one is there."""

    def __init__(self, kind: str, source: str, by: str) -> None:
        self.model = network(norm=False)
        self.optimizer = MAKE[kind](self.model)
        self.loss, self.by = loss_of(self.model), by
        self.probe = svag.NoiseProbe(self.model, self.optimizer, batch_size=16)
        if source == "measured":
            self.rule = svag.GainRule(self.probe, base_batch_size=4)
        else:
            plan = svag.GainPlan(4, 16, ((0, 2.5),), None, "linear" if kind == "sgd" else "square_root")
            self.rule = svag.GainRule.planned(self.optimizer, plan)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, enabled=by == "scaler")
        for number in range(2):
            if number == 1:
                self.step()
                self.scaler.update()
            self.optimizer.zero_grad()
            x, y = batch(number, 16)
            self.probe.backward(
                self.loss, (x, y + 5), scaler=self.scaler
            )  # a signal above the noise, so a gain above 1

    def step(self) -> object:
        if self.by == "scaler":
            return self.scaler.step(self.optimizer)
        return self.rule.step() if self.by == "rule" else self.optimizer.step()  # type: ignore[func-returns-value]

    substep = step

    def others(self) -> State:
        before = None  # which only serves `due`
        return [{**self.rule.state_dict(), "before": before}, self.rule.due]


Run: TypeAlias = Refined | Noisy | Ruled


def state(run: Run) -> State:
    """All of a run that a step changes, by value."""
    return deepcopy([run.model.state_dict(), run.optimizer.state_dict(), settings(run.optimizer), run.others()])


def is_same(one: Any, other: Any) -> bool:
    """Bit for bit."""
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other)


class Counter:
    """Counts the bytecodes of a call and raises SIGINT before one of them, through whichever handler there is.

    Stricter than the interpreter, which looks for signals only at calls and at the ends of loops.
    """

    def __init__(self, strike_at: int | None = None) -> None:
        self.count, self._strike_at = 0, strike_at

    def strikes(self, work: Callable[[], object]) -> bool:
        """Run `work`; return whether a KeyboardInterrupt came out of it."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            work()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        if event == "opcode":
            if self.count == self._strike_at:
                sys.settrace(None)
                self.count += 1
                signal.raise_signal(signal.SIGINT)
            self.count += 1
        return self._trace


@contextmanager
def ctrl_c() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where the tests run in the background and a shell has switched it off."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def length_of(work: Callable[[], object]) -> int:
    """How many bytecodes a call takes."""
    counter = Counter()
    assert not counter.strikes(work)
    return counter.count


def interrupted(make: Callable[[], Run], whole: bool, times: int, seed: int) -> tuple[list[int], list[int]]:
    """Interrupt a step at so many random bytecodes.

    Return after which of them the state was one in which no step ends, and how often it was each of the right ones:
    that after 0, 1, … sub-steps.
    """
    reference, steps = make(), 3 if isinstance(make(), Refined) else 1
    right = [state(reference)]
    for _ in range(steps):
        reference.substep()
        right.append(state(reference))
    if whole:
        del right[1:-1]
    assert not any(is_same(one, other) for k, one in enumerate(right) for other in right[:k])
    length = length_of(make().step)
    draw, found, seen = random.Random(seed), [], [0] * len(right)
    for _ in range(times):
        at, run = draw.randrange(length), make()
        with ctrl_c():
            assert Counter(at).strikes(run.step)
        now = state(run)
        torch.set_grad_enabled(True)  # torch's own step may leave it off, with or without the gain rule
        matches = [k for k, one in enumerate(right) if is_same(now, one)]
        if matches:
            seen[matches[0]] += 1
        else:
            found.append(at)
    return found, seen


RUNS: dict[str, tuple[Callable[[], Run], bool]] = {
    "svag": (partial(Refined, "adam", False), False),
    "svag, atomic": (partial(Refined, "adam", True), True),
    "svag, sgd": (partial(Refined, "sgd", False), False),
    "svag, loop": (partial(Refined, "loop", False), False),
    "svag, rmsprop, atomic": (partial(Refined, "rmsprop", True), True),
    "noisy gd": (Noisy, False),
    "measured": (partial(Ruled, "adam", "measured", "optimizer"), False),
    "measured, rule": (partial(Ruled, "sgd", "measured", "rule"), False),
    "planned": (partial(Ruled, "loop", "planned", "optimizer"), False),
    "planned, scaler": (partial(Ruled, "rmsprop", "planned", "scaler"), False),
}
