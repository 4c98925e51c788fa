"""A checkpoint that is well-formed but wrong is refused in one sentence, and the refusal changes no file."""

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.lab.specs.damage import write_fifo, write_state, wrong_states
from tests.lab.specs.fuzz import answers_within
from tests.lab.training.small import go, interrupted, same_bits, small

from svag.lab.records.record import RunFailed
from svag.lab.records.storage import DiskError
from svag.lab.training.state import CheckpointError
from svag.lab.training.streams import AHEAD

MOMENTUM = {"optimizer.momentum": 0.9, "sampling": "shuffle"}
SVAG: dict[str, Any] = {"process": {"kind": "svag", "ell": 2}, "probe": {"kind": "in_run", "parts": 2}}
FROZEN: dict[str, Any] = {"probe": {"kind": "frozen", "readings": 2, "window": [0, 10], "batches": 2}}


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file with its bytes and when it was written."""
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("third", "edits"), list(enumerate([MOMENTUM, SVAG, FROZEN])), ids=["momentum", "svag", "frozen"]
)
def test_a_wrong_state_is_refused_and_nothing_is_touched(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, third: int, edits: dict[str, Any]
) -> None:
    """Each run tries a third of the states that could be wrong."""
    spec, folder = small(npz, edits), tmp_path / "run"
    interrupted(spec, folder, monkeypatch)
    path = folder / "checkpoint.pt"
    right, state = path.read_bytes(), torch.load(path, weights_only=True)
    for what, wrong in list(wrong_states(state).items())[third::3]:
        write_state(path, wrong)
        before, threads = snapshot(folder), torch.get_num_threads()
        with answers_within(60), pytest.raises(CheckpointError) as refused:
            go(spec, folder)
        sentence = str(refused.value)
        assert sentence.isprintable(), what
        assert str(folder) in sentence, what
        assert len(sentence.replace(str(folder), "")) < 250, sentence
        assert snapshot(folder) == before, what
        assert torch.get_num_threads() == threads
    write_state(path, state)
    assert path.read_bytes() == right, "the negative control"
    assert go(spec, folder).state == "finished"
    go(spec, tmp_path / "straight")
    assert same_bits(folder, tmp_path / "straight")


@pytest.mark.parametrize(
    ("name", "value", "range_of"),
    [
        ("step", 10**9, " 10, got 1000000000"),
        ("step", -5, " 10, got -5"),
        ("metrics_length", "x", " 0 to "),
        ("processes", [], "list"),
        ("seconds", "x", "got 'x'"),
        ("optimizer", None, "NoneType"),
    ],
)
def test_the_sentence_says_what_is_wrong(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: Any, range_of: str
) -> None:
    interrupted(small(npz), tmp_path / "run", monkeypatch)
    path = tmp_path / "run" / "checkpoint.pt"
    write_state(path, {**torch.load(path, weights_only=True), name: value})
    with pytest.raises(CheckpointError) as refused:
        go(small(npz), tmp_path / "run")
    assert re.match(rf"{path} .*\b{name} .*{re.escape(range_of)}", str(refused.value))


def test_batches_that_were_never_drawn_ahead_are_not_drawn_again(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as a wrong number says would take for ever."""
    interrupted(small(npz), tmp_path / "run", monkeypatch)
    path = tmp_path / "run" / "checkpoint.pt"
    state = torch.load(path, weights_only=True)
    state["stepper"]["batches"]["taken"] = 10**12
    write_state(path, state)
    with (
        answers_within(60),
        pytest.raises(CheckpointError, match=rf"\btaken .* {AHEAD}, got 10000"),
    ):
        go(small(npz), tmp_path / "run")


def test_a_bare_tensor_and_a_pipe_are_no_checkpoints(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(small(npz), tmp_path / "run", monkeypatch)
    path = tmp_path / "run" / "checkpoint.pt"
    write_state(path, torch.zeros(3))
    with pytest.raises(CheckpointError, match=r"checkpoint\.pt .*\bremove\b"):
        go(small(npz), tmp_path / "run")
    write_fifo(path)
    with answers_within(60), pytest.raises(CheckpointError, match=r"checkpoint\.pt .*\bremove\b"):
        go(small(npz), tmp_path / "run")


def test_metrics_that_end_within_a_line_do_not_belong_to_a_checkpoint(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(small(npz), tmp_path / "run", monkeypatch)
    path = tmp_path / "run" / "checkpoint.pt"
    state, metrics = torch.load(path, weights_only=True), (tmp_path / "run" / "metrics.jsonl").read_bytes()
    cut = metrics[: state["metrics_length"] - 3]
    write_state(path, {**state, "metrics_length": len(cut), "metrics_sha256": hashlib.sha256(cut).hexdigest()})
    before = snapshot(tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl"):
        go(small(npz), tmp_path / "run")
    assert snapshot(tmp_path / "run") == before


@pytest.mark.parametrize("name", ["checkpoint.pt", "spec.json", "outcome.json"])
def test_a_link_beside_a_file_is_not_followed(npz: Path, tmp_path: Path, name: str) -> None:
    """Somebody who may write into the folder must not make a run overwrite what only its owner may."""
    folder, precious = tmp_path / "run", tmp_path / "precious"
    precious.write_text("mine")
    folder.mkdir()
    (folder / f"{name}.part").symlink_to(precious)
    (folder / f"{name}.0123abcd.part").write_text("half of it, which a kill has left")
    assert go(small(npz), folder).state == "finished"
    assert precious.read_text() == "mine"
    assert sorted(path.name for path in folder.iterdir()) == [
        "checkpoint.pt", "metrics.jsonl", "outcome.json", "spec.json", "timings.jsonl",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["metrics.jsonl", "timings.jsonl"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_journal_is_not_kept_elsewhere(npz: Path, tmp_path: Path, name: str, kind: str) -> None:
    folder, precious = tmp_path / "run", tmp_path / "precious"
    folder.mkdir()
    if kind == "link":
        precious.write_bytes(b"" if name == "metrics.jsonl" else b"mine")
        (folder / name).symlink_to(precious)
    else:
        write_fifo(folder / name)
    before = precious.read_bytes() if kind == "link" else b""
    with answers_within(60), pytest.raises((DiskError, RunFailed), match=r"\b(written|read)\b"):
        go(small(npz), folder)
    assert not precious.exists() or precious.read_bytes() == before
