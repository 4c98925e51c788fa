"""What readings know of an optimizer, and how its settings are refined for one step."""

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.noise.nets import batches, data, loss_of, net, sgd
from torch import nn
from torch.optim import SGD, AdamW, NAdam, Optimizer

from svag import SVAG, NoiseProbe, NoisyGD, measure_noise, measure_throughput, price_list
from svag.noise.batches import split
from svag.noise.optimizer import (
    SubstepState,
    refinable_settings,
    trained_parameters,
    unwrapped,
    velocities,
)
from svag.prices.reasons import Code
from svag.theory.optimizers import SGDSettings


def test_velocity_and_momentum_are_recorded() -> None:
    model = net()
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    probe = NoiseProbe(model, optimizer, batch_size=16)
    for batch in batches(2, 16):
        optimizer.zero_grad()
        probe.backward(loss_of(model), batch)
        velocity = [optimizer.state[p].get("momentum_buffer") for p in model.parameters()]
        squares = [float(v.square().sum()) for v in velocity if v is not None]
        optimizer.step()
    first, second = probe.readings
    assert first.velocity_sq is None
    assert second.velocity_sq == pytest.approx(sum(squares), rel=1e-12)
    assert second.momentum == 0.9


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda p: AdamW(p, lr=0.1), "AdamW"),
        (lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True), "SGD with Nesterov momentum"),
        (lambda p: SGD(p, lr=0.1, momentum=0.9, dampening=0.1), "SGD with dampening"),
        (lambda p: SGD(p, lr=torch.tensor(0.1)), "SGD"),
        (lambda p: NAdam(p, lr=0.1, decoupled_weight_decay=True), "NAdam with decoupled weight decay"),
        (lambda p: NAdam(p, lr=0.1), "NAdam"),
    ],
)
def test_the_kind_of_optimizer_is_recorded(make: Callable[[list[nn.Parameter]], Optimizer], kind: str) -> None:
    model = net()
    probe = NoiseProbe(model, make(list(model.parameters())), batch_size=16)
    probe.backward(loss_of(model), data(16))
    assert probe.readings[0].optimizer == kind
    assert probe.readings[0].lr == pytest.approx(0.1)


def test_groups_that_disagree_have_no_one_weight_decay() -> None:
    model = net()
    weights = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim == 1]
    groups: list[dict[str, Any]] = [{"params": weights, "weight_decay": 0.1}, {"params": rest}]
    optimizer = SGD(groups, lr=0.1)
    probe, decayed = (NoiseProbe(model, optimizer, batch_size=16, parameters=p) for p in (None, weights))
    model.zero_grad()
    for part in split(data(16), 2):
        (loss_of(model)(part) / 2).backward()
        probe.micro_batch()
        decayed.micro_batch()
    probe.close_step()
    decayed.close_step()
    assert probe.readings[0].weight_decay is None
    assert decayed.readings[0].weight_decay == 0.1
    mixed, one = ({reason.code: reason for reason in price_list(p.readings).linear.reasons} for p in (probe, decayed))
    assert mixed[Code.MIXED_SETTINGS].values == {"weight_decay": True, "lr": False}
    assert Code.MIXED_SETTINGS not in one


def test_a_velocity_counts_only_when_every_measured_parameter_has_one() -> None:
    model = net()
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    first, *others = model.parameters()
    first.grad = torch.ones_like(first)
    optimizer.step()
    assert velocities(optimizer, [first]) == [optimizer.state[first]["momentum_buffer"]]
    assert velocities(optimizer, [first, *others]) == []


def test_settings_are_read_for_every_group_and_written_back_as_they_were() -> None:
    weight, bias = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    groups: list[dict[str, Any]] = [{"params": [weight]}, {"params": [bias], "lr": 1, "weight_decay": 0.1}]
    optimizer = SGD(groups, lr=0.5, momentum=0.9)
    found = refinable_settings(optimizer)
    assert found == [SGDSettings(0.5, 0.0, 0.9), SGDSettings(1.0, 0.1, 0.9)]
    weight.grad = torch.ones_like(weight)
    refined = [one.refined(4, "underdamped") for one in found if isinstance(one, SGDSettings)]
    substep = SubstepState(optimizer, refined, 4)
    substep.use()
    assert [(group["lr"], group["dampening"]) for group in optimizer.param_groups] == [(0.125, 0.75), (0.25, 0.75)]
    assert torch.equal(optimizer.state[weight]["momentum_buffer"], torch.zeros(2)), "a damped velocity starts from rest"
    assert bias not in optimizer.state, "there is no gradient for it yet"
    substep.put_back()
    assert not optimizer.state
    assert [type(group["lr"]) for group in optimizer.param_groups] == [float, int]
    assert refinable_settings(optimizer) == found


def test_frozen_parameters_are_not_trained() -> None:
    model = net()
    optimizer = SGD(model.parameters(), lr=0.1)
    first, *others = model.parameters()
    first.requires_grad_(False)
    assert [id(p) for p in trained_parameters(optimizer)] == [id(p) for p in others]


class Forwarding(SGD):
    """As the wrapper of Accelerate: a torch optimizer that holds another one, and was never initialised itself."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer


def test_known_wrappers_are_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    model = net()
    inner = sgd(model)
    monkeypatch.setitem(sys.modules, "accelerate.optimizer", SimpleNamespace(AcceleratedOptimizer=Forwarding))
    twice = Forwarding(Forwarding(inner))
    assert unwrapped(twice) is inner
    assert unwrapped(inner) is inner
    probe = NoiseProbe(model, twice, batch_size=16)
    probe.backward(loss_of(model), data(16))
    frozen = measure_noise(model, loss_of(model), batches(2, 16), optimizer=twice)
    for reading in (probe.readings[0], frozen):
        assert (reading.optimizer, reading.lr, reading.weight_decay) == ("SGD", 0.1, 0.01)
    assert SVAG(model, twice, ell=2).optimizer is inner
    assert NoisyGD(model, twice, batch_size=4, dataset_size=8, generator=torch.Generator()).optimizer is inner
    assert list(measure_throughput(model, twice, loss_of(model), data(4), [4])) == [4]


def test_an_optimizer_that_holds_another_one_is_its_own_kind() -> None:
    model = net()

    class Lookahead(SGD):
        optimizer: Optimizer

    outer = Lookahead(model.parameters(), lr=0.1)
    outer.optimizer = sgd(model)
    assert unwrapped(outer) is outer


@pytest.mark.parametrize("nothing", [None, "SGD"])
def test_no_optimizer_is_one_sentence(nothing: Any) -> None:
    with pytest.raises(TypeError, match=r"torch\.optim\.Optimizer, got (NoneType|str)"):
        NoiseProbe(net(), nothing, batch_size=16)
