"""What the readings of a probe know of the optimizer."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.noise.nets import batches, data, loss_of, net
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from svag import NoiseProbe, predict_critical_batch
from svag.noise.batches import split
from svag.noise.optimizer import velocities


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
    mixed, one = (" ".join(predict_critical_batch(p.readings).notes) for p in (probe, decayed))
    assert "different weight decays: pass parameters=" in mixed
    assert "different" not in one


def test_a_velocity_counts_only_when_every_measured_parameter_has_one() -> None:
    model = net()
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    first, *others = model.parameters()
    first.grad = torch.ones_like(first)
    optimizer.step()
    assert velocities(optimizer, [first]) == [optimizer.state[first]["momentum_buffer"]]
    assert velocities(optimizer, [first, *others]) == []
