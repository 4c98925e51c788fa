"""A disk that is full at a random byte of a file of readings, and has space again later: nothing is lost or doubled."""

import random
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from tests.noise.nets import batches, loss_of, net, sgd

from svag import NoiseProbe, load_readings

RUNS, STEPS, SEED = 200, 60, 33_101


@pytest.mark.slow
def test_a_disk_that_is_full_at_a_random_byte(
    tmp_path: Path, say: Callable[[str], None], seeded: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = pytest.importorskip("tests.noise.disk")
    seed = seeded(SEED)
    choose, told = random.Random(seed), 0
    monkeypatch.setattr("svag.noise.pending.KEPT", 10)

    def run(path: Path | None, full: range, size: int) -> tuple[NoiseProbe, list[torch.Tensor], int]:
        """Train; in the steps of `full`, the file may not grow beyond `size` bytes. How often close() failed."""
        model, failed = net(), 0
        optimizer = sgd(model)
        probe = NoiseProbe(model, optimizer, batch_size=8, save_to=path)
        for step, batch in enumerate(batches(STEPS, 8)):
            with disk.full_at(size) if step in full else nullcontext():
                optimizer.zero_grad()
                probe.backward(loss_of(model), batch, parts=2)
                optimizer.step()
        with disk.full_at(size) if STEPS in full else nullcontext():
            try:
                probe.close()
            except OSError:
                failed = 1
        return probe, [parameter.detach() for parameter in model.parameters()], failed

    plain, weights, _ = run(None, range(0), 0)
    run(tmp_path / "whole.jsonl", range(0), 0)
    length = (tmp_path / "whole.jsonl").stat().st_size
    for number in range(RUNS):
        monkeypatch.setattr("svag.noise.pending._FETCH_EVERY", choose.randint(1, 20))
        path, first = tmp_path / f"{number}.jsonl", choose.randrange(STEPS)
        full = range(first, choose.choice([choose.randint(first, STEPS), STEPS + 1]))
        probe, mine, failed = run(path, full, choose.randrange(length))
        told += failed
        probe.close()  # there is space again
        assert load_readings(path) == plain.readings, f"run {number} of seed {seed}"
        assert all(map(torch.equal, mine, weights)), f"run {number} of seed {seed}"
    say(f"{RUNS} disks full at a random byte (seed {seed}), {told} of them when the run ended: no reading is missing")
    assert told >= RUNS // 4
