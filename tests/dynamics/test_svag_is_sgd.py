"""Trivial cases are exact: with one batch a step, SVAG is torch.optim.SGD bit for bit."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import svag

Batch = tuple[Tensor, Tensor]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def batches(count: int) -> list[Batch]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(16, 3, generator=generator), torch.randint(2, (16,), generator=generator)) for _ in range(count)
    ]


def assert_same_state(one: nn.Module, other: nn.Module) -> None:
    for name, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"weight_decay": 0.01},
        {"maximize": True},
        {"foreach": True},
        {"foreach": False},
        {"fused": True},
        {"momentum": 0.9, "weight_decay": 0.01},
        {"momentum": 0.3, "foreach": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("limit", ["underdamped", "overdamped"])
def test_ell_1_equals_sgd_bit_for_bit_and_ignores_the_second_batch(settings: dict[str, Any], limit: Any) -> None:
    plain, refined = network(), network()
    sgd = torch.optim.SGD(plain.parameters(), lr=0.1, **settings)
    optimizer = torch.optim.SGD(refined.parameters(), lr=0.1, **settings)
    scheduler = torch.optim.lr_scheduler.StepLR(sgd, 2)
    scheduler_too = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    evaluated: list[int] = []

    def loss_fn(batch: Batch) -> Tensor:
        evaluated.append(id(batch))
        return nn.functional.cross_entropy(refined(batch[0]), batch[1])

    data = batches(5)
    with svag.SVAG(refined, optimizer, ell=1, momentum_limit=limit if "momentum" in settings else None) as sim:
        for batch in data:
            sgd.zero_grad()
            expected = nn.functional.cross_entropy(plain(batch[0]), batch[1])
            torch.autograd.backward(expected)
            sgd.step()
            scheduler.step()
            loss = sim.step(loss_fn, iter([(batch, "never looked at")]))
            scheduler_too.step()
            assert torch.equal(loss, expected.detach())
            assert not loss.requires_grad
    assert evaluated == [id(batch) for batch in data]
    assert_same_state(plain, refined)
    assert sim.effective_step == 5
    assert sim.time == 0.1 + 0.1 + 0.01 + 0.01 + 0.001


def test_ell_equal_to_split_is_the_linear_scaling_ladder() -> None:
    """a, b = 1, 0 again: SGD with batches of B/m at η/m."""
    plain = nn.Linear(3, 2)
    ladder = deepcopy(plain)
    sgd = torch.optim.SGD(plain.parameters(), lr=0.1 / 4)
    optimizer = torch.optim.SGD(ladder.parameters(), lr=0.1)
    with svag.SVAG(ladder, optimizer, ell=4, split=4) as sim:
        for batch in batches(4):
            sgd.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(plain(batch[0]), batch[1]))
            sgd.step()
            sim.substep(lambda batch: nn.functional.cross_entropy(ladder(batch[0]), batch[1]), batch)
    assert_same_state(plain, ladder)
    assert sim.boundary
    assert sim.effective_step == 1


def test_ell_1_split_2_is_one_batch_in_two_halves() -> None:
    plain = nn.Linear(3, 2).double()
    halves = deepcopy(plain)
    sgd = torch.optim.SGD(plain.parameters(), lr=0.1)
    optimizer = torch.optim.SGD(halves.parameters(), lr=0.1)
    x, y = batches(1)[0]
    x = x.double()
    torch.autograd.backward(nn.functional.cross_entropy(plain(x), y))
    sgd.step()
    with svag.SVAG(halves, optimizer, ell=1, split=2) as sim:
        loss_fn = lambda batch: nn.functional.cross_entropy(halves(batch[0]), batch[1])  # noqa: E731
        sim.substep(loss_fn, (x[:8], y[:8]), (x[8:], y[8:]))
    torch.testing.assert_close(plain.weight, halves.weight, rtol=1e-13, atol=1e-15)


def test_frozen_parameters_and_several_groups() -> None:
    """Each group has its own rate and weight decay; what needs no gradient stays."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1), nn.Linear(1, 1)).double()
    model[2].requires_grad_(False)
    frozen = deepcopy(model[2].state_dict())
    groups = [
        {"params": model[0].parameters(), "lr": 0.1, "weight_decay": 0.5},
        {"params": [*model[1].parameters(), *model[2].parameters()], "lr": 0.2},
    ]
    optimizer = torch.optim.SGD(groups)
    before = [p.detach().clone() for p in model.parameters()]
    first, second = torch.ones(4, 2).double(), -2 * torch.ones(4, 2).double()
    g1 = torch.autograd.grad(model(first).mean(), list(model.parameters())[:4])
    g2 = torch.autograd.grad(model(second).mean(), list(model.parameters())[:4])
    with svag.SVAG(model, optimizer, ell=5) as sim:  # a, b = 2, −1
        sim.substep(lambda x: model(x).mean(), first, second)
    for i, (p, x, one, two) in enumerate(zip(model.parameters(), before, g1, g2, strict=False)):
        lr, decay = ((0.1, 0.5), (0.2, 0.0))[i // 2]
        torch.testing.assert_close(p.detach(), x - lr / 5 * (2 * one - two + decay * x), rtol=1e-12, atol=1e-15)
    for name, value in frozen.items():
        assert torch.equal(model[2].state_dict()[name], value)
