"""What is known of a plan while it is carried out (the board), and what a person sees of it (a view).

A view is a bar for every running run at a terminal, lines in a file, or nothing if not wanted.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from svag.lab.execution.plan import PlannedRun
from svag.lab.specs.fields import visible
from svag.lab.training.watching import NothingToClose, say, somebody_watches


def roughly(seconds: float) -> str:
    """Seconds in the unit that a person would use.

    >>> [roughly(seconds) for seconds in (0.4, 42, 300, 9000, 200_000)]
    ['1 s', '42 s', '5 min', '2.5 h', '2.3 days']
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86_400:.1f} days"


# Below this share of the work the pace is that of the first steps, which are the slowest.
_TOO_LITTLE = 0.01


@dataclass
class Line:
    """A run that is running: its name, where it is, how good it is, and its work."""

    name: str
    steps: int
    work: float
    step: int = 0
    first: int = 0
    accuracy: float | None = None


@dataclass
class Board:
    """The state of a plan.

    Attributes:
        total: runs in all.
        done: runs that finished.
        diverged: runs that diverged, which is a result too.
        failed: runs that failed.
        elsewhere: runs that another process has.
        running: runs that run here, by identity.
        work_left: work of the runs that have not ended, up to a common factor.
        work_done: work done since the start, in the same units, of runs that ended here.
        began: when the first run began, by the clock.
    """

    total: int
    work_left: float
    done: int = 0
    diverged: int = 0
    failed: int = 0
    elsewhere: int = 0
    running: dict[str, Line] = field(default_factory=dict)
    work_done: float = 0.0
    began: float | None = None

    @property
    def ended(self) -> int:
        """Runs that have come to an end of any kind."""
        return self.done + self.diverged + self.failed

    @property
    def to_do(self) -> int:
        """Runs that wait for a worker."""
        return self.total - self.ended - self.elsewhere - len(self.running)

    def start(self, run: PlannedRun, steps: int, step: int, work: float) -> None:
        """A worker takes a run, which was at `step` already."""
        if self.began is None:
            self.began = monotonic()
        self.running[run.identity] = Line(run.name, steps, work, step, step)

    def move(self, run: PlannedRun, step: int, accuracy: float | None = None) -> None:
        """A run is at `step`."""
        line = self.running[run.identity]
        line.step = step
        line.accuracy = line.accuracy if accuracy is None else accuracy

    def leave(self, run: PlannedRun) -> None:
        """A run is taken from its worker, but has not ended."""
        self.running.pop(run.identity, None)

    def end(self, run: PlannedRun, state: str, work: float) -> None:
        """A run has ended, here or elsewhere."""
        line = self.running.pop(run.identity, None)
        if line is not None:
            self.work_done += _share(line, line.steps)
        self.work_left -= work
        match state:
            case "finished":
                self.done += 1
            case "diverged":
                self.diverged += 1
            case _:
                self.failed += 1

    def seconds_left(self, now: float | None = None) -> float | None:
        """What is left, at the pace of what has been done since the start; None until a hundredth of it has been done.

        elapsed · (work left) / (work done), with the parts of the running runs on their sides.
        """
        lines = self.running.values()
        done = self.work_done + sum(_share(line, line.step) for line in lines)
        left = self.work_left - sum(line.work * line.step / line.steps for line in lines if line.steps)
        if self.began is None or done <= _TOO_LITTLE * (done + left):
            return None
        return ((monotonic() if now is None else now) - self.began) * max(left, 0.0) / done

    def totals(self) -> str:
        """The state in words."""
        parts = [f"{self.done} of {self.total} done", f"{len(self.running)} running", f"{self.to_do} to do"]
        parts += [f"{self.elsewhere} running elsewhere"] if self.elsewhere else []
        parts += [f"{self.diverged} diverged"] if self.diverged else []
        parts += [f"{self.failed} failed"] if self.failed else []
        return ", ".join(parts)


def _share(line: Line, step: int) -> float:
    """Work done here on a run that is at `step`."""
    return line.work * (step - line.first) / line.steps if line.steps else 0.0


class View(Protocol):
    """Looks at the board, and is told when something happened."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def say(self, sentence: str) -> None: ...  # noqa: D102
    def announce(self, announcement: str) -> None: ...  # noqa: D102


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
        table.add_row(Text(visible(line.name)), bar, f"{line.step}/{line.steps}", accuracy)
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
        with suppress(OSError):  # the terminal has gone
            self._live.stop()

    def say(self, sentence: str) -> None:
        """Say what happened, above the bars."""
        self.announce(visible(sentence))

    def announce(self, announcement: str) -> None:
        """Say what is being done, above the bars."""
        with suppress(OSError):
            self._live.console.print(Text(announcement))


class RunLines(NothingToClose):
    """A line on standard error for every run that begins or ends; none if `quiet`."""

    def __init__(self, board: Board, *, quiet: bool = False) -> None:
        self._board, self._quiet = board, quiet

    def say(self, sentence: str) -> None:
        """Say what happened, and where the plan is."""
        if not self._quiet:
            say(f"{visible(sentence)} ({summary(self._board)})")

    def announce(self, announcement: str) -> None:
        """Say what is being done."""
        if not self._quiet:
            say(announcement)


class HeldBack:
    """A view that is opened, and told what happened before, when the plan is announced."""

    def __init__(self, view: View) -> None:
        self._view, self._before, self._open = view, list[str](), False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open:
            self._view.__exit__(kind, error, trace)

    def say(self, sentence: str) -> None:
        """Say what happened, once the plan is announced."""
        if self._open:
            self._view.say(sentence)
        else:
            self._before.append(sentence)

    def announce(self, announcement: str) -> None:
        """Say what is being done, then what has happened meanwhile."""
        self._view.__enter__()
        self._open = True
        self._view.announce(announcement)
        for sentence in self._before:
            self._view.say(sentence)


def view_of(board: Board, *, progress: bool) -> View:
    """Bars for a person at a terminal, lines for a file, nothing if not wanted."""
    if progress and somebody_watches():
        return Bars(board, Console(stderr=True))
    return RunLines(board, quiet=not progress)
