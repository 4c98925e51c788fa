"""What a person sees of a run: a bar when someone watches, a line per evaluation otherwise."""

import sys
from types import TracebackType
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
    return f"test accuracy {row['test_accuracy']:.4f}, test loss {row['test_loss']:.4f}{loss}"


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
