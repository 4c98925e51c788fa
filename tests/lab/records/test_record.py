"""Run directories in every state are read without failing."""

import errno
import fcntl
import hashlib
import json
import lzma
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.lab.specs.fuzz import answers_within
from tests.lab.specs.specs import base

from svag.lab.records import storage
from svag.lab.records.problems import Problem, sentence
from svag.lab.records.record import ENDED, holds_run, load_records, read_record
from svag.lab.records.storage import LOCK, DiskError, FolderInUse, Journal, RunLock, in_use, replace_file

ROWS: list[dict[str, Any]] = [
    {"kind": "evaluation", "step": 0, "test_accuracy": 0.1, "train_loss": None},
    {"kind": "reading", "grad_sq": 1.0, "noise_trace": 2.0, "param_sq": 3.0, "batch_size": 16, "n": 4, "step": 3},
    {"kind": "evaluation", "step": 10, "test_accuracy": 0.5, "train_loss": 1.5},
]


METRICS = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)


def write(
    folder: Path, outcome: dict[str, Any] | None = None, torn: bytes = b"", steps: int = 10, **header: Any
) -> Path:
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(
        json.dumps({"spec": base().to_dict(), "identity": "abc", "steps": steps} | header)
    )
    (folder / "metrics.jsonl").write_bytes(METRICS + torn)
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
    assert [record.code for record in records] == [
        None,
        Problem.DIVERGED,
        Problem.FAILED,
        None,
        *2 * [Problem.SPEC_MISSING],
        *4 * [Problem.CONTENT_INVALID],
    ]
    assert [record.problem for record in records[:4]] == ["", "the loss is not finite", "no room", ""]
    assert all("\n" not in str(record) and json.dumps(record.to_dict()) for record in records)


def test_what_a_record_says(tmp_path: Path) -> None:
    record = read_record(write(tmp_path / "run", {"state": "diverged"}, steps=20))
    assert record.spec == base()
    assert record.curve("test_accuracy") == [(0, 0.1), (10, 0.5)]
    assert record.curve("train_loss") == [(10, 1.5)]
    assert record.final["step"] == record.step == 10
    assert [reading.noise_trace for reading in record.readings] == [2.0]
    assert str(record).endswith("run: diverged at step 10 of 20, test accuracy 0.5000, train loss 1.5")


def test_a_run_that_has_not_ended_is_where_its_timings_end(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", steps=20)
    for content, step in ((b'{"step": 10}\n{"step": 17}\n', 17), (b'{"step": 99}\n', 20), (b'{"step": "a"}\n', 10)):
        (folder / "timings.jsonl").write_bytes(content)
        record = read_record(folder)
        assert (record.state, record.step, record.to_dict()["step"]) == ("interrupted", step, step)


def test_records_of_the_first_version_are_read_with_a_note(tmp_path: Path) -> None:
    record = read_record(write(tmp_path / "old", {"state": "finished"}, numerics=1))
    assert (record.state, record.numerics) == ("finished", 1)
    assert "no digest" in record.note
    assert record.to_dict()["note"] == record.note
    outcome = {"state": "finished", "metrics_sha256": hashlib.sha256(METRICS).hexdigest()}
    record = read_record(write(tmp_path / "new", outcome, numerics=2))
    assert (record.state, record.numerics, record.note) == ("finished", 2, "")
    record = read_record(write(tmp_path / "running", numerics=2))
    assert (record.state, record.note) == ("interrupted", "")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"steps": 20}, (Problem.METRICS_INCOMPLETE, "at step 10 of 20")),
        ({"torn": b'{"kind": "evalu'}, (Problem.METRICS_LINE_DAMAGED, "4")),
        ({"torn": b'{"kind": "evalu\n{"kind": "other"}\n'}, (Problem.METRICS_LINE_DAMAGED, "4")),
        ({"numerics": 2}, (Problem.DIGEST_MISSING, "")),
        ({"outcome": {"state": "diverged", "metrics_sha256": "0"}}, (Problem.METRICS_CHANGED, "")),
    ],
)
def test_the_metrics_of_a_run_that_has_ended_are_checked(
    tmp_path: Path, change: dict[str, Any], problem: tuple[Problem, str]
) -> None:
    record = read_record(write(tmp_path / "run", **{"outcome": {"state": "finished"}} | change))
    assert (record.state, record.code, record.detail) == ("broken", *problem)
    assert record.problem == sentence(*problem)
    assert not record.rows, "nobody takes its numbers for good"
    if "outcome" not in change and "numerics" not in change:  # while a run is under way, all of that may be
        (tmp_path / "run" / "outcome.json").unlink()
        assert read_record(tmp_path / "run").state == "interrupted"


