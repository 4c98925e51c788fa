"""`clip_norm`: gradients are shortened before the step, and measured before that."""

from pathlib import Path

import pytest
import torch
from tests.lab.training.small import fresh, go, small, weights

from svag.lab.specs.fields import SpecError
from svag.lab.training.streams import BatchStream

CLIPPED = {"clip_norm": 1.5, "schedule": {"kind": "constant"}}


def test_a_run_clips_as_torch_does_bit_for_bit(npz: Path, tmp_path: Path) -> None:
    spec = small(npz, CLIPPED)
    go(spec, tmp_path)
    bare = fresh(spec)
    optimizer = torch.optim.SGD(bare.model.parameters(), lr=0.1, weight_decay=0.01)
    batches, clipped = BatchStream(bare.data, spec, "batches", 8), 0
    for _ in range(10):
        optimizer.zero_grad()
        bare.loss(batches.draw()).backward()
        clipped += bool(torch.nn.utils.clip_grad_norm_(bare.model.parameters(), 1.5) > 1.5)
        optimizer.step()
    assert 0 < clipped < 10  # the norm decides, step by step
    found = weights(tmp_path)
    assert all(torch.equal(found[name], mine) for name, mine in bare.model.state_dict().items())


def test_noise_is_measured_before_clipping(npz: Path, tmp_path: Path) -> None:
    probe = {"probe": {"kind": "in_run", "parts": 4}}
    with_clip = go(small(npz, {**CLIPPED, **probe}), tmp_path / "clipped").readings
    without = go(small(npz, {**CLIPPED, **probe, "clip_norm": None}), tmp_path / "plain").readings
    assert with_clip[0].noise_trace == without[0].noise_trace  # same weights, same batch
    assert with_clip[1].noise_trace != without[1].noise_trace  # other weights: the step was clipped


def test_processes_of_many_gradients_refuse_to_clip(npz: Path) -> None:
    for process in ({"kind": "svag", "ell": 2}, {"kind": "gd"}, {"kind": "glsr", "parts": 2}):
        with pytest.raises(SpecError) as caught:
            small(npz, {**CLIPPED, "process": process})
        assert caught.value.path == "clip_norm"
