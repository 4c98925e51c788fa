"""A series of correlated readings: its autocorrelation time, nearly independent blocks, and a test for drift.

Every interval over a training run rests on this: readings of successive steps are correlated, so n of them carry less
information than n independent ones. The integrated autocorrelation time measures how much less, and the means of blocks
of at least ten such times are independent enough for Student's t.
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy  # whose parts are imported when they are first used
from numpy.typing import ArrayLike

from svag.arrays import FloatArray
from svag.stats.samples import finite_row

MIN_BLOCKS = 20  # what the promised coverage was measured with
IACT_PER_BLOCK = 10  # of shorter blocks the means are visibly correlated
_LAGS = 5.0  # how many times the autocorrelation time the sum over lags goes


def integrated_autocorrelation_time(series: ArrayLike) -> float:
    r"""Integrated autocorrelation time τ of a stationary series, in readings; 1 for independent readings.

    $$\hat\tau = 1 + 2\sum_{t=1}^{M}\hat\rho(t), \quad M \text{ the first with } M \ge 5\,\hat\tau(M)$$

    Var(mean) = τ·Var/n. The shortfall of ρ̂ that comes from subtracting the sample mean, a factor 1 + (2M + 1)/n, is
    put back. A constant series, and one whose readings alternate (τ < 1), count as
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
    # There is a first lag to stop at, because τ̂(n − 1) = 0; with fewer than 6 readings argmax gives lag 0.
    stop = int(np.argmax(np.arange(n) >= _LAGS * np.maximum(tau, 1.0)))
    return max(1.0, float(tau[stop]) * (1 + (2 * stop + 1) / n))


@dataclass(frozen=True)
class BlockPlan:
    """How a series of `readings` is cut.

    Attributes:
        readings: length of the series.
        iact: its integrated autocorrelation time, in readings.
        blocks: number of blocks; below 2 the spread is unknown.
        length: readings per block. The first readings − blocks × length readings are left out.
    """

    readings: int
    iact: float
    blocks: int
    length: int

    @property
    def enough(self) -> bool:
        """Whether there are `MIN_BLOCKS` blocks."""
        return self.blocks >= MIN_BLOCKS

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
    >>> plan_blocks(150, iact=1.0)  # 20 blocks of 10 would need 200 readings
    BlockPlan(readings=150, iact=1.0, blocks=15, length=10)
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


@dataclass(frozen=True)
class DriftTest:
    """Result of the test for a trend.

    Attributes:
        change: the fitted change of the mean from end to end of the series, in the units of the series.
        p_value: probability of so much change in a stationary series; 1 when the series is too short to tell.
        plan: the blocks that the test is built on; `plan.enough` says whether they are as many as they should be.
    """

    change: float
    p_value: float
    plan: BlockPlan

    def drifts(self, alpha: float = 0.05) -> bool:
        """Whether the series moves, at level `alpha`."""
        return self.p_value < alpha


def trend_test(series: ArrayLike, *, independent: bool = False) -> DriftTest:
    """Test for a linear trend: Student's test of the slope of the block means against time.

    The autocorrelation time is that of the residuals of a straight line: otherwise a trend would make the series look
    correlated and so hide itself.

    >>> rng = np.random.default_rng(0)
    >>> trend_test(rng.normal(size=1000)).drifts(), trend_test(rng.normal(size=1000) + np.arange(1000) / 500).drifts()
    (False, True)

    Args:
        series: one reading per time.
        independent: readings are known to be independent: each is its own block.
    """
    row = finite_row("series", series, at_least=4)
    if independent:
        plan = independent_blocks(row.size)
    else:
        plan = plan_blocks(row.size, integrated_autocorrelation_time(without_line(row)))
    if plan.blocks < 4 or not np.ptp(row):
        return DriftTest(0.0, 1.0, plan)
    means = plan.means(row)
    time = np.linspace(-0.5, 0.5, plan.blocks) * (1 - 1 / plan.blocks)  # block centres, the series has length 1
    slope = float(time @ means / (time @ time))
    rest = without_line(means)
    error = math.sqrt(float(rest @ rest) / (plan.blocks - 2) / float(time @ time))
    p_value = 2 * float(scipy.special.stdtr(plan.blocks - 2, -abs(slope) / error)) if error > 0 else float(slope == 0)
    return DriftTest(slope, p_value, plan)


def without_line(row: FloatArray) -> FloatArray:
    """The residuals of a straight line fitted to a series.

    >>> without_line(np.array([1.0, 2.0, 3.0]))
    array([0., 0., 0.])
    """
    time = np.arange(row.size) - (row.size - 1) / 2
    centred: FloatArray = row - row.mean()
    return centred - time * (time @ centred) / (time @ time)
