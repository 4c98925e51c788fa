"""Readings of one run setting, averaged: G, N, R, and what the theory makes of them.

Averages come first and ratios last. Where the learning rate changes, G and N take weights η² and R takes η: these are
the weights with which a step moves the weight norm (`svag.theory.equilibrium.window_balance`). V takes η² too: for Adam
and the other adaptive optimizers that is the time of a step in their SDE.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from svag.arrays import FloatArray
from svag.noise.reading import Reading
from svag.stats.ratios import RatioInterval, blocks_of_ratio, ratio_interval, successive_moments, successive_ratio
from svag.stats.series import without_line
from svag.theory.equilibrium import (
    Balance,
    effective_lr,
    estimated_momentum_signal,
    momentum_balance,
    momentum_excess,
    momentum_signal,
    pull_share,
    window_balance,
)
from svag.theory.optimizers import optimizer_kind

# A run is cut into this many stretches, and a straight line is subtracted from each, before the autocorrelation of
# its readings is estimated: a trend over training is not autocorrelation.
_STRETCHES = 4
_STRETCH = 16
# Minimum number of differences of successive readings for an interval from their spread.
_DIFFERENCES = 20
# Significance level at which runs count as different.
_DIFFER = 0.01
# Smallest relative growth of |x|² that can be told from noise.
_FELT = 0.2


def of_one_batch_size(readings: Sequence[Reading]) -> list[Reading]:
    """The readings with the batch size of the last one: if the batch has grown, earlier ones measured a different N."""
    return [reading for reading in readings if reading.batch_size == readings[-1].batch_size]


@dataclass(frozen=True)
class Averages:
    """Averages over readings that share batch size, weight decay, momentum and optimizer."""

    readings: tuple[Reading, ...]

    @classmethod
    def over(cls, readings: Sequence[Reading]) -> "Averages":
        """Average `readings`; refuse to mix readings that differ in more than their step and learning rate."""
        for field in ("batch_size", "weight_decay", "optimizer", "ell", "population"):
            values = list(dict.fromkeys(getattr(reading, field) for reading in readings))
            if len(values) > 1:
                shown = ", ".join(str(value) for value in values[:4])
                raise ValueError(
                    f"readings of different {field} ({shown}) cannot be averaged: predict from one at a time"
                )
        moving = any(reading.momentum for reading in readings) and any(
            reading.velocity_sq is not None for reading in readings
        )
        # the velocity does not exist before the first step with momentum
        return cls(tuple(r for r in readings if r.velocity_sq is not None or not moving))

    @property
    def shared(self) -> Reading:
        """One of the readings, for the fields that all of them share."""
        return self.readings[0]

    @property
    def momentum(self) -> float:
        """β, 0 when unknown; the mean where a schedule moves it."""
        found = [reading.momentum or 0.0 for reading in self.readings]
        return found[0] if len(set(found)) == 1 else math.fsum(found) / len(found)

    @property
    def momentum_varies(self) -> bool:
        """Whether a schedule moves the momentum, as OneCycleLR does."""
        return len({reading.momentum for reading in self.readings}) > 1

    @property
    def betas(self) -> tuple[float, float] | None:
        """β₁ and β₂ of Adam, if they are the same throughout; a schedule may change them."""
        found = {reading.betas for reading in self.readings}
        return self.shared.betas if len(found) == 1 else None

    @property
    def eps(self) -> float | None:
        """ε of an adaptive optimizer, if it is the same throughout."""
        return self.shared.eps if len({reading.eps for reading in self.readings}) == 1 else None

    @property
    def plain(self) -> bool:
        """Whether steps are multiples of gradients or of their average, so that the weight norm has a balance."""
        return optimizer_kind(self.shared.optimizer).family == "sgd"

    @cached_property
    def rates(self) -> FloatArray | None:
        """η of each reading, or None when one is unknown."""
        known = [reading.lr for reading in self.readings if reading.lr is not None]
        return np.array(known) if len(known) == len(self.readings) else None

    @property
    def rate_varies(self) -> bool:
        """Whether the learning rate is not the same throughout, as far as is known."""
        return len({reading.lr for reading in self.readings}) > 1

    @property
    def lr(self) -> float | None:
        """The one learning rate of all readings, or None."""
        return None if self.rate_varies else self.shared.lr

    @property
    def mean_lr(self) -> float | None:
        """Mean learning rate, weighted as R is; None when unknown or 0."""
        if self.rates is None or not self.rates.sum() > 0:
            return None
        return float((self.rates**2).sum() / self.rates.sum())

    @property
    def lr_wd(self) -> float | None:
        """ηλ, or None when either is unknown."""
        if self.mean_lr is None or self.shared.weight_decay is None:
            return None
        return self.mean_lr * self.shared.weight_decay

    @cached_property
    def weights(self) -> FloatArray:
        """η² of each reading, of mean 1; all 1 when the rate is constant or unknown."""
        if not self.rate_varies or self.rates is None or not self.rates.any():
            return np.ones(len(self.readings))
        weights: FloatArray = self.rates**2 / np.mean(self.rates**2)
        return weights

    def weighted(self, series: FloatArray) -> float:
        """Average of G, N, X or |v|² with the weights η²."""
        return float((self.weights * series).mean())

    def mean_of_r(self, series: FloatArray) -> float:
        """Average of R or ⟨x, ĝ⟩ with the weights η."""
        if not self.rate_varies or self.rates is None or not self.rates.any():
            return float(series.mean())
        return float((self.rates * series).sum() / self.rates.sum())

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
    def param_dot_grad(self) -> FloatArray | None:
        """⟨x, ĝ⟩ of each reading, or None."""
        values = [reading.param_dot_grad for reading in self.readings if reading.param_dot_grad is not None]
        return np.array(values) if len(values) == len(self.readings) else None

    @cached_property
    def second_moment(self) -> FloatArray:
        """V of each reading, NaN where it is not known."""
        values = [reading.second_moment for reading in self.readings]
        return np.array([math.nan if value is None else value for value in values])

    @property
    def second_moment_ratio(self) -> float | None:
        """V over E|ĝ|² = G + N: 1 once v has settled at the squared gradient; None if V is not known."""
        known = np.isfinite(self.second_moment)
        step_sq = (self.grad_sq + self.shared.ell * self.noise)[known] @ self.weights[known]
        return float(self.second_moment[known] @ self.weights[known] / step_sq) if step_sq > 0 else None

    @property
    def eps_to_root(self) -> float | None:
        """ε over √(V/d), the root mean square of √v̂ over the d parameters; None when one of them is unknown."""
        known, dimension = self.second_moment[np.isfinite(self.second_moment)], self.readings[-1].dimension
        if self.eps is None or dimension is None or not known.any():
            return None
        return self.eps / math.sqrt(float(known.mean()) / dimension)

    @cached_property
    def moving_signal(self) -> FloatArray | None:
        """X of each reading with momentum, from the velocity or else from the weight norm; None when unknown."""
        beta = self.momentum
        if self.velocity_sq is not None:
            pairs = zip(self.velocity_sq, self.noise, strict=True)
            return np.array([momentum_signal(float(v), float(n), beta) for v, n in pairs])
        if self.lr and self.shared.weight_decay:
            # at equilibrium (1 − β²)E|v|² = 2λR/η_eff
            return 2 * self.shared.weight_decay / effective_lr(self.lr, beta) * self.param_sq - self.noise
        return None

    @property
    def estimated_signal(self) -> FloatArray:
        """X̂ = G(1 − β)/(1 + β) of each reading."""
        return self.grad_sq * estimated_momentum_signal(1.0, self.momentum)

    def ratio(self, signal: FloatArray, confidence: float) -> RatioInterval:
        """N over `signal` as a ratio of weighted averages, with its interval from blocks."""
        num, den = self.weights * self.noise, self.weights * signal
        return ratio_interval(num, den, confidence=confidence, plan=blocks_of_ratio(num, den, self._level))

    def ratio_in_window(self, signal: FloatArray, confidence: float) -> RatioInterval | None:
        """The same for this window of these runs only, if there are too few blocks for more; None with few readings.

        Every reading uses fresh batches, so the errors of readings are independent, however N and G change along a run
        and differ between runs.
        """
        if len(self.readings) - len(self._starts) < _DIFFERENCES:
            return None
        num, den = self.weights * self.noise, self.weights * signal
        plan = blocks_of_ratio(num, den, self._level)
        return successive_ratio(num, den, starts=self._starts, confidence=confidence, plan=plan)

    @property
    def runs_differ(self) -> bool:
        """Whether the average N or G of the runs differ by more than their readings scatter, at 1% for both."""
        starts = self._starts
        if len(starts) < 2 or len(self.readings) - len(starts) < _DIFFERENCES:
            return False
        pairs = successive_moments(self.noise, self.grad_sq, starts)
        count, freedom = len(self.readings), pairs.count - 1
        for series, variance in ((self.noise, pairs.var_num), (self.grad_sq, pairs.var_den)):
            runs = np.split(series, starts[1:])
            between = sum(len(run) * (run.mean() - series.mean()) ** 2 for run in runs) / (len(runs) - 1)
            # variance is that of the mean of all readings
            if variance > 0 and special.fdtrc(len(runs) - 1, freedom, between / (variance * count)) < _DIFFER / 2:
                return True
        return False

    @cached_property
    def _starts(self) -> list[int]:
        """Index of the first reading of each run."""
        names = [reading.run for reading in self.readings]
        return [at for at, name in enumerate(names) if at == 0 or name != names[at - 1]]

    def _level(self, row: FloatArray) -> FloatArray:
        """A series without the trend along each run; differences between runs stay, since they are uncertain too."""
        return np.concatenate([_without_trend(run) for run in np.split(row, self._starts[1:])])

    @property
    def excess(self) -> float | None:
        """E = 2λR/(η_eff N), or None when λ or η are unknown or 0, or the optimizer is not SGD."""
        noise, param = self.weighted(self.noise), self.mean_of_r(self.param_sq)
        if not (self.plain and self.mean_lr and self.shared.weight_decay and noise > 0 and param > 0):
            return None
        return momentum_excess(
            param, noise, lr=self.mean_lr, weight_decay=self.shared.weight_decay, momentum=self.momentum
        )

    @property
    def share(self) -> float | None:
        """Pull of the loss itself on the weights, relative to weight decay (lem:sc: 0); None when unknown."""
        lr, decay, param = self.mean_lr, self.shared.weight_decay, self.mean_of_r(self.param_sq)
        if self.param_dot_grad is None or not (self.plain and lr and decay and param > 0):
            return None
        return pull_share(param, self.mean_of_r(self.param_dot_grad), lr=lr, weight_decay=decay, ell=self.shared.ell)

    @property
    def balance(self) -> float | None:
        """Growth of the weights over their decay, including the loss's own pull if known; 1 if |x|² is stationary.

        None when the learning rate or the weight decay is unknown, nothing shrinks the weights, or steps are not plain.
        """
        lr, decay = self.mean_lr, self.shared.weight_decay
        if self.momentum and self.plain:
            return None if lr is None or decay is None else self._momentum_balance(lr, decay)
        found = self._window_balance()
        return found.ratio if found is not None and found.decay > 0 else None

    @property
    def missing_growth(self) -> tuple[float, float] | None:
        """Relative growth of |x|² over the window, expected from the gradients and observed, if it fell short by half.

        None if growth is as expected, too small to tell, or unknown. It is known only for a single run of SGD without
        momentum whose readings have steps.
        """
        first, last = self.readings[0], self.readings[-1]
        if self.momentum or self.param_dot_grad is None or first.run != last.run or first.step is None:
            return None
        found, steps = self._window_balance(), (last.step or 0) - first.step
        if found is None or steps < 1 or not self.param_sq.mean() > 0:
            return None
        # readings may be rarer than steps, and each step has ell sub-steps
        gain = found.residual * self.shared.ell * steps / len(self.readings) / float(self.param_sq.mean())
        grown = float(self.param_sq[-1] - self.param_sq[0]) / float(self.param_sq.mean())
        return (gain, grown) if gain > _FELT and grown < gain / 2 else None

    def _window_balance(self) -> Balance | None:
        decay, ell = self.shared.weight_decay, self.shared.ell
        if (
            not self.plain
            or decay is None
            or self.rates is None
            or not self.rates.any()
            or not self.param_sq.mean() > 0
        ):
            return None
        products = np.zeros_like(self.param_sq) if self.param_dot_grad is None else self.param_dot_grad
        step_sq = self.grad_sq + ell * self.noise
        return window_balance(self.param_sq, products, step_sq, lr=self.rates / ell, weight_decay=decay)

    def _momentum_balance(self, lr: float, decay: float) -> float | None:
        share = self.share or 0.0
        if self.velocity_sq is None or not decay or share <= -1:
            return None
        velocity, param = self.weighted(self.velocity_sq), self.mean_of_r(self.param_sq)
        ratio = momentum_balance(param, velocity, lr=lr, weight_decay=decay, momentum=self.momentum).ratio
        return ratio / (1 + share)

    @property
    def parts_ratio(self) -> float | None:
        """N/G of BatchNorm's parts over that of whole batches: the ratio farthest from 1; None if none is known."""
        ratios = [reading.parts_ratio for reading in self.readings if reading.parts_ratio is not None]
        return max(ratios, key=lambda ratio: abs(math.log(ratio)), default=None)


def _without_trend(run: FloatArray) -> FloatArray:
    """A series without the trend of each of its stretches; a short one as it is."""
    if run.size < _STRETCHES * _STRETCH:
        return run
    level: FloatArray = run.mean() + np.concatenate([without_line(piece) for piece in np.array_split(run, _STRETCHES)])
    return level
