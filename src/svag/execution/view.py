"""What a person sees of a plan: a bar for every running run at a terminal, lines in a file, nothing if not wanted."""

import sys
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from svag.execution.board import Board
from svag.execution.duration import roughly


class View(Protocol):
    """Looks at the board, and is told when something happened."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def say(self, sentence: str) -> None: ...  # noqa: D102


def summary(board: Board) -> str:
    """The totals, and how long it will take if the pace stays what it was."""
    left = board.seconds_left()
    return board.totals() + ("" if left is None or not left else f", about {roughly(left)} left")


def picture(board: Board) -> RenderableType:
    """One bar for each running run, and the totals."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(4):
        table.add_column(no_wrap=True)
    for line in board.running.values():
        accuracy = "" if line.accuracy is None else f"test accuracy {line.accuracy:.4f}"
        bar = ProgressBar(total=max(line.steps, 1), completed=line.step, width=30)
        table.add_row(Text(line.name), bar, f"{line.step}/{line.steps}", accuracy)
    return Group(table, Text(summary(board)))


class Bars:
    """Bars on standard error, with what happened above them."""

    def __init__(self, board: Board, console: Console) -> None:
        self._board = board
        self._live = Live(console=console, get_renderable=lambda: picture(self._board), refresh_per_second=5)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, sentence: str) -> None:
        """Say what happened, above the bars."""
        self._live.console.print(Text(sentence))


class Lines:
    """A line on standard error for every run that begins or ends; none if `quiet`."""

    def __init__(self, board: Board, *, quiet: bool = False) -> None:
        self._board, self._quiet = board, quiet

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def say(self, sentence: str) -> None:
        """Say what happened, and where the plan is."""
        if not self._quiet:
            print(f"{sentence} ({summary(self._board)})", file=sys.stderr, flush=True)


def view_of(board: Board, *, progress: bool) -> View:
    """Bars for a person at a terminal, lines for a file, nothing if not wanted."""
    if progress and sys.stderr.isatty():
        return Bars(board, Console(stderr=True))
    return Lines(board, quiet=not progress)
