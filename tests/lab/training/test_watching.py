"""A person sees a bar, a file gets lines, and nobody gets nothing."""

import io
import re

import pytest

from svag.lab.training.watching import Bar, Lines, describe, watcher

ROW = {"step": 5, "test_accuracy": 0.5, "test_loss": 1.25, "train_loss": None}


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with watcher(10, progress=True) as watching_it:
        watching_it.at(3)
        watching_it.evaluated(ROW)
    assert capsys.readouterr().err == "effective step 5 of 10: test accuracy 0.5000, test loss 1.2500\n"
    with Lines(10, quiet=True) as nobody:
        nobody.evaluated(ROW)
    assert capsys.readouterr().err == ""
    assert describe({**ROW, "train_loss": 2.0}).endswith("train loss 2.0000")


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
