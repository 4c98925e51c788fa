from pathlib import Path

import numpy as np
import pytest
import torch
from tests.lab.small import small, write_npz

from svag.findings.heavy_tails import heavy_tails
from svag.lab.gradients import run_gradients
from svag.lab.run import run
from svag.lab.state import CheckpointError


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
    with pytest.raises(CheckpointError, match="no checkpoint"):
        run_gradients(folder, device="cpu")


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not a run that can be read"):
        run_gradients(tmp_path)
