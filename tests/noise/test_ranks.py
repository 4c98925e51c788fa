"""Two gloo processes against one process with the same examples."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.noise.nets import batches, data, loss_of, net
from tests.noise.ranks_worker import BATCH, STEPS
from torch.optim import SGD

from svag import NoiseProbe, Reading


def one_process(parameters: bool = False) -> list[Reading]:
    model = net()
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.5)
    chosen = [p for p in model.parameters() if p.ndim > 1] if parameters else None
    probe = NoiseProbe(model, optimizer, batch_size=BATCH, population=1000, parameters=chosen)
    for batch in batches(STEPS, BATCH):
        optimizer.zero_grad()
        probe.backward(loss_of(model), batch, parts=2)
        optimizer.step()
    return probe.readings


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, object]]]:
    out = tmp_path_factory.mktemp("ranks")
    port = str(free_port())
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.noise.ranks_worker", str(rank), port, str(out)],
            cwd=Path(__file__).parents[2],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for process in processes:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors
    finally:
        for process in processes:
            process.kill()
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(2)]


def numbers(reading: Reading) -> dict[str, float]:
    return {name: value for name, value in reading.to_dict().items() if isinstance(value, float | int)}


@pytest.mark.parametrize("style", ["backward", "accumulate", "backward parts", "parameters"])
def test_two_processes_read_what_one_does(ranks: list[dict[str, dict[str, object]]], style: str) -> None:
    reference = one_process(parameters=style == "parameters")
    for rank in ranks:
        found = [Reading(**reading) for reading in rank["results"][style]]  # type: ignore[attr-defined]
        assert len(found) == STEPS
        for mine, theirs in zip(found, reference, strict=True):
            assert mine.optimizer == theirs.optimizer
            assert numbers(mine) == pytest.approx(numbers(theirs), rel=1e-9)


def test_only_a_rank_that_cuts_its_batch_shows_batch_norm_something_else(
    ranks: list[dict[str, dict[str, object]]],
) -> None:
    whole, cut = (Reading(**reading) for reading in ranks[0]["results"]["batch norm"])  # type: ignore[attr-defined]
    assert not whole.approximate
    assert cut.approximate


def test_refusals_are_one_sentence(ranks: list[dict[str, dict[str, object]]]) -> None:
    said = ranks[0]["refusals"]
    assert "already has a communication hook" in str(said["hook"])
    assert "16 examples on each of 2 ranks" in str(said["size"])
    assert "outside no_sync()" in str(said["never"])
    assert "reduced 2 times in one step" in str(said["twice"])


def test_steps_that_nobody_closes_leave_nothing_behind(ranks: list[dict[str, dict[str, object]]]) -> None:
    model = net()
    probe = NoiseProbe(model, SGD(model.parameters(), lr=0.1), batch_size=BATCH)
    probe.backward(loss_of(model), data(BATCH), parts=2)
    (theirs,) = probe.readings
    mine = Reading(**json.loads(str(ranks[0]["refusals"]["readings"])))
    assert (mine.grad_sq, mine.noise_trace) == pytest.approx((theirs.grad_sq, theirs.noise_trace), rel=1e-9)


def test_a_frozen_reading_does_not_stop_the_buffers_from_being_sent(ranks: list[dict[str, dict[str, object]]]) -> None:
    assert ranks[0]["buffers"] == ranks[1]["buffers"]


def test_a_model_takes_one_probe_and_a_closed_probe_refuses(ranks: list[dict[str, dict[str, object]]]) -> None:
    said = ranks[0]["refusals"]
    assert "keep using the first probe" in str(said["second"])
    assert "this probe is closed" in str(said["closed"])
