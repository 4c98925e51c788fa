"""Writing and reading the files of a run directory, safe against kills, full disks, damage and a second process.

A run directory belongs to one process at a time, by a lock that the operating system releases when the process dies.
"""

import errno
import hashlib
import json
import os
import secrets
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Self

from svag.noise.reading import LARGEST, open_to_append, regular

# The files of a run directory.
SPEC, METRICS, TIMINGS, CHECKPOINT, OUTCOME = (
    "spec.json",
    "metrics.jsonl",
    "timings.jsonl",
    "checkpoint.pt",
    "outcome.json",
)

# Committed evidence has the metrics compressed, with the same bytes inside.
COMPRESSED_METRICS = METRICS + ".xz"


class DiskError(Exception):
    """A folder cannot be written; the message is one sentence that says what to do."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Inside, a path that cannot be written raises `DiskError`, which says what to do."""
    try:
        yield
    except OSError as error:
        reason = f" ({error.strerror or error}): choose another folder with --out"
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            reason = ", the disk is full: make room and start the run again, it continues"
        raise DiskError(f"{path} cannot be written{reason}") from error


# Flags that some systems lack: do not follow a symbolic link, and do not wait for the other end of a pipe.
_NO_LINK, _NO_WAIT = getattr(os, "O_NOFOLLOW", 0), getattr(os, "O_NONBLOCK", 0)


def make_folder(path: Path) -> None:
    """Make a folder and its parents."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


def replace_file(path: Path, content: bytes) -> None:
    """Replace the content of a file, all or nothing; the new content is on the disk before the old one is gone.

    It is first written beside the file, under a new name. A link that somebody has put there is neither followed nor
    overwritten, and two processes do not write into the same file.
    """
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}{PART}")
    with writing(path):
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o666)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except OSError:
            with suppress(OSError):
                part.unlink()
            raise


PART = ".part"


def forget_parts(folder: Path, names: Iterable[str]) -> None:
    """Remove half-written versions of these files, left by kills, in a folder that this process has locked."""
    for part in [part for name in names for part in folder.glob(f"{name}*{PART}")]:
        with suppress(OSError):
            part.unlink()


def open_to_read(path: Path) -> int:
    """Open a regular file for reading. A pipe or a device is refused, as reading it may never end."""
    return regular(os.open(path, os.O_RDONLY | _NO_WAIT), path)


# More bytes than any spec or outcome has: longer files are not read.
SMALL = 2**24


def read_file(path: Path, most: int = SMALL) -> bytes:
    """The content of a regular file of at most `most` bytes; a longer one raises OSError before it is read."""
    with os.fdopen(open_to_read(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, more than {most:,}", str(path))
        return file.read()


def content_of(path: Path, most: int = SMALL) -> bytes:
    """The same where a file that is missing, too long or unreadable counts as empty."""
    try:
        return read_file(path, most)
    except OSError:
        return b""


def parse_json(content: bytes) -> Any:
    """Parse strict JSON. Anything else (nested too deeply, not finite, half a character) raises ValueError.

    >>> parse_json(b'{"steps": Infinity}')
    Traceback (most recent call last):
    ValueError: Infinity is not JSON
    """
    try:
        value = _DECODER.decode(content.decode(json.detect_encoding(content), "surrogatepass"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if b"\\u" in content:
        json.dumps(value, ensure_ascii=False).encode()  # fails for half a character, which could not be written again
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# `json.loads` with an option makes a decoder in every call, which takes longer than parsing most lines of metrics
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def to_line(fields: Mapping[str, Any]) -> str:
    """One line of JSON lines."""
    return json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(", ", ": ")) + "\n"


def parse_lines(content: bytes) -> list[dict[str, Any]]:
    r"""The rows of JSON lines, up to the first that is not complete: a kill may have cut the last one.

    >>> parse_lines(b'{"step": 1}\n{"st')
    [{'step': 1}]
    """
    rows: list[dict[str, Any]] = []
    for line in _whole_lines(content):
        try:
            row = parse_json(line)
        except ValueError:
            break
        if not isinstance(row, dict):
            break
        rows.append(row)
    return rows


def _whole_lines(content: bytes) -> Iterator[bytes]:
    """The complete lines, one at a time: splitting a file of line ends alone would take too much memory."""
    start = 0
    while (end := content.find(b"\n", start)) >= 0:
        yield content[start:end]
        start = end + 1


def digest(content: bytes) -> str:
    """SHA-256 of a file's content, in hexadecimal.

    >>> digest(b"")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(content).hexdigest()


