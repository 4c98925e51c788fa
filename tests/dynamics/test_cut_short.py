"""A step that is cut short anywhere, by a second Ctrl-C or by a kernel that fails, leaves nothing in between.

A signal that comes while weights move is held; the second one is not, and an error never is. Wherever they strike, the
settings, the second moment and the counts are the optimizer's own and belong to one moment, before the step or after
it. Only weights and momenta that the optimizer itself was moving may have moved in part.
"""

import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
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


RUNS: dict[str, Callable[[], Run]] = {
    "svag, adam": partial(Refined, "adam", False),
    "svag, loop": partial(Refined, "loop", False),
    "svag, rmsprop": partial(Refined, "rmsprop", False),
    "svag, sgd": partial(Refined, "sgd", False),
    "svag, begins adam": partial(fresh, "adam"),
    "svag, begins a damped velocity": partial(fresh, "sgd"),
    "noisy gd": Noisy,
    "measured": partial(Ruled, "adam", "measured", "optimizer"),
    "planned": partial(Ruled, "loop", "planned", "optimizer"),
}
MUTATIONS: list[tuple[type, str]] = [(RefinedStep, "step"), (GainRule, "_take_step")]
# The update is over, and its caller has not been told yet: to us it is part of the update.
NOT_TOLD_YET = {"RefinedStep._after_update", "GainRule._take_step"}
MOVED_IN_PLACE = {"exp_avg", "momentum_buffer"}
# Under the gain rule the state has no other units, and all of it is the optimizer's own affair.
MOVED_BY_IT = {*MOVED_IN_PLACE, "exp_avg_sq", "step"}


class TwoSignals:
    """Two Ctrl-C before one bytecode of a mutation, in our own code or in that of torch."""

    def __init__(self, at: int | None, ours: bool) -> None:
        self.where, self._at, self._ours = "", at, ours
        self.lines: list[tuple[object, int | None]] = []

    def strike(self, work: Callable[[], object]) -> bool:
        """Whether a KeyboardInterrupt came out of it."""
        with around_mutations(self):
            try:
                work()
            except KeyboardInterrupt:
                return True
        return False

    def between_lines(self) -> list[int]:
        """The bytecodes where one line follows another for the first time, on its way in or back from a call."""
        pairs = [*zip([(None, 0), *self.lines], self.lines, strict=False)]
        return [k for k, pair in enumerate(pairs) if pair[0] != pair[1] and pairs.index(pair) == k]

    def __enter__(self) -> None:
        sys.settrace(self._trace)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        if event == "opcode" and ("/svag/" in frame.f_code.co_filename) is self._ours:
            if len(self.lines) == self._at:
                self.where = frame.f_code.co_qualname
                sys.settrace(None)
                for _ in range(2):
                    signal.raise_signal(signal.SIGINT)
            self.lines.append((frame.f_code, frame.f_lineno))
        return self._trace


