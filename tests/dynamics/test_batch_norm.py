"""BatchNorm under SVAG: own statistics for each batch, running statistics on SGD's time scale."""

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

import svag

Batch = Tensor


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double()


def step_on(model: nn.Module, ell: int, batch: Tensor) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with svag.SVAG(model, optimizer, ell=ell) as sim:
        sim.step(lambda x: model(x).mean(), iter([(batch, batch.clone())] * ell))


@pytest.mark.parametrize("ell", [1, 2, 5])
def test_running_statistics_move_as_far_in_an_effective_step_as_in_a_step_of_sgd(ell: int) -> None:
    """On batches that are all alike (and without a learning rate) they must end at the same place."""
    batch = torch.randn(8, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    plain, refined = network(), network()
    plain(batch)
    step_on(refined, ell, batch)
    torch.testing.assert_close(refined[1].running_mean, plain[1].running_mean, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(refined[1].running_var, plain[1].running_var, rtol=1e-12, atol=1e-15)


def test_the_momentum_of_every_layer_comes_back_even_after_an_error() -> None:
    layers = [nn.BatchNorm1d(4, momentum=0.3), nn.BatchNorm1d(4, momentum=None), nn.BatchNorm1d(4)]
    model = nn.Sequential(nn.Linear(3, 4), *layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sim = svag.SVAG(model, optimizer, ell=4)

    def fail(_: Tensor) -> Tensor:
        slowed = [layer.momentum for layer in layers]
        assert slowed == [pytest.approx(1 - 0.7 ** (1 / 8)), None, pytest.approx(1 - 0.9 ** (1 / 8))]
        raise OSError("user")

    with pytest.raises(OSError, match="user"), sim:
        sim.step(fail, iter([(torch.ones(2, 3), torch.zeros(2, 3))]))
    assert [layer.momentum for layer in layers] == [0.3, None, 0.1]


def test_each_batch_is_normalised_by_its_own_statistics() -> None:
    model = network()
    generator = torch.Generator().manual_seed(1)
    first, second = (torch.randn(8, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    reference = deepcopy(model)
    parameters = list(reference.parameters())
    g1 = torch.autograd.grad(reference(first).square().mean(), parameters)
    g2 = torch.autograd.grad(reference(second).square().mean(), parameters)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with svag.SVAG(model, optimizer, ell=5) as sim:  # a, b = 2, −1
        sim.substep(lambda x: model(x).square().mean(), first, second)
    for p, x, one, two in zip(model.parameters(), parameters, g1, g2, strict=True):
        torch.testing.assert_close(p.detach(), (x - 0.1 * (2 * one - two)).detach(), rtol=1e-12, atol=1e-15)


def test_cutting_a_batch_is_refused_while_batch_norm_looks_at_it() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with pytest.raises(ValueError, match=r"^BatchNorm1d\b.*split"):
        svag.SVAG(model, optimizer, ell=2, split=2)
    with pytest.raises(ValueError, match="GroupNorm"):
        svag.SVAG(model, optimizer, ell=2, chunks=2)
    model.eval()
    before = deepcopy(model.state_dict())
    with svag.SVAG(model, optimizer, ell=2, split=2) as sim:
        model.train()
        with pytest.raises(ValueError, match=r"^BatchNorm1d\b.*split"):
            sim.substep(lambda x: model(x).mean(), torch.ones(2, 3).double())
    for name, value in before.items():
        assert torch.equal(model.state_dict()[name], value)
