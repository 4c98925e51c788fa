"""Damage to what a run left is noticed: single bits of the metrics and of the checkpoint, and what was lost."""

import json
import lzma
import random
from pathlib import Path

import pytest
from tests.lab.training.small import go, interrupted, same_bits, small

from svag.lab.execution.plan import PlannedRun
from svag.lab.records.problems import Problem
from svag.lab.records.record import RunFailed, load_records, read_record
from svag.lab.training import loop
from svag.lab.training.loop import Loop
from svag.lab.training.state import CheckpointError

FLIPS = 40
IN_RUN = {"probe": {"kind": "in_run", "parts": 2}}


def flipped(content: bytes, bit: int) -> bytes:
    return content[: bit // 8] + bytes([content[bit // 8] ^ 1 << bit % 8]) + content[bit // 8 + 1 :]


def flips(content: bytes, seed: int) -> list[bytes]:
    """The content with one bit changed, at places spread over all of it."""
    return [flipped(content, bit) for bit in random.Random(seed).sample(range(8 * len(content)), FLIPS)]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("compressed", [False, True])
def test_a_bit_of_the_metrics_of_a_finished_run(npz: Path, tmp_path: Path, compressed: bool) -> None:
    spec, folder = small(npz, IN_RUN), tmp_path / "run"
    go(spec, folder)
    path, whole = folder / "metrics.jsonl", (folder / "metrics.jsonl").read_bytes()
    if compressed:
        path.unlink()
        path = folder / "metrics.jsonl.xz"
        whole = lzma.compress(whole)
    for content in flips(whole, seed=1):
        path.write_bytes(content)
        record = read_record(folder)
        assert (record.state, record.readings, record.rows) == ("broken", [], ())
        changed = {Problem.METRICS_CHANGED, Problem.METRICS_UNPACKABLE, Problem.CONTENT_INVALID}
        assert record.code in changed
        assert "\n" not in record.problem
        with pytest.raises(RunFailed, match=r"/run ") as refused:
            go(spec, folder)
        assert str(refused.value).endswith(record.problem)
        assert path.read_bytes() == content, "what is damaged is left as it is"
    path.write_bytes(whole)
    record = read_record(folder)  # the negative control
    assert (record.state, record.code, record.note, len(record.readings)) == ("finished", None, "", 10)


def test_a_bit_of_the_spec_of_a_finished_run(npz: Path, tmp_path: Path) -> None:
    folder = finished(npz, tmp_path / "run")
    path, record = folder / "spec.json", read_record(folder)
    whole = path.read_bytes()
    other_decay = whole.replace(b'"weight_decay": 0.0', b'"weight_decay": 0.5')
    assert other_decay != whole
    for content in [other_decay, *flips(whole, seed=4)]:
        path.write_bytes(content)
        now = read_record(folder)
        assert (now.state, now.code, now.rows) == ("broken", Problem.SPEC_CHANGED, ())
    path.write_bytes(whole)
    assert read_record(folder) == record, "the negative control"
    outcome = json.loads((folder / "outcome.json").read_text())
    del outcome["spec_sha256"]
    (folder / "outcome.json").write_text(json.dumps(outcome))
    assert read_record(folder).state == "finished", "earlier runs left no such digest"


def test_a_bit_of_a_checkpoint(npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, folder = small(npz, IN_RUN | {"optimizer.momentum": 0.9}), tmp_path / "run"
    interrupted(spec, folder, monkeypatch)
    path, before = folder / "checkpoint.pt", contents(folder)
    for content in flips(before["checkpoint.pt"], seed=2):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"checkpoint\.pt .*\bdamaged\b.*\bremove\b"):
            go(spec, folder)
        assert contents(folder) == before | {"checkpoint.pt": content}, "nothing is touched"
    path.write_bytes(before["checkpoint.pt"])
    assert go(spec, folder).state == "finished"
    go(spec, tmp_path / "straight")
    assert same_bits(folder, tmp_path / "straight")


def test_a_bit_of_the_metrics_that_a_checkpoint_continues(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, folder = small(npz, IN_RUN), tmp_path / "run"
    interrupted(spec, folder, monkeypatch)
    path, before = folder / "metrics.jsonl", contents(folder)
    whole = before["metrics.jsonl"]
    for content in [*flips(whole, seed=3), whole[:-1], b""]:
        path.write_bytes(content)
        # a reading that is none makes the record broken, a number that is another one is seen by its digest
        with pytest.raises((CheckpointError, RunFailed), match=r"is damaged|cannot be read"):
            go(spec, folder)
        assert contents(folder) == before | {"metrics.jsonl": content}
    path.write_bytes(whole + b'{"kind": "evaluation", "st')  # written after the checkpoint, and cut by a kill
    assert go(spec, folder).state == "finished"
    go(spec, tmp_path / "straight")
    assert same_bits(folder, tmp_path / "straight")


def test_the_digest_is_that_of_what_was_written_not_of_what_the_disk_made_of_it(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, path = Loop._take_step, tmp_path / "run" / "metrics.jsonl"

    def damage(self: Loop) -> None:
        take(self)
        if self._run.progress.step == 7:
            path.write_bytes(path.read_bytes().replace(b"0", b"1", 1))

    monkeypatch.setattr(loop.Loop, "_take_step", damage)
    assert go(small(npz), tmp_path / "run").state == "broken"


def finished(npz: Path, folder: Path) -> Path:
    assert go(small(npz), folder).state == "finished"
    return folder


def test_a_run_that_lost_its_digest_is_broken(npz: Path, tmp_path: Path) -> None:
    folder = finished(npz, tmp_path / "run")
    outcome = json.loads((folder / "outcome.json").read_text())
    del outcome["metrics_sha256"]
    (folder / "outcome.json").write_text(json.dumps(outcome))
    assert read_record(folder).code is Problem.DIGEST_MISSING


def test_evidence_may_be_compressed(npz: Path, tmp_path: Path) -> None:
    folder = finished(npz, tmp_path / "run")
    plain = read_record(folder)
    whole = (folder / "metrics.jsonl").read_bytes()
    (folder / "metrics.jsonl.xz").write_bytes(lzma.compress(whole.replace(b"evaluation", b"other")))
    assert read_record(folder) == plain, "where both are there, metrics.jsonl counts"
    (folder / "metrics.jsonl").unlink()
    assert read_record(folder).state == "broken"
    (folder / "metrics.jsonl.xz").write_bytes(lzma.compress(whole))
    assert load_records(tmp_path) == [plain]
    assert go(small(npz), folder) == plain, "it is not run again"
    assert not (folder / "metrics.jsonl").exists()
    (folder / "spec.json").unlink()
    assert [record.state for record in load_records(tmp_path)] == ["broken"]
    before = contents(folder)
    assert read_record(folder).code is Problem.SPEC_MISSING
    with pytest.raises(RunFailed, match=r"spec\.json .*folder$"):
        go(small(npz), folder)
    planned = PlannedRun(small(npz), plain.identity, folder)
    assert (planned.record().state, contents(folder)) == ("broken", before), "nothing is run into it"
