"""Ctrl-C waits while a step changes things that belong together."""

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

# Signals whose handlers commonly raise: Ctrl-C, a scheduler's notice, a closed terminal, a time limit.
_NUMBERS = [
    int(getattr(signal, name))
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)  # Windows has only two of them
]
# The C module under `signal`, whose functions search for enumeration members first and take ten times as long.
_c: Any = sys.modules.get("_signal", signal)


class Uninterrupted:
    """Hold signals back until the end of the block, then deliver them.

    A signal that comes a second time is not held, so that a block that hangs can be left; what has to be done all the
    same is `completed`. Inside another such block there is nothing more to hold. Handlers run in the main thread only,
    so neither is there elsewhere. It costs some 2 µs.

    >>> try:
    ...     with Uninterrupted():
    ...         signal.raise_signal(signal.SIGINT)
    ...         print("complete")
    ... except KeyboardInterrupt:
    ...     print("interrupted")
    complete
    interrupted
    """

    def __init__(self) -> None:
        self._before: list[tuple[int, Any]] = []
        self._came: list[int] = []

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        try:
            for number in _NUMBERS:
                handler = _c.getsignal(number)
                # what is not callable ends the process or does nothing: neither raises
                if callable(handler) and getattr(handler, "__func__", None) is not Uninterrupted._hold:
                    self._before.append((number, handler))
                    _c.signal(number, self._hold)
        except BaseException:  # a signal that was not held yet
            self._put_back()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self._put_back()
        finally:
            self._deliver()

    def _hold(self, number: int, frame: FrameType | None) -> None:
        if number in self._came:
            self.__exit__()
        else:
            self._came.append(number)

    def _put_back(self) -> None:
        if self._before:
            try:
                _c.signal(*self._before.pop())
            finally:  # also if a signal that is no longer held arrives
                self._put_back()

    def _deliver(self) -> None:
        if self._came:
            try:
                signal.raise_signal(self._came.pop(0))
            finally:
                self._deliver()


def completed(work: Callable[[], object]) -> None:
    """Do what may be done twice, with signals held; if an error or a second signal cuts it short, do it once more."""
    with Uninterrupted():
        try:
            work()
        except BaseException:
            work()
            raise
