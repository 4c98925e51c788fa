"""The program of a worker process: takes runs one after another, and reports what happens to them.

Orders come as JSON lines on standard input, reports go as JSON lines to standard output. When standard input ends, the
one who gave the orders is gone, and the worker ends: a run that is left in the middle makes a checkpoint first, if it
can do so within some seconds, and continues from there.
"""

import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import IO, Any

from svag.execution.dispatch import to_message
from svag.execution.execution import GRACE, Execution
from svag.lab.run import run
from svag.lab.training import pick_device
from svag.lab.watching import NothingToClose
from svag.records.identity import identity
from svag.records.spec import RunSpec

WorkerReport = Callable[[dict[str, Any]], None]


class Reporter(NothingToClose):
    """Tells the one who gave the order where the run is."""

    def __init__(self, report: WorkerReport) -> None:
        self._report = report

    def at(self, step: int) -> None:
        """Say which effective step is done."""
        self._report({"event": "at", "step": step})

    def evaluated(self, row: dict[str, Any]) -> None:
        """Say how good it is."""
        self._report({"event": "evaluated", "step": row["step"], "test_accuracy": row["test_accuracy"]})


def carry_out(order: dict[str, Any], report: WorkerReport) -> None:
    """Run what an order asks for and report its end, whatever it is."""
    try:
        spec = RunSpec.from_dict(order["spec"])
        if identity(spec) != order["identity"]:
            raise ValueError("the data file or the source of the network has changed since the start: start again")
        how = Execution(**order["execution"])
        run(
            spec,
            order["folder"],
            device=how.device,
            data_dir=how.data_dir,
            threads=how.threads,
            save_seconds=how.save_seconds,
            watching=Reporter(report),
        )
    except Exception as error:
        report(to_message(error))
    else:
        report({"event": "ended"})


def main() -> None:
    """Serve until standard input ends."""
    reports = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a user's network prints shall not look like a report
    orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin, orders), daemon=True).start()

    def report(message: dict[str, Any]) -> None:
        try:
            reports.write(json.dumps(message) + "\n")
            reports.flush()
        except OSError:
            os._exit(1)  # nobody listens any more; an error here would be taken for one of the run

    report({"event": "ready"})
    while True:
        order = orders.get()
        _use_device(order["execution"]["device"], order["worker"])
        carry_out(order, report)


def _listen(lines: IO[str], orders: "queue.SimpleQueue[dict[str, Any]]") -> None:
    for line in lines:
        orders.put(json.loads(line))
    os.kill(os.getpid(), signal.SIGTERM)  # which a run in the main thread holds back until it is saved
    time.sleep(GRACE)
    os._exit(0)


def _use_device(device: str, worker: int) -> None:
    """Spread the workers over the CUDA devices."""
    if pick_device(device).type == "cuda":
        import torch

        torch.cuda.set_device(worker % torch.cuda.device_count())
