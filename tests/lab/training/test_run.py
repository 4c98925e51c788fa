"""A run does what its spec says: checked against bare loops, bit for bit."""

import math
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.lab.training.small import EXAMPLES, final, fresh, go, same_bits, small, weights
from torch import nn
from typer.testing import CliRunner

from svag.dynamics.noisy_gd import NoisyGD
from svag.dynamics.svag import SVAG
from svag.lab.execution import worker
from svag.lab.specs.fields import SpecError
from svag.lab.training.run import run
from svag.lab.training.streams import BatchStream, stream
from svag.lab.training.training import pick_device
from svag.paper.cli.app import app


def equal(one: list[torch.Tensor], model: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, model.state_dict().values(), strict=True))


def test_sgd_is_a_bare_loop(npz: Path, tmp_path: Path) -> None:
    spec = small(npz, {"momentum": 0.9, "data.augment": {"pad": 1, "flip": True}})
    bare = fresh(spec)
    batches = BatchStream(bare.data, spec, "batches", 8)
    for step in range(10):
        images, labels = batches.draw()
        bare.set_rate(0.1 if step < 5 else 0.1 * 0.1)
        bare.optimizer.zero_grad()
        nn.functional.cross_entropy(bare.model(images), labels).backward()
        bare.optimizer.step()
    assert equal(final(spec, tmp_path / "run"), bare.model)


def test_svag_is_a_bare_loop_over_two_independent_streams(npz: Path, tmp_path: Path) -> None:
    spec = small(npz, {"process": {"kind": "svag", "ell": 4, "split": 2}})
    bare = fresh(spec)
    first, second = (BatchStream(bare.data, spec, name, 4) for name in ("batches", "second batches"))
    pairs = iter(lambda: (first.draw(), second.draw()), None)
    with SVAG(bare.model, bare.optimizer, ell=4, split=2, population=EXAMPLES) as sim:
        for step in range(10):
            bare.set_rate(0.1 if step < 5 else 0.1 * 0.1)
            sim.step(bare.loss, pairs)
    assert equal(final(spec, tmp_path / "run"), bare.model)


def test_the_ladder_cuts_the_draws_of_sgd(npz: Path, tmp_path: Path) -> None:
    spec = small(npz, {"process": {"kind": "glsr", "parts": 4}})
    bare = fresh(spec)
    batches = BatchStream(bare.data, spec, "batches", 8)  # the very draws of the SGD run
    for step in range(10):
        images, labels = batches.draw()
        bare.set_rate((0.1 if step < 5 else 0.1 * 0.1) / 4)
        for piece in range(4):
            rows = slice(2 * piece, 2 * piece + 2)
            bare.optimizer.zero_grad()
            nn.functional.cross_entropy(bare.model(images[rows]), labels[rows]).backward()
            bare.optimizer.step()
    assert equal(final(spec, tmp_path / "run"), bare.model)


def test_trivial_cases_are_sgd_bit_for_bit(npz: Path, tmp_path: Path) -> None:
    go(small(npz, {"model.norm": "batch"}), tmp_path / "sgd")
    for name, process in {"svag": {"kind": "svag", "ell": 1}, "glsr": {"kind": "glsr", "parts": 1}}.items():
        go(small(npz, {"model.norm": "batch", "process": process}), tmp_path / name)
        assert same_bits(tmp_path / "sgd", tmp_path / name)


