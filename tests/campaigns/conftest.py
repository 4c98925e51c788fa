"""What the campaigns share: a tiny problem and one thread."""

from pathlib import Path

import pytest
import torch
from tests.lab.training.small import write_npz


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    return write_npz(tmp_path / "data.npz")
