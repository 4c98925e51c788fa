"""Which readings are averaged: one learning rate, and late enough in its phase."""

from collections.abc import Sequence
from itertools import groupby

from svag.records.reading import Reading

# A phase with fewer readings is a step of a ramp, not a plateau.
_PLATEAU = 20

Window = tuple[int, int] | tuple[float, float]


def choose_readings(readings: Sequence[Reading], window: Window | None = None) -> list[Reading]:
    """Return the readings to average, run after run, each run in the order of its steps.

    Without a `window`: all readings when the learning rate is constant; otherwise the last third of the last but one
    phase of the schedule, as in the paper. With one: whole numbers are effective steps, the second excluded; fractions
    are of the last step.
    """
    chosen = [reading for run in _runs(readings) for reading in _in_run(run, window)]
    if not chosen:
        raise ValueError(f"no reading lies in the window {window}: the readings end at step {_last_step(readings)}")
    if len(rates := {reading.lr for reading in chosen}) > 1:
        raise ValueError(
            f"the window holds readings at {len(rates)} learning rates, and only one can be averaged: choose a window "
            "inside one phase of the schedule"
        )
    return chosen


def ramp(readings: Sequence[Reading]) -> int | None:
    """Length of the longest phase when there are several and none is long enough to average over; None otherwise."""
    phases = [[len(phase) for phase in _phases(run)] for run in _runs(readings)]
    longest = max(length for run in phases for length in run)
    return longest if longest < _PLATEAU and any(len(run) > 1 for run in phases) else None


def steps_into_phase(readings: Sequence[Reading], first: Reading) -> int | None:
    """Steps that the run of `first` had spent at its learning rate when `first` was taken; None without steps."""
    steps = [reading.step for reading in readings if reading.run == first.run and reading.step is not None]
    if first.step is None or not steps:
        return None
    run = next(run for run in _runs(readings) if run[0].run == first.run)
    for phase in _phases(run):
        if first in phase:
            start = phase[0].step or 0
            return first.step - (0 if phase[0] is run[0] else start)
    return None


def _in_run(run: list[Reading], window: Window | None) -> list[Reading]:
    if window is not None:
        return _between(run, window)
    phases = _phases(run)
    plateaus = [phase for phase in phases if len(phase) >= _PLATEAU] or phases
    if len(plateaus) == 1:
        return plateaus[0]
    late = plateaus[-2]
    return late[len(late) - max(len(late) // 3, 1) :]


def _between(run: list[Reading], window: Window) -> list[Reading]:
    limits: object = window
    if not isinstance(limits, tuple | list) or [isinstance(limit, int | float) for limit in limits] != [True, True]:
        raise ValueError(f"window must be two increasing fractions between 0 and 1, or two steps, got {window!r}")
    start, stop = window
    if isinstance(start, int) and isinstance(stop, int):
        if any(reading.step is None for reading in run):
            raise ValueError(f"the window {window} counts steps, but some readings have none: give fractions")
        if not 0 <= start < stop:
            raise ValueError(f"window must be two increasing effective steps, got {window}")
        return [reading for reading in run if reading.step is not None and start <= reading.step < stop]
    if not 0 <= start < stop <= 1:
        raise ValueError(f"window must be two increasing fractions between 0 and 1, or two steps, got {window}")
    positions = [index if reading.step is None else reading.step for index, reading in enumerate(run)]
    end = positions[-1] + 1
    return [reading for reading, at in zip(run, positions, strict=True) if start * end <= at < stop * end]


def _runs(readings: Sequence[Reading]) -> list[list[Reading]]:
    names = list(dict.fromkeys(reading.run for reading in readings))
    runs = [[reading for reading in readings if reading.run == name] for name in names]
    return [sorted(run, key=_step) if all(r.step is not None for r in run) else run for run in runs]


def _phases(run: list[Reading]) -> list[list[Reading]]:
    return [list(phase) for _, phase in groupby(run, key=lambda reading: reading.lr)]


def _step(reading: Reading) -> int:
    return reading.step or 0


def _last_step(readings: Sequence[Reading]) -> int:
    return max(_step(reading) for reading in readings)
