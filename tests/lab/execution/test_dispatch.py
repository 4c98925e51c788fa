"""What a person sees of a plan, as data and as text."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from svag.lab.execution.dispatch import Board, Screen, picture
from svag.lab.execution.plan import PlannedRun, plan_runs
from svag.lab.specs.spec import RunSpec

SPEC = RunSpec.from_yaml("{data: {name: svhn}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: 100}")


@pytest.fixture
def plan() -> list[PlannedRun]:
    return plan_runs([SPEC.edited({"seed": seed}) for seed in range(6)], Path("out"))


@pytest.fixture
def board(plan: list[PlannedRun]) -> Board:
    """Six runs of 100 units of work: one finished, one diverged, one failed, one at 30%, one elsewhere, one waits."""
    board = Board(6, 600.0)
    for run, state in zip(plan, ("finished", "diverged", "failed"), strict=False):
        board.start(run, 100, 0, 100.0)
        board.end(run, state, 100.0)
    board.start(plan[3], 100, 10, 100.0)
    board.move(plan[3], 30, 0.8125)
    board.move(plan[3], 40)
    board.elsewhere = 1
    return board


def text_of(board: Board) -> str:
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(picture(board))
    return console.export_text()


def test_a_bar_for_a_running_run_and_the_totals(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("svag.lab.execution.dispatch.monotonic", lambda: (board.began or 0.0) + 330.0)
    bar, totals = text_of(board).splitlines()
    assert bar.startswith("sgd B=8 seed=3  ━━━━━━━━━━━━ ")
    assert bar.endswith(" 40/100  test accuracy 0.8125")
    # 300 of three runs and 30 of the fourth, which began at 10, took 330 s; 60 + 200 are left at this pace
    assert totals == "1 of 6 done, 1 running, 1 to do, 1 running elsewhere, 1 diverged, 1 failed, about 4 min left"


def test_the_time_left_is_that_of_the_work_left(plan: list[PlannedRun]) -> None:
    board = Board(2, 200.0)
    assert board.seconds_left() is None
    board.start(plan[0], 100, 0, 100.0)
    assert board.seconds_left() is None
    assert board.began is not None
    board.move(plan[0], 50)
    assert board.seconds_left(board.began + 10.0) == pytest.approx(30.0)
    board.leave(plan[0])  # its worker died: the work is to be done again, from wherever its checkpoint was
    assert (board.to_do, board.seconds_left(board.began + 10.0)) == (2, None)
    board.start(plan[0], 100, 0, 100.0)
    board.end(plan[0], "finished", 100.0)
    assert board.seconds_left(board.began + 20.0) == pytest.approx(20.0)


def opened(board: Board, *, progress: bool = True) -> Screen:
    screen = Screen(board, progress=progress)
    screen.open()
    return screen


def test_lines_for_a_file_and_nothing_for_nobody(board: Board, capsys: pytest.CaptureFixture[str]) -> None:
    opened(board).say("something happened")
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("something happened (1 of 6 done, 1 running, 1 to do")
    opened(board, progress=False).say("something happened")
    assert capsys.readouterr().err == ""


def test_what_happens_before_the_plan_is_announced_is_shown_after_it(
    board: Board, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = Screen(board, progress=True)
    screen.say("the first run begins")
    assert capsys.readouterr().err == ""
    screen.open("my question")
    screen.say("the second run begins")
    assert [line.partition(" (")[0] for line in capsys.readouterr().err.splitlines()] == [
        "my question",
        "the first run begins",
        "the second run begins",
    ]


class Terminal(io.StringIO):
    """A terminal in place of standard error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        monkeypatch.setattr("sys.stderr", self)
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("COLUMNS", "120")

    def isatty(self) -> bool:
        return True


def test_bars_at_a_terminal(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    screen = opened(board)
    screen.say("something happened [B=8]")
    screen.close()
    assert "something happened [B=8]" in terminal.getvalue()
    assert "40/100" in terminal.getvalue()


def test_what_is_said_cannot_act_on_a_file(board: Board, capsys: pytest.CaptureFixture[str]) -> None:
    opened(board).say("failed: \x1b[2J")
    assert capsys.readouterr().err.startswith("failed: \\u001b[2J (")


def test_what_is_said_cannot_act_on_the_terminal(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    screen = opened(board)
    screen.say("failed: \x9bm")
    screen.close()
    assert "failed: \\u009bm" in terminal.getvalue()
