"""A person sees a bar, a file gets lines, and nobody gets nothing."""

import io

import pytest

from svag.lab.watching import Bar, Lines, describe, watcher

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


def test_a_bar_for_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stderr", screen := Terminal())
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    shown = watcher(10, progress=True)
    assert isinstance(shown, Bar)
    with shown:
        shown.at(5)
        shown.evaluated(ROW)
    assert "5/10" in screen.getvalue()
    assert "test accuracy 0.5000" in screen.getvalue()
