"""Before anything starts: is the data there, does every spec fit it, and how long does an update take?

Before anything starts: is the data there, and does every spec fit it? What is wrong for all is said once.

A short measurement: how long an update of a network takes.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from pathlib import Path
from time import perf_counter

import torch

from svag.execution.plan import DataShape, PlannedRun, updates_per_step
from svag.lab.training import Training, check_inputs, load_inputs, prepare
from svag.records.parts import FrozenProbe
from svag.records.spec import RunSpec, examples_per_step


def look_at_data(runs: Iterable[PlannedRun], data_dir: Path | None) -> dict[str, DataShape]:
    """Load every data set of the runs once, fetching it when it is not there, and check each spec against it.

    Returns the shape of each run's data by the run's identity. The networks are left to the workers: one of the user's
    own may do anything to the process that builds it.
    """
    by_data = defaultdict(list)
    for run in runs:
        by_data[run.spec.data.model_copy(update={"augment": None})].append(run)
    shapes: dict[str, DataShape] = {}
    for data, users in by_data.items():
        loaded = load_inputs(data, data_dir, torch.device("cpu"))
        shape = DataShape(len(loaded.train_x), len(loaded.test_x), loaded.in_channels, min(loaded.image_size))
        for run in users:
            check_inputs(run.spec, loaded)
            shapes[run.identity] = shape
    return shapes


# Larger batches than this take proportionally longer, and need not be tried.
LARGEST = 64
# A forward pass is a third of forward and backward.
FORWARD = 1 / 3
# An update is repeated within so many seconds, since the first is the slowest.
_PATIENCE = 0.2


def measured_seconds(
    runs: Sequence[PlannedRun],
    shapes: Mapping[str, DataShape],
    data_dir: Path | None,
    device: torch.device,
    threads: int,
) -> dict[str, float]:
    """Seconds of each whole run, by identity, from a few updates of each distinct network and batch size.

    updates × (one update) + evaluations × (test examples) × (one example forward), where an update of more than 64
    examples takes proportionally longer than one of 64.
    """
    updates: dict[str, float] = {}

    def one_update(run: PlannedRun, size: float) -> float:
        tried = max(2, min(round(size), LARGEST))
        key = repr((run.spec.data.model_copy(update={"augment": None}), run.spec.model, tried))
        if key not in updates:
            updates[key] = _time_an_update(run.spec, tried, data_dir, device, threads)
        return updates[key] * max(1.0, size / LARGEST)

    found = {}
    for run in runs:
        spec, shape = run.spec, shapes[run.identity]
        steps, per_step = spec.steps(shape.examples), updates_per_step(spec)
        size = examples_per_step(spec, shape.examples) / per_step
        training = steps * per_step * one_update(run, size)
        if isinstance(spec.probe, FrozenProbe):
            training += spec.probe.readings * spec.probe.batches * one_update(run, spec.batch_size)
        evaluations = 1 + ceil(steps / spec.evaluate.interval(steps))
        evaluated = shape.test_examples + (shape.examples if spec.evaluate.train else 0)
        found[run.identity] = training + evaluations * FORWARD * one_update(run, evaluated)
    return found


def _time_an_update(spec: RunSpec, size: int, data_dir: Path | None, device: torch.device, threads: int) -> float:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.random.fork_rng(devices=[]):
            training = prepare(spec, load_inputs(spec.data, data_dir, device))
            start = perf_counter()
            times = [_update(training, size)]
            while perf_counter() - start < _PATIENCE:
                times.append(_update(training, size))
    finally:
        torch.set_num_threads(before)
    return min(times)


def _update(training: Training, size: int) -> float:
    start = perf_counter()
    training.optimizer.zero_grad()
    loss = training.loss((training.data.train_x[:size], training.data.train_y[:size]))
    loss.backward()
    training.optimizer.step()
    loss.item()  # waits for the device
    return perf_counter() - start