def test_gradient_descent_is_sgd_with_all_examples(npz: Path, tmp_path: Path) -> None:
    """The same up to the order of summation: float32, ten steps."""
    gd = final(small(npz, {"process": {"kind": "gd"}}), tmp_path / "gd")
    sgd = final(small(npz, {"batch_size": EXAMPLES}), tmp_path / "sgd")
    for one, other in zip(gd, sgd, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_ngd_and_the_sde_are_not_gradient_descent_and_differ_by_their_noise(npz: Path, tmp_path: Path) -> None:
    processes = ({"kind": "gd"}, {"kind": "ngd"}, {"kind": "sde", "refine": 1}, {"kind": "sde", "refine": 2})
    found = [final(small(npz, {"process": p}), tmp_path / str(i)) for i, p in enumerate(processes)]
    assert all(torch.equal(a, b) for a, b in zip(found[1], found[2], strict=True)), "refine=1 is NGD"
    assert not torch.equal(found[0][0], found[1][0])
    assert not torch.equal(found[1][0], found[3][0])


def test_the_sde_is_a_bare_loop_of_refined_passes(npz: Path, tmp_path: Path) -> None:
    spec = small(npz, {"process": {"kind": "sde", "refine": 3}})
    bare = fresh(spec)
    noise = stream(spec.seed, "noise")
    ngd = NoisyGD(bare.model, bare.optimizer, batch_size=8, dataset_size=EXAMPLES, refine=3, generator=noise)
    for step in range(10):
        bare.set_rate(0.1 if step < 5 else 0.1 * 0.1)
        for _ in range(3):
            ngd.step(bare.losses, [(bare.data.train_x, bare.data.train_y)])
    assert equal(final(spec, tmp_path / "run"), bare.model)


@pytest.mark.parametrize("arch", ["mlp", "tests.lab.training.dropout_net:build"])
def test_the_same_spec_twice_gives_the_same_bits_and_another_seed_does_not(
    npz: Path, tmp_path: Path, arch: str
) -> None:
    edits = {"process": {"kind": "svag", "ell": 2}, "probe": {"kind": "in_run"}, "model": {"arch": arch}}
    spec = small(npz, edits)
    torch.manual_seed(1)
    go(spec, tmp_path / "one")
    torch.manual_seed(2)  # the caller's own generator does not matter …
    before = torch.get_rng_state()
    go(spec, tmp_path / "two")
    assert torch.equal(torch.get_rng_state(), before), "… and is left alone"
    go(spec.edited({"seed": 1}), tmp_path / "other")
    assert same_bits(tmp_path / "one", tmp_path / "two")
    assert not same_bits(tmp_path / "one", tmp_path / "other")


def test_evaluations_come_on_their_cadence_and_say_what_they_should(npz: Path, tmp_path: Path) -> None:
    spec = small(npz, {"evaluate": {"every": 4, "train": True}, "probe": {"kind": "in_run"}, "model.norm": "batch"})
    record = go(spec, tmp_path / "run")
    assert [row["step"] for row in record.evaluations] == [0, 4, 8, 10]
    assert [row["lr"] for row in record.evaluations] == pytest.approx([0.1, 0.1, 0.01, 0.01])
    assert record.final["time"] == pytest.approx(5 * 0.1 + 5 * 0.01)
    assert record.evaluations[0]["train_loss"] is None
    bare = fresh(spec)
    bare.model.load_state_dict(weights(tmp_path / "run"))
    bare.model.eval()
    logits = bare.model(bare.data.test_x)
    assert record.final["test_accuracy"] == (logits.argmax(1) == bare.data.test_y).double().mean()
    assert record.final["test_loss"] == pytest.approx(
        nn.functional.cross_entropy(logits, bare.data.test_y).item(), rel=1e-5
    )
    train = bare.model(bare.data.train_x)
    assert record.final["train_set_accuracy"] == (train.argmax(1) == bare.data.train_y).double().mean()
    trained = [p for p in bare.model.parameters() if p.requires_grad]
    assert record.final["param_sq"] == pytest.approx(sum(p.double().square().sum().item() for p in trained), rel=1e-6)


def test_train_loss_is_the_mean_since_the_last_evaluation(npz: Path, tmp_path: Path) -> None:
    """The mean over four steps is the mean of what an evaluation at every step says."""
    seldom = go(small(npz, {"evaluate.every": 5}), tmp_path / "seldom").curve("train_loss")
    often = [loss for _, loss in go(small(npz, {"evaluate.every": 1}), tmp_path / "often").curve("train_loss")]
    assert len(often) == 10
    assert [loss for _, loss in seldom] == pytest.approx([sum(often[:5]) / 5, sum(often[5:]) / 5], rel=1e-12)


def test_statistics_of_batch_norm_keep_their_time_scale(npz: Path, tmp_path: Path, monkeypatch: Any) -> None:
    seen: set[Any] = set()
    plain = nn.functional.batch_norm

    def spy(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("training", args[5] if len(args) > 5 else None):
            seen.add(kwargs.get("momentum", args[6] if len(args) > 6 else None))
        return plain(*args, **kwargs)

    monkeypatch.setattr(nn.functional, "batch_norm", spy)
    expected = {
        "sgd": ({"kind": "sgd"}, "none", 1),
        "svag": ({"kind": "svag", "ell": 3}, "none", 6),
        "glsr": ({"kind": "glsr", "parts": 2}, "none", 2),
        "parts": ({"kind": "sgd"}, {"kind": "in_run", "parts": 4}, 4),
    }
    for name, (process, probe, updates) in expected.items():
        spec = small(npz, {"process": process, "probe": probe, "model": {"arch": "preresnet8", "width": 0.25}})
        seen.clear()
        go(spec, tmp_path / name)
        seen.discard(0.1) if updates > 1 else None  # the trial forward pass of a fresh network
        assert list(seen) == [pytest.approx(1 - 0.9 ** (1 / updates), rel=1e-12)], name


def test_devices(npz: Path) -> None:
    assert pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(ValueError, match=r"^device\b.*got 'tpu'"):
        pick_device("tpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match=r"^device\b"):
            run(small(npz), npz.parent / "run", device="cuda")


def test_streams_do_not_move_each_other() -> None:
    one, other = stream(0, "batches"), stream(0, "noise")
    torch.rand(5, generator=other)
    assert torch.equal(torch.rand(3, generator=one), torch.rand(3, generator=stream(0, "batches")))
    assert not math.isclose(
        torch.rand((), generator=stream(0, "a")).item(), torch.rand((), generator=stream(1, "a")).item()
    )


@pytest.mark.parametrize("spec", [None, {}, "no_such_file.yaml"])
def test_what_is_no_spec_is_refused(spec: Any, tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        run(spec, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_run_takes_a_spec_its_fields_or_its_file(npz: Path, tmp_path: Path) -> None:
    spec = small(npz)
    (tmp_path / "spec.yaml").write_text(spec.to_yaml())
    records = [run(one, tmp_path / "run", progress=False) for one in (spec, spec.to_dict(), tmp_path / "spec.yaml")]
    assert [record.spec for record in records] == [spec] * 3


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library gives memory back in its own way")
def test_a_program_of_ours_does_not_give_back_the_memory_of_a_step() -> None:
    """Counted in page faults of ten tensors one after the other: of all ten, and only of the first one or two."""
    program = (
        "import resource, torch\n"
        "from svag.lab.training.run import keep_freed_memory\n"
        "{first}\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "for _ in range(10):\n"
        "    torch.ones(2**24)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)"
    )
    given_back, kept = (
        int(subprocess.check_output([sys.executable, "-c", program.format(first=first)], text=True, timeout=600))
        for first in ("", "keep_freed_memory()")
    )
    assert kept < given_back / 3


def test_workers_keep_it_from_their_start_and_so_does_svag_run(monkeypatch: pytest.MonkeyPatch, npz: Path) -> None:
    class KeptError(Exception):
        """Raised where the memory would be kept."""

    def keep() -> None:
        raise KeptError

    monkeypatch.setattr("svag.lab.training.run.keep_freed_memory", keep)
    monkeypatch.setattr("svag.lab.execution.worker.keep_freed_memory", keep)
    with pytest.raises(KeptError):
        worker.main()
    spec = npz.parent / "spec.yaml"
    spec.write_text(small(npz, {}).to_yaml())
    found = CliRunner().invoke(app, ["run", str(spec), "--out", str(npz.parent / "run")])
    assert isinstance(found.exception, KeptError)


def test_scaled_first_weights_are_the_same_training_in_other_units(npz: Path, tmp_path: Path) -> None:
    """L(cx) = L(x): from c·x₀ at c²η and λ/c² each step is that from x₀ times c, exactly so if c is a power of two."""
    spec = small(npz, {"model": {"arch": "preresnet8", "norm": "group", "width": 0.25, "scale_invariant": True}})
    scaled = spec.edited({"model.init_scale": 0.5, "lr": spec.lr / 4, "weight_decay": 4 * spec.weight_decay})
    (one, other) = (fresh(each).model.named_parameters() for each in (spec, scaled))
    for (name, weight), (_, half) in zip(one, other, strict=True):
        factor = 1.0 if name.startswith("linear") else 0.5  # the last layer is frozen, and no part of x
        assert torch.equal(half, factor * weight), name
    first, second = (run(each, tmp_path / f"{number}") for number, each in enumerate((spec, scaled)))
    losses = [[row["test_loss"] for row in record.evaluations] for record in (first, second)]
    assert losses[0] == losses[1]
    assert [row["param_sq"] / 4 for row in first.evaluations] == [row["param_sq"] for row in second.evaluations]
