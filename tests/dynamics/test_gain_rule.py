"""GainRule in loops: κ = 1 is the optimizer, checkpoints, who steps, schedulers, changing batches, interrupts."""

import copy
import json
import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.noise.nets import Pair, batches, data, loss_of, net
from torch import nn
from torch.optim import LBFGS, SGD, Adam, AdamW, NAdam, Optimizer, RAdam, RMSprop
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, OneCycleLR, ReduceLROnPlateau

from svag import GainPlan, GainRule, NoiseProbe, load_readings
from svag.noise.optimizer import settings_of
from svag.theory.optimizers import optimizer_kind

Make = Callable[..., Optimizer]
KINDS: dict[str, Make] = {
    "sgd": lambda p, **more: SGD(p, lr=0.1, weight_decay=0.01, **more),
    "momentum": lambda p, **more: SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01, **more),
    "nesterov": lambda p, **more: SGD(p, lr=0.05, momentum=0.9, nesterov=True, **more),
    "adam": lambda p, **more: Adam(p, lr=0.01, weight_decay=0.01, **more),
    "adamw": lambda p, **more: AdamW(p, lr=0.01, weight_decay=0.1, **more),
    "fused": lambda p, **more: AdamW(p, lr=0.01, weight_decay=0.1, fused=True, **more),
    "nadam": lambda p, **more: NAdam(p, lr=0.01, weight_decay=0.01, decoupled_weight_decay=True, **more),
    "radam": lambda p, **more: RAdam(p, lr=0.01, **more),
    "rmsprop": lambda p, **more: RMSprop(p, lr=0.01, momentum=0.5, **more),
}
ROOT_OF = {"adamw", "fused", "nadam"}  # whose weight decay is decoupled


@pytest.mark.parametrize("kind", KINDS)
def test_a_price_list_knows_whose_weight_decay_the_rule_scales(kind: str) -> None:
    parameters = list(net().parameters())
    named = settings_of(KINDS[kind](parameters), parameters).optimizer
    assert optimizer_kind(named).decoupled == (kind in ROOT_OF)
    assert optimizer_kind(named).rule == ("linear" if kind in {"sgd", "momentum", "nesterov"} else "square_root")


def weights(model: nn.Module) -> list[bytes]:
    return [p.detach().numpy().tobytes() for p in model.parameters()]


def grouped(model: nn.Module, make: Make) -> Optimizer:
    """Two groups: matrices, and the rest without weight decay at another rate."""
    matrices, others = ([p for p in model.parameters() if (p.ndim > 1) is wide] for wide in (True, False))
    return make([{"params": matrices}, {"params": others, "weight_decay": 0.0, "lr": 0.02}])


def settings(optimizer: Optimizer) -> list[dict[str, Any]]:
    return [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]


def plan_of(optimizer: Optimizer, gains: tuple[tuple[float, float], ...], end: int | None, size: int = 16) -> GainPlan:
    linear = isinstance(optimizer, SGD)
    return GainPlan(4, size, gains, end, "linear" if linear else "square_root")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", ["measured", "planned"])
def test_at_the_batch_size_of_the_baseline_it_is_the_optimizer_bit_for_bit(kind: str, source: str) -> None:
    model, plain = net(), net()
    optimizer, reference = grouped(model, KINDS[kind]), grouped(plain, KINDS[kind])
    schedules = [CosineAnnealingLR(one, 6) for one in (optimizer, reference)]
    with NoiseProbe(model, optimizer, batch_size=16) as probe, NoiseProbe(plain, reference, batch_size=16) as beside:
        if source == "measured":
            rule = GainRule(probe, base_batch_size=16, base_steps=6)
        else:
            rule = GainRule.planned(optimizer, plan_of(optimizer, ((0, 1.0),), 6, size=4))
        for number, batch in enumerate(batches(6, 16), start=1):
            for one in (optimizer, reference):
                one.zero_grad()
            probe.backward(loss_of(model), batch)
            beside.backward(loss_of(plain), batch)
            for one in (optimizer, reference):
                one.step()
            assert (rule.time, rule.due, rule.gain, rule.price) == (number, 1, 1.0, 1.0)
            for schedule in schedules:
                schedule.step()
            assert weights(model) == weights(plain)
        assert rule.done


