"""The progress display of a run, and its signals: after Ctrl-C the run makes a checkpoint before it ends.

At a terminal a bar is shown, otherwise one line per evaluation. A closed pipe or terminal does not disturb a run.
"""

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column


class Watcher(Protocol):
    """Is told the progress of a run."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def at(self, step: int) -> None: ...  # noqa: D102
    def evaluated(self, row: dict[str, Any]) -> None: ...  # noqa: D102


def describe(row: dict[str, Any]) -> str:
    """The numbers of an evaluation, as text."""
    loss = "" if row["train_loss"] is None else f", train loss {row['train_loss']:.4f}"
    bits = row.get("test_bits_per_character")
    quality = f"test accuracy {row['test_accuracy']:.4f}" if bits is None else f"{bits:.4f} bits per character"
    return f"{quality}, test loss {row['test_loss']:.4f}{loss}"


def say(sentence: str) -> None:
    """Print a sentence on standard error, if that can be written."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(sentence, file=sys.stderr, flush=True)


class Lossy(io.FileIO):
    """A standard stream that never fails, even when its pipe is closed, its disk full or its terminal gone.

    Attributes:
        lost: the first error; nothing is written after it.
    """

    lost: OSError | None = None

    def write(self, content: Any) -> int | None:  # type: ignore[override]  # the buffer gives bytes
        """Write, or remember the error."""
        if self.lost is None:
            try:
                return super().write(content)
            except OSError as error:
                self.lost = error
        return memoryview(content).nbytes


def make_streams_lossy(*, line_by_line: bool = False) -> tuple[Lossy, Lossy]:
    """Replace standard output and standard error by streams that never fail, and return them.

    A stream that was closed at the start is opened on the null device, so that no file of a run gets its number. A
    character that the terminal cannot show becomes a question mark.

    Args:
        line_by_line: write every line at once, also to a file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # opening a file takes the lowest free number, which is this one; writing to 1 will fail
            os.set_inheritable(os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY), True)
    made = Lossy(1, "w", closefd=False), Lossy(2, "w", closefd=False)
    for name, raw in zip(("stdout", "stderr"), made, strict=True):
        before = getattr(sys, name)
        stream = io.TextIOWrapper(
            io.BufferedWriter(raw),
            encoding="utf-8" if before is None else before.encoding,
            errors="replace",
            line_buffering=line_by_line or raw.isatty() or raw is made[1],
        )
        setattr(sys, name, stream)
    return made


class Bar:
    """A progress bar on standard error."""

    def __init__(self, steps: int) -> None:
        # in a narrow terminal the description is cut, never the count or the remaining time
        whole, rest = Column(no_wrap=True), Column(no_wrap=True, overflow="ellipsis", ratio=1)
        self._progress = Progress(
            BarColumn(bar_width=15),
            MofNCompleteColumn(table_column=whole),
            TimeRemainingColumn(table_column=whole),
            TextColumn("{task.description}", table_column=rest),
            console=Console(stderr=True),
            transient=True,
            expand=True,
        )
        self._task = self._progress.add_task("", total=steps)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # the terminal is gone
            self._progress.stop()

    def at(self, step: int) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=step)

    def evaluated(self, row: dict[str, Any]) -> None:
        """Show an evaluation."""
        self._progress.update(self._task, description=describe(row))


class NothingToClose:
    """A context manager that does nothing, for watchers that need not know when a run begins and ends."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Lines(NothingToClose):
    """A line on standard error for every evaluation; none if `quiet`."""

    def __init__(self, steps: int, step_name: str = "step", *, quiet: bool = False) -> None:
        self._steps, self._step_name, self._quiet = steps, step_name, quiet

    def at(self, step: int) -> None:
        """Print nothing between evaluations."""

    def evaluated(self, row: dict[str, Any]) -> None:
        """Print an evaluation."""
        if not self._quiet:
            say(f"{self._step_name} {row['step']} of {self._steps}: {describe(row)}")


def watcher(steps: int, step_name: str = "step", *, progress: bool) -> Watcher:
    """A bar at a terminal, lines in a file, nothing without `progress`."""
    return Bar(steps) if progress and somebody_watches() else Lines(steps, step_name, quiet=not progress)


def somebody_watches() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


# Schedulers stop jobs by SIGTERM, and a terminal that is closed sends SIGHUP to its programs.
STOPPING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Stopped(KeyboardInterrupt):
    """The program was told to stop by SIGTERM or SIGHUP.

    Attributes:
        number: number of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}: the same command continues")
        self.number = number


@contextmanager
def stoppable(*, always: bool = False) -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise `Stopped` instead of ending the program silently.

    Only the first signal does, as a shell and the system may both send SIGHUP when a terminal is closed; later ones do
    not disturb the orderly end. A signal that is ignored (nohup) stays ignored.

    Args:
        always: also replace other handlers, such as Ray's.
    """
    stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        for replaced in before:
            signal.signal(replaced, signal.SIG_IGN)
        raise Stopped(number)

    before: dict[int, signal._HANDLER] = {}
    if threading.current_thread() is threading.main_thread():  # only there can handlers be set
        for number in STOPPING:
            handler = signal.getsignal(number)
            if handler is signal.SIG_DFL or (always and handler not in (None, signal.SIG_IGN)):
                before[number] = handler
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            if stopped or signal.getsignal(number) is stop:  # otherwise code inside has decided to ignore it
                signal.signal(number, handler)


class HeldSignals:
    """Holds SIGINT, SIGTERM and SIGHUP back until `deliver` is called or the block ends.

    A second Ctrl-C is delivered at once. The other signals may come twice from schedulers and shells, which use SIGKILL
    if they want to end the run at once. Only the main thread receives signals: elsewhere nothing is held.

    >>> try:
    ...     with HeldSignals() as held:
    ...         signal.raise_signal(signal.SIGINT)
    ...         print("saved before it leaves")
    ... except KeyboardInterrupt:
    ...     print("interrupted")
    saved before it leaves
    interrupted
    """

    def __init__(self) -> None:
        self._before: dict[int, signal._HANDLER] = {}
        self._number: int | None = None
        self.delivered = False

    @property
    def came(self) -> bool:
        """Whether a signal is being held back."""
        return self._number is not None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, *STOPPING):
                before = signal.getsignal(number)
                if before not in (None, signal.SIG_IGN):  # an ignored signal, or one handled outside Python, stays so
                    self._before[number] = before
                    signal.signal(number, self._hold)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.deliver()
        else:
            self._put_back()

    def deliver(self) -> None:
        """Deliver the signal that was held back, if there is one. Later ones are not held."""
        self._put_back()
        number, self._number = self._number, None
        if number is not None:
            self.delivered = True
            signal.raise_signal(number)

    def _hold(self, number: int, frame: FrameType | None) -> None:
        if self._number is None:
            self._number = number
        elif number == signal.SIGINT:
            self.deliver()

    def _put_back(self) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()
