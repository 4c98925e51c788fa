"""Batch gradients as a table, of any model and of a run."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.lab.training.small import small, write_npz
from torch import nn

from svag.lab.training.gradients import gradient_table, run_gradients
from svag.lab.training.run import run
from svag.lab.training.state import CheckpointError
from svag.paper.illustrations.heavy_tails import heavy_tails


def test_the_gradients_of_a_trained_network(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    folder = tmp_path / "run"
    run(small(write_npz(tmp_path / "data.npz")), folder, progress=False)
    table = run_gradients(folder, 96, coordinates=30, device="cpu")
    assert table.shape == (96, 30)
    np.testing.assert_array_equal(table, run_gradients(folder, 96, coordinates=30, device="cpu"))
    assert len({row.tobytes() for row in table}) > 90, "the batches are drawn anew"
    assert heavy_tails(table).draws == 96
    (folder / "checkpoint.pt").unlink()
    with pytest.raises(CheckpointError, match="checkpoint"):
        run_gradients(folder, device="cpu")


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"\bread\b"):
        run_gradients(tmp_path)


def tiny() -> tuple[nn.Sequential, list[torch.Tensor]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    return model, [torch.randn(6, 4) for _ in range(5)]


def test_rows_are_the_gradients_and_nothing_is_left_behind() -> None:
    model, batches = tiny()
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
    model, _ = tiny()
    with pytest.raises(ValueError, match="batches"):
        gradient_table(model, lambda batch: model(batch).mean(), [])
