"""The person at the terminal: what they see of a run, and Ctrl-C, which waits until a step is whole.

A bar is shown when someone watches, a line per evaluation otherwise; that nobody reads them any more does not concern
the run. Signals are held back so that a run can save where it is before it leaves.
"""

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column


class Watcher(Protocol):
    """Is told where the run is."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def at(self, step: int) -> None: ...  # noqa: D102
    def evaluated(self, row: dict[str, Any]) -> None: ...  # noqa: D102


def describe(row: dict[str, Any]) -> str:
    """One evaluation in words."""
    loss = "" if row["train_loss"] is None else f", train loss {row['train_loss']:.4f}"
    bits = row.get("test_bits_per_character")
    quality = f"test accuracy {row['test_accuracy']:.4f}" if bits is None else f"{bits:.4f} bits per character"
    return f"{quality}, test loss {row['test_loss']:.4f}{loss}"


def say(sentence: str) -> None:
    """Say something on standard error, if there is one and it can be written."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(sentence, file=sys.stderr, flush=True)


class Lossy(io.FileIO):
    """A standard stream that takes everything, also when its pipe is closed, its disk full or its terminal gone.

    Attributes:
        lost: why it could not be written, from then on for good.
    """

    lost: OSError | None = None

    def write(self, content: Any) -> int | None:  # type: ignore[override]  # the buffer gives bytes
        """Write, or take note that it cannot be written."""
        if self.lost is None:
            try:
                return super().write(content)
            except OSError as error:
                self.lost = error
        return memoryview(content).nbytes


def make_streams_lossy(*, line_by_line: bool = False) -> tuple[Lossy, Lossy]:
    """Let nothing that is printed in this program raise; what was lost is known to the streams that are returned.

    A stream that was closed at the start gets a place of its own, so that no file of a run takes its number. A letter
    that the terminal does not have becomes a question mark.

    Args:
        line_by_line: write every line at once, also where nobody watches.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # the lowest number that is free is this one; what is printed to 1 is lost, and known to be
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
        # in a narrow terminal the description is cut, never the count or the time that is left
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # the terminal has gone
            self._progress.stop()

    def at(self, step: int) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=step)

    def evaluated(self, row: dict[str, Any]) -> None:
        """Say how good it is."""
        self._progress.update(self._task, description=describe(row))


class NothingToClose:
    """A context that opens nothing and closes nothing, for what need not be told when a run begins and ends."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class Lines(NothingToClose):
    """A line on standard error for every evaluation; none if `quiet`."""

    def __init__(self, steps: int, *, quiet: bool = False) -> None:
        self._steps, self._quiet = steps, quiet

    def at(self, step: int) -> None:
        """Say nothing between evaluations."""

    def evaluated(self, row: dict[str, Any]) -> None:
        """Say how good it is."""
        if not self._quiet:
            say(f"effective step {row['step']} of {self._steps}: {describe(row)}")


def watcher(steps: int, *, progress: bool) -> Watcher:
    """A bar for a person at a terminal, lines for a file, nothing if not wanted."""
    return Bar(steps) if progress and somebody_watches() else Lines(steps, quiet=not progress)


def somebody_watches() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


# By these a scheduler stops a job, and a terminal that is closed stops what was started in it.
STOPPING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Stopped(KeyboardInterrupt):
    """SIGTERM or SIGHUP has told the program to stop.

    Attributes:
        number: which of them.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}: the same command continues")
        self.number = number


@contextmanager
def stoppable(*, always: bool = False) -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise `Stopped`, where they would end the program without a word.

    Only the first of them does: a shell and the system both send SIGHUP when a terminal is closed, and what happens
    after the first one is the orderly end. A signal that is ignored (nohup) stays ignored.

    Args:
        always: take the place of handlers too, such as Ray's.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        for one in before:
            signal.signal(one, signal.SIG_IGN)
        raise Stopped(number)

    before: dict[int, signal._HANDLER] = {}
    if threading.current_thread() is threading.main_thread():  # only there may handlers be set
        found = {number: signal.getsignal(number) for number in STOPPING}
        kept = (None, signal.SIG_IGN)
        before = {n: one for n, one in found.items() if one is signal.SIG_DFL or (always and one not in kept)}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class HeldSignals:
    """Holds SIGINT, SIGTERM and SIGHUP back until `deliver` is called, or until the end of the block.

    A second Ctrl-C is not held: somebody has no patience. Schedulers and shells may send the others twice, and have
    SIGKILL. Only the main thread receives signals: elsewhere nothing is held.

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
        """Whether a signal waits."""
        return self._number is not None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, *STOPPING):
                before = signal.getsignal(number)
                if before not in (None, signal.SIG_IGN):  # who ignores a signal, or handles it elsewhere, goes on so
                    self._before[number] = before
                    signal.signal(number, self._hold)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.deliver()
        else:
            self._put_back()

    def deliver(self) -> None:
        """Let the signal that waits do what it would have done, if there is one; later ones are not held."""
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
