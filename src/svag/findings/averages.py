"""Which readings of a run are averaged, and their averages: G, N, R and what the theory makes of them.

Which readings are averaged: one learning rate, and late enough in its phase.

Readings of one run setting, averaged: G, N, R and what the theory makes of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np

from svag.arrays import FloatArray
from svag.records.reading import Reading
from svag.theory.equilibrium import effective_lr, momentum_balance, momentum_excess, pull_share, svag_balance

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


@dataclass(frozen=True)
class Averages:
    """Averages over readings that share batch size, learning rate, weight decay, momentum and optimizer."""

    readings: tuple[Reading, ...]

    @classmethod
    def over(cls, readings: Sequence[Reading]) -> "Averages":
        """Average `readings`, or refuse to mix what differs in more than its moment."""
        for field in ("batch_size", "weight_decay", "momentum", "optimizer", "ell", "population"):
            values = list(dict.fromkeys(getattr(reading, field) for reading in readings))
            if len(values) > 1:
                shown = ", ".join(str(value) for value in values[:4])
                raise ValueError(
                    f"readings of different {field} ({shown}) cannot be averaged: predict from one at a time"
                )
        moving = readings[0].momentum and any(reading.velocity_sq is not None for reading in readings)
        # the velocity does not exist before the first step with momentum
        return cls(tuple(r for r in readings if r.velocity_sq is not None or not moving))

    @property
    def setting(self) -> Reading:
        """Any of the readings, to ask for what they share."""
        return self.readings[0]

    @property
    def momentum(self) -> float:
        """β, 0 when unknown."""
        return self.setting.momentum or 0.0

    @property
    def lr_wd(self) -> float | None:
        """ηλ, or None when either is unknown."""
        if self.setting.lr is None or self.setting.weight_decay is None:
            return None
        return self.setting.lr * self.setting.weight_decay

    @cached_property
    def noise(self) -> FloatArray:
        """N of each reading."""
        return np.array([reading.noise_trace for reading in self.readings])

    @cached_property
    def grad_sq(self) -> FloatArray:
        """G of each reading."""
        return np.array([reading.grad_sq for reading in self.readings])

    @cached_property
    def param_sq(self) -> FloatArray:
        """R of each reading."""
        return np.array([reading.param_sq for reading in self.readings])

    @cached_property
    def velocity_sq(self) -> FloatArray | None:
        """|v|² of each reading, or None."""
        values = [reading.velocity_sq for reading in self.readings if reading.velocity_sq is not None]
        return np.array(values) if len(values) == len(self.readings) else None

    @cached_property
    def signal(self) -> FloatArray | None:
        """What N is compared with: G, or with momentum X = (1 − β²)|v|² − N; None when that cannot be known."""
        if not self.momentum:
            return self.grad_sq
        if self.velocity_sq is not None:
            return (1 - self.momentum**2) * self.velocity_sq - self.noise
        if self.setting.lr and self.setting.weight_decay:
            # at equilibrium (1 − β²)E|v|² = 2λR/η_eff
            scale = 2 * self.setting.weight_decay / effective_lr(self.setting.lr, self.momentum)
            return scale * self.param_sq - self.noise
        return None

    @property
    def excess(self) -> float | None:
        """D = 2λR/(η_eff N), or None when λ or η are unknown or 0."""
        noise, param = float(self.noise.mean()), float(self.param_sq.mean())
        if not (self.setting.lr and self.setting.weight_decay and noise > 0 and param > 0):
            return None
        return momentum_excess(
            param, noise, lr=self.setting.lr, weight_decay=self.setting.weight_decay, momentum=self.momentum
        )

    @property
    def share(self) -> float | None:
        """Pull of the loss itself on the weights, relative to weight decay (lem:sc: 0); None when unknown."""
        products = [reading.param_dot_grad for reading in self.readings if reading.param_dot_grad is not None]
        lr, decay = self.setting.lr, self.setting.weight_decay
        if len(products) < len(self.readings) or not (lr and decay and self.param_sq.mean() > 0):
            return None
        param = float(self.param_sq.mean())
        return pull_share(param, float(np.mean(products)), lr=lr, weight_decay=decay, ell=self.setting.ell)

    @property
    def parts_ratio(self) -> float | None:
        """N/G of BatchNorm's parts over that of whole batches, the farthest from 1 of those known; None if none is."""
        ratios = [reading.parts_ratio for reading in self.readings if reading.parts_ratio is not None]
        return max(ratios, key=lambda ratio: abs(math.log(ratio)), default=None)

    @property
    def balance(self) -> float | None:
        """Growth of the weights over their decay, 1 at equilibrium, the loss's own pull included where it is known."""
        lr, decay, param = self.setting.lr, self.setting.weight_decay, float(self.param_sq.mean())
        if not (lr and decay and param > 0):
            return None
        if self.momentum and self.velocity_sq is not None:
            velocity = float(self.velocity_sq.mean())
            ratio = momentum_balance(param, velocity, lr=lr, weight_decay=decay, momentum=self.momentum).ratio
        elif self.momentum:
            return None
        else:
            grad_sq, noise = float(self.grad_sq.mean()), float(self.noise.mean())
            ratio = svag_balance(param, grad_sq, noise, lr=lr, weight_decay=decay, ell=self.setting.ell).ratio
        return ratio / (1 + (self.share or 0.0)) if (self.share or 0.0) > -1 else None
