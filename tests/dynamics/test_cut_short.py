"""A step that is cut short anywhere, by a second Ctrl-C or by a kernel that fails, leaves nothing in between.

A signal that comes while weights move is held; the second one is not, and an error never is. Wherever they strike, the
settings, the second moment and the counts are the optimizer's own and belong to one moment, before the step or after
it. Only weights and momenta that the optimizer itself was moving may have moved in part.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import pytest
import torch
from tests.dynamics.interrupting import Noisy, Refined, Ruled, Run, State, ctrl_c, is_same, state
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from svag.dynamics.gain_rule import GainRule
from svag.dynamics.refined_step import RefinedStep


def fresh(kind: str) -> Refined:
    """An optimizer without a state, which this very step begins."""
    run = Refined(kind, atomic=False)
    run.optimizer.state.clear()
    return run


def damped() -> Refined:
    """A velocity that the refined step begins at 0, where torch would not."""
    run = fresh("sgd")
    run.optimizer.param_groups[0]["dampening"] = 0.5
    return run


RUNS: dict[str, Callable[[], Run]] = {
    "svag, adam": partial(Refined, "adam", False),
    "svag, loop": partial(Refined, "loop", False),
    "svag, rmsprop": partial(Refined, "rmsprop", False),
    "svag, sgd": partial(Refined, "sgd", False),
    "svag, begins adam": partial(fresh, "adam"),
    "svag, begins a damped velocity": damped,
    "noisy gd": Noisy,
    "measured": partial(Ruled, "adam", "measured", "optimizer"),
    "planned": partial(Ruled, "loop", "planned", "optimizer"),
}
MUTATIONS = {"RefinedStep.step", "GainRule._take_step"}
# The update is over, and its caller has not been told yet: to us it is part of the update.
NOT_TOLD_YET = {"RefinedStep._after_update", "GainRule._take_step"}
MOVED_IN_PLACE = {"exp_avg", "momentum_buffer"}


class TwoSignals:
    """Two Ctrl-C before one bytecode of a mutation, in our own code or in that of torch."""

    def __init__(self, at: int | None, ours: bool) -> None:
        self.count, self.where, self._at, self._ours, self._inside = 0, "", at, ours, 0

    def strike(self, work: Callable[[], object]) -> bool:
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
        name = frame.f_code.co_qualname
        if name in MUTATIONS:
            self._inside += {"call": 1, "return": -1}.get(event, 0)
        if event == "opcode" and self._inside > 0 and ("/svag/" in frame.f_code.co_filename) is self._ours:
            if self.count == self._at:
                self.where = name
                sys.settrace(None)
                self.count += 1
                for _ in range(2):
                    signal.raise_signal(signal.SIGINT)
            self.count += 1
        return self._trace


def but_what_moves(whole: State) -> State:
    """A state without the weights and the averages that an update moves in place."""
    _, optimizer, settings, others = whole
    kept = {
        number: {name: value for name, value in mine.items() if name not in MOVED_IN_PLACE}
        for number, mine in optimizer["state"].items()
    }
    return [kept, optimizer["param_groups"], settings, others]


def before_and_after(make: Callable[[], Run]) -> tuple[State, State]:
    run = make()
    before = state(run)
    run.substep()
    return before, state(run)


@pytest.mark.parametrize("ours", [True, False], ids=["our code", "torch"])
@pytest.mark.parametrize("name", RUNS)
def test_two_signals_anywhere_in_the_mutation(name: str, ours: bool) -> None:
    """Every bytecode of ours; in torch, where all are alike to us, a hundred."""
    before, after = before_and_after(RUNS[name])
    counting = TwoSignals(None, ours)
    counting.strike(RUNS[name]().substep)
    assert counting.count > 100
    seen = {"before": 0, "after": 0, "in the update": 0}
    for at in range(0, counting.count, 1 if ours else counting.count // 100):
        run, two = RUNS[name](), TwoSignals(at, ours)
        with ctrl_c():
            assert two.strike(run.substep)
        now = state(run)
        torch.set_grad_enabled(True)
        if is_same(now, before):
            seen["before"] += 1
        elif is_same(now, after):
            seen["after"] += 1
        else:
            assert two.where in NOT_TOLD_YET or not ours, f"bytecode {at}, in {two.where}"
            assert is_same(but_what_moves(now), but_what_moves(before)), f"bytecode {at}, in {two.where}"
            seen["in the update"] += 1
    assert seen["before"]
    assert seen["after"] or not ours


class Failing(TorchDispatchMode):
    """The k-th kernel raises, and with `for_good` all that follow."""

    def __init__(self, at: int | None, for_good: bool = False) -> None:
        super().__init__()
        self.count, self._at, self._for_good = 0, at, for_good

    def __torch_dispatch__(self, kernel: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        if self._at is not None and (self.count > self._at if self._for_good else self.count == self._at + 1):
            raise OSError(f"{kernel} failed")
        return kernel(*args, **(kwargs or {}))


@contextmanager
def in_the_mutation(failing: Failing) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((RefinedStep, "step"), (GainRule, "_take_step")):
            whole = getattr(owner, name)

            def struck(*arguments: Any, whole: Any = whole) -> None:
                with failing:
                    whole(*arguments)

            patch.setattr(owner, name, struck)
        yield


@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("name", RUNS)
def test_a_kernel_that_fails_anywhere_in_the_mutation(name: str, for_good: bool) -> None:
    before, after = map(but_what_moves, before_and_after(RUNS[name]))
    counting = Failing(None)
    with in_the_mutation(counting):
        RUNS[name]().substep()
    assert counting.count > 0
    for at in range(counting.count):
        run = RUNS[name]()
        with in_the_mutation(Failing(at, for_good)), pytest.raises(OSError, match="failed"):
            run.substep()
        now = but_what_moves(state(run))
        if is_same(now, before) or is_same(now, after):
            continue
        # the weights have moved, and what the second moment would be cannot be computed: it is what it was
        assert for_good
        assert is_same(now[1:], after[1:])
        assert all(
            is_same(value, before[0][number].get(key)) or is_same(value, after[0][number].get(key))
            for number, mine in now[0].items()
            for key, value in mine.items()
        )


@pytest.mark.parametrize("exits", [False, True], ids=["opening", "closing"])
def test_two_signals_while_the_context_opens_or_closes(exits: bool) -> None:
    """BatchNorm's momenta and the optimizer's hooks are those of an open context, or the user's own."""

    def made() -> Refined:
        run = Refined("adam", atomic=False)
        if not exits:
            run.sim.__exit__(None, None, None)
        return run

    def work(run: Refined) -> object:
        return run.sim.__exit__(None, None, None) if exits else run.sim.__enter__()

    def inside(run: Refined) -> list[object]:
        momenta = [module.momentum for module in run.model.modules() if isinstance(module, nn.BatchNorm1d)]
        hooks = len(run.optimizer._optimizer_step_pre_hooks), len(run.optimizer._optimizer_step_post_hooks)
        return [momenta, hooks]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[__name__], "MUTATIONS", {"SVAG.__exit__" if exits else "SVAG.__enter__"})
        opened, closed = Refined("adam", atomic=False), Refined("adam", atomic=False)
        closed.sim.__exit__(None, None, None)
        right = [inside(opened), inside(closed)]
        assert right[0] != right[1]
        counting = TwoSignals(None, ours=True)
        run = made()
        counting.strike(partial(work, run))
        assert counting.count > 50
        for at in range(counting.count):
            run, two = made(), TwoSignals(at, ours=True)
            with ctrl_c():
                two.strike(partial(work, run))
            assert inside(run) in right, f"bytecode {at}, in {two.where}"


def test_the_negative_control_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Units changed one by one, as they once were, are found out."""
    make = RUNS["svag, adam"]
    before, after = map(but_what_moves, before_and_after(make))

    def end(self: RefinedStep) -> None:
        substep, self._substep, self._taken = self._substep, None, None
        if substep is not None:
            substep.keep()

    monkeypatch.setattr(RefinedStep, "_end", end)
    counting = Failing(None)
    with in_the_mutation(counting):
        make().substep()
    wrong = 0
    for at in range(counting.count):
        run = make()
        with in_the_mutation(Failing(at)), pytest.raises(OSError, match="failed"):
            run.substep()
        now = but_what_moves(state(run))
        wrong += not (is_same(now, before) or is_same(now, after))
    assert wrong