@pytest.mark.parametrize("kind", KINDS)
def test_the_step_is_that_of_the_multiplied_settings_and_nobody_else_sees_them(kind: str) -> None:
    model, plain = net(), net()
    optimizer, reference = grouped(model, KINDS[kind]), grouped(plain, KINDS[kind])
    mine, gain = settings(optimizer), 3.0
    rule = GainRule.planned(optimizer, plan_of(optimizer, ((0, gain),), None))
    factor = gain if isinstance(reference, SGD) else math.sqrt(gain)
    for group in reference.param_groups:
        group["lr"] *= factor
        if "eps" in group:
            group["eps"] *= 1 / factor
        if kind in ROOT_OF:
            group["weight_decay"] *= factor
    for batch in batches(3, 16):
        for one, network in ((optimizer, model), (reference, plain)):
            one.zero_grad()
            loss_of(network)(batch).backward()
            one.step()
        assert settings(optimizer) == mine
        assert weights(model) == weights(plain)
    assert rule.time == 9.0


def test_hooks_of_others_see_the_settings_of_the_user() -> None:
    x = nn.Parameter(torch.zeros(1))
    optimizer, seen = SGD([x], lr=0.1), list[float]()

    def log(one: Optimizer, *_: object) -> None:
        seen.append(one.param_groups[0]["lr"])

    optimizer.register_step_pre_hook(log)
    optimizer.register_step_post_hook(log)
    GainRule.planned(optimizer, plan_of(optimizer, ((0, 2.0),), None))
    optimizer.register_step_post_hook(log)
    optimizer.register_step_pre_hook(log)
    x.grad = torch.ones(1)
    optimizer.step()
    assert seen == [0.1] * 4
    assert x.item() == pytest.approx(-0.2)


def test_a_rate_in_a_tensor_is_multiplied_and_restored_in_place() -> None:
    x = nn.Parameter(torch.zeros(2))
    rate = torch.tensor(0.3)
    optimizer = Adam([x], lr=rate)
    GainRule.planned(optimizer, plan_of(optimizer, ((0, 4.0),), None))
    x.grad = torch.tensor([1.0, -1.0])
    optimizer.step()
    assert torch.allclose(x.detach(), torch.tensor([-0.6, 0.6]))
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == torch.tensor(0.3).item()


def train(
    model: nn.Module, optimizer: Optimizer, probe: NoiseProbe, rule: GainRule, schedule: LambdaLR, all_: list[Pair]
) -> Iterator[float]:
    for batch in all_:
        optimizer.zero_grad()
        probe.backward(loss_of(model), batch)
        rule.step()
        for _ in range(rule.due):
            schedule.step()
        assert rule.gain is not None
        yield rule.gain


def made(
    kind: str, source: str, *, check_loss: bool = True
) -> tuple[nn.Module, Optimizer, NoiseProbe, GainRule, LambdaLR]:
    model = net()
    optimizer = grouped(model, KINDS[kind])
    schedule = LambdaLR(optimizer, lambda step: 1 / (1 + 0.1 * step))
    probe = NoiseProbe(model, optimizer, batch_size=16, population=1000, check_loss=check_loss)
    if source == "measured":
        return model, optimizer, probe, GainRule(probe, 4), schedule
    phases = ((0, 1.5), (4, 2.3), (11, 3.7))
    return model, optimizer, probe, GainRule.planned(optimizer, plan_of(optimizer, phases, 40)), schedule


@pytest.mark.parametrize("source", ["measured", "planned"])
@pytest.mark.parametrize("kind", ["momentum", "adamw"])
@pytest.mark.parametrize("saved", [1, 5])
def test_a_checkpoint_continues_bit_for_bit(kind: str, source: str, saved: int) -> None:
    everything = batches(9, 16)
    one = made(kind, source)
    gains = list(train(*one, everything[:saved]))
    parts: list[Any] = [copy.deepcopy(part.state_dict()) for part in one]
    parts[3] = json.loads(json.dumps(parts[3]))  # plain numbers, which a file keeps
    other = made(kind, source)
    for number, state in enumerate(parts):
        whole: Any = other[number]
        whole.load_state_dict(state)
    assert (other[3].time, other[3].due, other[3].price) == (one[3].time, one[3].due, one[3].price)
    rest = list(train(*one, everything[saved:]))
    assert list(train(*other, everything[saved:])) == rest
    assert weights(one[0]) == weights(other[0])
    assert one[3].state_dict() == other[3].state_dict()
    assert len({*gains, *rest}) > 2


