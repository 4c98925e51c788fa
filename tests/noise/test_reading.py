import json
import os
import signal
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from svag import Reading, append_readings, load_readings


def reading(**changes: object) -> Reading:
    fields: dict[str, Any] = {"grad_sq": -0.25, "noise_trace": 8.0, "param_sq": 3.0, "batch_size": 16, "n": 4}
    return Reading(**fields | changes)


def test_the_five_numbers_may_be_given_in_their_order() -> None:
    assert Reading(-0.25, 8.0, 3.0, 16, 4) == reading()


def test_is_frozen_and_refuses_unknown_fields() -> None:
    with pytest.raises(FrozenInstanceError):
        reading().grad_sq = 1.0  # type: ignore[misc]
    with pytest.raises(TypeError, match="noise"):
        reading(noise=1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"grad_sq": float("nan")},
        {"grad_sq": float("inf")},
        {"noise_trace": -1.0},
        {"param_sq": -1.0},
        {"batch_size": 0},
        {"n": 1},
        {"momentum": 1.0},
        {"population": 16},
        {"step": -1},
        {"optimizer": "a\x1b[2J"},
        {"optimizer": "half of \ud83d"},
    ],
)
def test_refuses_what_no_run_can_leave(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))) as refused:
        reading(**change)
    assert str(refused.value).isprintable()


def test_only_parts_of_different_weights_may_read_a_negative_noise() -> None:
    assert reading(noise_trace=-1.0, weights_sq=0.7).noise_trace == -1.0
    with pytest.raises(ValueError, match="noise_trace"):
        reading(noise_trace=-1.0)


def test_a_file_is_shared_by_runs_and_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "readings.jsonl"
    first = [reading(run="a", step=0, lr=0.1, population=100), reading(run="a", step=1)]
    second = [reading(run="b", step=0, optimizer="SGD", momentum=0.9, velocity_sq=2.0)]
    append_readings(path, first)
    append_readings(path, second)
    assert load_readings(path) == first + second


@pytest.mark.parametrize("cut", range(2, 60, 7))
def test_a_torn_line_is_left_out_also_when_the_run_goes_on(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "readings.jsonl"
    append_readings(path, [reading(step=0), reading(step=1)])
    path.write_text(path.read_text()[:-cut])
    assert load_readings(path) == [reading(step=0)]
    append_readings(path, [reading(step=2)])
    assert load_readings(path) == [reading(step=0), reading(step=2)]


@pytest.mark.parametrize("line", ["not json", "{not json}", json.dumps({"grad_sq": 1.0}), json.dumps([1])])
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "readings.jsonl"
    append_readings(path, [reading()])
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ValueError, match=r"^line 2 of .*readings\.jsonl "):
        load_readings(path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\x80\x00\xff" * 100, r"readings\.jsonl .*\btext\b"),
        (b"[" * 100_000 + b"]" * 100_000, r"^line 1 of .*readings\.jsonl .*\bnested\b"),
        (b'{"n": ' * 100_000 + b"}", r"^line 1 of .*readings\.jsonl .*\bnested\b"),
        (b'{"n": ' + b"9" * 5000 + b"}", r"^line 1 of .*readings\.jsonl "),
        (b'{"n": 1e999}', r"^line 1 of .*readings\.jsonl "),
        (b'{"run": "' + b"x" * 10**6 + b'", "n": "' + b"y" * 10**6 + b'"}', r"^line 1 of .*readings\.jsonl "),
    ],
)
def test_a_file_of_something_else_is_one_sentence(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "readings.jsonl"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=sentence) as refused:
        load_readings(path)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


def test_a_sparse_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "readings.jsonl"
    with path.open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(ValueError, match=r"readings\.jsonl .*1,000,000,000,000"):
        load_readings(path)


def test_a_pipe_is_no_file_of_readings(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe "):
        load_readings(tmp_path / "pipe")


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="this system has no limit on the size of a file")
def test_a_disk_that_fills_up_gets_all_readings_or_none(tmp_path: Path) -> None:
    """The limit on the size of a file stands for a full disk: a write is cut short, and the next one fails."""
    path = tmp_path / "readings.jsonl"
    append_readings(path, [reading(step=0)])
    room = path.stat().st_size * 5 // 2
    code = (
        "import resource, signal, sys\n"
        "from svag import Reading, append_readings\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))\n"
        "some = [Reading(-0.25, 8.0, 3.0, 16, 4, step=step) for step in range(1, 4)]\n"
        "try:\n    append_readings(sys.argv[1], some)\n"
        "except OSError:\n    append_readings(sys.argv[1], some[:1])\n"
        "else:\n    raise SystemExit('nothing was refused')\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert load_readings(path) == [reading(step=0), reading(step=1)]