@pytest.mark.parametrize("code", Problem)
def test_every_problem_has_a_sentence(code: Problem) -> None:
    said = sentence(code, "THE DETAIL")
    assert said.isprintable()
    assert "{" not in said
    ways_out = ("remove the folder to run it again", "use another folder")
    record_is_unusable = code not in {Problem.NOT_BEGUN, Problem.FAILED, Problem.DIVERGED}
    assert sum(said.endswith(way) for way in ways_out) == record_is_unusable, "one way out"


def vouched(**outcome: Any) -> dict[str, Any]:
    return {"state": "finished", "metrics_sha256": hashlib.sha256(METRICS).hexdigest(), **outcome}


def test_where_the_digest_vouches_the_last_evaluation_is_enough(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", vouched(), numerics=2)
    whole, outline = read_record(folder), read_record(folder, whole=False)
    assert [dict(row) for row in outline.rows] == ROWS[-1:]
    assert list(whole.rows) == ROWS
    left_out = {"readings"}
    assert {k: v for k, v in outline.to_dict().items() if k not in left_out} == {
        k: v for k, v in whole.to_dict().items() if k not in left_out
    }
    (tmp_path / "run" / "metrics.jsonl").write_bytes(METRICS.replace(b'"n": 4', b'"n": 5'))
    assert [read_record(folder, whole=one).state for one in (True, False)] == ["broken", "broken"]


@pytest.mark.parametrize(
    ("outcome", "header", "state"),
    [
        (None, {}, "interrupted"),
        (vouched(state="failed"), {"numerics": 2}, "failed"),
        ({"state": "finished"}, {}, "finished"),  # numerics version 1, without a digest
        ({"state": "finished"}, {"numerics": 2}, "broken"),
        (vouched(), {"numerics": 2, "steps": 20}, "broken"),
    ],
)
def test_where_no_digest_vouches_every_line_is_read(
    tmp_path: Path, outcome: dict[str, Any] | None, header: dict[str, Any], state: str
) -> None:
    folder = write(tmp_path / "run", outcome, **header)
    whole, outline = read_record(folder), read_record(folder, whole=False)
    assert whole.state == state
    assert outline == whole


def test_an_outline_of_a_run_without_an_evaluation_has_no_rows(tmp_path: Path) -> None:
    content = b'{"kind": "note", "of": "evaluation"}\n'
    outcome = vouched(state="diverged", metrics_sha256=hashlib.sha256(content).hexdigest())
    folder = write(tmp_path / "run", outcome, numerics=2)
    (folder / "metrics.jsonl").write_bytes(content)
    outline = read_record(folder, whole=False)
    assert (outline.state, outline.rows, outline.step) == ("diverged", (), 0)


def test_the_records_of_the_repository_are_read() -> None:
    records = load_records(Path(__file__).parents[3] / "results")
    first = [record for record in records if record.numerics == 1]
    assert {record.state for record in records} <= set(ENDED)  # at large rates some runs of the atlas diverge
    assert all(record.spec is not None for record in records)
    assert {(record.state, given.optimizer.kind) for record in first if (given := record.spec)} == {("finished", "sgd")}
    assert all("no digest" in record.note for record in first)


def test_a_run_directory_itself_can_be_loaded(tmp_path: Path) -> None:
    assert len(load_records(write(tmp_path / "run"))) == 1


def test_a_locked_folder_is_running_and_refuses_a_second_process(tmp_path: Path) -> None:
    folder = write(tmp_path / "run")
    with RunLock(folder):
        assert read_record(folder).state == "running"
        with pytest.raises(FolderInUse, match=re.escape(str(folder))), RunLock(folder):
            pass
    assert read_record(folder).state == "interrupted"
    with RunLock(folder):
        pass


def test_the_lock_is_on_a_file_that_may_be_written(tmp_path: Path) -> None:
    """A lock on a folder would not reach the server of NFS."""
    with RunLock(tmp_path), (tmp_path / LOCK).open("r+b") as file:
        assert stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert not holds_run(tmp_path)
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"
    (tmp_path / LOCK).touch()  # which a kill has left
    assert not in_use(tmp_path)
    with RunLock(tmp_path):
        assert in_use(tmp_path)


def test_a_lock_that_is_removed_while_somebody_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waited has the old file, and must not take it for the one that the next process will find."""
    locks, seen = storage._locks, list[int]()

    def and_removed(handle: int, *, exclusive: bool) -> bool:
        seen.append(handle)
        if len(seen) == 1:
            (tmp_path / LOCK).unlink()
        return locks(handle, exclusive=exclusive)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "_locks", and_removed)
        with RunLock(tmp_path):
            assert len(seen) == 2
            patch.undo()
            assert in_use(tmp_path)
            with pytest.raises(FolderInUse), RunLock(tmp_path):
                pass


def test_a_file_system_without_locks_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", none)
    storage._warn_of_no_locks.cache_clear()
    with pytest.warns(UserWarning, match="No locks available"), RunLock(tmp_path):
        assert not in_use(tmp_path)
    with RunLock(tmp_path):  # a second warning would fail here
        pass
    storage._warn_of_no_locks.cache_clear()


def test_compressed_metrics_stand_for_no_more_than_a_run_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = write(tmp_path / "run")
    (packed / "metrics.jsonl").unlink()
    whole = lzma.compress(METRICS)
    (packed / "metrics.jsonl.xz").write_bytes(whole)
    assert read_record(packed).state == "interrupted"
    for content in (whole[:-9], whole + b"x", lzma.compress(METRICS * 1000)):
        with monkeypatch.context() as patch:
            patch.setattr("svag.lab.records.record.LARGEST", 10_000)
            (packed / "metrics.jsonl.xz").write_bytes(content)
            assert read_record(packed).state == "broken"
    (packed / "metrics.jsonl.xz").write_bytes(whole)
    for limit in ("_TO_UNPACK", "_MOST_LINES"):
        with monkeypatch.context() as patch:
            patch.setattr(f"svag.lab.records.record.{limit}", 1)
            assert read_record(packed).state == "broken"
    assert read_record(packed).state == "interrupted"


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
    with pytest.raises(DiskError, match=r"metrics\.jsonl .*checkpoint\.pt"):
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
            with pytest.raises(DiskError, match=r"checkpoint\.pt .*\bdisk\b"):
                replace_file(path, b"new")
        assert path.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [path], "nothing half-written stays behind"


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DEEP = "[" * 100_000 + "]" * 100_000
TERABYTE = 2**40  # on the paper only: the disk holds none of it


BAD: dict[str, Any] = {
    "a spec of a terabyte": lambda run: os.truncate(run / "spec.json", TERABYTE),
    "metrics of a terabyte": lambda run: os.truncate(run / "metrics.jsonl", TERABYTE),
    "an outcome of a terabyte": lambda run: os.truncate(run / "outcome.json", TERABYTE),
    "packed metrics of a terabyte": lambda run: os.truncate(
        (run / "metrics.jsonl").rename(run / "metrics.jsonl.xz"), TERABYTE
    ),
    "deep spec": lambda run: (run / "spec.json").write_text(DEEP),
    "deep outcome": lambda run: (run / "outcome.json").write_text('{"state": "finished", "seconds": ' + DEEP + "}"),
    "deep metrics": lambda run: (run / "metrics.jsonl").write_text('{"kind": "evaluation", "step": ' + DEEP + "}\n"),
    "endless steps": lambda run: (run / "spec.json").write_text(
        json.dumps({"spec": base().to_dict(), "identity": "abc", "steps": 1}).replace('"steps": 1', '"steps": Infinity')
    ),
    "steps of 1e400": lambda run: (run / "spec.json").write_text(
        json.dumps({"spec": base().to_dict(), "identity": "abc", "steps": 1}).replace('"steps": 1', '"steps": 1e400')
    ),
    "endless accuracy": lambda run: (run / "metrics.jsonl").write_text(
        '{"kind": "evaluation", "step": 10, "test_accuracy": 1e400}\n'
    ),
    "a number of 400 digits": lambda run: (run / "metrics.jsonl").write_text(
        '{"kind": "evaluation", "step": 10, "test_accuracy": 1' + 400 * "0" + "}\n"
    ),
    "half an outcome": lambda run: (run / "outcome.json").write_text('{"state": "fini'),
    "an empty outcome": lambda run: (run / "outcome.json").write_text(""),
    "half a character": lambda run: (run / "outcome.json").write_text('{"state": "finished", "reason": "\\ud800"}'),
    "seconds of text": lambda run: (run / "outcome.json").write_text('{"state": "finished", "seconds": "x"}'),
    "a pipe as metrics": lambda run: _fifo(run / "metrics.jsonl"),
    "a pipe as spec": lambda run: _fifo(run / "spec.json"),
    "a bomb": lambda run: ((run / "metrics.jsonl").unlink(), (run / "metrics.jsonl.xz").write_bytes(b"\xfd7zXZ\x00")),
}


@pytest.mark.parametrize("what", BAD)
def test_one_bad_record_does_not_spoil_the_others(tmp_path: Path, what: str) -> None:
    write(tmp_path / "a", {"state": "finished"})
    BAD[what](write(tmp_path / "b", {"state": "finished"}))
    write(tmp_path / "c", {"state": "finished"})
    with answers_within(60):
        good, bad, other = load_records(tmp_path)
    assert (good.state, other.state) == ("finished", "finished")
    assert (bad.state, bad.rows) == ("broken", ())
    assert bad.problem.isprintable()
    assert len(bad.problem) < 250
    for record in (good, bad, other):
        assert json.dumps(record.to_dict(), ensure_ascii=False).encode()
        assert str(record).isprintable()


def test_a_file_that_is_written_first_beside_another_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a link whose name was guessed is not followed, and another process's half is not touched."""
    precious, path = tmp_path / "precious", tmp_path / "spec.json"
    precious.write_text("mine")
    (tmp_path / "spec.json.part").symlink_to(precious)
    monkeypatch.setattr("svag.lab.records.storage.secrets.token_hex", lambda _: "guessed")
    (tmp_path / "spec.json.guessed.part").symlink_to(precious)
    with pytest.raises(DiskError, match=r"spec\.json .*\(File exists\)"):
        replace_file(path, b"new")
    (tmp_path / "spec.json.guessed.part").unlink()
    replace_file(path, b"new")
    assert (path.read_bytes(), precious.read_text()) == (b"new", "mine")
    path.unlink()
    path.symlink_to(precious)
    replace_file(path, b"newer")
    assert (path.read_bytes(), precious.read_text(), path.is_symlink()) == (b"newer", "mine", False)


def test_a_run_may_have_the_name_of_a_file_of_a_run(tmp_path: Path) -> None:
    for name in ("metrics.jsonl", "spec.json", "a"):
        write(tmp_path / name)
    assert [record.path.name for record in load_records(tmp_path)] == ["a", "metrics.jsonl", "spec.json"]
    assert not holds_run(tmp_path)