def test_going_back_within_a_run_wants_a_new_gradient() -> None:
    model, optimizer, probe, rule, _ = made("sgd", "measured")
    probe.backward(loss_of(model), data(16))
    optimizer.step()
    state = rule.state_dict()
    optimizer.zero_grad()
    probe.backward(loss_of(model), data(16, seed=2))
    rule.load_state_dict(state)
    with pytest.raises(RuntimeError, match=r"probe\.backward\(\)"):
        optimizer.step()
    assert rule.state_dict() == state


def test_a_state_of_another_kind_or_plan_is_refused() -> None:
    _, optimizer, _, measured, _ = made("sgd", "measured")
    _, _, _, planned, _ = made("sgd", "planned")
    with pytest.raises(ValueError, match=r"\bplan\b.*state_dict\(\)"):
        planned.load_state_dict(measured.state_dict())
    state = planned.state_dict()
    measured.close()
    other = GainRule.planned(optimizer, plan_of(optimizer, ((0, 2.0),), 40))
    with pytest.raises(ValueError, match=r"planned\(\)"):
        other.load_state_dict(state)
    with pytest.raises(ValueError, match=r"41.*base_steps=40"):
        other.load_state_dict({**state, "time": 41.0})
    with pytest.raises(TypeError):
        other.load_state_dict(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("who", ["optimizer", "rule", "disabled scaler", "closure"])
def test_whoever_steps_takes_the_same_step(who: str) -> None:
    results = []
    for stepper in ("rule", who):
        model, optimizer, probe, rule, _ = made("momentum", "measured")
        for batch in batches(4, 16):
            optimizer.zero_grad()
            if stepper == "closure":  # as Lightning does: the gradient comes within the step
                optimizer.step(partial(probe.backward, loss_of(model), batch))  # type: ignore[arg-type]
                continue
            probe.backward(loss_of(model), batch)
            if stepper == "optimizer":
                optimizer.step()
            elif stepper == "rule":
                rule.step()
            else:
                torch.amp.GradScaler("cpu", enabled=False).step(optimizer)
        results.append((weights(model), rule.time, rule.due, rule.gain, settings(optimizer)))
    assert results[0] == results[1]


@pytest.mark.parametrize("by", ["rule", "scaler"])
@pytest.mark.parametrize("source", ["measured", "planned"])
@pytest.mark.parametrize("kind", ["sgd", "adamw", "fused"])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_an_overflow_costs_no_time(kind: str, source: str, by: str, set_to_none: bool) -> None:
    model = net(dtype=torch.float32)
    optimizer = KINDS[kind](model.parameters())
    probe, scaler = NoiseProbe(model, optimizer, batch_size=16), torch.amp.GradScaler("cpu", init_scale=8.0)
    if source == "measured":
        rule = GainRule(probe, base_batch_size=4)
    else:
        rule = GainRule.planned(optimizer, plan_of(optimizer, ((0, 2.5),), None))
    mine, times = settings(optimizer), []
    assert (rule.due, rule.gain, rule.price) == (0, None, None)
    for number in range(4):
        x, y = data(16, seed=number, dtype=torch.float32)
        optimizer.zero_grad(set_to_none=set_to_none)
        probe.backward(loss_of(model), (x * math.inf if number == 2 else x, y), scaler=scaler)
        before = weights(model), rule.time
        if by == "rule":
            rule.step(scaler)
        else:
            scaler.step(optimizer)
        scaler.update()
        assert settings(optimizer) == mine
        if number == 2:
            assert (weights(model), rule.time, rule.due, rule.passed(0.1)) == (*before, 0, 0)
        else:
            assert rule.due >= 1
            assert weights(model) != before[0]
        optimizer.zero_grad(set_to_none=set_to_none)
        assert (rule.due == 0) == (number == 2)  # also after zero_grad
        times.append(rule.time)
    assert times[1] == times[2] < times[3]


def due_steps(rule: GainRule, optimizer: Optimizer, x: nn.Parameter) -> Iterator[int]:
    while not rule.done:
        x.grad = torch.ones_like(x)
        optimizer.step()
        yield rule.due


PHASES = ((0, 1.3), (5, 2.9), (12, 3.6))


def test_baseline_steps_are_counted_whole_and_end_exactly() -> None:
    x = nn.Parameter(torch.zeros(1))
    optimizer = SGD([x], lr=0.1)
    rates = [1 / (1 + step) for step in range(31)]
    schedule = LambdaLR(optimizer, lambda step: rates[step])  # an IndexError beyond the 30 steps
    plan = plan_of(optimizer, PHASES, 30)
    rule = GainRule.planned(optimizer, plan)
    position, epochs = 0.0, 0
    steps = 0
    for due in due_steps(rule, optimizer, x):
        steps += 1
        assert rule.gain is not None
        position -= rule.gain * 0.1 * rates[math.floor(rule.time - rule.gain + 1e-9)]
        epochs += rule.passed(7.5)
        for _ in range(due):
            schedule.step()
    assert (rule.time, schedule.last_epoch, epochs, steps) == (30.0, 30, 4, plan.steps())
    assert x.item() == pytest.approx(position, rel=1e-6)
    assert rule.price == pytest.approx(4 * steps / 30)
    with pytest.raises(RuntimeError, match=r"\b30\b.*rule\.done"):
        optimizer.step()


def test_a_measured_run_ends_exactly_too() -> None:
    model, optimizer, probe, rule, _ = made("sgd", "measured")
    rule.close()
    rule = GainRule(probe, base_batch_size=4, base_steps=7)
    schedule, due = OneCycleLR(optimizer, 0.2, total_steps=7), list[int]()
    while not rule.done:
        optimizer.zero_grad()
        probe.backward(loss_of(model), data(16, seed=len(due)))
        rule.step()
        due.append(rule.due)
        for _ in range(rule.due):
            schedule.step()
    assert (rule.time, sum(due)) == (7.0, 7)
    model.zero_grad()
    probe.backward(loss_of(model), data(16))
    with pytest.raises(RuntimeError, match=r"\b7\b.*rule\.done"):
        rule.step()


def test_schedulers_that_look_at_a_metric_are_called_once_an_epoch() -> None:
    x = nn.Parameter(torch.zeros(1))
    optimizer = SGD([x], lr=0.1)
    rule = GainRule.planned(optimizer, plan_of(optimizer, PHASES, 30))
    schedule, called = ReduceLROnPlateau(optimizer, patience=0), 0
    for _ in due_steps(rule, optimizer, x):
        for _ in range(rule.passed(10)):
            schedule.step(1.0)
            called += 1
    assert called == 3
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.001)


