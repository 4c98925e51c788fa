"""The program of a worker process: everything about a plan that needs torch.

A worker takes runs one after another and reports what happens to them. Before that it may be asked to load the data of
a plan, check every spec against it, and time a few updates of its networks, so that the process that gives the orders
does not need torch.

Orders are JSON lines on standard input, reports are JSON lines on standard output. When standard input ends, the parent
is gone and the worker ends: a run in progress makes a checkpoint first, if it can do so within a few seconds.
"""

import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from math import ceil
from pathlib import Path
from time import perf_counter
from typing import IO, Any

import torch

from svag.lab.data.formats import DataError
from svag.lab.data.load import DataSet
from svag.lab.execution.execution import GRACE, Execution
from svag.lab.execution.plan import DataShape, PlannedRun
from svag.lab.records.identity import identity
from svag.lab.records.record import RunFailed
from svag.lab.records.storage import CHECKPOINT, DiskError, FolderInUse
from svag.lab.specs.fields import SpecError
from svag.lab.specs.parts import DataSpec, FrozenProbe
from svag.lab.specs.spec import RunSpec, examples_per_step, updates_per_step
from svag.lab.specs.text import TextSpec
from svag.lab.training.run import keep_freed_memory, run
from svag.lab.training.state import CheckpointError, load_checkpoint
from svag.lab.training.training import Training, check_inputs, load_inputs, pick_device, prepare
from svag.lab.training.watching import NothingToClose, make_streams_lossy

WorkerReport = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, eq=False)
class LoadedData:
    """The data of some runs, on the CPU.

    Attributes:
        sets: each data set once, by its spec without augmentation.
        shapes: the shape of the data of each run, by identity.
    """

    sets: dict[DataSpec | TextSpec, DataSet]
    shapes: dict[str, DataShape]

    def of(self, spec: RunSpec) -> DataSet:
        """The data of one run."""
        return self.sets[_unaugmented(spec)]


def _unaugmented(spec: RunSpec) -> DataSpec | TextSpec:
    """The spec of the data without augmentation: runs that augment a data set differently share it."""
    if isinstance(spec.data, TextSpec):
        return spec.data
    return spec.data.model_copy(update={"augment": None})


def load_data_of(runs: Iterable[PlannedRun], execution: Execution) -> LoadedData:
    """Load every data set of the runs once, downloading what is missing, and check each spec against its data.

    An error that affects all runs is thus reported once, before any of them starts.
    """
    loaded = LoadedData({}, {})
    for planned in runs:
        name = _unaugmented(planned.spec)
        if name not in loaded.sets:
            loaded.sets[name] = load_inputs(name, execution.data_dir, torch.device("cpu"))
        data = loaded.sets[name]
        check_inputs(planned.spec, data)
        shape = DataShape(len(data.train_x), len(data.test_x), data.in_channels, min(data.image_size))
        loaded.shapes[planned.identity] = shape
    return loaded


# Larger batches take proportionally longer and are not tried.
LARGEST = 64
# A forward pass is a third of forward and backward.
FORWARD = 1 / 3
# Updates are repeated for this many seconds, as the first one is the slowest.
_PATIENCE = 0.1


def timed_seconds(
    runs: Sequence[PlannedRun], loaded: LoadedData, device: torch.device, threads: int
) -> dict[str, float]:
    """Seconds of each whole run, by identity, from a few updates of each distinct network and batch size."""
    updates = UpdateTimes(loaded, device)
    with _state_of_torch_kept(threads):
        return {planned.identity: updates.of_run(planned.spec, loaded.shapes[planned.identity]) for planned in runs}


