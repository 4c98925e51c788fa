"""The learning rate that is applied, and the one that everyone sees."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import svag

SLOPE = torch.tensor([1.0], dtype=torch.float64)
PAIR = (SLOPE.clone(), SLOPE.clone())


def on_a_slope(lr: float, **settings: Any) -> tuple[nn.Linear, torch.optim.SGD]:
    """L = w: the gradient is 1 for every batch, so that w counts the learning rate that was applied."""
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    return model, torch.optim.SGD(model.parameters(), lr=lr, **settings)


def height(model: nn.Linear) -> Callable[[Tensor], Tensor]:
    return lambda x: (model.weight * x).sum()


def forever() -> Iterator[tuple[Tensor, Tensor]]:
    while True:
        yield PAIR


def test_a_schedule_at_every_substep_does_not_reach_into_an_effective_step() -> None:
    model, optimizer = on_a_slope(1.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 1 / (1 + k))
    with svag.SVAG(model, optimizer, ell=4) as sim:
        for _ in range(8):
            sim.substep(height(model), *PAIR)
            scheduler.step()  # the wrong place, and harmless
    held = 1 + 1 / 5
    evaluated_at_every_substep = sum(1 / (1 + k) for k in range(8)) / 4
    assert -model.weight.item() == pytest.approx(held, rel=1e-14)
    assert abs(held - evaluated_at_every_substep) > 0.1
    assert sim.time == held


def test_time_does_not_depend_on_ell() -> None:
    times = []
    for ell in (1, 3, 7):
        model, optimizer = on_a_slope(0.1)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        pairs = forever()
        with svag.SVAG(model, optimizer, ell=ell) as sim:
            for _ in range(10):
                sim.step(height(model), pairs)
                scheduler.step()
        times.append((sim.time, sim.effective_step))
    assert times[0] == times[1] == times[2]


def test_everybody_sees_the_base_rate_even_hooks_and_losses() -> None:
    model, optimizer = on_a_slope(0.5, momentum=0.9)
    seen = []

    def look(*_: Any) -> None:
        group = optimizer.param_groups[0]
        seen.append((group["lr"], group["momentum"], group["dampening"]))

    def loss_fn(x: Tensor) -> Tensor:
        look()
        return height(model)(x)

    handles = [
        optimizer.register_step_post_hook(look),
        register_optimizer_step_pre_hook(look),
        register_optimizer_step_post_hook(look),
    ]
    try:
        with svag.SVAG(model, optimizer, ell=4, momentum_limit="underdamped") as sim:
            handles.append(optimizer.register_step_pre_hook(look))
            sim.step(loss_fn, forever())
            look()
    finally:
        for handle in handles:
            handle.remove()
    assert len(seen) == 4 * (2 + 4) + 1
    assert set(seen) == {(0.5, 0.9, 0)}


@pytest.mark.parametrize("where", ["first loss", "second loss", "pre-hook", "post-hook", "optimizer"])
def test_the_base_rate_is_back_after_any_error(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizer = on_a_slope(0.5)
    calls = 0

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(where)

    def loss_fn(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if where == ("first loss", "second loss")[calls - 1]:
            fail()
        return height(model)(x)

    if where == "pre-hook":
        optimizer.register_step_pre_hook(fail)
    if where == "post-hook":
        optimizer.register_step_post_hook(fail)
    if where == "optimizer":
        monkeypatch.setattr(sys.modules["torch.optim.sgd"], "sgd", fail)  # torch.optim hides its submodule
    with svag.SVAG(model, optimizer, ell=4, atomic=True) as sim, pytest.raises(OSError, match=where):
        sim.step(loss_fn, forever())
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert optimizer.param_groups[0]["dampening"] == 0
    assert model.weight.item() == 0.0
    assert sim.effective_step == 0


def test_a_scheduler_does_not_complain_about_the_order_of_calls() -> None:
    """It watches optimizer.step; warnings are errors here."""
    model, optimizer = on_a_slope(0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    with svag.SVAG(model, optimizer, ell=2) as sim:
        sim.step(height(model), forever())
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.05


def test_nobody_else_may_step_the_optimizer_meanwhile() -> None:
    model, optimizer = on_a_slope(0.5)
    with svag.SVAG(model, optimizer, ell=2):
        model.weight.grad = torch.ones_like(model.weight)
        with pytest.raises(RuntimeError, match=r"^optimizer\.step\(\)"):
            optimizer.step()
        with pytest.raises(RuntimeError, match="GradScaler"):
            torch.amp.GradScaler("cpu", enabled=False).step(optimizer)
        assert model.weight.item() == 0.0
    optimizer.step()
    assert model.weight.item() == -0.5
