"""A NoiseProbe in a loop of Accelerate: prepared optimizers, accumulation, a GradScaler, and SVAG."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from tests.integrations.loops import gained_loop, loader, mse, net, plain_loop, same_weights
from torch import nn

from svag import SVAG, GainRule, NoiseProbe, Reading, independent_pairs, measure_noise


@pytest.fixture(autouse=True)
def fresh_state() -> Iterator[None]:
    """Accelerate keeps its settings in globals."""
    yield
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


def accelerated(
    micro_batches: int, scaler: Any = None, clip: float | None = None
) -> tuple[nn.Module, Sequence[Reading]]:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=micro_batches)
    accelerator.scaler = scaler
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.01)
    model, optimizer, batches = accelerator.prepare(model, optimizer, loader())
    probe = NoiseProbe(model, optimizer, batch_size=4 * micro_batches, population=48)
    for _ in range(2):
        for batch in batches:
            with accelerator.accumulate(model):
                accelerator.backward(mse(model, batch))
                probe.micro_batch(1.0 if accelerator.scaler is None else accelerator.scaler.get_scale())
                if accelerator.sync_gradients:
                    probe.close_step()
                    if clip is not None:
                        accelerator.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad()
    return model, probe.readings


@pytest.mark.parametrize("clip", [None, 0.1])
def test_the_accumulation_loop_is_that_of_a_plain_loop(clip: float | None) -> None:
    model, readings = plain_loop(3, clip=clip)
    prepared, found = accelerated(3, clip=clip)
    assert found == readings
    assert (found[0].optimizer, found[0].lr, found[0].weight_decay) == ("SGD", 0.1, 0.01)
    assert same_weights(prepared, model)


def test_the_factor_of_a_scaler_is_taken_out() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    found, expected = accelerated(3, scaler)[1], plain_loop(3)[1]
    assert scaler.get_scale() > 2**10, "the factor changed on the way"
    for one, other in zip(found, expected, strict=True):
        assert one.grad_sq == pytest.approx(other.grad_sq, rel=1e-9)
        assert one.noise_trace == pytest.approx(other.noise_trace, rel=1e-9)


@pytest.mark.parametrize("scaled", [False, True])
def test_the_gain_rule_steps_a_prepared_optimizer(scaled: bool) -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3) if scaled else None
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.98)
    model, optimizer, batches = accelerator.prepare(model, optimizer, loader())
    probe = NoiseProbe(model, optimizer, batch_size=16, population=48)
    rule = GainRule(probe, 4, 60)
    gains, rates = [], []
    while not rule.done:
        for batch in batches:
            with accelerator.accumulate(model):
                accelerator.backward(mse(model, batch))
                probe.micro_batch(1.0 if accelerator.scaler is None else accelerator.scaler.get_scale())
                if accelerator.sync_gradients:
                    probe.close_step()
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                for _ in range(rule.due):
                    scheduler.step()
                gains.append(rule.gain)
                rates.append(optimizer.param_groups[0]["lr"])
            if rule.done:
                break
    plain = gained_loop(base=4, base_steps=60, micro_batches=4, size=4)
    assert gains == pytest.approx(plain.gains, rel=1e-9)
    assert rates == pytest.approx(plain.rates, rel=1e-12)
    assert scaled or same_weights(model, plain.model)


def test_a_prepared_optimizer_is_looked_through_by_the_others_too() -> None:
    assert stepped(Accelerator(cpu=True).prepare) == stepped(lambda optimizer: optimizer)


def stepped(prepare: Callable[[Any], Any]) -> list[float]:
    """Losses of three effective steps of SVAG around an optimizer as `prepare` returns it."""
    model, batches = net(), list(loader())
    optimizer = prepare(torch.optim.SGD(model.parameters(), lr=0.1))
    frozen = measure_noise(model, lambda batch: mse(model, batch), batches, optimizer=optimizer)
    assert (frozen.optimizer, frozen.lr) == ("SGD", 0.1)
    pairs = independent_pairs(iter(batches))
    with SVAG(model, optimizer, ell=2) as sim:
        return [float(sim.step(lambda batch: mse(model, batch), pairs)) for _ in range(3)]