class Journal:
    """A file of JSON lines to which one process appends, and which can be cut back to the length at a checkpoint."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with writing(path):
            self._file = os.fdopen(open_to_append(path), "a+b")
            self._forget_torn_line()

    def _forget_torn_line(self) -> None:
        """Remove an incomplete last line, left by a kill, so that the next row does not continue it."""
        if (size := self._file.seek(0, os.SEEK_END)) > LARGEST:
            self._file.close()
            raise DiskError(f"{self._path} has {size:,} bytes, more than a run leaves: remove it to start the run anew")
        self._file.seek(0)
        content = self._file.read()
        self._keep(content[: content.rfind(b"\n") + 1])

    def _keep(self, content: bytes) -> None:
        self._file.truncate(len(content))
        self._file.seek(0, os.SEEK_END)
        # updated from what is written, never from the file: damage on the disk must not enter the digest
        self._sha256 = hashlib.sha256(content)

    @property
    def digest(self) -> str:
        """SHA-256 of what has been written."""
        return self._sha256.hexdigest()

    @property
    def length(self) -> int:
        """Bytes in the file."""
        return self._file.tell()

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append complete rows, and pass them to the operating system."""
        content = "".join(map(to_line, rows)).encode()
        with writing(self._path):
            self._file.write(content)
            self._file.flush()
        self._sha256.update(content)

    def to_disk(self) -> None:
        """Wait until everything is on the disk."""
        with writing(self._path):
            os.fsync(self._file.fileno())

    def cut(self, length: int) -> None:
        """Cut the file to its first `length` bytes."""
        if self.length < length:
            raise DiskError(
                f"{self._path} is shorter than when checkpoint.pt was made: remove both to start the run anew"
            )
        self._file.seek(0)
        self._keep(self._file.read(length))

    def close(self) -> None:
        """Close the file."""
        with writing(self._path):
            self._file.close()


try:
    import fcntl
except ImportError:  # not a Unix system: no such locks, so runs are not protected from each other
    fcntl = None  # type: ignore[assignment]

# A process that checks whether the folder is in use holds the lock for a moment: wait longer than that.
_PATIENCE = 0.5


class FolderInUse(Exception):  # noqa: N818  # it is not an error of the program
    """Another process works in the folder."""


# The file that is locked, while the run lasts. It is a file because NFS does not pass locks on folders to its server.
LOCK = ".lock"


class RunLock:
    """Locks a folder while the context is open."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._file = folder, folder / LOCK
        self._handle = -1

    def __enter__(self) -> Self:
        end = time.monotonic() + _PATIENCE
        while not self._taken():
            if time.monotonic() > end:
                raise FolderInUse(f"another process is running in {self._folder}: wait for it, or give another --out")
            time.sleep(0.02)
        return self

    def _taken(self) -> bool:
        """Try once to lock the file, and check that it is still the one that other processes would find."""
        with writing(self._folder):  # the file too, as NFS requires for a lock
            handle = os.open(self._file, os.O_RDWR | os.O_CREAT | _NO_LINK | _NO_WAIT, 0o666)
        if _locks(handle, exclusive=True):
            with suppress(FileNotFoundError):  # the process that had the lock has just removed the file
                if os.path.samestat(os.fstat(handle), self._file.stat()):
                    self._handle = handle
                    return True
        os.close(handle)
        return False

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._file.unlink()  # while it is locked, so that a waiting process notices and makes a new one
        os.close(self._handle)


def in_use(folder: Path) -> bool:
    """Whether a process has locked the folder."""
    try:
        handle = open_to_read(folder / LOCK)
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
    except OSError as error:
        if exclusive:  # a check protects nothing
            _warn_of_no_locks(error.strerror)
        return True
    return True


@cache
def _warn_of_no_locks(why: str) -> None:
    warnings.warn(
        f"this file system has no locks ({why}), so runs are not protected from a second process: start only one in "
        "each folder",
        stacklevel=2,
    )
