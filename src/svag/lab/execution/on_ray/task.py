"""One run on a node, in the plan's folder if the node sees it, otherwise in a temporary folder."""

import os
import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import Any

import ray
from ray.exceptions import RayError

from svag.lab.execution.on_ray.mailbox import Letter, pack, unpack
from svag.lab.execution.worker import first_step, run_order
from svag.lab.records.storage import CHECKPOINT, make_folder
from svag.lab.training.run import keep_freed_memory

# Seconds between two reports of where a run is.
_PACE = 0.5


def run_on_node(order: dict[str, Any], mailbox: Any) -> dict[str, Any]:
    """Carry out an order, and return the last report.

    Args:
        order: that of a local worker, with `attempt`, `cwd`, `path` (of Python) and `token`: a file beside the plan's
            runs by which a node recognises that it sees their folder, or None to send the results in any case.
        mailbox: takes all other reports.
    """
    keep_freed_memory()
    sys.path.extend(place for place in order["path"] if place not in sys.path)
    if Path(order["cwd"]).is_dir():
        os.chdir(order["cwd"])
    if order["token"] is not None and Path(order["token"]).exists():
        return _reported(order, Post(order, mailbox, None))
    with tempfile.TemporaryDirectory(prefix="svag-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder) / order["identity"]
        post = Post(order, mailbox, scratch)
        make_folder(scratch)
        unpack(post.ask_for_files(), scratch)
        last = _reported({**order, "folder": str(scratch)}, post)
        post.send_files()
    if "sentence" in last:
        last["sentence"] = last["sentence"].replace(str(scratch), order["folder"])
    return last


def _reported(order: dict[str, Any], post: "Post") -> dict[str, Any]:
    step = first_step(Path(order["folder"]), order["identity"], order["execution"]["device"])
    post.send({"event": "begins", "step": step, "mailed": post.mailed})
    run_order(order, post)
    return post.last


class Post:
    """Sends the reports of a run, and its files after every new checkpoint if only this node sees them.

    It is called from within the run, so that no file changes while it is read.

    Args:
        order: the order of the run.
        mailbox: takes what is sent.
        scratch: the run directory, if only this node sees it.
    """

    def __init__(self, order: dict[str, Any], mailbox: Any, scratch: Path | None) -> None:
        self.last: dict[str, Any] = {}
        self._order, self._mailbox, self._scratch = order, mailbox, scratch
        self._told, self._sent = monotonic(), 0.0

    @property
    def mailed(self) -> bool:
        """Whether the files have to be sent."""
        return self._scratch is not None

    def __call__(self, report: dict[str, Any]) -> None:
        """Send a report; the last one is kept instead."""
        if report["event"] not in {"at", "evaluated"}:
            self.last = report
            return
        if report["event"] == "evaluated" or monotonic() - self._told > _PACE:
            self._told = monotonic()
            self.send(report, wait=False)
        self._send_new_checkpoint()

    def send(self, report: dict[str, Any], *, wait: bool = True) -> None:
        """Leave a letter in the mailbox, and wait until it has arrived."""
        try:
            left = self._mailbox.put.remote(Letter(self._order["identity"], self._order["attempt"], report))
            if wait:
                ray.get(left)
        except RayError:
            os._exit(1)  # the mailbox is gone; an error here would look like one of the run

    def ask_for_files(self) -> dict[str, bytes]:
        """What an earlier attempt has sent."""
        try:
            files: dict[str, bytes] = ray.get(self._mailbox.files.remote(self._order["folder"]))
        except RayError:
            os._exit(1)
        return files

    def send_files(self) -> None:
        """Send the run directory as it is."""
        if self._scratch is not None:
            self.send({"event": "files", "files": pack(self._scratch)})

    def _send_new_checkpoint(self) -> None:
        if self._scratch is None:
            return
        try:
            made = (self._scratch / CHECKPOINT).stat().st_mtime_ns
        except FileNotFoundError:
            return
        if made != self._sent:
            self._sent = made
            self.send_files()
