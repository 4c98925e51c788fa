"""A run does what its spec says: checked against bare loops, bit for bit."""

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.lab.small import EXAMPLES, same_bits, small, weights, write_npz
from torch import nn

import svag
from svag.dynamics.noisy_gd import NoisyGD
from svag.dynamics.svag import SVAG
from svag.lab import loop
from svag.lab.data.load import load_data
from svag.lab.loop import CHECK_EVERY, Loop
from svag.lab.run import RunFailed, run
from svag.lab.streams import BatchStream, stream
from svag.lab.training import pick_device, prepare
from svag.records.refusal import SpecError
from svag.records.spec import RunSpec


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    return write_npz(tmp_path / "data.npz")


def go(spec: RunSpec, folder: Path) -> svag.RunRecord:
    return run(spec, folder, device="cpu", progress=False)


def final(spec: RunSpec, folder: Path) -> list[torch.Tensor]:
    assert go(spec, folder).state == "finished"
    return list(weights(folder).values())


def fresh(spec: RunSpec) -> Any:
    """What a bare loop starts from."""
    return prepare(spec, load_data("npz", path=spec.data.path))


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


@pytest.mark.parametrize("arch", ["mlp", "tests.lab.dropout_net:build"])
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


@pytest.mark.parametrize("process", [{"kind": "sgd"}, {"kind": "svag", "ell": 2}], ids=["sgd", "svag"])
def test_a_frozen_probe_leaves_no_trace_in_the_run(npz: Path, tmp_path: Path, process: dict[str, Any]) -> None:
    plain = small(npz, {"process": process, "model.norm": "batch", "momentum": 0.0})
    probed = plain.edited({"probe": {"kind": "frozen", "readings": 5, "window": [0, 10], "batches": 3}})
    one, other = final(plain, tmp_path / "plain"), final(probed, tmp_path / "probed")
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert [reading.step for reading in go(probed, tmp_path / "probed").readings] == [0, 2, 4, 6, 8]


def test_a_frozen_reading_is_a_measurement_on_batches_of_its_own(npz: Path, tmp_path: Path) -> None:
    spec = small(npz, {"probe": {"kind": "frozen", "readings": 1, "window": [0, 1], "batches": 3}})
    bare = fresh(spec)
    batches = BatchStream(bare.data, spec, "probe", 8)  # not those that the run trains on
    expected = svag.measure_noise(bare.model, bare.loss, [batches.draw() for _ in range(3)])
    [reading] = go(spec, tmp_path / "run").readings
    assert (reading.grad_sq, reading.noise_trace) == (expected.grad_sq, expected.noise_trace)
    assert (reading.population, reading.lr, reading.n) == (EXAMPLES, 0.1, 3)


def test_pairs_are_measured_without_a_trace(npz: Path, tmp_path: Path) -> None:
    plain = small(npz, {"process": {"kind": "svag", "ell": 3}})
    one = final(plain, tmp_path / "plain")
    other = final(plain.edited({"probe": {"kind": "in_run", "window": [2, 7]}}), tmp_path / "probed")
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    record = svag.load_records(tmp_path / "probed")[0]
    assert [reading.step for reading in record.readings] == [2, 3, 4, 5, 6]
    assert {(reading.n, reading.ell, reading.batch_size) for reading in record.readings} == {(6, 3, 8)}


@pytest.mark.parametrize("process", [{"kind": "sgd"}, {"kind": "svag", "ell": 2}, {"kind": "glsr", "parts": 2}])
def test_an_in_run_probe_reads_only_as_often_as_it_is_told(npz: Path, tmp_path: Path, process: dict[str, Any]) -> None:
    probe = {"kind": "in_run", "parts": 2, "window": [1, 9]}
    spec = small(npz, {"process": process, "probe": probe})
    often = {reading.step: reading for reading in go(spec, tmp_path / "often").readings}
    seldom = go(spec.edited({"probe.every": 3}), tmp_path / "seldom").readings
    assert [reading.step for reading in seldom] == [1, 4, 7]
    for reading in seldom:  # SGD cuts its batch only where it measures, which rounds differently
        same = often[reading.step]
        assert reading.noise_trace == pytest.approx(same.noise_trace, rel=1e-3)
        assert reading.n == same.n


