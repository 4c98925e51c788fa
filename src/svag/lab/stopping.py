"""Ctrl-C and termination wait until a step is whole, so that a run can save where it is before it leaves."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Self


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
