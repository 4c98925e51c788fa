"""The person at the terminal: what they see of a run, and Ctrl-C, which waits until a step is whole.

A bar is shown when someone watches, a line per evaluation otherwise. Signals are held back so that a run can save where
it is before it leaves.
"""

import signal
import sys
import threading
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
            print(f"effective step {row['step']} of {self._steps}: {describe(row)}", file=sys.stderr, flush=True)


def watcher(steps: int, *, progress: bool) -> Watcher:
    """A bar for a person at a terminal, lines for a file, nothing if not wanted."""
    return Bar(steps) if progress and sys.stderr.isatty() else Lines(steps, quiet=not progress)


class HeldSignals:
    """Holds SIGINT and SIGTERM back until `deliver` is called, or until the end of the block.

    The same signal a second time is not held. Only the main thread receives signals: elsewhere nothing is held.

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
            for number in (signal.SIGINT, signal.SIGTERM):
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
        else:
            self.deliver()

    def _put_back(self) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()
