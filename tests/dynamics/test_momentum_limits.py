"""SGD with momentum has two limits; each is reached, and the naive mixture is not one of them."""

import numpy as np
import pytest
import torch
from scipy.linalg import expm
from torch import Tensor, nn

import svag
from svag.theory.optimizers import MomentumLimit

LR, BETA, CURVATURE, START, STEPS = 0.2, 0.5, 1.5, 1.0, 6
PAIR = (torch.zeros(1), torch.zeros(1))


class Quadratic(nn.Module):
    """L = cx²/2 without noise: the two gradients of a pair are equal, and a + b = 1."""

    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.tensor([START], dtype=torch.float64))

    def loss(self, _: Tensor) -> Tensor:
        return (CURVATURE / 2 * self.x.square()).sum()


def end_of_run(ell: int, limit: MomentumLimit) -> float:
    model = Quadratic()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=BETA)
    with svag.SVAG(model, optimizer, ell=ell, momentum_limit=limit) as sim:
        for _ in range(STEPS):
            sim.step(model.loss, iter([PAIR] * ell))
    return float(model.x.detach())


def limit_of(limit: MomentumLimit) -> float:
    if limit == "overdamped":
        return float(START * np.exp(-LR / (1 - BETA) * CURVATURE * STEPS))
    flow = expm(STEPS * np.array([[0.0, -LR], [CURVATURE, -(1 - BETA)]]))  # of (X, V)
    return float(flow[0, 0] * START)


@pytest.mark.parametrize("limit", ["underdamped", "overdamped"])
def test_the_run_converges_at_first_order_to_its_own_limit_only(limit: MomentumLimit) -> None:
    other: MomentumLimit = "overdamped" if limit == "underdamped" else "underdamped"
    errors = [end_of_run(ell, limit) - limit_of(limit) for ell in (64, 128)]
    assert errors[0] / errors[1] == pytest.approx(2.0, abs=0.05)
    assert abs(errors[1]) < 0.02
    assert abs(end_of_run(128, limit) - limit_of(other)) > 0.05


def pytorch_form(ell: int, lr: float, beta: float) -> float:
    """Plain torch.optim.SGD with settings given by hand."""
    model = Quadratic()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=beta)
    for _ in range(STEPS * ell):
        optimizer.zero_grad()
        torch.autograd.backward(model.loss(PAIR[0]))
        optimizer.step()
    return float(model.x.detach())


@pytest.mark.parametrize("ell", [1, 2, 3, 16])
def test_underdamped_is_lr_over_ell_squared_with_the_undamped_buffer(ell: int) -> None:
    expected = pytorch_form(ell, LR / ell**2, 1 - (1 - BETA) / ell)
    assert end_of_run(ell, "underdamped") == pytest.approx(expected, rel=1e-12)


def test_overdamped_keeps_the_momentum() -> None:
    assert end_of_run(3, "overdamped") == pytest.approx(pytorch_form(3, LR / 3, BETA), rel=1e-12)


def test_the_naive_mixture_has_no_limit() -> None:
    """Negative control: lr/l with 1 − β → (1 − β)/l oscillates faster and faster instead of settling."""
    naive = [pytorch_form(ell, LR / ell, 1 - (1 - BETA) / ell) for ell in (64, 128, 256)]
    assert max(abs(naive[0] - naive[1]), abs(naive[1] - naive[2])) > 0.05
    assert min(abs(value - limit_of("underdamped")) + abs(value - limit_of("overdamped")) for value in naive) > 0.05


def test_the_velocity_keeps_the_units_it_has_in_sgd() -> None:
    """A run may begin with SGD and go on with SVAG: the buffer means the same on both sides."""
    model = Quadratic()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=BETA)
    optimizer.state[model.x]["momentum_buffer"] = torch.tensor([0.7], dtype=torch.float64)
    with svag.SVAG(model, optimizer, ell=512, momentum_limit="underdamped") as sim:
        sim.step(model.loss, iter([PAIR] * 512))
    flow = expm(np.array([[0.0, -LR], [CURVATURE, -(1 - BETA)]])) @ np.array([START, 0.7])
    assert model.x.item() == pytest.approx(flow[0], abs=2e-3)
    assert float(optimizer.state[model.x]["momentum_buffer"]) == pytest.approx(flow[1], abs=2e-3)


def test_momentum_needs_a_named_limit() -> None:
    model = Quadratic()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=BETA)
    with pytest.raises(ValueError, match=r"^momentum=0\.5 .*momentum_limit"):
        svag.SVAG(model, optimizer, ell=2)
    with pytest.raises(ValueError, match=r"^momentum_limit\b.*got 'both'"):
        svag.SVAG(model, optimizer, ell=2, momentum_limit="both")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^momentum_limit\b"):
        svag.SVAG(model, torch.optim.SGD(model.parameters(), lr=LR), ell=2, momentum_limit="overdamped")
