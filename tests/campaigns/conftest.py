"""What the campaigns share: a tiny problem, one thread, and a way to say at the end what they did."""

from collections.abc import Callable
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


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print past pytest, which keeps what a test that passes has printed."""

    def say(sentence: str) -> None:
        with capsys.disabled():
            print(f"\n{sentence}", flush=True)

    return say