@contextmanager
def around_mutations(inside: "TwoSignals | Failing") -> Iterator[None]:
    """Enter a context for just the time of a mutation."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in MUTATIONS:
            whole = getattr(owner, name)

            def struck(*arguments: Any, whole: Any = whole) -> Any:
                with inside:
                    return whole(*arguments)

            patch.setattr(owner, name, struck)
        yield


def but_what_moves(run: Run, whole: State) -> State:
    """A state without the weights and the averages that an update moves in place, and the readings of a rule.

    A reading is averaged before its step, and once, also if the step is then repeated.
    """
    _, optimizer, settings, others = whole
    moves = MOVED_BY_IT if isinstance(run, Ruled) else MOVED_IN_PLACE
    kept = {
        number: {name: value for name, value in mine.items() if name not in moves}
        for number, mine in optimizer["state"].items()
    }
    if isinstance(run, Ruled):
        others = [{**others[0], "source": None}, others[1]]
    return [kept, optimizer["param_groups"], settings, others]


def before_and_after(make: Callable[[], Run]) -> tuple[State, State]:
    run = make()
    before = state(run)
    run.substep()
    return before, state(run)


def strikes_in_vain(name: str, ours: bool, positions: Callable[[TwoSignals], Iterable[int]]) -> None:
    """Strike at these bytecodes of a step, and assert each time that nothing in between is left."""
    before, after = before_and_after(RUNS[name])
    counting = TwoSignals(None, ours)
    counting.strike(RUNS[name]().substep)
    seen = {"before": 0, "after": 0, "in the update": 0}
    for at in positions(counting):
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
            rule_has_read = isinstance(run, Ruled) and is_same(now[0], before[0])
            assert two.where in NOT_TOLD_YET or not ours or rule_has_read, f"bytecode {at}, in {two.where}"
            assert is_same(but_what_moves(run, now), but_what_moves(run, before)), f"bytecode {at}, in {two.where}"
            seen["in the update"] += 1
        if ours and isinstance(run, Ruled) and is_same(now[0], before[0]):
            run.substep()
            assert is_same(state(run), after), f"repeated after bytecode {at}, in {two.where}"
    assert seen["before"]
    assert seen["after"] or not ours


@pytest.mark.parametrize("name", RUNS)
def test_two_signals_between_any_two_lines_of_ours(name: str) -> None:
    strikes_in_vain(name, True, TwoSignals.between_lines)


@pytest.mark.parametrize("name", RUNS)
def test_two_signals_inside_the_optimizer(name: str) -> None:
    strikes_in_vain(name, False, lambda found: range(0, len(found.lines), len(found.lines) // 20))


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_two_signals_at_every_bytecode_of_ours(name: str) -> None:
    strikes_in_vain(name, True, lambda found: range(len(found.lines)))


class Failing(TorchDispatchMode):
    """The k-th kernel raises, and with `for_good` all that follow."""

    def __init__(self, at: int | None, for_good: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count, self._at, self._for_good = 0, at, for_good

    def __torch_dispatch__(self, kernel: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        if self._at is not None and (self.count > self._at if self._for_good else self.count == self._at + 1):
            raise OSError(f"{kernel} failed")
        return kernel(*args, **(kwargs or {}))


@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("name", RUNS)
def test_a_kernel_that_fails_anywhere_in_the_mutation(name: str, for_good: bool) -> None:
    run, counting = RUNS[name](), Failing(None)
    before, after = (but_what_moves(run, whole) for whole in before_and_after(RUNS[name]))
    with around_mutations(counting):
        run.substep()
    assert counting.count > 0
    for at in range(counting.count):
        run = RUNS[name]()
        with around_mutations(Failing(at, for_good)), pytest.raises(OSError, match="failed"):
            run.substep()
        now = but_what_moves(run, state(run))
        if is_same(now, before) or is_same(now, after):
            continue
        # the weights have moved, and what the second moment would be cannot be computed: it is what it was
        assert for_good
        assert is_same(now[1:], after[1:])
        assert all(
            is_same(value, before[0].get(number, {}).get(key)) or is_same(value, after[0][number][key])
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

    def work(run: Refined) -> None:
        with two:
            if exits:
                run.sim.__exit__(None, None, None)
            else:
                run.sim.__enter__()

    def inside(run: Refined) -> list[object]:
        momenta = [module.momentum for module in run.model.modules() if isinstance(module, nn.BatchNorm1d)]
        hooks = len(run.optimizer._optimizer_step_pre_hooks), len(run.optimizer._optimizer_step_post_hooks)
        return [momenta, hooks]

    opened, closed = Refined("adam", atomic=False), Refined("adam", atomic=False)
    closed.sim.__exit__(None, None, None)
    right = [inside(opened), inside(closed)]
    assert right[0] != right[1]
    counting = two = TwoSignals(None, ours=True)
    work(made())
    for at in counting.between_lines():
        run, two = made(), TwoSignals(at, ours=True)
        with ctrl_c(), suppress(KeyboardInterrupt):
            work(run)
        assert inside(run) in right, f"bytecode {at}, in {two.where}"


def test_the_negative_control_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Units changed one by one, as they once were, are found out."""
    make = RUNS["svag, adam"]
    before, after = (but_what_moves(make(), whole) for whole in before_and_after(make))

    def end(self: RefinedStep) -> None:
        substep, self._substep, self._taken = self._substep, None, None
        if substep is not None:
            substep.keep()

    monkeypatch.setattr(RefinedStep, "_end", end)
    run, counting = make(), Failing(None)
    with around_mutations(counting):
        run.substep()
    wrong = 0
    for at in range(counting.count):
        run = make()
        with around_mutations(Failing(at)), pytest.raises(OSError, match="failed"):
            run.substep()
        now = but_what_moves(run, state(run))
        wrong += not (is_same(now, before) or is_same(now, after))
    assert wrong