def test_an_in_run_probe_changes_the_gradients_by_rounding_only(npz: Path, tmp_path: Path) -> None:
    plain = final(small(npz), tmp_path / "plain")
    probed = final(small(npz, {"probe": {"kind": "in_run", "parts": 4}}), tmp_path / "probed")
    for one, other in zip(plain, probed, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert len(svag.load_records(tmp_path / "probed")[0].readings) == 10


def test_the_ladder_reads_its_own_batches_and_rates(npz: Path, tmp_path: Path) -> None:
    edits = {"process": {"kind": "glsr", "parts": 2}, "probe": {"kind": "in_run", "parts": 2}}
    readings = go(small(npz, edits), tmp_path / "in_run").readings
    assert [(reading.batch_size, reading.n) for reading in readings] == [(4, 4)] * 10
    assert [reading.lr for reading in readings] == [0.05] * 5 + [pytest.approx(0.005)] * 5
    edits["probe"] = {"kind": "frozen", "readings": 2, "window": [0, 4], "batches": 2}
    frozen = go(small(npz, edits), tmp_path / "frozen").readings
    assert [(reading.batch_size, reading.lr, reading.population) for reading in frozen] == [(4, 0.05, EXAMPLES)] * 2


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


@pytest.mark.parametrize(
    ("edits", "ell"), [({}, 1), ({"process": {"kind": "svag", "ell": 4}}, 4), ({"process": {"kind": "gd"}}, 1)]
)
def test_the_balance_is_a_ratio_of_averages(npz: Path, tmp_path: Path, edits: dict[str, Any], ell: int) -> None:
    probe = {"kind": "frozen", "readings": 4, "window": [0, 4], "batches": 3}
    record = go(small(npz, {**edits, "probe": probe, "model.scale_invariant": True}), tmp_path / "run")
    R, G, N = (sum(getattr(r, name) for r in record.readings) / 4 for name in ("param_sq", "grad_sq", "noise_trace"))
    h, eta, lam = 0.1 / ell, 0.1, 0.01
    noise = 0.0 if "gd" in str(edits) else N
    expected = (h * G + eta * noise) / ((2 - h * lam) * lam * R)
    found = record.evaluations[1]["noise"]
    assert found["readings"] == 4
    assert found["balance"] == pytest.approx(expected, rel=1e-12)


def test_no_balance_across_a_change_of_the_learning_rate(npz: Path, tmp_path: Path) -> None:
    edits = {"evaluate.every": 10, "probe": {"kind": "in_run"}, "model.scale_invariant": True}
    record = go(small(npz, edits), tmp_path / "run")
    assert record.final["noise"]["balance"] is None


def test_no_balance_at_a_learning_rate_of_zero(npz: Path, tmp_path: Path) -> None:
    edits = {
        "schedule": {"kind": "triangle", "floor": 0.0, "peaks": [1.0]},
        "evaluate.every": 1,
        "probe": {"kind": "in_run", "window": [0, 10]},
        "model.scale_invariant": True,
    }
    record = go(small(npz, edits), tmp_path / "run")
    assert record.state == "finished"
    assert record.readings[0].lr == 0
    assert record.evaluations[1]["noise"]["balance"] is None
    assert record.evaluations[3]["noise"]["balance"] is not None


def test_no_balance_where_the_loss_itself_pulls_on_the_weights(npz: Path, tmp_path: Path) -> None:
    edits: dict[str, Any] = {"probe": {"kind": "in_run"}, "model.scale_invariant": True}
    declared, plain = (
        go(small(npz, edits | {"model.scale_invariant": flag}), tmp_path / str(flag)) for flag in (True, False)
    )
    assert declared.evaluations[1]["noise"]["balance"] is not None
    assert plain.evaluations[1]["noise"]["balance"] is None


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


def test_a_run_that_diverges_is_an_outcome(npz: Path, tmp_path: Path) -> None:
    spec = small(npz, {"lr": 1e19, "weight_decay": 0.0, "model.norm": "none", "budget": 60, "evaluate.every": 60})
    record = go(spec, tmp_path / "run")
    assert record.state == "diverged"
    assert record.outcome["step"] == CHECK_EVERY, "noticed long before the next evaluation"
    assert record.ended
    assert "not finite" in record.problem
    assert "NaN" not in (tmp_path / "run" / "metrics.jsonl").read_text()
    assert go(spec, tmp_path / "run").outcome == record.outcome, "it is not tried again"


def test_what_a_diverged_run_leaves_does_not_depend_on_the_clock(npz: Path, tmp_path: Path) -> None:
    edits = {"lr": 1e6, "weight_decay": 0.0, "model.norm": "none", "budget": 60, "evaluate.every": 60}
    spec = small(npz, edits | {"probe": {"kind": "in_run", "parts": 2}})
    for name, save_seconds in (("often", 0.0), ("never", 1000.0)):
        assert run(spec, tmp_path / name, progress=False, save_seconds=save_seconds).state == "diverged"
    often, never = ((tmp_path / name / "metrics.jsonl").read_bytes() for name in ("often", "never"))
    assert often == never


@pytest.mark.parametrize(("pixels", "pad", "field"), [(1, 1, "data.augment"), (6, 6, "data.augment.pad")])
def test_augmentation_that_would_leave_nothing_of_an_image_is_refused(
    tmp_path: Path, pixels: int, pad: int, field: str
) -> None:
    path = write_npz(tmp_path / "data.npz", pixels=pixels)
    with pytest.raises(SpecError, match=f"^{field}: "):
        run(small(path, {"data.augment": {"pad": pad}}), tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "probe", [{"kind": "in_run"}, {"kind": "frozen", "readings": 50, "window": [0, 60], "batches": 2}]
)
@pytest.mark.parametrize("process", [{"kind": "sgd"}, {"kind": "svag", "ell": 2}], ids=["sgd", "svag"])
def test_a_probe_does_not_turn_divergence_into_failure(
    npz: Path, tmp_path: Path, probe: dict[str, Any], process: dict[str, Any]
) -> None:
    edits = {"lr": 1e19, "weight_decay": 0.0, "model.norm": "none", "budget": 60, "probe": probe, "process": process}
    assert go(small(npz, edits), tmp_path / "run").state == "diverged"


def test_a_run_that_fails_says_why_and_is_tried_again(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = small(npz)
    take, calls = Loop._take_step, [0]

    def failing(self: Loop) -> None:
        calls[0] += 1
        if calls[0] == 6:
            raise RuntimeError("no more\nmemory")
        take(self)

    monkeypatch.setattr(loop.Loop, "_take_step", failing)
    with pytest.raises(RunFailed, match="failed at effective step 5: RuntimeError: no more memory"):
        go(spec, tmp_path / "run")
    failed = svag.load_records(tmp_path)[0]
    assert (failed.state, failed.problem) == ("failed", "RuntimeError: no more memory")
    assert go(spec, tmp_path / "run").state == "finished"
    go(spec, tmp_path / "straight")
    assert same_bits(tmp_path / "run", tmp_path / "straight")


def test_what_has_ended_is_only_read(npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = small(npz)
    go(spec, tmp_path / "run")
    monkeypatch.setattr("svag.lab.run.load_inputs", None)  # not even the data is loaded
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
    assert go(spec, tmp_path / "run").state == "finished"
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()} == before
    assert sorted(path.name for path in before) == [
        "checkpoint.pt", "metrics.jsonl", "outcome.json", "spec.json", "timings.jsonl",
    ]  # fmt: skip


def test_a_changed_npz_is_another_run(npz: Path, tmp_path: Path) -> None:
    go(small(npz), tmp_path / "run")
    write_npz(npz, seed=1)
    with pytest.raises(ValueError, match="holds another run"):
        go(small(npz), tmp_path / "run")


def test_outcome_and_timings(npz: Path, tmp_path: Path) -> None:
    record = go(small(npz, {"process": {"kind": "svag", "ell": 3}}), tmp_path / "run")
    assert record.outcome["examples"] == 10 * 3 * 2 * 8
    assert record.outcome["versions"]["torch"] == torch.__version__
    assert record.outcome["hardware"]["threads"] == torch.get_num_threads()
    rows = [json.loads(line) for line in (tmp_path / "run" / "timings.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 4, 8, 10]
    assert all(earlier["seconds"] <= later["seconds"] for earlier, later in pairwise(rows))
    assert "seconds" not in (tmp_path / "run" / "metrics.jsonl").read_text()


def test_sizes_that_only_the_file_tells_are_checked(npz: Path, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=f"batch_size: must not exceed the {EXAMPLES} examples"):
        go(small(npz, {"batch_size": EXAMPLES + 1}), tmp_path / "run")
    record = go(small(npz, {"budget": {"epochs": 1.5}}), tmp_path / "epochs")
    assert record.steps == 12


def test_devices(npz: Path) -> None:
    assert pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(ValueError, match="device must be auto, cpu or cuda, got 'tpu'"):
        pick_device("tpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="sees no CUDA device"):
            run(small(npz), npz.parent / "run", device="cuda")


def test_streams_do_not_move_each_other() -> None:
    one, other = stream(0, "batches"), stream(0, "noise")
    torch.rand(5, generator=other)
    assert torch.equal(torch.rand(3, generator=one), torch.rand(3, generator=stream(0, "batches")))
    assert not math.isclose(
        torch.rand((), generator=stream(0, "a")).item(), torch.rand((), generator=stream(1, "a")).item()
    )
