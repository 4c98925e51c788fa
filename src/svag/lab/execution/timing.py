"""Before a plan starts: load its data once, check every spec against it, and time a few updates of its networks."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from time import perf_counter

import torch

from svag.lab.data.load import DataSet
from svag.lab.execution.execution import Execution
from svag.lab.execution.plan import DataShape, PlannedRun
from svag.lab.specs.parts import DataSpec, FrozenProbe
from svag.lab.specs.spec import RunSpec, examples_per_step, updates_per_step
from svag.lab.specs.text import TextSpec
from svag.lab.training.training import Training, check_inputs, load_inputs, prepare


@dataclass(frozen=True, eq=False)
class LoadedData:
    """The data of some runs, on the CPU.

    Attributes:
        sets: each data set once, by what names it.
        shapes: the shape of each run's data, by the run's identity; this is what outlives the data.
    """

    sets: dict[DataSpec | TextSpec, DataSet]
    shapes: dict[str, DataShape]

    def of(self, spec: RunSpec) -> DataSet:
        """The data of one run."""
        return self.sets[_unaugmented(spec)]


def _unaugmented(spec: RunSpec) -> DataSpec | TextSpec:
    """What names a data set: runs that augment it differently share it."""
    if isinstance(spec.data, TextSpec):
        return spec.data
    return spec.data.model_copy(update={"augment": None})


def load_data_of(runs: Iterable[PlannedRun], execution: Execution) -> LoadedData:
    """Load every data set of the runs once, fetching what is not there, and check each spec against its data.

    What is wrong for all runs is thus said once, before any of them starts.
    """
    loaded = LoadedData({}, {})
    for run in runs:
        name = _unaugmented(run.spec)
        if name not in loaded.sets:
            loaded.sets[name] = load_inputs(name, execution.data_dir, torch.device("cpu"))
        data = loaded.sets[name]
        check_inputs(run.spec, data)
        shape = DataShape(len(data.train_x), len(data.test_x), data.in_channels, min(data.image_size))
        loaded.shapes[run.identity] = shape
    return loaded


# Larger batches than this take proportionally longer, and need not be tried.
LARGEST = 64
# A forward pass is a third of forward and backward.
FORWARD = 1 / 3
# An update is repeated within so many seconds, since the first is the slowest.
_PATIENCE = 0.1


def timed_seconds(
    runs: Sequence[PlannedRun], loaded: LoadedData, device: torch.device, threads: int
) -> dict[str, float]:
    """Seconds of each whole run, by identity, from a few updates of each distinct network and batch size.

    updates × (one update) + evaluations × (test examples) × (one example forward), where an update of more than 64
    examples takes proportionally longer than one of 64.
    """
    networks: dict[str, Training] = {}
    updates: dict[tuple[str, int], float] = {}

    def one_update(spec: RunSpec, size: float) -> float:
        tried = max(2, min(round(size), LARGEST))
        network = repr((_unaugmented(spec), spec.model))
        if (network, tried) not in updates:
            if network not in networks:
                networks[network] = prepare(spec.edited({"compile": False}), loaded.of(spec).to(device))
            updates[network, tried] = _time_an_update(networks[network], tried)
        return updates[network, tried] * max(1.0, size / LARGEST)

    def whole(spec: RunSpec, shape: DataShape) -> float:
        steps, per_step = spec.steps(shape.examples), updates_per_step(spec, shape.examples)
        size = examples_per_step(spec, shape.examples) / per_step
        training = steps * per_step * one_update(spec, size)
        if isinstance(spec.probe, FrozenProbe):
            training += spec.probe.readings * spec.probe.batches * one_update(spec, spec.batch_size)
        evaluations = 1 + ceil(steps / spec.evaluate.interval(steps))
        evaluated = shape.test_examples + (shape.examples if spec.evaluate.train else 0)
        return training + evaluations * FORWARD * one_update(spec, evaluated)

    with _without_a_trace(threads):
        return {run.identity: whole(run.spec, loaded.shapes[run.identity]) for run in runs}


@contextmanager
def _without_a_trace(threads: int) -> Iterator[None]:
    """Put torch's global generator and its number of threads back afterwards."""
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
