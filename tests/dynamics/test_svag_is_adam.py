"""Trivial cases are exact: SVAG(1) around Adam, AdamW and RMSprop is the optimizer bit for bit, its state included."""

from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer, RMSprop

import svag

Batch = tuple[Tensor, Tensor]
Make = Callable[[Iterable[Any]], Optimizer]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def batches(count: int) -> list[Batch]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(16, 3, generator=generator), torch.randint(2, (16,), generator=generator)) for _ in range(count)
    ]


def groups(model: nn.Sequential) -> list[dict[str, Any]]:
    """Weight decay for the matrices only, as every transformer has it."""
    return [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0, "lr": 0.003},
    ]


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def assert_same(one: tuple[nn.Module, Optimizer], other: tuple[nn.Module, Optimizer]) -> None:
    torch.testing.assert_close(one[0].state_dict(), other[0].state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(one[1].state_dict(), other[1].state_dict(), rtol=0, atol=0)


OPTIMIZERS: dict[str, Make] = {
    "adam": lambda p: Adam(p, lr=0.01),
    "adam for-loop": lambda p: Adam(p, lr=0.01, foreach=False),
    "adam foreach": lambda p: Adam(p, lr=0.01, foreach=True),
    "adam fused": lambda p: Adam(p, lr=0.01, fused=True),
    "adam with L2": lambda p: Adam(p, lr=0.01, weight_decay=0.1, betas=(0.5, 0.9), eps=1e-3),
    "adam without momentum": lambda p: Adam(p, lr=0.01, betas=(0.0, 0.99)),
    "adam decoupled": lambda p: Adam(p, lr=0.01, weight_decay=0.1, decoupled_weight_decay=True),
    "adamw": lambda p: AdamW(p, lr=0.01, weight_decay=0.1),
    "adamw for-loop": lambda p: AdamW(p, lr=0.01, weight_decay=0.1, foreach=False),
    "adamw foreach": lambda p: AdamW(p, lr=0.01, weight_decay=0.1, foreach=True),
    "adamw fused": lambda p: AdamW(p, lr=0.01, weight_decay=0.1, fused=True),
    "adam maximize": lambda p: Adam(p, lr=0.01, maximize=True),
    "rmsprop": lambda p: RMSprop(p, lr=0.01),
    "rmsprop for-loop": lambda p: RMSprop(p, lr=0.01, weight_decay=0.1, foreach=False),
    "rmsprop foreach": lambda p: RMSprop(p, lr=0.01, foreach=True),
}


@pytest.mark.parametrize("grouped", [False, True], ids=["one group", "two groups"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_ell_1_is_the_optimizer_bit_for_bit(name: str, grouped: bool) -> None:
    plain, refined = network(), network()
    theirs, mine = (OPTIMIZERS[name](groups(model) if grouped else model.parameters()) for model in (plain, refined))
    schedulers = [torch.optim.lr_scheduler.StepLR(optimizer, 7) for optimizer in (theirs, mine)]
    with svag.SVAG(refined, mine, ell=1) as sim:
        for batch in batches(40):
            theirs.zero_grad()
            expected = loss_of(plain, batch)
            torch.autograd.backward(expected)
            theirs.step()
            loss = sim.step(lambda batch: loss_of(refined, batch), iter([(batch, "never looked at")]))
            assert torch.equal(loss, expected.detach())
            assert_same((plain, theirs), (refined, mine))
            for scheduler in schedulers:
                scheduler.step()
    assert all(state["step"] == 40 for state in mine.state.values())


@pytest.mark.parametrize("name", ["adam", "adam with L2", "adamw"])
def test_foreach_fused_and_for_loop_agree_at_every_ell(name: str) -> None:
    """To rounding: torch's three implementations differ by that in plain Adam, too."""
    ends = []
    for settings in ({"foreach": False}, {"foreach": True}, {"fused": True}):
        model = network().double()
        optimizer = OPTIMIZERS[name](groups(model))
        for group in optimizer.param_groups:
            group.update(settings)
        data = iter([(x.double(), y) for x, y in batches(30)])
        pairs = svag.independent_pairs(data)
        with svag.SVAG(model, optimizer, ell=3) as sim:
            for _ in range(5):
                sim.step(lambda batch, model=model: loss_of(model, batch), pairs)  # type: ignore[misc]
        states = [state[key] for state in optimizer.state.values() for key in ("exp_avg", "exp_avg_sq", "step")]
        ends.append([*model.state_dict().values(), *states])
    for other in ends[1:]:
        torch.testing.assert_close(other, ends[0], rtol=1e-9, atol=1e-12, check_dtype=False)


def test_maximising_a_loss_is_minimising_its_negative() -> None:
    ends = []
    for sign in (1, -1):
        model = network()
        optimizer = AdamW(model.parameters(), lr=0.01, maximize=sign < 0)
        pairs = svag.independent_pairs(iter(batches(24)))
        with svag.SVAG(model, optimizer, ell=3) as sim:
            for _ in range(4):
                sim.step(lambda batch, model=model, sign=sign: sign * loss_of(model, batch), pairs)  # type: ignore[misc]
        ends.append(list(model.parameters()))
    torch.testing.assert_close(ends[1], ends[0], rtol=0, atol=0)


def test_chunks_and_tracking_do_not_change_the_run() -> None:
    ends = []
    for settings in ({}, {"track_noise": True}, {"chunks": 4}):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()
        optimizer = AdamW(groups(model), lr=0.01)
        pairs = svag.independent_pairs(iter([(x.double(), y) for x, y in batches(24)]))
        with svag.SVAG(model, optimizer, ell=3, **settings) as sim:
            for _ in range(4):
                sim.step(lambda batch, model=model: loss_of(model, batch), pairs)  # type: ignore[misc]
        ends.append([p.detach() for p in model.parameters()])
        measured = [(r.optimizer, r.batch_size, r.ell) for r in sim.noise]
        assert measured == [("AdamW", 16, 3)] * (12 if "track_noise" in settings else 0)
    torch.testing.assert_close(ends[1], ends[0], rtol=0, atol=0)
    torch.testing.assert_close(ends[2], ends[0], rtol=1e-9, atol=1e-12)


def test_a_pair_measures_the_same_whatever_the_optimizer() -> None:
    """G and N are of the gradient, which the optimizer has no part in."""
    readings = []
    for make in (lambda p: torch.optim.SGD(p, lr=0.0), lambda p: Adam(p, lr=0.0)):
        model = deepcopy(network()).eval()
        optimizer = make(model.parameters())
        with svag.SVAG(model, optimizer, ell=4, track_noise=True) as sim:
            one, two = batches(2)
            sim.substep(lambda batch, model=model: loss_of(model, batch), one, two)  # type: ignore[misc]
        readings.append(sim.noise[0])
    assert readings[0].grad_sq == readings[1].grad_sq
    assert readings[0].noise_trace == readings[1].noise_trace


def test_running_statistics_are_slowed_as_around_sgd() -> None:
    plain, refined = network(), network()
    batch = batches(1)[0]
    plain(batch[0])
    with svag.SVAG(refined, Adam(refined.parameters(), lr=0.0), ell=4) as sim:
        pairs = iter([(batch, tuple(t.clone() for t in batch)) for _ in range(4)])
        sim.step(lambda batch: loss_of(refined, batch), pairs)
    torch.testing.assert_close(refined[1].running_mean, plain[1].running_mean)
    torch.testing.assert_close(refined[1].running_var, plain[1].running_var)
    assert refined[1].momentum == 0.1
