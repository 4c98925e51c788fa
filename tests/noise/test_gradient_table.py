import numpy as np
import pytest
import torch
from torch import nn

from svag.lab.gradients import gradient_table


def small() -> tuple[nn.Sequential, list[torch.Tensor]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    return model, [torch.randn(6, 4) for _ in range(5)]


def test_rows_are_the_gradients_and_nothing_is_left_behind() -> None:
    model, batches = small()
    before = {name: value.clone() for name, value in model.state_dict().items()}

    def loss(batch: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = model(batch)
        return out.square().mean()

    table = gradient_table(model, loss, batches, coordinates=10_000)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    loss(batches[2]).backward()
    grads = [parameter.grad for parameter in model.parameters()]
    whole = torch.cat([grad.reshape(-1) for grad in grads if grad is not None])
    np.testing.assert_array_equal(table[2], whole.double().numpy())
    few = gradient_table(model, loss, batches, coordinates=7)
    assert few.shape == (5, 7)
    assert (few[:, 0] == table[:, 0]).all()
    assert (few[:, -1] == table[:, -1]).all()


def test_no_batches_are_refused() -> None:
    model, _ = small()
    with pytest.raises(ValueError, match="no batches"):
        gradient_table(model, lambda batch: model(batch).mean(), [])
