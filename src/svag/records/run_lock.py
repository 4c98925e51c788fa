"""One process at a time in a run directory: a lock that the operating system drops when the process dies."""

import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from svag.records.files import disk_error

try:
    import fcntl
except ImportError:  # not a Unix system: there is no lock of this kind, and runs are not protected from each other
    fcntl = None  # type: ignore[assignment]

# Someone who only looks whether the folder is in use holds the lock for a moment: wait longer than that.
_PATIENCE = 0.5


class FolderInUse(Exception):  # noqa: N818  # it is not an error of the program
    """Another process works in the folder."""


class RunLock:
    """Holds a folder while the context is open."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._handle = -1

    def __enter__(self) -> Self:
        try:
            self._handle = os.open(self._folder, os.O_RDONLY)
        except OSError as error:
            raise disk_error(self._folder, error) from error
        end = time.monotonic() + _PATIENCE
        while not _locks(self._handle, exclusive=True):
            if time.monotonic() > end:
                os.close(self._handle)
                raise FolderInUse(f"another process is running in {self._folder}: wait for it, or give another --out")
            time.sleep(0.02)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._handle)


def in_use(folder: Path) -> bool:
    """Whether a process holds the folder right now."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _locks(handle, exclusive=False)
    finally:
        os.close(handle)


def _locks(handle: int, *, exclusive: bool) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