class UpdateTimes:
    """Times updates of networks: each network is built once, and timed once at each batch size."""

    def __init__(self, loaded: LoadedData, device: torch.device) -> None:
        self._loaded, self._device = loaded, device
        self._networks: dict[str, Training] = {}
        self._seconds: dict[tuple[str, int], float] = {}

    def of_run(self, spec: RunSpec, shape: DataShape) -> float:
        """Seconds of a whole run: updates × (one update) + evaluations × (test examples) × (one example forward)."""
        steps, per_step = spec.steps(shape.examples), updates_per_step(spec, shape.examples)
        size = examples_per_step(spec, shape.examples) / per_step
        training = steps * per_step * self._update(spec, size)
        if isinstance(spec.probe, FrozenProbe):
            training += spec.probe.readings * spec.probe.batches * self._update(spec, spec.batch_size)
        evaluations = 1 + ceil(steps / spec.evaluate.interval(steps))
        evaluated = shape.test_examples + (shape.examples if spec.evaluate.train else 0)
        return training + evaluations * FORWARD * self._update(spec, evaluated)

    def _update(self, spec: RunSpec, size: float) -> float:
        """Seconds of one update; one of more than 64 examples takes proportionally longer than one of 64."""
        tried = max(2, min(round(size), LARGEST))
        network = repr((_unaugmented(spec), spec.model))
        if (network, tried) not in self._seconds:
            if network not in self._networks:
                data = self._loaded.of(spec).to(self._device)
                self._networks[network] = prepare(spec.edited({"compile": False}), data)
            self._seconds[network, tried] = _time_an_update(self._networks[network], tried)
        return self._seconds[network, tried] * max(1.0, size / LARGEST)


@contextmanager
def _state_of_torch_kept(threads: int) -> Iterator[None]:
    """Restore torch's global generator and its number of threads afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(before)


def _time_an_update(training: Training, size: int) -> float:
    start = perf_counter()
    times = [_update(training, size)]
    while perf_counter() - start < _PATIENCE:
        times.append(_update(training, size))
    return min(times)


def _update(training: Training, size: int) -> float:
    start = perf_counter()
    training.optimizer.zero_grad()
    loss = training.loss((training.data.train_x[:size], training.data.train_y[:size]))
    loss.backward()
    training.optimizer.step()
    loss.item()  # waits for the device
    return perf_counter() - start


class Reporter(NothingToClose):
    """Reports where a run is to the process that gave the order."""

    def __init__(self, report: WorkerReport) -> None:
        self._report = report

    def at(self, step: int) -> None:
        """Report which effective step is done."""
        self._report({"event": "at", "step": step})

    def evaluated(self, row: dict[str, Any]) -> None:
        """Report an evaluation."""
        self._report({"event": "evaluated", "step": row["step"], "test_accuracy": row["test_accuracy"]})


def to_message(error: BaseException) -> dict[str, Any]:
    """The report of an error: refused (wrong for all runs), elsewhere (another process has the run) or failed."""
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
    """The effective step at which a run will continue: that of its checkpoint, which evaluations may be ahead of."""
    try:
        state = load_checkpoint(folder / CHECKPOINT, identity, torch.device(device))
    except CheckpointError:
        return 0  # the run itself reports what is wrong
    step = None if state is None else state.get("step")
    return step if isinstance(step, int) and step > 0 else 0


def look_ahead_for(order: dict[str, Any], report: WorkerReport) -> None:
    """Load the data of the runs of an order and check their specs against it; time their networks if asked to."""
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


def run_order(order: dict[str, Any], report: WorkerReport) -> None:
    """Carry out the run of an order, and report how it ended."""
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
    """Carry out orders until standard input ends."""
    keep_freed_memory()
    make_streams_lossy(line_by_line=True)  # so that what a killed worker printed is not lost
    reports = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # so that what a user's network prints is not taken for a report
    orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin, orders), daemon=True).start()

    def report(message: dict[str, Any]) -> None:
        # if the parent is gone, standard input ends too, and `_listen` lets the run make a checkpoint first
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
            run_order(order, report)
        else:
            look_ahead_for(order, report)


def _listen(lines: IO[str], orders: "queue.SimpleQueue[dict[str, Any]]") -> None:
    for line in lines:
        orders.put(json.loads(line))
    os.kill(os.getpid(), signal.SIGTERM)  # a run in the main thread holds this signal back until it is saved
    time.sleep(GRACE)
    os._exit(0)


def _use_device(device: str, worker: int) -> None:
    """Distribute the workers over the CUDA devices."""
    if pick_device(device).type == "cuda":
        torch.cuda.set_device(worker % torch.cuda.device_count())