def test_a_measured_rule_wants_a_closed_step_each_time() -> None:
    model, optimizer, probe, rule, _ = made("sgd", "measured")
    with pytest.raises(RuntimeError, match=r"probe\.backward\(\)"):
        optimizer.step()
    probe.backward(loss_of(model), data(16))
    optimizer.step()
    before = rule.state_dict()
    with pytest.raises(RuntimeError, match=r"probe\.backward\(\)"):
        optimizer.step()
    assert rule.state_dict() == before


def test_accumulation_reads_as_backward_does() -> None:
    results = []
    for style in ("backward", "accumulation"):
        model, optimizer, probe, rule, _ = made("momentum", "measured")
        for x, y in batches(4, 16):
            optimizer.zero_grad()
            if style == "backward":
                probe.backward(loss_of(model), (x, y))
            else:
                for part in zip(x.split(4), y.split(4), strict=True):
                    (loss_of(model)(part) / 4).backward()
                    probe.micro_batch()
                probe.close_step()
            optimizer.step()
        results.append((rule.state_dict(), weights(model)))
    assert results[0] == results[1]


def test_a_skipped_probe_step_holds_the_gain() -> None:
    model, optimizer, probe, rule, _ = made("sgd", "measured")
    probe.backward(loss_of(model), data(16))
    optimizer.step()
    gain, time = rule.gain, rule.time
    optimizer.zero_grad()
    loss_of(model)(data(16, seed=2)).backward()
    probe.micro_batch()
    probe.skip_step()
    optimizer.step()
    assert (rule.gain, rule.time) == (gain, 2 * time)


