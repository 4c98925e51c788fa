"""Two processes under torchrun compute the run of one process, to rounding; three starts for all of it."""

import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock
from tests.lab.training.parallel.launch import sentences, torchrun
from tests.lab.training.small import same_bits, small, weights, write_npz
from torch import nn

import svag
import svag.lab
from svag.lab.data.load import load_data
from svag.lab.records.record import read_record
from svag.lab.records.storage import RunLock
from svag.lab.specs.spec import RunSpec
from svag.lab.training.loop import loss_and_accuracy
from svag.lab.training.run import run
from svag.lab.training.state import CheckpointError
from svag.lab.training.streams import BatchStream
from svag.lab.training.training import prepare
from svag.noise.frozen import measure_noise

CONV = {"model": {"arch": "preresnet8", "norm": "group", "width": 0.25, "scale_invariant": False}}
BATCH_NORM = {"model": {"arch": "preresnet8", "norm": "batch", "width": 0.25}}
DROPOUT = {"model": {"arch": "tests.lab.training.dropout_net:build"}}
AUGMENTED = {"data.augment": {"pad": 1, "flip": True}}
COMPARED = BATCH_NORM | {"batch_size": 9, "probe": {"kind": "in_run", "parts": 3}}  # one part here, two there
SAME_PARTS = BATCH_NORM | {"probe": {"kind": "in_run", "parts": 2}}
MASKED = DROPOUT | {"probe": {"kind": "in_run", "parts": 4, "window": [2, 9]}}
FROZEN = {"probe": {"kind": "frozen", "readings": 2, "window": [0, 10], "batches": 3}}

TEXT = {
    "data": {"name": "moby-dick", "context": 256, "subset": 64},
    "model": {"arch": "transformer", "depth": 1, "width": 8, "heads": 2},
    "optimizer": {"kind": "rmsprop", "eps": 1e-4},
    "lr": 0.01,
}

SAME: dict[str, dict[str, Any]] = {
    "sgd": CONV | AUGMENTED | {"momentum": 0.9, "batch_size": 9, "probe": {"kind": "in_run", "parts": 3, "every": 2}},
    "svag": CONV | AUGMENTED | {"process": {"kind": "svag", "ell": 2}},
    "measured svag": CONV | {"process": {"kind": "svag", "ell": 3, "split": 2}, "probe": {"kind": "in_run"}},
    # an eps above the rounding errors of gradients that are 0: Adam would make a step of each
    "adamw": CONV | AUGMENTED | {"optimizer": {"kind": "adamw", "eps": 1e-4}, "lr": 0.01, "batch_size": 9,
                                 "probe": {"kind": "in_run", "parts": 3}},
    "text": TEXT | {"probe": {"kind": "in_run"}},
    "adam's svag": TEXT | {"optimizer": {"kind": "adam", "eps": 1e-4}, "process": {"kind": "svag", "ell": 2}},
    "glsr": {"process": {"kind": "glsr", "parts": 2}, "sampling": "shuffle", "probe": {"kind": "in_run", "parts": 2}},
    "ngd": {"process": {"kind": "ngd"}, "evaluate.train": True},
    "sde": FROZEN | {"process": {"kind": "sde", "refine": 2}},
    "gd": CONV | {"process": {"kind": "gd"}},
    "planned gain": CONV | {"process": {"kind": "gain", "base_batch_size": 8, "plan": [[0, 1.25], [5, 2.5]]},
                            "batch_size": 24, "budget": 20},
    "measured gain": CONV | {"process": {"kind": "gain", "base_batch_size": 8}, "batch_size": 24, "budget": 20,
                             "probe": {"kind": "in_run", "parts": 4}},
    "frozen": CONV | FROZEN | {"batch_size": 9},
    "killed": CONV | AUGMENTED | {"process": {"kind": "svag", "ell": 2}, "momentum": 0.5,
                                  "process.momentum_limit": "underdamped"},
    "diverged": {"lr": 1e19, "weight_decay": 0.0, "model.norm": "none", "budget": 60},
}  # fmt: skip
FIRST_STEP = (
    CONV
    | AUGMENTED
    | {"momentum": 0.9, "weight_decay": 0.0, "budget": 1, "batch_size": 9, "schedule": {"kind": "constant"}}
)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of two processes in `two`, of one process in `one`, and the data."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return computed(tmp_path_factory.mktemp("parallel"))
    work = tmp_path_factory.getbasetemp().parent / "parallel"  # the workers of pytest-xdist share it
    with FileLock(f"{work}.lock"):
        if not work.exists():
            work.mkdir()
            computed(work)
        assert (work / "computed").exists(), "another worker tells why"
    return work


