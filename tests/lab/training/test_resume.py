"""Bit for bit, in every layout: what is interrupted ends as if it had not been, and trivial processes are SGD."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.lab.training.small import fresh, go, interrupted, same_bits, small, weights

from svag.dynamics.noisy_gd import NoisyGD
from svag.lab.records.record import read_record
from svag.lab.training import streams
from svag.lab.training.steppers import stepper_for
from svag.lab.training.streams import BatchStream, stream

LAST, FIRST = "channels_last", "contiguous_format"
NETWORKS = {
    "batch": (LAST, {"arch": "preresnet8", "norm": "batch", "width": 0.25, "scale_invariant": True}),
    "group": (FIRST, {"arch": "preresnet8", "norm": "group", "width": 0.25, "scale_invariant": True}),
    "layer": (LAST, {"arch": "resnet8", "norm": "layer", "width": 0.25}),
    "none": (LAST, {"arch": "vgg11", "norm": "none", "width": 0.125}),
    "perceptron": (FIRST, {"arch": "mlp", "norm": "layer", "width": 0.03125}),
}
AUGMENTED = {"data.augment": {"pad": 1, "flip": True}}


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", NETWORKS)
def test_resumed_runs_end_the_same(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, momentum: float
) -> None:
    layout, model = NETWORKS[name]
    spec = small(npz, AUGMENTED | {"model": model, "optimizer": {"kind": "sgd", "momentum": momentum}})
    interrupted(spec, tmp_path / "run", monkeypatch)
    record = go(spec, tmp_path / "run")
    assert (record.state, record.numerics, record.outcome["memory_layout"]) == ("finished", 2, layout)
    go(spec, tmp_path / "straight")
    assert same_bits(tmp_path / "run", tmp_path / "straight")
    other = spec.edited({"optimizer.momentum": 0.5})
    go(other, tmp_path / "other")
    assert not same_bits(tmp_path / "other", tmp_path / "straight")


@pytest.mark.parametrize("name", NETWORKS)
def test_trivial_processes_are_sgd_in_every_layout(npz: Path, tmp_path: Path, name: str) -> None:
    edits = AUGMENTED | {"model": NETWORKS[name][1]}
    go(small(npz, edits), tmp_path / "sgd")
    trivial: dict[str, dict[str, Any]] = {"svag": {"kind": "svag", "ell": 1}, "glsr": {"kind": "glsr", "parts": 1}}
    for kind, process in trivial.items():
        go(small(npz, edits | {"process": process}), tmp_path / kind)
        assert same_bits(tmp_path / "sgd", tmp_path / kind)


@pytest.mark.parametrize("name", ["group", "layer", "none"])
def test_an_infinite_batch_is_gradient_descent_in_every_layout(npz: Path, tmp_path: Path, name: str) -> None:
    spec = small(npz, {"model": NETWORKS[name][1], "process": {"kind": "gd"}, "budget": 3})
    go(spec, tmp_path / "run")
    bare = fresh(spec)
    chunks = [(bare.data.train_x, bare.data.train_y)]
    ngd = NoisyGD(bare.model, bare.optimizer, batch_size=torch.inf, dataset_size=64, generator=stream(0, "noise"))
    for step in range(3):
        bare.set_rate(0.1 if step < 2 else 0.1 * 0.1)
        ngd.step(bare.losses, chunks)
    ran = weights(tmp_path / "run")
    assert all(torch.equal(value, ran[key]) for key, value in bare.model.state_dict().items())


@pytest.mark.parametrize("augment", [False, {"pad": 1, "flip": True}])
@pytest.mark.parametrize("name", NETWORKS)
def test_everything_that_a_network_sees_is_in_its_layout(npz: Path, name: str, augment: Any) -> None:
    """The batches, and the sets that are evaluated; of one channel, where only the strides can tell."""
    layout, model = NETWORKS[name]
    training = fresh(small(npz, {"model": model, "data.augment": augment}))
    batch, _ = BatchStream(training.data, training.spec, "batches", 8).draw()
    for images in (batch, batch[2:4], training.data.train_x, training.data.test_x[:10]):
        assert images.shape[1:] == (1, 6, 6)
        assert images.stride() == ((36, 1, 6, 1) if layout == LAST else (36, 36, 6, 1))
    convolutions = [p for p in training.model.parameters() if p.dim() == 4]
    assert all((p.stride(1) == 1) == (layout == LAST) for p in convolutions if p.shape[2] > 1)


@pytest.mark.parametrize(
    ("sampling", "pad", "flip"),
    [
        ("without_replacement", 1, True),
        ("without_replacement", 2, False),
        ("with_replacement", 0, True),
        ("shuffle", 0, False),
    ],
)
def test_batches_drawn_ahead_are_those_drawn_one_by_one_and_a_saved_stream_goes_on_with_the_next(
    npz: Path, monkeypatch: pytest.MonkeyPatch, sampling: str, pad: int, flip: bool
) -> None:
    training = fresh(small(npz, {"sampling": sampling, "data.augment": {"pad": pad, "flip": flip}}))

    def begin() -> BatchStream:
        return BatchStream(training.data, training.spec, "batches", 8)

    monkeypatch.setattr(streams, "AHEAD", 1)
    one_by_one = begin()
    expected = [one_by_one.draw() for _ in range(24)]
    monkeypatch.setattr(streams, "AHEAD", 8)
    for taken in range(18):  # before, inside and after what is drawn at a time
        ahead, continued = begin(), begin()
        for images, labels in expected[:taken]:
            drawn = ahead.draw()
            assert torch.equal(drawn[0], images)
            assert torch.equal(drawn[1], labels)
        continued.draw()  # what it has drawn by itself is forgotten
        continued.load_state_dict(ahead.state_dict())
        for images, labels in expected[taken : taken + 6]:
            drawn = continued.draw()
            assert torch.equal(drawn[0], images)
            assert torch.equal(drawn[1], labels)


@pytest.mark.parametrize("name", NETWORKS)
def test_batches_made_together_train_a_network_to_the_same_bits(
    npz: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """They lie at odd places in memory, which must not move the last bits of a recorded run."""
    found = []
    for ahead in (1, 5, 32):
        monkeypatch.setattr(streams, "AHEAD", ahead)
        training = fresh(small(npz, {"model": NETWORKS[name][1], "batch_size": 7}))
        stepper = stepper_for(training)
        for number in range(6):
            stepper.step(number, measure=False)
        found.append([parameter.detach().clone() for parameter in training.model.parameters()])
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_large_batches_are_not_drawn_ahead(npz: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = fresh(small(npz, {}))
    draws: list[int] = []
    monkeypatch.setattr(streams, "_NUMBERS", 2 * 8 * 36)
    for size in (4, 8, 16, 64):
        stream_of = BatchStream(training.data, training.spec, "batches", size)
        stream_of.draw()
        draws.append(len(stream_of._drawn))
    assert draws == [3, 1, 0, 0]


def test_a_run_that_version_0_1_0_has_begun_goes_on(tmp_path: Path) -> None:
    """Its checkpoint lies beside this file: momentum buffer, random state and probe of step 12 of 20.

    The first steps were taken on another machine, so the last digits may differ from those of a run in one go.
    """
    shutil.copytree(Path(__file__).parent / "begun_by_0_1_0", tmp_path / "run")
    before = read_record(tmp_path / "run")
    assert (before.state, len(before.readings)) == ("interrupted", 12)
    assert before.spec is not None
    record = go(before.spec, tmp_path / "run")
    assert (record.state, record.step, len(record.readings)) == ("finished", 20, 20)
    assert record.readings[:12] == before.readings[:12]
    straight = go(before.spec, tmp_path / "straight")
    assert record.final["train_loss"] == pytest.approx(straight.final["train_loss"], rel=1e-3)
    for one, other in zip(record.readings, straight.readings, strict=True):
        assert one.noise_trace == pytest.approx(other.noise_trace, rel=1e-3)
