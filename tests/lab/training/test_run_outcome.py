"""How a run ends, and what it leaves: finished, diverged, failed, refused."""

import json
import signal
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.lab.training.small import EXAMPLES, go, same_bits, small, write_npz

import svag
import svag.lab
from svag.lab.records.problems import Problem
from svag.lab.records.record import RunFailed
from svag.lab.specs.fields import SpecError
from svag.lab.training import loop
from svag.lab.training.loop import CHECK_EVERY, Loop
from svag.lab.training.run import run


def test_a_run_that_diverges_is_an_outcome(npz: Path, tmp_path: Path) -> None:
    spec = small(npz, {"lr": 1e19, "weight_decay": 0.0, "model.norm": "none", "budget": 60, "evaluate.every": 60})
    record = go(spec, tmp_path / "run")
    assert record.state == "diverged"
    assert record.outcome["step"] == CHECK_EVERY, "noticed long before the next evaluation"
    assert record.ended
    assert record.code is Problem.DIVERGED
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
    with pytest.raises(RunFailed, match="step 5: RuntimeError: "):
        go(spec, tmp_path / "run")
    failed = svag.lab.load_records(tmp_path)[0]
    assert (failed.state, failed.problem) == ("failed", "RuntimeError: no more memory")
    assert go(spec, tmp_path / "run").state == "finished"
    go(spec, tmp_path / "straight")
    assert same_bits(tmp_path / "run", tmp_path / "straight")


def test_a_network_that_ends_the_program_fails_the_run_and_a_signal_does_not(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Loop._take_step

    def leaves(self: Loop) -> None:
        raise SystemExit(3)

    def is_stopped(self: Loop) -> None:
        signal.raise_signal(signal.SIGTERM)
        take(self)

    monkeypatch.setattr(loop.Loop, "_take_step", leaves)
    with pytest.raises(RunFailed, match="step 0: SystemExit: 3"):
        go(small(npz), tmp_path / "run")
    assert svag.lab.load_records(tmp_path / "run")[0].state == "failed"
    monkeypatch.setattr(loop.Loop, "_take_step", is_stopped)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))  # as many programs do
    try:
        with pytest.raises(SystemExit, match="4"):
            go(small(npz), tmp_path / "stopped")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert svag.lab.load_records(tmp_path / "stopped")[0].state == "interrupted"


def test_what_has_ended_is_only_read(npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = small(npz)
    go(spec, tmp_path / "run")
    monkeypatch.setattr("svag.lab.training.run.load_inputs", None)  # not even the data is loaded
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
    assert go(spec, tmp_path / "run").state == "finished"
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()} == before
    assert sorted(path.name for path in before) == [
        "checkpoint.pt", "metrics.jsonl", "outcome.json", "spec.json", "timings.jsonl",
    ]  # fmt: skip


def test_a_changed_npz_is_another_run(npz: Path, tmp_path: Path) -> None:
    go(small(npz), tmp_path / "run")
    write_npz(npz, seed=1)
    with pytest.raises(ValueError, match=r"\banother\b"):
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
    with pytest.raises(Exception, match=rf"batch_size: .*\b{EXAMPLES}\b"):
        go(small(npz, {"batch_size": EXAMPLES + 1}), tmp_path / "run")
    record = go(small(npz, {"budget": {"epochs": 1.5}}), tmp_path / "epochs")
    assert record.steps == 12
