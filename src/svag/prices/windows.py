"""Which readings of a run are averaged: those asked for, or what is left after the transient.

By default a run with a step schedule is read as in the paper, in the last third of its last but one phase. A run at one
learning rate, and one whose rate changes all the time (cosine, linear decay), is read from the end of its transient on:
from the first tenth in which R and N have the level of the second half of the run.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

import numpy as np

from svag.arrays import FloatArray
from svag.noise.reading import Reading
from svag.prices.reasons import Code, Reason, Value
from svag.stats.series import trend_test
from svag.theory import domain

# A phase with fewer readings than this, or with less than a tenth of the run, is a step of a ramp and not a plateau.
_PLATEAU = 20
_PLATEAU_SHARE = 0.1
# With fewer readings than this, a tenth of a run is too noisy to judge.
_TENTHS_NEED = 50
# Smallest relative change of R or N that matters, and its significance level.
MATERIAL = 0.1
DRIFT_LEVEL = 0.01
# Student's t with 4 degrees of freedom at that level: a tenth against the spread of the last five.
_T_TENTHS = 4.6

Window = tuple[int, int] | tuple[float, float]


class Choice(StrEnum):
    """How the readings to average were chosen."""

    ASKED_FOR = "asked_for"
    ALL = "all"
    CONSTANT_RATE = "constant_rate"
    SETTLED = "settled"
    STILL_DRIFTING = "still_drifting"
    LATE_PHASE = "late_phase"


@dataclass(frozen=True)
class Chosen:
    """The readings to average, run by run in the order of their steps, and how they were chosen.

    Attributes:
        readings: what is averaged.
        start: effective step of the first; its index if readings have no steps.
        stop: effective step of the last, plus 1.
        choice: how they were chosen.
        tenths: number of tenths of the run left out at its start.
    """

    readings: tuple[Reading, ...]
    start: int
    stop: int
    choice: Choice
    tenths: int = 0

    @property
    def reason(self) -> Reason:
        """The choice as a reason."""
        steps = all(reading.step is not None for reading in self.readings)
        values: dict[str, Value] = {"readings": len(self.readings), "choice": self.choice, "tenths": self.tenths}
        return Reason(Code.WINDOW, {**values, "start": self.start, "stop": self.stop} if steps else values)


def choose_window(readings: Sequence[Reading], window: Window | None = None) -> Chosen:
    """Choose the readings to average.

    With a `window`: two whole numbers are effective steps, the second excluded; two numbers between 0 and 1 are
    fractions of the run, so that (0, 1) is all of it.
    """
    runs = runs_of(readings)
    if window is not None:
        chosen, choice, tenths = [_between(run, window) for run in runs], Choice.ASKED_FOR, 0
    else:
        chosen, choice, tenths = _default(runs)
    flat = tuple(reading for run in chosen for reading in run)
    if not flat:
        raise ValueError(f"no reading lies in the window {window}: the readings end at step {_last_step(readings)}")
    ends = [(_position(run, 0), _position(run, len(run) - 1) + 1) for run in chosen if run]
    start, stop = min(one for one, _ in ends), max(other for _, other in ends)
    return Chosen(flat, start, stop, choice, tenths)


def runs_of(readings: Iterable[Reading]) -> list[list[Reading]]:
    """The readings of each run, in the order of their steps if all of them have one."""
    runs: dict[str, list[Reading]] = {}
    for reading in readings:
        runs.setdefault(reading.run, []).append(reading)
    return [sorted(run, key=_step) if all(r.step is not None for r in run) else run for run in runs.values()]


def parts_of_runs(readings: Sequence[Reading], parts: int) -> list[list[Reading]]:
    """Cut every run into `parts` stretches of equal time; those of all runs together, without the empty ones."""
    cut: list[list[Reading]] = [[] for _ in range(parts)]
    for run in runs_of(readings):
        first, last = _position(run, 0), _position(run, len(run) - 1)
        for index, reading in enumerate(run):
            share = (_position(run, index) - first) / (last + 1 - first)
            cut[int(share * parts)].append(reading)
    return [part for part in cut if part]


def steps_into_phase(readings: Sequence[Reading], first: Reading) -> int | None:
    """Steps that the run of `first` had spent at its learning rate when `first` was taken; None without steps."""
    steps = [reading.step for reading in readings if reading.run == first.run and reading.step is not None]
    if first.step is None or not steps:
        return None
    run = next(run for run in runs_of(readings) if run[0].run == first.run)
    for phase in _phases(run):
        if first in phase:
            start = phase[0].step or 0
            return first.step - (0 if phase[0] is run[0] else start)
    return None


def drift(series: FloatArray) -> float:
    """Relative change over the series if it is significant, otherwise 0."""
    mean = float(series.mean())
    if series.size < 4 or mean <= 0:
        return 0.0
    test = trend_test(series)
    return test.change / mean if test.drifts(DRIFT_LEVEL) else 0.0


def _default(runs: list[list[Reading]]) -> tuple[list[list[Reading]], Choice, int]:
    plateaus = [_plateaus(run) for run in runs]
    if all(len(found) > 1 for found in plateaus):
        late = [found[-2] for found in plateaus]
        thirds = [phase[len(phase) - max(len(phase) // 3, 1) :] for phase in late]
        return thirds, Choice.LATE_PHASE, 0
    held = [found[0] if len(found) == 1 else run for run, found in zip(runs, plateaus, strict=True)]
    tenths = [_transient(run) for run in held]
    if all(tenth == 0 for tenth in tenths):
        same = all(len(phase) == len(run) for phase, run in zip(held, runs, strict=True))
        return held, Choice.ALL if same else Choice.CONSTANT_RATE, 0
    settled = [tenth for tenth in tenths if tenth is not None]
    cut = max(settled) if len(settled) == len(tenths) else 1
    later = [run[len(run) * cut // 10 :] for run in held]
    return later, Choice.SETTLED if len(settled) == len(tenths) else Choice.STILL_DRIFTING, cut


def _transient(run: list[Reading]) -> int | None:
    """Number of tenths of a run before R and N reach their level in its second half; None if that half drifts."""
    if len(run) < _TENTHS_NEED:
        return 0
    passed = 0
    for name in ("param_sq", "noise_trace"):
        series = np.array([getattr(reading, name) for reading in run])
        if abs(drift(series[series.size // 2 :])) > MATERIAL:
            return None
        means = np.array([part.mean() for part in np.array_split(series, 10)])
        level, spread = means[5:].mean(), means[5:].std(ddof=1)
        near = np.abs(means - level) <= max(MATERIAL * level, _T_TENTHS * spread * np.sqrt(1.2))
        passed = max(passed, int(np.argmax(near[:6])) if near[:5].any() else 5)
    return passed


def _plateaus(run: list[Reading]) -> list[list[Reading]]:
    """The phases in which the learning rate was held, or none when they are less than half of the run."""
    long = [phase for phase in _phases(run) if len(phase) >= max(_PLATEAU, _PLATEAU_SHARE * len(run))]
    return long if 2 * sum(map(len, long)) >= len(run) else []


def _between(run: list[Reading], window: Window) -> list[Reading]:
    limits: object = window
    if not isinstance(limits, tuple | list) or [isinstance(limit, int | float) for limit in limits] != [True, True]:
        raise ValueError(
            f"window must be two increasing fractions between 0 and 1, or two steps, got {domain.shown(window)}"
        )
    start, stop = window
    if isinstance(start, int) and isinstance(stop, int) and (start, stop) != (0, 1):
        if any(reading.step is None for reading in run):
            raise ValueError(f"the window {window} counts steps, but some readings have none: give fractions")
        if not 0 <= start < stop:
            raise ValueError(f"window must be two increasing steps, got {window}")
        return [reading for reading in run if reading.step is not None and start <= reading.step < stop]
    if not 0 <= start < stop <= 1:
        raise ValueError(f"window must be two increasing fractions between 0 and 1, or two steps, got {window}")
    end = _position(run, len(run) - 1) + 1
    return [reading for index, reading in enumerate(run) if start * end <= _position(run, index) < stop * end]


def _position(run: Sequence[Reading], index: int) -> int:
    step = run[index].step
    return index if step is None else step


def _phases(run: list[Reading]) -> list[list[Reading]]:
    return [list(phase) for _, phase in groupby(run, key=lambda reading: reading.lr)]


def _step(reading: Reading) -> int:
    return reading.step or 0


def _last_step(readings: Sequence[Reading]) -> int:
    return max(_step(reading) for reading in readings)
