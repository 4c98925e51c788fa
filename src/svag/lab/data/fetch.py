"""Fetching an official file: verified, atomic, by one process at a time, over connections that may break.

Everything unfinished lives in the folder `.svag` next to the file, under a lock; what has arrived is kept and the rest
asked for. A file appears under its own name only when it is complete and its checksum is right.
"""

import logging
import shutil
import time
from http import HTTPStatus
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from svag.lab.data.formats import DataError
from svag.lab.data.sources import Download

CHUNK = 1 << 18


class Resume:
    """A downloader for pooch that continues a partial file, across cuts of the connection and across processes.

    Args:
        part: where the bytes gather; it is renamed to pooch's own temporary file once all are there.
        patience: how many attempts in a row may bring nothing before it gives up.
        wait: seconds between attempts.
    """

    def __init__(self, part: Path, patience: int = 3, wait: float = 1.0) -> None:
        self.part, self.patience, self.wait = part, patience, wait

    def __call__(self, url: str, output_file: str, pooch: object = None, check_only: bool = False) -> None:
        """Fetch `url` into `output_file`, with a progress bar on standard error when a person watches."""
        import requests
        import urllib3

        columns = TextColumn("{task.description}"), BarColumn(30), DownloadColumn(), TransferSpeedColumn()
        failures, best = 0, self._size()
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(url.rpartition("/")[2], total=None)
            while True:
                try:
                    self._attempt(url, progress, task)
                    break
                except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
                    if isinstance(error, requests.HTTPError):
                        raise  # the server has answered: asking again will not help
                    failures, best = (0, self._size()) if self._size() > best else (failures + 1, best)
                    if failures >= self.patience:
                        raise
                    time.sleep(self.wait)
        self.part.replace(output_file)

    def _attempt(self, url: str, progress: Progress, task: TaskID) -> None:
        import requests

        have = self._size()
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        with requests.get(url, headers=headers, stream=True, timeout=30) as response:
            if response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                self.part.unlink()  # more than there is: begin again
                raise requests.ConnectionError("the partial file was too long")
            response.raise_for_status()
            if response.status_code != HTTPStatus.PARTIAL_CONTENT:
                have = 0
            total = have + int(response.headers.get("Content-Length", 0))
            progress.update(task, total=total or None, completed=have)
            with self.part.open("ab" if have else "wb") as file:
                # the raw stream: a server that labels .gz as an encoding must not make us unpack it
                for chunk in response.raw.stream(CHUNK, decode_content=False):
                    file.write(chunk)
                    progress.advance(task, len(chunk))
        if self._size() < total:
            raise requests.ConnectionError(f"the connection ended after {self._size()} of {total} bytes")

    def _size(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0


def fetch(download: Download, folder: Path, wait: float = 1.0) -> Path:
    """Return `folder`/filename, after downloading and verifying it unless it is already there.

    A download that breaks is continued, now or by the next call; one with a wrong checksum is thrown away.

    Args:
        download: what to fetch.
        folder: where the file shall be.
        wait: seconds before a broken connection is tried again.
    """
    from filelock import FileLock

    target = folder / download.filename
    staging = folder / ".svag"
    try:
        staging.mkdir(parents=True, exist_ok=True)
        with FileLock(staging / f"{download.filename}.lock"):
            if not target.exists():  # else another process has brought it while this one waited
                _download(download, staging / download.filename, target, wait)
    except OSError as error:
        raise DataError(
            f"cannot write {target} ({error.strerror or error}): choose another folder with --data-dir or $SVAG_DATA"
        ) from error
    return target


def _download(download: Download, work: Path, target: Path, wait: float) -> None:
    import pooch
    import requests
    import urllib3

    pooch.get_logger().setLevel(logging.WARNING)
    part = work / "part"
    work.mkdir(exist_ok=True)
    for leftover in set(work.iterdir()) - {part}:
        leftover.unlink()  # of a process that was killed: the lock says that nobody is using it
    continued = part.exists()
    try:
        pooch.retrieve(download.url, f"md5:{download.md5}", "done", work, downloader=Resume(part, wait=wait))
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        kept = "run it again to continue" if part.exists() else "try again later"
        if not part.exists():
            work.rmdir()
        raise DataError(
            f"cannot download {download.url} ({_reason(error)}): {kept}, or put {download.filename} "
            f"into {target.parent}"
        ) from error
    except OSError:  # a full disk, say: it shall not stay full because of us
        shutil.rmtree(work, ignore_errors=True)
        raise
    except ValueError as error:
        if continued:  # the old part may have been the bad one
            return _download(download, work, target, wait)
        work.rmdir()
        raise DataError(
            f"{download.url} gave a file whose md5 is not {download.md5}: try again later, or put the official "
            f"{download.filename} into {target.parent}"
        ) from error
    (work / "done").replace(target)
    shutil.rmtree(work)
    return None


def _reason(error: Exception) -> str:
    """Say in a few words what requests says in many."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code}"
    if isinstance(error, requests.Timeout):
        return "the server does not answer"
    if isinstance(error, requests.ConnectionError) and "ended after" not in str(error):
        return "there is no connection to the server"
    return f"the connection broke: {error}"
