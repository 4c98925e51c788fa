"""Two processes under DistributedDataParallel: the parts are the micro-batches of all ranks."""

import socket
from pathlib import Path

import pytest
import torch
from tests.integrations.loops import SHARES, gained_loop, loader, plain_loop
from tests.integrations.test_huggingface import weighted_estimate
from tests.two_ranks import two_ranks
from torch.utils.data import DataLoader

from svag import Reading


@pytest.fixture
def meeting(tmp_path: Path) -> Path:
    """A folder with the number of a port that is free."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        (tmp_path / "port").write_text(str(free.getsockname()[1]))
    return tmp_path


def test_lightning(meeting: Path) -> None:
    first, second = two_ranks("tests.integrations.lightning_rank", meeting)
    for accumulated in (1, 3):
        one, other = first[str(accumulated)], second[str(accumulated)]
        assert one == other, "all ranks know the same"
        batches = DataLoader(loader().dataset, batch_sampler=SHARES)
        model, expected = plain_loop(2 * accumulated, batches=batches, clip=0.1)
        readings = [Reading(**fields) for fields in one["readings"]]
        assert len(readings) == len(expected) == 12 // accumulated
        for found, reference in zip(readings, expected, strict=True):
            assert found.grad_sq == pytest.approx(reference.grad_sq, rel=1e-8)
            assert found.noise_trace == pytest.approx(reference.noise_trace, rel=1e-8)
            assert (found.n, found.batch_size, found.step) == (2 * accumulated, 8 * accumulated, reference.step)
        for weights, parameter in zip(one["weights"], model.parameters(), strict=True):
            assert torch.allclose(torch.tensor(weights, dtype=torch.float64), parameter, rtol=1e-8)

    one, other = first["gain"], second["gain"]
    assert one == other, "all ranks take the same steps, to the last bit"
    batches = DataLoader(loader().dataset, batch_sampler=SHARES)
    plain = gained_loop(base=4, base_steps=40, micro_batches=4, size=4, batches=batches)
    assert one["time"] == plain.time == 40
    assert one["price"] == pytest.approx(4 * len(plain.gains) / 40)
    for weights, parameter in zip(one["weights"], plain.model.parameters(), strict=True):
        assert torch.allclose(torch.tensor(weights, dtype=torch.float64), parameter, rtol=1e-8)


def test_hugging_face(meeting: Path) -> None:
    first, second = two_ranks("tests.integrations.huggingface_rank", meeting)
    assert first == second
    assert first["gain"]["time"] == 30
    assert first["gain"]["scheduled"] == 30
    assert first["gain"]["steps"] < 30
    seen = [one for rank in range(2) for one in torch.load(meeting / f"seen{rank}.pt", weights_only=False)]
    readings = [Reading(**fields) for fields in first["readings"]]
    assert [reading.step for reading in readings] == list(range(6))
    for reading in readings:
        steps = [one for one in seen if one[0] == reading.step]
        assert len(steps) == reading.n == 4
        expected = weighted_estimate(steps, 48, 16)
        assert (reading.grad_sq, reading.noise_trace) == pytest.approx(expected, rel=1e-6)