def test_the_gain_is_held_between_readings() -> None:
    model = net()
    optimizer = KINDS["sgd"](model.parameters())
    probe = NoiseProbe(model, optimizer, batch_size=16, every=3)
    rule, gains = GainRule(probe, base_batch_size=4), []
    for batch in batches(6, 16):
        optimizer.zero_grad()
        probe.backward(loss_of(model), batch)
        optimizer.step()
        gains.append(rule.gain)
    assert gains[0] == gains[1] == gains[2] != gains[3] == gains[4] == gains[5]


def test_kappa_follows_the_batch_size() -> None:
    """Averages are those of one example's noise; the gain is recomputed from the readings."""
    model = net()
    optimizer, population = KINDS["sgd"](model.parameters()), 1000
    probe = NoiseProbe(model, optimizer, batch_size=8, population=population)
    rule = GainRule(probe, base_batch_size=4)
    x, y = data(200)
    used = 0
    signal = noise = 0.0
    for number, size in enumerate((8, 16, 16, 32, 8)):
        probe.batch_size = size
        optimizer.zero_grad()
        probe.backward(loss_of(model), (x[used : used + size], y[used : used + size]))
        optimizer.step()
        reading = probe.readings[-1]
        assert reading.batch_size == size
        signal += (reading.grad_sq - signal) / (number + 1)
        per_example = reading.noise_trace * size / (1 - size / population)
        noise += (per_example - noise) / (number + 1)
        kappa, rho = size / 4, noise * (1 - 4 / population) / 4 / signal
        expected = 1.0 if signal <= 0 else kappa * (1 + rho) / (kappa + rho)
        assert rule.gain == pytest.approx(expected, rel=1e-12)
        used += size
    assert rule.price == pytest.approx(used / 4 / rule.time)


def test_a_batch_size_is_refused_within_a_step_and_where_parts_do_not_divide_it() -> None:
    model, optimizer, probe, rule, _ = made("sgd", "measured")
    loss_of(model)(data(8)).backward()
    probe.micro_batch()
    with pytest.raises(ValueError, match=r"^batch_size\b.*close_step\(\)"):
        probe.batch_size = 8
    probe.skip_step()
    model.zero_grad()
    with pytest.raises(ValueError, match=r"^population \(1000\)"):
        probe.batch_size = 1000
    with pytest.raises(ValueError, match=r"^batch_size\b"):
        probe.batch_size = 1
    probe.batch_size = 6
    with pytest.raises(ValueError, match=r"^parts\b.* 6 .* 4 "):
        probe.backward(loss_of(model), data(6))
    probe.backward(loss_of(model), data(6), parts=3)
    optimizer.step()
    assert rule.price == pytest.approx(1.5 / rule.time)