def computed(work: Path) -> Path:
    npz = write_npz(work / "data.npz")
    torch.set_num_threads(1)
    specs = {name: small(npz, edits) for name, edits in SAME.items()}
    specs |= {
        "first step": small(npz, FIRST_STEP),
        "batch norm": small(npz, BATCH_NORM),
        "dropout": small(npz, DROPOUT),
        "compared": small(npz, COMPARED),
        "same parts": small(npz, SAME_PARTS),
        "masked": small(npz, MASKED),
    }
    plan = [order(spec, work / "two" / name) for name, spec in specs.items()]
    plan += [order(specs["dropout"], work / "two" / "dropout again", at) for at in (6, None)]
    plan += [order(specs["masked"], work / "two" / "masked again", at) for at in (2, 6, None)]
    plan += [order(specs["batch norm"], work / "two" / "half a batch norm", 6)]
    (work / "plan.json").write_text(json.dumps(plan))
    done = torchrun("-m", "tests.lab.training.parallel.worker", str(work / "plan.json"))
    assert done.returncode == 0, done.stderr[-3000:]
    for name in (*SAME, "first step"):
        run(specs[name], work / "one" / name, device="cpu", progress=False)
    (work / "computed").touch()
    return work


def order(spec: RunSpec, folder: Path, interrupt: int | None = None) -> dict[str, Any]:
    return {"spec": spec.to_dict(), "folder": str(folder), "interrupt": interrupt}


