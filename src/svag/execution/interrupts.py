"""Schedulers stop a job by SIGTERM, people by Ctrl-C: the same happens."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from svag.execution.board import Board


@contextmanager
def terminated_is_interrupted() -> Iterator[None]:
    """Let SIGTERM, by which schedulers stop a job, do what Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what a signal does
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def interrupted_in_words(board: Board) -> Iterator[None]:
    """Let an interruption say how far the plan is and how it goes on."""
    try:
        yield
    except KeyboardInterrupt:
        sentence = f"interrupted, {board.ended} of {board.total} runs have ended"
        raise KeyboardInterrupt(f"{sentence}: the same command continues from the last checkpoints") from None
