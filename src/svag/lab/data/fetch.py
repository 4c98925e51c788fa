"""Fetching an official file: verified, atomic, and by one process at a time.

Everything unfinished lives in the folder `.svag` next to the file, under a lock. A file appears under its own name only
when it is complete and its checksum is right.
"""

import logging
import shutil
from pathlib import Path

from svag.lab.data.errors import DataError
from svag.lab.data.resume import Resume
from svag.lab.data.sources import Download


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