def close(one: Any, other: Any, rel: float = 2e-5) -> bool:
    """Whether two values of JSON agree to rounding; float32, ten steps."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key], rel) for key in one)
    return bool(one == pytest.approx(other, rel=rel, abs=1e-9)) if isinstance(one, float) else one == other


def all_close(one: svag.lab.RunRecord, other: svag.lab.RunRecord) -> bool:
    return len(one.rows) == len(other.rows) and all(map(close, one.rows, other.rows))


@pytest.mark.parametrize("name", SAME)
def test_the_run_of_one_process(work: Path, name: str) -> None:
    one, two = read_record(work / "one" / name), read_record(work / "two" / name)
    assert one.state == two.state == ("diverged" if name == "diverged" else "finished")
    assert one.identity == two.identity
    assert all_close(one, two)
    assert (one.outcome["processes"], two.outcome["processes"]) == (1, 2)
    assert one.outcome["examples"] == two.outcome["examples"]
    assert "processes_before" not in two.outcome
    if name in {"sgd", "measured svag", "glsr", "sde", "frozen"}:
        assert two.readings
        assert one.rows != two.rows, "in their last bits: it is another order of summation"


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are listed on Linux only")
def test_the_processes_part_without_a_trace(work: Path) -> None:
    """A thread of the group that outlives it now and then aborts the interpreter at its end."""
    assert not [name for name in json.loads((work / "plan.threads").read_text()) if "gloo" in name]


def test_the_comparison_notices_other_draws(work: Path, tmp_path: Path) -> None:
    """The negative control: from the same first weights, other examples are another run."""
    spec = small(work / "data.npz", SAME["sgd"])
    two = read_record(work / "two" / "sgd")
    assert all_close(with_draws("batches", spec, tmp_path / "again"), two)
    assert not all_close(with_draws("other batches", spec, tmp_path / "other"), two)


def with_draws(stream: str, spec: RunSpec, folder: Path) -> svag.lab.RunRecord:
    """One process, with another stream of draws."""
    plain = BatchStream.__init__

    def drawn(self: BatchStream, data: Any, spec: Any, name: str, *rest: Any) -> None:
        plain(self, data, spec, stream, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchStream, "__init__", drawn)
        return run(spec, folder, device="cpu", progress=False)


def first_gradient(folder: Path) -> torch.Tensor:
    """The velocity after one step without weight decay is the gradient."""
    state = torch.load(folder / "checkpoint.pt", weights_only=True)["optimizer"]["state"]
    return torch.cat([state[index]["momentum_buffer"].reshape(-1).double() for index in sorted(state)])


def test_the_first_gradient_is_that_of_one_process(work: Path, tmp_path: Path) -> None:
    with_draws("other batches", small(work / "data.npz", FIRST_STEP), tmp_path / "other")
    folders = (work / "one" / "first step", work / "two" / "first step", tmp_path / "other")
    one, two, other = map(first_gradient, folders)
    assert (one - two).norm() <= 1e-6 * one.norm()
    assert not torch.equal(one, two)
    assert (one - other).norm() > 0.1 * one.norm()


def test_one_message_a_sub_step_and_two_when_its_pair_is_measured(work: Path) -> None:
    counts = dict(zip([*SAME, "first step"], json.loads((work / "plan.counts").read_text()), strict=False))
    assert counts["first step"] == 1
    assert counts["svag"] == 10 * 2
    assert counts["measured svag"] == 10 * 3 * 2
    assert counts["sgd"] == 10, "measured or not"
    assert counts["glsr"] == 10 * 2
    assert counts["ngd"] == counts["gd"] == 10


def test_batch_norm_uses_the_statistics_of_each_process(work: Path) -> None:
    """Against a bare loop of two halves; the running statistics are those of rank 0."""
    spec = small(work / "data.npz", BATCH_NORM)
    bare = prepare(spec, load_data("npz", path=spec.data.path))
    batches = BatchStream(bare.data, spec, "batches", 8)
    for step in range(10):
        images, labels = batches.draw()
        bare.set_rate(0.1 if step < 5 else 0.1 * 0.1)
        bare.optimizer.zero_grad()
        before = {name: buffer.clone() for name, buffer in bare.model.named_buffers()}
        (nn.functional.cross_entropy(bare.model(images[4:]), labels[4:]) / 2).backward()
        bare.model.load_state_dict(before, strict=False)
        (nn.functional.cross_entropy(bare.model(images[:4]), labels[:4]) / 2).backward()
        bare.optimizer.step()
    found = weights(work / "two" / "batch norm")
    for name, expected in bare.model.state_dict().items():
        torch.testing.assert_close(found[name], expected, rtol=1e-4, atol=1e-5)
    loss, _ = loss_and_accuracy(bare.model, bare.data.test_x, bare.data.test_y)
    assert read_record(work / "two" / "batch norm").final["test_loss"] == pytest.approx(loss, rel=1e-4)


def comparison(folder: Path) -> dict[str, Any]:
    [found] = [row for row in read_record(folder).rows if row["kind"] == "comparison"]
    return found


def test_parts_are_compared_with_the_shares_of_each_process(work: Path) -> None:
    """Against one process that computes the shares, and the parts, one after the other."""
    bare = prepare(small(work / "data.npz", COMPARED), load_data("npz", path=work / "data.npz"))
    batches = BatchStream(bare.data, bare.spec, "parts", 9, independent=True)
    drawn = [batches.draw() for _ in range(20)]

    def cut_at(*cuts: int) -> svag.Reading:
        def loss(batch: Any) -> torch.Tensor:
            images, labels = batch
            pieces = [slice(start, stop) for start, stop in zip((0, *cuts), (*cuts, 9), strict=True)]
            sums = [nn.functional.cross_entropy(bare.model(images[p]), labels[p], reduction="sum") for p in pieces]
            return torch.stack(sums).sum() / 9

        return measure_noise(bare.model, loss, drawn)

    found = comparison(work / "two" / "compared")
    assert found["step"] == 0
    for name, expected in (("whole", cut_at(4)), ("parts", cut_at(3, 6))):
        for number in ("grad_sq", "noise_trace", "param_sq"):
            assert found[name][number] == pytest.approx(getattr(expected, number), rel=1e-4)
    assert found["whole"]["noise_trace"] != pytest.approx(cut_at().noise_trace, rel=1e-3), "it is not the whole batch"
    two = read_record(work / "two" / "compared")
    assert [reading.parts_ratio for reading in two.readings] == [found["ratio"]] * 10


def test_where_the_parts_are_the_shares_the_ratio_is_1(work: Path) -> None:
    assert comparison(work / "two" / "same parts")["ratio"] == pytest.approx(1, rel=1e-6)
    assert abs(comparison(work / "two" / "compared")["ratio"] - 1) > 1e-2


def test_a_comparison_is_the_same_after_an_interruption(work: Path) -> None:
    """Just before it, with masks that every process draws for itself, and after it."""
    assert comparison(work / "two" / "masked")["step"] == 2
    assert same_bits(work / "two" / "masked", work / "two" / "masked again")


def test_dropout_goes_on_bit_for_bit(work: Path) -> None:
    """Every process draws masks of its own, and an interruption does not move them."""
    assert same_bits(work / "two" / "dropout", work / "two" / "dropout again")
    assert read_record(work / "two" / "dropout").state == "finished"


def test_batch_norm_does_not_go_on_with_another_number_of_processes(work: Path) -> None:
    spec, folder = small(work / "data.npz", BATCH_NORM), work / "two" / "half a batch norm"
    with pytest.raises(CheckpointError, match="was made by 2 processes, and BatchNorm normalises by the share of each"):
        run(spec, folder, device="cpu", progress=False)
    assert read_record(folder).state == "interrupted"


@pytest.mark.slow
def test_a_killed_process_ends_the_job_with_one_sentence_and_the_run_goes_on(work: Path) -> None:
    spec, killed = work / "spec.yaml", work / "killed"
    spec.write_text(small(work / "data.npz", SAME["killed"]).to_yaml())
    done = torchrun(
        "-m", "tests.lab.training.parallel.dying", "23", "run", str(spec), "--out", str(killed)
    )  # in step 5 of 10
    assert done.returncode != 0
    [sentence] = sentences(done)
    assert "the same command continues from the last checkpoint" in sentence
    assert "RankLost" not in done.stderr
    assert "gloo" not in done.stderr
    assert read_record(killed).state == "interrupted"
    shutil.copytree(killed, work / "alone")

    again = torchrun("-m", "svag", "run", str(spec), "--out", str(killed), "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["outcome"]["processes"] == 2
    assert again.stderr.count("step 8 of 10: ") == 1
    assert same_bits(killed, work / "two" / "killed")

    alone = run(RunSpec.load(spec), work / "alone", device="cpu", progress=False)
    assert all_close(alone, read_record(killed))
    assert (alone.outcome["processes"], alone.outcome["processes_before"]) == (1, [2])


def test_a_refusal_is_one_sentence_of_all_processes(work: Path) -> None:
    spec, folder = work / "refused.yaml", work / "held"
    spec.write_text(small(work / "data.npz", BATCH_NORM).to_yaml())
    folder.mkdir()
    with RunLock(folder):
        done = torchrun("-m", "svag", "run", str(spec), "--out", str(folder))
    assert sentences(done) == [f"Error: another process is running in {folder}: wait for it, or give another --out"]
    assert done.stdout == ""
    # torchrun ends the other rank by SIGTERM if it looks between the two exits
    codes = re.findall(r"exitcode  : (-?\d+)", done.stderr)
    assert "2" in codes, done.stderr
    assert set(codes) <= {"2", str(-signal.SIGTERM)}, done.stderr
    assert list(folder.iterdir()) == []
