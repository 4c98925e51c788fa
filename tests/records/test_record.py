"""Run directories in every state are read without failing."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.records.specs import base

from svag.records.files import DiskError, FolderInUse, Journal, RunLock, replace_file
from svag.records.record import load_records, read_record

ROWS: list[dict[str, Any]] = [
    {"kind": "evaluation", "step": 0, "test_accuracy": 0.1, "train_loss": None},
    {"kind": "reading", "grad_sq": 1.0, "noise_trace": 2.0, "param_sq": 3.0, "batch_size": 16, "n": 4, "step": 3},
    {"kind": "evaluation", "step": 10, "test_accuracy": 0.5, "train_loss": 1.5},
]


def write(folder: Path, outcome: dict[str, Any] | None = None, torn: bytes = b"") -> Path:
    folder.mkdir(parents=True)
    header = {"spec": base().to_dict(), "identity": "abc", "steps": 20}
    (folder / "spec.json").write_text(json.dumps(header))
    (folder / "metrics.jsonl").write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in ROWS) + torn)
    if outcome is not None:
        (folder / "outcome.json").write_text(json.dumps(outcome))
    return folder


def test_all_states_side_by_side(tmp_path: Path) -> None:
    write(tmp_path / "a", {"state": "finished"})
    write(tmp_path / "b" / "c", {"state": "diverged", "reason": "the loss is not finite"})
    write(tmp_path / "d", {"state": "failed", "reason": "no room"})
    write(tmp_path / "e", torn=b'{"kind": "evalu')
    (write(tmp_path / "f") / "spec.json").write_text("{")
    (write(tmp_path / "g") / "spec.json").unlink()
    (write(tmp_path / "h") / "spec.json").write_text('{"spec": {"lr": 1}, "identity": "", "steps": 1}')
    (write(tmp_path / "i") / "metrics.jsonl").write_text('{"kind": "reading", "grad_sq": "x"}\n')
    (write(tmp_path / "k") / "metrics.jsonl").write_text('{"kind": "evaluation", "step": null}\n')
    (write(tmp_path / "l") / "metrics.jsonl").write_text('{"kind": "evaluation", "step": 1, "test_loss": "x"}\n')
    (tmp_path / "j").mkdir()
    records = load_records(tmp_path)
    assert [record.state for record in records] == [
        "finished", "diverged", "failed", "interrupted", *6 * ["broken"],
    ]  # fmt: skip
    assert [record.ended for record in records] == [True, True] + 8 * [False]
    assert all(record.problem for record in records if record.state in {"broken", "failed", "diverged"})
    assert all("\n" not in str(record) and json.dumps(record.to_dict()) for record in records)


def test_what_a_record_says(tmp_path: Path) -> None:
    record = read_record(write(tmp_path / "run", {"state": "finished"}, torn=b'{"a'))
    assert record.spec == base()
    assert record.curve("test_accuracy") == [(0, 0.1), (10, 0.5)]
    assert record.curve("train_loss") == [(10, 1.5)]
    assert record.final["step"] == record.step == 10
    assert [reading.noise_trace for reading in record.readings] == [2.0]
    assert str(record).endswith("run: finished at effective step 10 of 20, test accuracy 0.5000, train loss 1.5")


def test_a_run_directory_itself_can_be_loaded(tmp_path: Path) -> None:
    assert len(load_records(write(tmp_path / "run"))) == 1


def test_a_locked_folder_is_running_and_refuses_a_second_process(tmp_path: Path) -> None:
    folder = write(tmp_path / "run")
    with RunLock(folder):
        assert read_record(folder).state == "running"
        with pytest.raises(FolderInUse, match="another process is running in"), RunLock(folder):
            pass
    assert read_record(folder).state == "interrupted"
    with RunLock(folder):
        pass


def test_a_journal_does_not_continue_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "timings.jsonl"
    path.write_bytes(b'{"step": 1}\n{"st')
    journal = Journal(path)
    journal.append([{"step": 2}])
    journal.close()
    assert path.read_bytes() == b'{"step": 1}\n{"step": 2}\n'


def test_a_journal_is_cut_back_and_continued(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "metrics.jsonl")
    journal.append([{"step": 1}])
    kept = journal.length
    journal.append([{"step": 2}, {"step": 3}])
    journal.close()
    again = Journal(tmp_path / "metrics.jsonl")
    again.cut(kept)
    again.append([{"step": 4}])
    again.to_disk()
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1}\n{"step": 4}\n'
    with pytest.raises(DiskError, match="shorter than when"):
        again.cut(1000)
    again.close()
    strict = Journal(tmp_path / "nan.jsonl")
    with pytest.raises(ValueError, match="not JSON compliant"):
        strict.append([{"step": float("nan")}])
    strict.close()


def test_replacing_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checkpoint.pt"
    replace_file(path, b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for thing, last_act in ((os, "fsync"), (Path, "replace")):  # up to the very last act the old content is whole
        with monkeypatch.context() as patch:
            patch.setattr(thing, last_act, full)
            with pytest.raises(DiskError, match="the disk is full: make room and start the run again"):
                replace_file(path, b"new")
        assert path.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [path], "nothing half-written stays behind"
