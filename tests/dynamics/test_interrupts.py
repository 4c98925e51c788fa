"""An interrupt or an error finds a step taken and counted, or not begun; signals are held only while weights move."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from tests.dynamics.interrupting import (
    RUNS,
    Noisy,
    Refined,
    Ruled,
    Run,
    batch,
    ctrl_c,
    interrupted,
    is_same,
    loss_of,
    settings,
    state,
)
from torch import nn

from svag import SVAG
from svag.noise.uninterrupted import Uninterrupted

OURS = {"adam": "adam", "loop": "adam", "sgd": "sgd", "rmsprop": "rmsprop"}


@pytest.fixture(autouse=True)
def _ctrl_c() -> Iterator[None]:
    with ctrl_c():
        yield


@pytest.mark.parametrize("name", ["svag", "svag, atomic", "noisy gd", "measured", "planned"])
def test_interrupts_at_random_bytecodes_leave_whole_steps(name: str) -> None:
    """A few of what `tests/campaigns` does a thousand times."""
    assert interrupted(*RUNS[name], times=40, seed=1)[0] == []


def interrupt(*_: object) -> None:
    signal.raise_signal(signal.SIGINT)


class FailedError(Exception):
    """Of a hook or of an optimizer."""


def fail(*_: object) -> None:
    raise FailedError


def after(make: Callable[[], Run]) -> Any:
    run = make()
    run.substep()
    return state(run)


MAKE: dict[str, Callable[[], Run]] = {
    **{f"svag, {kind}": partial(Refined, kind, False) for kind in OURS},
    "noisy gd": Noisy,
    "measured": partial(Ruled, "adam", "measured", "optimizer"),
    "planned": partial(Ruled, "sgd", "planned", "rule"),
}


@pytest.mark.parametrize("name", MAKE)
def test_an_interrupt_inside_the_optimizer_waits_for_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = MAKE[name]()
    kind = type(run.optimizer).__name__.lower().removesuffix("w")
    module = sys.modules[f"torch.optim.{kind}"]
    inside = getattr(module, kind)

    def struck(*arguments: Any, **more: Any) -> None:
        interrupt()
        inside(*arguments, **more)

    expected = after(MAKE[name])
    monkeypatch.setattr(module, kind, struck)
    with pytest.raises(KeyboardInterrupt):
        run.step()
    assert is_same(state(run), expected)


@pytest.mark.parametrize("hook", [interrupt, fail])
@pytest.mark.parametrize("name", MAKE)
def test_a_hook_that_fails_after_the_update_finds_it_counted(name: str, hook: Callable[..., None]) -> None:
    run, expected = MAKE[name](), after(MAKE[name])
    run.optimizer.register_step_post_hook(hook)
    with pytest.raises((KeyboardInterrupt, FailedError)):
        run.step()
    assert is_same(state(run), expected)


@pytest.mark.parametrize("name", MAKE)
def test_a_hook_that_fails_before_the_update_leaves_no_trace(name: str) -> None:
    run = MAKE[name]()
    before = state(run)
    handle = run.optimizer.register_step_pre_hook(fail)
    with pytest.raises(FailedError):
        run.substep()
    handle.remove()
    assert is_same(state(run), before)
    if isinstance(run, Ruled):
        run.substep()  # the gradient is still there, and its reading counts once
        assert is_same(state(run), after(MAKE[name]))


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("hook", [interrupt, fail])
def test_an_atomic_step_is_taken_back_whole(at: int, hook: Callable[..., None]) -> None:
    run, calls = Refined("adam", atomic=True), 0
    before = state(run)

    def strike(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == at:
            hook()

    run.optimizer.register_step_post_hook(strike)
    with pytest.raises((KeyboardInterrupt, FailedError)):
        run.step()
    assert is_same(state(run), before)


@pytest.mark.parametrize("ell", [1, 3])
def test_only_an_atomic_step_takes_back_an_update_that_failed_halfway(
    ell: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for atomic in (True, False):
        torch.manual_seed(0)
        model = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        before = model.weight.detach().clone()

        def halfway(params: list[Any], *_: Any, **__: Any) -> None:
            params[0].add_(1.0)
            raise FailedError

        monkeypatch.setattr(sys.modules["torch.optim.sgd"], "sgd", halfway)
        with SVAG(model, optimizer, ell=ell, atomic=atomic) as sim:
            with pytest.raises(FailedError):
                sim.step(loss_of(model), iter([(batch(0), batch(1))]))
            assert torch.equal(model.weight, before) is atomic
            assert sim.time == 0
            assert settings(optimizer)[0]["lr"] == 0.1


def test_settings_are_back_where_a_hook_has_added_a_parameter_group() -> None:
    run = Refined("adam", atomic=False)
    mine, steps = settings(run.optimizer)[0], [s["step"].item() for s in run.optimizer.state.values()]
    run.optimizer.register_step_pre_hook(lambda one, *_: one.add_param_group({"params": [nn.Parameter(torch.ones(1))]}))
    with pytest.raises(ValueError, match="zip"):  # of settings that were read before
        run.substep()
    assert settings(run.optimizer)[0] == mine
    assert [state["step"].item() for state in run.optimizer.state.values()] == steps


@pytest.mark.parametrize("source", ["measured", "planned"])
def test_an_error_in_the_optimizer_leaves_the_settings_at_once(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to ask for a state or to step again."""
    run = Ruled("adam", source, "optimizer")
    mine, counted = settings(run.optimizer), (run.rule.time, run.rule.price)
    seen: list[float] = []

    def broken(*_: Any, lr: float, **__: Any) -> None:
        seen.append(lr)
        raise FailedError

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["torch.optim.adam"], "adam", broken)
        with pytest.raises(FailedError):
            run.step()
    assert seen[0] > mine[0]["lr"]
    assert settings(run.optimizer) == mine
    assert (run.rule.time, run.rule.price) == counted
    run.step()
    assert is_same(state(run), after(partial(Ruled, "adam", source, "optimizer")))


@pytest.fixture
def came() -> Iterator[list[int]]:
    """What two handlers of a user were told."""
    found: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda number, _: found.append(number))
    yield found
    for number, handler in before.items():
        signal.signal(number, handler)


def test_signals_wait_for_the_end_of_the_block(came: list[int]) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Uninterrupted():
        with Uninterrupted():
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert came == []
    assert came == [signal.SIGTERM, signal.SIGINT]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_a_second_signal_does_not_wait(came: list[int]) -> None:
    with Uninterrupted():
        signal.raise_signal(signal.SIGINT)
        assert came == []
        signal.raise_signal(signal.SIGINT)
        assert came == [signal.SIGINT]
    assert came == [signal.SIGINT]


def test_a_signal_is_not_lost_to_an_error_or_to_another_signal(came: list[int]) -> None:
    def strike(*numbers: int) -> None:
        with Uninterrupted():
            for number in numbers:
                signal.raise_signal(number)
            fail()

    with pytest.raises(FailedError):
        strike(signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        strike(signal.SIGINT, signal.SIGTERM)
    assert came == [signal.SIGTERM] * 2


def test_in_another_thread_nothing_is_held_and_a_step_is_taken() -> None:
    run, expected = Refined("adam", atomic=False), after(MAKE["svag, adam"])
    handlers: list[Any] = []
    run.optimizer.register_step_post_hook(lambda *_: handlers.append(signal.getsignal(signal.SIGINT)))
    thread = threading.Thread(target=run.substep)
    thread.start()
    thread.join()
    assert is_same(state(run), expected)
    assert handlers == [signal.default_int_handler]
