"""Workers find the tests' own networks, and torch shares two cores with the others."""

from pathlib import Path

import pytest
import torch
from tests.lab.training.small import write_npz

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    return write_npz(tmp_path / "data.npz")
