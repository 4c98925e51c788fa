"""Correlated series: autocorrelation time, blocks that are as good as independent, and drift.

How many readings of a correlated series are worth one independent reading.

Non-overlapping blocks long enough that their means are as good as independent.

Is a series of readings in equilibrium? A trend test and a test that the mean stays put, on block means.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from svag.arrays import FloatArray
from svag.stats.samples import finite_row, json_number


def integrated_autocorrelation_time(series: ArrayLike, window: float = 5.0) -> float:
    r"""Integrated autocorrelation time τ of a stationary series, in readings; 1 for independent readings.

    $$\hat\tau = 1 + 2\sum_{t=1}^{M}\hat\rho(t), \quad M \text{ the first with } M \ge c\,\hat\tau(M)$$

    where c is the argument `window`. Var(mean) = τ·Var/n. The shortfall of ρ̂ that comes from subtracting the sample
    mean, a factor 1 + (2M + 1)/n, is put back. A constant series, and one whose readings alternate (τ < 1), count as
    independent: never trust a mean more than that.

    >>> integrated_autocorrelation_time([1.0, 1.0, 1.0, 1.0])
    1.0
    >>> blocks_of_ten = np.repeat(np.random.default_rng(0).normal(size=2000), 10)
    >>> 9 < integrated_autocorrelation_time(blocks_of_ten) < 11
    True

    Reference: Sokal (1997), section 3; Wolff (2004) for the factor.
    """
    row = finite_row("series", series, at_least=2)
    centred = row - row.mean()
    scale = np.abs(centred).max()
    if scale <= 1e-14 * np.abs(row).max():  # constant up to the rounding of its mean
        return 1.0
    n = row.size
    spectrum = np.fft.rfft(centred / scale, n=1 << (2 * n - 1).bit_length())
    autocovariance = np.fft.irfft(spectrum * spectrum.conj())[:n]
    tau = 2 * np.cumsum(autocovariance / autocovariance[0]) - 1
    lags = np.arange(n)
    stop = int(
        np.argmax(lags >= window * np.maximum(tau, 1.0))
    )  # there is one: τ̂(n − 1) = 0. Fewer than 6 readings: lag 0
    return max(1.0, float(tau[stop]) * (1 + (2 * stop + 1) / n))


MIN_BLOCKS = 20
IACT_PER_BLOCK = 10


@dataclass(frozen=True)
class BlockPlan:
    """How a series of `readings` is cut.

    Attributes:
        readings: length of the series.
        iact: its integrated autocorrelation time, in readings.
        blocks: number of blocks; below 2 nothing can be said about the spread.
        length: readings per block. The first readings − blocks × length readings are left out.
    """

    readings: int
    iact: float
    blocks: int
    length: int

    @property
    def enough(self) -> bool:
        """Whether there are the 20 blocks that the promised coverage was measured with."""
        return self.blocks >= MIN_BLOCKS

    @property
    def status(self) -> str:
        """One sentence: what was cut, or how many readings are missing."""
        cut = f"{self.blocks} blocks of {self.length} readings (autocorrelation time {self.iact:.3g})"
        if self.enough:
            return cut
        return f"series too short: only {cut}; record at least {MIN_BLOCKS * self.length} readings, now {self.readings}"

    def means(self, series: ArrayLike) -> FloatArray:
        """Means of the blocks of one series; the oldest readings that fill no block are left out."""
        row = finite_row("series", series)
        if row.size != self.readings:
            raise ValueError(f"the plan is for {self.readings} readings, got {row.size}")
        kept = row[row.size - self.blocks * self.length :]
        means: FloatArray = kept.reshape(self.blocks, self.length).mean(axis=1)
        return means


def plan_blocks(readings: int, iact: float) -> BlockPlan:
    """Cut `readings` readings into 20 blocks, or into fewer when they would be shorter than 10 autocorrelation times.

    >>> plan_blocks(1000, iact=2.0)
    BlockPlan(readings=1000, iact=2.0, blocks=20, length=50)
    >>> print(plan_blocks(150, iact=1.0).status)
    series too short: only 15 blocks of 10 readings (autocorrelation time 1); record at least 200 readings, now 150
    """
    shortest = math.ceil(IACT_PER_BLOCK * iact)
    if readings // MIN_BLOCKS >= shortest:
        return BlockPlan(readings, iact, MIN_BLOCKS, readings // MIN_BLOCKS)
    return BlockPlan(readings, iact, readings // shortest, shortest)


def independent_blocks(readings: int) -> BlockPlan:
    """Return the plan for readings known to be independent: every reading is a block.

    >>> independent_blocks(30)
    BlockPlan(readings=30, iact=1.0, blocks=30, length=1)
    """
    return BlockPlan(readings, 1.0, readings, 1)


_QUARTERS = 4


@dataclass(frozen=True)
class DriftTest:
    """Result of a test for drift.

    Attributes:
        change: how much the mean moved: the fitted change from end to end of the series (trend test), or the largest
            difference between the means of two quarters (stationarity test); in the units of the series.
        p_value: probability of so much movement in a stationary series; 1 when the series is too short to tell.
        blocks: number of block means that the test is built on.
        enough: whether the series was long enough (20 blocks).
        status: one sentence.
    """

    change: float
    p_value: float
    blocks: int
    enough: bool
    status: str

    def drifts(self, alpha: float = 0.05) -> bool:
        """Whether the series moves, at level `alpha`."""
        return self.p_value < alpha

    def to_dict(self) -> dict[str, float | int | str | bool | None]:
        """Return the fields for a JSON document."""
        return {
            "change": json_number(self.change),
            "p_value": self.p_value,
            "blocks": self.blocks,
            "enough": self.enough,
            "status": self.status,
        }


def trend_test(series: ArrayLike, *, independent: bool = False) -> DriftTest:
    """Test for a linear trend: Student's test of the slope of the block means against time.

    The autocorrelation time is that of the residuals of a straight line: a trend must not hide itself by making the
    series look correlated.

    >>> rng = np.random.default_rng(0)
    >>> trend_test(rng.normal(size=1000)).drifts(), trend_test(rng.normal(size=1000) + np.arange(1000) / 500).drifts()
    (False, True)
    """
    row = finite_row("series", series, at_least=4)
    plan = independent_blocks(row.size) if independent else _plan(row, _line_residuals(row))
    if plan.blocks < 4 or not np.ptp(row):
        return DriftTest(0.0, 1.0, plan.blocks, plan.enough, plan.status)
    means = plan.means(row)
    time = np.linspace(-0.5, 0.5, plan.blocks) * (1 - 1 / plan.blocks)  # block centres, the series has length 1
    slope = float(time @ means / (time @ time))
    rest = _line_residuals(means)
    error = math.sqrt(float(rest @ rest) / (plan.blocks - 2) / float(time @ time))
    p_value = 2 * float(special.stdtr(plan.blocks - 2, -abs(slope) / error)) if error > 0 else float(slope == 0)
    return DriftTest(slope, p_value, plan.blocks, plan.enough, plan.status)


def stationarity_test(series: ArrayLike, *, independent: bool = False) -> DriftTest:
    """Test that the mean is the same in the four quarters of a series: the F test over their block means.

    It sees what a trend test does not: a mean that moves away and comes back. The autocorrelation time is that of the
    residuals of a straight line in each quarter.

    >>> rng = np.random.default_rng(0)
    >>> noise, away_and_back = rng.normal(size=1000), np.abs(np.linspace(-2, 2, 1000))
    >>> stationarity_test(noise).drifts(), stationarity_test(noise + away_and_back).drifts()
    (False, True)
    """
    row = finite_row("series", series, at_least=4 * _QUARTERS)
    rest = np.concatenate([_line_residuals(part) for part in np.array_split(row, _QUARTERS)])
    plan = independent_blocks(row.size) if independent else _plan(row, rest)
    per_quarter = plan.blocks // _QUARTERS
    if per_quarter < 2 or not np.ptp(row):
        return DriftTest(0.0, 1.0, plan.blocks, plan.enough, plan.status)
    groups = plan.means(row)[plan.blocks - _QUARTERS * per_quarter :].reshape(_QUARTERS, per_quarter)
    centres = groups.mean(axis=1)
    between = per_quarter * float(np.var(centres, ddof=1))
    within = float(np.var(groups, axis=1, ddof=1).mean())
    freedom = _QUARTERS * (per_quarter - 1)
    p_value = float(special.fdtrc(_QUARTERS - 1, freedom, between / within)) if within > 0 else float(between == 0)
    return DriftTest(float(np.ptp(centres)), p_value, plan.blocks, plan.enough, plan.status)


def _plan(row: FloatArray, residuals: FloatArray) -> BlockPlan:
    return plan_blocks(row.size, integrated_autocorrelation_time(residuals))


def _line_residuals(row: FloatArray) -> FloatArray:
    time = np.arange(row.size) - (row.size - 1) / 2
    centred: FloatArray = row - row.mean()
    return centred - time * (time @ centred) / (time @ time)
