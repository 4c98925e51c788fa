"""The official files of a data set: finding, downloading and reading them.

The data folder is the one given, $SVAG_DATA, or the user's cache. Files are searched in its folders `name/`, `folder/`
and `name/folder/`, where name is svag's (`cifar10`) and folder the official one (`cifar-10-batches-bin`). Archives are
read in place after their checksum has been verified; nothing is unpacked on disk.

A file is downloaded by one process at a time. Until it is complete it is in the folder `.svag` next to its final place,
under a lock; an interrupted download is continued. A file gets its own name only when it is complete and its checksum
is right, and it cannot become longer than the table of data sets allows.
"""

import errno
import gzip
import hashlib
import math
import os
import queue
import tarfile
import threading
import time
import warnings
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from svag.lab.data.formats import Arrays, DataError, checked
from svag.lab.data.sources import Download, Source

CHUNK = 1 << 18
SLOWEST = 50_000
"""Slowest useful connection in bytes per second: an hour for CIFAR-10."""
# Attempts in a row without any progress before a download is given up.
_ATTEMPTS = 3


class IncompleteError(Exception):
    """A download ended before the file was complete, or the partial file was too long; another attempt may help."""


class Resume:
    """Downloads into a partial file and continues it, after broken connections and in later processes.

    Args:
        part: the partial file.
        most: largest number of bytes that is accepted.
        wait: seconds between attempts.
        limit: seconds from now after which it gives up in any case.
    """

    def __init__(self, part: Path, most: int, wait: float, limit: float) -> None:
        self.part, self.most, self.wait, self._end = part, most, wait, time.monotonic() + limit

    @property
    def late(self) -> bool:
        """Whether the time limit has passed."""
        return time.monotonic() >= self._end

    def complete(self, url: str) -> None:
        """Download what is missing of the file at `url`, with a progress bar at a terminal."""
        import requests
        import urllib3

        columns = TextColumn("{task.description}"), BarColumn(30), DownloadColumn(), TransferSpeedColumn()
        failures, best = 0, self._size()
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(url.rpartition("/")[2], total=None)
            while True:
                try:
                    self._attempt_in_time(url, progress, task)
                    break
                except (requests.RequestException, urllib3.exceptions.HTTPError, IncompleteError) as error:
                    if isinstance(error, requests.HTTPError) or self.late:
                        raise  # the server refused, or the time is over: another attempt will not help
                    failures, best = (0, self._size()) if self._size() > best else (failures + 1, best)
                    if failures >= _ATTEMPTS:
                        raise
                    time.sleep(self.wait)

    def _attempt_in_time(self, url: str, progress: Progress, task: TaskID) -> None:
        """Make an attempt in its own thread, as a server that sends a byte now and then never lets a read time out."""
        import requests

        ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

        def attempt() -> None:
            try:
                self._attempt(url, progress, task)
            except BaseException as error:
                ended.put(error)
            else:
                ended.put(None)

        threading.Thread(target=attempt, daemon=True).start()
        try:
            error = ended.get(timeout=min(max(self._end - time.monotonic(), 0.0), threading.TIMEOUT_MAX))
        except queue.Empty:
            raise requests.Timeout from None
        except BaseException:  # Ctrl-C: the thread must stop writing, too
            self._end = -math.inf
            raise
        if error is not None:
            raise error

    def _attempt(self, url: str, progress: Progress, task: TaskID) -> None:
        import requests

        have = self._size()
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        with requests.get(url, headers=headers, stream=True, timeout=30) as response:
            if response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                self.part.unlink()  # longer than the file: start again
                raise IncompleteError("the partial file was too long")
            response.raise_for_status()
            if response.status_code != HTTPStatus.PARTIAL_CONTENT:
                have = 0
            total = have + _declared(response.headers.get("Content-Length", ""))
            self._refuse_longer(url, total)
            progress.update(task, total=total or None, completed=have)
            if self.late:  # this thread has been abandoned, and another process may have the file
                raise requests.Timeout
            with self.part.open("ab" if have else "wb", buffering=0) as file:
                # the raw stream, as a server may label .gz as an encoding, and requests would unpack it
                for chunk in response.raw.stream(CHUNK, decode_content=False):
                    have += len(chunk)
                    self._refuse_longer(url, have)
                    if self.late:
                        raise requests.Timeout
                    file.write(chunk)
                    progress.advance(task, len(chunk))
        if self._size() < total:
            raise IncompleteError(f"the connection ended after {self._size()} of {total} bytes")

    def _size(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _refuse_longer(self, url: str, size: int) -> None:
        if size > self.most:
            self.part.unlink(missing_ok=True)
            raise DataError(
                f"{url} sends more than the {self.most / 1e6:.1f} MB that the file can have: try again later, or fetch "
                "it from another place"
            )


def _declared(length: str) -> int:
    """The number of bytes that a server announces; 0 if that is missing or not a number.

    >>> _declared("1024"), _declared(""), _declared("abc"), _declared("-5")
    (1024, 0, 0, 0)
    """
    return int(length) if length.isdecimal() and len(length) < 20 else 0


def fetch(download: Download, folder: Path, wait: float = 1.0, limit: float | None = None) -> Path:
    """Return `folder`/filename, after downloading and verifying it if it is not there.

    A broken download is continued, now or by the next call; one with a wrong checksum is discarded.

    Args:
        download: what to download.
        folder: folder for the file.
        wait: seconds before a broken connection is tried again.
        limit: maximum number of seconds; by default the time at the slowest useful speed plus a minute.
    """
    target = folder / download.filename
    staging = folder / ".svag"
    seconds = 60 + _most(download) / SLOWEST if limit is None else limit
    end = time.monotonic() + seconds
    try:
        staging.mkdir(parents=True, exist_ok=True)
        with _locked(staging / f"{download.filename}.lock", seconds):
            if not target.exists():  # otherwise another process downloaded it while this one waited
                left = end - time.monotonic()
                _download(download, staging / f"{download.filename}.part", target, wait, left)
    except OSError as error:
        raise DataError(
            f"cannot write {target} ({error.strerror or error}): choose another folder with --data-dir or $SVAG_DATA"
        ) from error
    return target


@contextmanager
def _locked(file: Path, seconds: float) -> Iterator[None]:
    """Keep other processes from downloading the same file; wait for one that does, but not longer than the limit."""
    from filelock import FileLock, Timeout

    with ExitStack() as held:
        try:
            held.enter_context(FileLock(file, timeout=seconds))
        except Timeout as error:
            raise DataError(
                f"another process has not downloaded {file.stem} after {seconds:.0f} s: end it, and try again"
            ) from error
        except OSError as error:
            if error.errno not in {errno.ENOLCK, errno.ENOTSUP}:
                raise
            warnings.warn(
                f"the file system of {file.parent} has no locks ({error.strerror}): download each data set from one "
                "process only",
                stacklevel=2,
            )
        yield


def _download(download: Download, part: Path, target: Path, wait: float, limit: float) -> None:
    import requests
    import urllib3

    if part.is_symlink():  # somebody else made it: do not write to its target
        part.unlink()
    continued = part.exists()
    downloader = Resume(part, _most(download), wait, limit)
    try:
        downloader.complete(download.url)
    except (requests.RequestException, urllib3.exceptions.HTTPError, IncompleteError) as error:
        kept = "run it again to continue" if part.exists() else "try again later"
        reason = f"it is not complete after {limit:.0f} s" if downloader.late else _reason(error)
        raise DataError(
            f"cannot download {download.url} ({reason}): {kept}, or put {download.filename} into {target.parent}"
        ) from error
    except (OSError, DataError):  # on a full disk, make room again
        part.unlink(missing_ok=True)
        raise
    if _md5_of_file(part) == download.md5:
        part.replace(target)
        return
    part.unlink()
    if not continued:
        raise DataError(
            f"{download.url} gave a file whose md5 is not {download.md5}: try again later, or put the official "
            f"{download.filename} into {target.parent}"
        )
    _download(download, part, target, wait, limit)  # the old part may have been the damaged one


def _most(download: Download) -> int:
    """Largest size of a download in bytes; the table has rounded megabytes."""
    return int(1.1e6 * download.megabytes) + 2**16


def _reason(error: Exception) -> str:
    """A short reason in place of the long messages of requests."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code}"
    if isinstance(error, requests.Timeout):
        return "the server does not answer"
    if isinstance(error, requests.ConnectionError):
        return "there is no connection to the server"
    return f"the connection broke: {error}"


LARGEST = 2**28
"""Largest size of an unpacked file in bytes; the largest, of SVHN, has 182 million."""


def data_folder(data_dir: Path | str | None = None) -> Path:
    """Return the folder of the data sets.

    >>> data_folder("/data").as_posix()
    '/data'
    """
    if data_dir is not None:
        return Path(data_dir).expanduser()
    if named := os.environ.get("SVAG_DATA"):
        return Path(named).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("svag")


def find(source: Source, data_dir: Path) -> list[Path] | None:
    """Return the files of a data set, or None if some are missing."""
    found = [_files_of(download, _places(source, data_dir)) for download in source.downloads]
    return None if any(not files for files in found) else [path for files in found for path in files]


def read(source: Source, data_dir: Path) -> Arrays:
    """Read a data set, downloading missing files."""
    contents: dict[str, bytes] = {}
    for download in source.downloads:
        files = _files_of(download, _places(source, data_dir)) or [fetch(download, data_dir / source.name)]
        contents |= _contents(download, files)
    where = str(data_dir / source.name)
    fix = f"delete it and run `svag data get {source.name}`"
    try:
        arrays = source.read(contents)
    except ValueError as error:
        raise DataError(f"{source.name} in {data_dir} is corrupt ({error}): {fix}") from error
    if (len(arrays.train_x), len(arrays.test_x)) != source.examples:
        raise DataError(
            f"{source.name} in {data_dir} has {len(arrays.train_x)} training and {len(arrays.test_x)} test images "
            f"instead of {source.examples[0]} and {source.examples[1]}: {fix}"
        )
    return checked(arrays, where, fix)


def _places(source: Source, data_dir: Path) -> list[Path]:
    return [data_dir / source.name, data_dir / source.folder, data_dir / source.name / source.folder]


def _files_of(download: Download, places: list[Path]) -> list[Path]:
    """Return all unpacked files of a download (each may be gzipped), or the download itself, or nothing."""
    for place in places:
        choices = [(place / member.name, place / f"{member.name}.gz") for member in download.members]
        loose = [next((path for path in pair if _is_file(path)), None) for pair in choices]
        files = [path for path in loose if path is not None]
        if len(files) == len(download.members):
            return files
    return [place / download.filename for place in places if _is_file(place / download.filename)][:1]


def _contents(download: Download, files: list[Path]) -> dict[str, bytes]:
    """Return the verified content of each member."""
    if files[0].name.endswith(".tar.gz"):
        contents = _untar(files[0], download)
        files = files * len(download.members)
    else:
        contents = {member.name: _bytes(path) for member, path in zip(download.members, files, strict=True)}
    for member, path in zip(download.members, files, strict=True):
        if member.md5 is not None and _md5(contents[member.name]) != member.md5:
            raise _corrupt(path, f"the md5 of {member.name} is not {member.md5}")
    return contents


def _bytes(path: Path) -> bytes:
    with _reading(path), gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise _corrupt(path, f"it holds more than {LARGEST} bytes")
    return content


def _untar(path: Path, download: Download) -> dict[str, bytes]:
    """Read the members of an archive after verifying its checksum; links are not followed."""
    wanted = {member.name for member in download.members}
    contents: dict[str, bytes] = {}
    with _reading(path):
        if _md5_of_file(path) != download.md5:
            raise _corrupt(path, f"its md5 is not {download.md5}")
        with tarfile.open(path, "r:gz") as archive:
            for entry in archive:
                name = entry.name.rpartition("/")[2]
                if name not in wanted:
                    continue
                file_of = archive.extractfile(entry) if entry.isreg() and entry.size <= LARGEST else None
                if file_of is None:
                    raise _corrupt(path, f"{name} in it is not a plain file of at most {LARGEST} bytes")
                contents[name] = file_of.read()
    if missing := wanted - set(contents):
        raise _corrupt(path, f"it does not hold {', '.join(sorted(missing))}")
    return contents


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a folder without permission counts as empty
        return False


_new_md5 = partial(hashlib.md5, usedforsecurity=False)


def _md5(content: bytes) -> str:
    return _new_md5(content).hexdigest()


def _md5_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, _new_md5).hexdigest()


def _corrupt(path: Path, why: str) -> DataError:
    return DataError(f"{path} is corrupt ({why}): delete it, then `svag data get` brings a good one")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Say inside what is wrong with a file that cannot be read or unpacked, and what to do."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error, tarfile.TarError) as error:
        raise _corrupt(path, str(error)) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}): check its permissions") from error