def test_the_number_of_micro_batches_may_change_with_the_batch_size() -> None:
    model, optimizer, probe, _, _ = made("sgd", "measured")
    for size in (16, 8, 16):
        probe.batch_size = size
        optimizer.zero_grad()
        for _ in range(size // 4):
            (loss_of(model)(data(4)) / (size // 4)).backward()
            probe.micro_batch()
        probe.close_step()
        optimizer.step()
    assert [(reading.batch_size, reading.n) for reading in probe.readings] == [(16, 4), (8, 2), (16, 4)]


@pytest.mark.parametrize("short", [9, 4, 1])
def test_a_short_batch_is_measured_at_its_own_size_where_it_has_pieces(short: int) -> None:
    model, optimizer, probe, rule, _ = made("sgd", "measured")
    probe.backward(loss_of(model), data(16))
    optimizer.step()
    optimizer.zero_grad()
    before = rule.state_dict()["source"]
    warned = pytest.warns(UserWarning, match="without a reading") if short <= 4 else None
    if warned is None:  # pieces of 3, 3 and 3
        probe.backward(loss_of(model), data(short, seed=2))
    else:
        with warned:
            probe.backward(loss_of(model), data(short, seed=2))
    kappas = rule.price * rule.time if rule.price else 0.0
    optimizer.step()
    assert rule.price is not None
    assert rule.price * rule.time - kappas == pytest.approx(short / 4)
    assert (rule.state_dict()["source"]["count"] - before["count"]) == (short > 4)
    assert rule.gain is not None
    assert min(1.0, short / 4) <= rule.gain <= max(1.0, short / 4)
    assert len(probe.readings) == 1  # those of whole batches alone


class Stopped(BaseException):
    """As KeyboardInterrupt, which would stop the tests."""


def interrupted(*_: object) -> None:
    raise Stopped


@pytest.mark.parametrize("by", ["rule", "optimizer"])
@pytest.mark.parametrize("source", ["measured", "planned"])
def test_an_interrupted_step_leaves_the_settings_of_the_user(source: str, by: str) -> None:
    model, optimizer, probe, rule, _ = made("adamw", source)
    steps = iter(batches(5, 16))

    def step() -> None:
        optimizer.zero_grad()
        probe.backward(loss_of(model), next(steps))
        (rule if by == "rule" else optimizer).step()

    step()
    mine, before = settings(optimizer), weights(model)
    time, gain = rule.time, rule.gain
    handle = optimizer.register_step_pre_hook(interrupted)  # strikes after the settings are in place
    with pytest.raises(Stopped):
        step()
    handle.remove()
    if by == "rule":
        assert settings(optimizer) == mine
    saved = optimizer.state_dict()  # as an emergency checkpoint would
    assert [{k: v for k, v in group.items() if k != "params"} for group in saved["param_groups"]] == mine
    assert settings(optimizer) == mine
    assert (weights(model), rule.time, rule.gain) == (before, time, gain)
    optimizer.step()  # the step can be repeated, and its reading counts once
    assert rule.time > time
    if source == "measured":
        assert rule.state_dict()["source"]["count"] == 2
    step()
    assert settings(optimizer) == mine


@pytest.mark.parametrize("at", range(6))
def test_an_interrupt_while_settings_change_can_be_undone(at: int) -> None:
    """Whichever of the six settings of two groups is being written."""

    class Group(dict[str, Any]):
        left = at

        def __setitem__(self, name: str, value: Any) -> None:
            if Group.left == 0:
                Group.left = -1
                raise Stopped
            Group.left -= 1
            super().__setitem__(name, value)

    model, optimizer, probe, rule, _ = made("adamw", "planned")
    mine = settings(optimizer)
    optimizer.param_groups = [Group(group) for group in optimizer.param_groups]
    probe.backward(loss_of(model), data(16))
    with pytest.raises(Stopped):
        optimizer.step()
    rule.state_dict()
    assert settings(optimizer) == mine


def test_an_error_in_the_optimizer_is_followed_by_an_honest_step() -> None:
    """Nothing is multiplied twice."""
    model, optimizer, probe, rule, _ = made("sgd", "planned")
    probe.backward(loss_of(model), data(16))
    broken = next(iter(model.parameters()))
    gradient, broken.grad = broken.grad, None
    optimizer.param_groups[0]["nesterov"] = True
    handle = optimizer.register_step_pre_hook(interrupted)
    for _ in range(3):
        with pytest.raises(Stopped):
            optimizer.step()
    handle.remove()
    optimizer.param_groups[0]["nesterov"], broken.grad = False, gradient
    before = broken.detach().clone()
    optimizer.step()
    assert gradient is not None
    expected = before - 1.5 * 0.1 * (gradient + 0.01 * before)
    assert torch.allclose(broken.detach(), expected, rtol=1e-12)
    assert rule.time == 1.5


@pytest.mark.parametrize("asks", ["due", "passed", "time", "nothing"])
def test_a_schedule_by_the_steps_of_the_large_run_is_warned_of_once(asks: str) -> None:
    """The likeliest slip: `scheduler.step()` stays as it was, and the rate hardly decays."""
    x = nn.Parameter(torch.ones(1))
    optimizer = SGD([x], lr=0.1)
    rule, schedule = GainRule.planned(optimizer, plan_of(optimizer, ((0, 4.0),), 20)), CosineAnnealingLR(optimizer, 20)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        while not rule.done:
            x.grad = torch.ones(1)
            optimizer.step()
            if asks != "nothing":
                rule.passed(5) if asks == "passed" else getattr(rule, asks)
            schedule.step()
    assert [warning.category for warning in said] == [UserWarning] * (asks == "nothing")


def test_a_constant_rate_need_not_be_counted() -> None:
    x = nn.Parameter(torch.ones(1))
    optimizer = SGD([x], lr=0.1)
    rule = GainRule.planned(optimizer, plan_of(optimizer, ((0, 4.0),), 20))
    while not rule.done:  # a warning would be an error
        x.grad = torch.ones(1)
        optimizer.step()


class Lookahead(SGD):
    """A subclass may do anything in its step."""


def test_what_is_refused() -> None:
    model = net()
    for optimizer in (LBFGS(model.parameters()), Lookahead(model.parameters(), lr=0.1)):
        with pytest.raises(ValueError, match=r"^optimizer\b"):
            GainRule.planned(optimizer, GainPlan(4, 16, ((0, 2.0),)))
    sgd = SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"square-root.*\bSGD\b"):
        GainRule.planned(sgd, GainPlan(4, 16, ((0, 2.0),), rule="square_root"))
    with pytest.raises(TypeError, match=r"^plan\b"):
        GainRule.planned(sgd, ((0, 2.0),))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^probe\b.*GainRule\.planned"):
        GainRule(sgd, 4)  # type: ignore[arg-type]
    probe = NoiseProbe(model, sgd, batch_size=16, population=100)
    with pytest.raises(ValueError, match=r"^population \(100\)"):
        GainRule(probe, 100)
    with pytest.raises(ValueError, match="base_steps"):
        GainRule(probe, 4, base_steps=0)
    with GainRule(probe, 4) as rule:
        with pytest.raises(ValueError, match=r"close\(\)"):
            GainRule.planned(sgd, GainPlan(4, 16, ((0, 2.0),)))
        with pytest.raises(ValueError, match=r"close\(\)"):
            GainRule(probe, 8)
        assert probe.measure_short  # for the rule that there is
        with pytest.raises(ValueError, match="every"):
            rule.passed(0)
    with pytest.raises(RuntimeError, match="closed"):
        rule.step()
    rule.close()
    assert not probe.measure_short
    GainRule(probe, 4).close()


def test_eight_bit_adamw_is_known_by_its_name() -> None:
    eight = type("AdamW8bit", (AdamW,), {"__module__": "bitsandbytes.optim.adamw"})
    x = nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimizer = eight([x], lr=0.1, weight_decay=0.5)
    GainRule.planned(optimizer, plan_of(optimizer, ((0, 4.0),), None))
    x.grad = torch.zeros(1, dtype=torch.float64)
    optimizer.step()
    assert x.item() == pytest.approx(1 - 0.2 * 1.0)  # both twice as large


def test_a_closed_rule_leaves_the_optimizer_alone() -> None:
    model, plain = net(), net()
    optimizer, reference = SGD(model.parameters(), lr=0.1), SGD(plain.parameters(), lr=0.1)
    with GainRule.planned(optimizer, plan_of(optimizer, ((0, 4.0),), None)):
        pass
    for one, network in ((optimizer, model), (reference, plain)):
        loss_of(network)(data(16)).backward()
        one.step()
    assert weights(model) == weights(plain)


@pytest.mark.parametrize("before", [0, 1, 3])
def test_gradients_that_are_not_finite_hold_the_gain(before: int) -> None:
    """What was not measured moves no average, and time goes on at the gain that there was; at first that is 1."""
    model, optimizer, probe, rule, _ = made("sgd", "measured", check_loss=False)
    for number in range(before):
        optimizer.zero_grad()
        x, y = data(16, seed=number)
        probe.backward(loss_of(model), (x, y * 0))
        optimizer.step()
    gain, time, source = rule.gain or 1.0, rule.time, rule.state_dict()["source"]
    assert (gain > 1) == (before > 0)
    for number in (1, 2):
        optimizer.zero_grad()
        x, y = data(16)
        probe.backward(loss_of(model), (x * math.nan, y))
        optimizer.step()
        assert rule.gain == gain
        assert rule.time == pytest.approx(time + number * gain)
        assert {**rule.state_dict()["source"], "held": None} == {**source, "held": None}
    assert rule.price == pytest.approx(4 * (before + 2) / rule.time)
    with pytest.warns(UserWarning, match="not finite"):
        assert probe.scalars()["skipped"] == 2


def test_a_smaller_batch_than_the_baselines_takes_shorter_steps() -> None:
    model = net()
    optimizer = SGD(model.parameters(), lr=0.1)
    probe = NoiseProbe(model, optimizer, batch_size=4)
    rule, due = GainRule(probe, base_batch_size=16, base_steps=3), 0
    while not rule.done:
        optimizer.zero_grad()
        probe.backward(loss_of(model), data(4, seed=round(100 * rule.time)))
        optimizer.step()
        assert rule.gain is not None
        assert rule.gain <= 1
        due += rule.due
    assert due == 3


def test_a_measured_rule_resumes_with_its_own_baseline_only() -> None:
    def rule_at(base: int) -> GainRule:
        model = net()
        return GainRule(NoiseProbe(model, SGD(model.parameters(), lr=0.1), batch_size=16), base_batch_size=base)

    state = rule_at(4).state_dict()
    rule_at(4).load_state_dict(state)
    with pytest.raises(ValueError, match="base_batch_size=4"):
        rule_at(8).load_state_dict(state)


@pytest.mark.parametrize("planned", [False, True], ids=["measured", "planned"])
def test_a_file_of_a_run_by_the_rule_has_no_rates_of_the_baseline(tmp_path: Path, planned: bool) -> None:
    """Whoever prices a larger batch from it would take the baseline's rate for that of the steps."""
    model = net()
    optimizer = SGD(model.parameters(), lr=0.1)
    with NoiseProbe(model, optimizer, batch_size=16, save_to=tmp_path / "readings.jsonl") as probe:
        plan = GainPlan(4, 16, ((0, 2.0),), 100)
        rule = GainRule.planned(optimizer, plan) if planned else GainRule(probe, base_batch_size=4)
        for batch in batches(3, 16):
            optimizer.zero_grad()
            probe.backward(loss_of(model), batch)
            optimizer.step()
        rule.close()
    assert [reading.lr for reading in load_readings(tmp_path / "readings.jsonl")] == [None] * 3
    assert {reading.lr for reading in probe.readings} == {0.1}
    assert probe.price_list().setting.lr is None


def test_prices_after_a_measured_run_are_factors_of_its_own_rates() -> None:
    model = net()
    optimizer = SGD(model.parameters(), lr=0.1)
    with NoiseProbe(model, optimizer, batch_size=16) as probe:
        rule = GainRule(probe, base_batch_size=4)
        for batch in batches(3, 16):
            optimizer.zero_grad()
            probe.backward(loss_of(model), batch)
            optimizer.step()
        assert {reading.lr for reading in probe.readings} == {0.1}
        assert probe.price_list().setting.lr is None
        rule.close()


@pytest.mark.filterwarnings("ignore:parameters of the model")
def test_averages_begin_anew_when_other_parameters_train() -> None:
    model: Any = net()
    model[0].requires_grad_(False)
    optimizer = SGD(model.parameters(), lr=0.0)
    probe = NoiseProbe(model, optimizer, batch_size=16)
    rule = GainRule(probe, base_batch_size=4)
    for number, batch in enumerate(batches(6, 16)):
        if number == 3:
            model[0].requires_grad_(True)
            fresh = NoiseProbe(model, twin := SGD(model.parameters(), lr=0.0), batch_size=16)
            alone = GainRule(fresh, base_batch_size=4)
        optimizer.zero_grad()
        probe.backward(loss_of(model), batch)
        optimizer.step()
        if number >= 3:
            twin.zero_grad()
            fresh.backward(loss_of(model), batch)
            twin.step()
            assert rule.gain == alone.gain
