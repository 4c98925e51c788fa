"""The program of a worker process: takes runs one after another, and reports what happens to them.

Before the runs of a plan begin it may be asked to look at their data and to time their networks, so that the process
that gives the orders does not need torch.

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
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import IO, Any

import torch

from svag.lab.data.formats import DataError
from svag.lab.execution.execution import GRACE, Execution
from svag.lab.records.files import DiskError, FolderInUse
from svag.lab.records.identity import identity
from svag.lab.records.record import CHECKPOINT, RunFailed
from svag.lab.specs.fields import SpecError
from svag.lab.specs.spec import RunSpec
from svag.lab.training.run import keep_freed_memory, run
from svag.lab.training.state import CheckpointError, load_checkpoint
from svag.lab.training.training import pick_device
from svag.lab.training.watching import NothingToClose, make_streams_lossy

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


def to_message(error: BaseException) -> dict[str, Any]:
    """What a worker reports of an error: refused (wrong for all runs), elsewhere (another process has it) or failed."""
    sentence = " ".join(str(error).split()) or type(error).__name__
    match error:
        case FolderInUse():
            return {"event": "elsewhere"}
        case SpecError():
            return {"event": "refused", "kind": "spec", "path": error.path, "sentence": error.reason}
        case DataError():
            return {"event": "refused", "kind": "data", "sentence": sentence}
        case DiskError():
            return {"event": "refused", "kind": "disk", "sentence": sentence}
        case ValueError():
            return {"event": "refused", "kind": "value", "sentence": sentence}
        case RunFailed():
            return {"event": "failed", "recorded": True, "sentence": sentence}
    return {"event": "failed", "recorded": False, "sentence": f"{type(error).__name__}: {sentence}"}


def first_step(folder: Path, identity: str, device: str) -> int:
    """The effective step at which a run will go on: that of its checkpoint, 0 without one; evaluations may be ahead."""
    try:
        state = load_checkpoint(folder / CHECKPOINT, identity, torch.device(device))
    except CheckpointError:
        return 0  # who runs it says what is wrong
    step = None if state is None else state.get("step")
    return step if isinstance(step, int) and step > 0 else 0


def look_ahead_for(order: dict[str, Any], report: WorkerReport) -> None:
    """Look at the data of the runs of an order and check their specs against it; time their networks if asked."""
    from svag.lab.execution.plan import PlannedRun
    from svag.lab.execution.timing import load_data_of, timed_seconds

    try:
        how = Execution(**order["execution"])
        place = pick_device(how.device)
        runs = [PlannedRun(RunSpec.from_dict(spec), name, Path()) for name, spec in order["specs"].items()]
        loaded = load_data_of(runs, how)
        if order["task"] == "time":
            report({"event": "timed", "seconds": timed_seconds(runs, loaded, place, how.threads)})
        else:
            shapes = {name: astuple(shape) for name, shape in loaded.shapes.items()}
            report({"event": "looked", "shapes": shapes, "device": place.type})
    except (Exception, SystemExit) as error:  # a user's network may end the program
        report(to_message(error))


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
    keep_freed_memory()
    make_streams_lossy(line_by_line=True)  # a worker that is killed has said what it printed
    reports = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a user's network prints shall not look like a report
    orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin, orders), daemon=True).start()

    def report(message: dict[str, Any]) -> None:
        # if nobody listens any more, standard input ends too, and `_listen` lets the run save itself first
        with suppress(OSError):
            reports.write(json.dumps(message) + "\n")
            reports.flush()

    report({"event": "ready"})
    while True:
        order = orders.get()
        device = order["execution"]["device"]
        if order["task"] == "run":
            _use_device(device, order["worker"])
            report({"event": "begins", "step": first_step(Path(order["folder"]), order["identity"], device)})
            carry_out(order, report)
        else:
            look_ahead_for(order, report)


def _listen(lines: IO[str], orders: "queue.SimpleQueue[dict[str, Any]]") -> None:
    for line in lines:
        orders.put(json.loads(line))
    os.kill(os.getpid(), signal.SIGTERM)  # which a run in the main thread holds back until it is saved
    time.sleep(GRACE)
    os._exit(0)


def _use_device(device: str, worker: int) -> None:
    """Spread the workers over the CUDA devices."""
    if pick_device(device).type == "cuda":
        torch.cuda.set_device(worker % torch.cuda.device_count())
