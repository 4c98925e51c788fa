"""Fetching one file over a connection that may break: what has arrived is kept, and the rest is asked for."""

import time
from http import HTTPStatus
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

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
