"""A line of progress for long measurements, in a terminal or a notebook."""

import builtins
import sys
from time import perf_counter
from typing import Self

# A measurement shorter than this many seconds shows nothing.
_PATIENCE = 2.0
# Seconds between two updates of the line.
_PACE = 0.2


class ProgressLine:
    """Show on standard error how far a measurement is, and erase the line at its end.

    Nothing is written in the first two seconds, nor to a file or a pipe.

    Args:
        what: name of what is measured.
        verbose: whether to write at all.
    """

    def __init__(self, what: str, *, verbose: bool = True) -> None:
        self._what, self._next, self._width = what, perf_counter() + _PATIENCE, 0
        self._shown = verbose and _watched()

    def say(self, how_far: str) -> None:
        """Show how far it is."""
        if self._shown and perf_counter() >= self._next:
            self._write(f"{self._what}: {how_far}")
            self._next = perf_counter() + _PACE

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._width:
            self._write("")  # overwrite the last line with blanks
            self._write("")  # and move the cursor back to its start

    def _write(self, line: str) -> None:
        width, self._width = self._width, len(line)
        sys.stderr.write(f"\r{line.ljust(width)}")
        sys.stderr.flush()


def _watched() -> bool:
    """Whether standard error is a terminal, or a notebook's output, which does not call itself one."""
    return sys.stderr is not None and (sys.stderr.isatty() or hasattr(builtins, "__IPYTHON__"))
