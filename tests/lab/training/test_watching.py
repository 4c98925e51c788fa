"""A person sees a bar, a file gets lines, and nobody gets nothing; that nobody reads does not end a run."""

import errno
import io
import os
import re
from pathlib import Path

import pytest
from tests.lab.training.small import interrupted, small

from svag.lab.training.run import run
from svag.lab.training.watching import Bar, Lines, Lossy, describe, watcher

ROW = {"step": 5, "test_accuracy": 0.5, "test_loss": 1.25, "train_loss": None}


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with watcher(10, progress=True) as watching_it:
        watching_it.at(3)
        watching_it.evaluated(ROW)
    assert capsys.readouterr().err == "step 5 of 10: test accuracy 0.5000, test loss 1.2500\n"
    with Lines(10, quiet=True) as nobody:
        nobody.evaluated(ROW)
    assert capsys.readouterr().err == ""
    assert describe({**ROW, "train_loss": 2.0}).endswith("train loss 2.0000")


@pytest.mark.parametrize(
    ("process", "sentence"),
    [
        ({"kind": "sgd"}, "Continues at step 5 of 10."),
        ({"kind": "svag", "ell": 2}, "Continues at effective step 5 of 10."),
    ],
)
def test_a_run_that_continues_says_where(
    npz: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    process: dict[str, object],
    sentence: str,
) -> None:
    spec = small(npz, {"process": process})
    interrupted(spec, tmp_path / "run", monkeypatch)
    assert capsys.readouterr().err == ""
    run(spec, tmp_path / "run", device="cpu")
    assert capsys.readouterr().err.splitlines()[0] == sentence
    run(spec, tmp_path / "fresh", device="cpu")
    assert "Continues" not in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_screen(monkeypatch: pytest.MonkeyPatch, columns: int, steps: int) -> str:
    """What a terminal of that width is sent."""
    monkeypatch.setattr("sys.stderr", screen := Terminal())
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = watcher(steps, progress=True)
    assert isinstance(shown, Bar)
    with shown:
        shown.evaluated({**ROW, "train_loss": 2.0})
        shown.at(steps // 2)
    return screen.getvalue()


def test_a_bar_for_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = on_screen(monkeypatch, 120, 10)
    assert "5/10" in seen
    assert "test accuracy 0.5000, test loss 1.2500, train loss 2.0000" in seen


def test_80_columns_are_enough_for_the_count_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = on_screen(monkeypatch, 80, 62_400)
    assert "31200/62400" in seen
    assert re.search(r"\d:\d\d:\d\d|-:--:--", seen)
    assert "test accuracy 0.5000" in seen


def test_a_run_does_not_need_anybody_to_read_its_lines(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", None)  # what Python makes of a stream that was closed at its start
    assert run(small(npz), tmp_path / "closed").state == "finished"

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("sys.stderr", Full())
    assert run(small(npz), tmp_path / "full").state == "finished"


def test_a_stream_that_nobody_reads_takes_everything_and_remembers() -> None:
    reading, writing = os.pipe()
    with Lossy(writing, "w") as stream:
        assert stream.write(b"heard") == 5
        assert stream.lost is None
        assert os.read(reading, 5) == b"heard"
        os.close(reading)
        assert [stream.write(b"unheard"), stream.write(memoryview(b"too"))] == [7, 3]
        assert stream.lost is not None
        assert stream.lost.errno == errno.EPIPE
