"""Is a series of readings in equilibrium? A trend test and a test that the mean stays put, on block means."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from svag.arrays import FloatArray
from svag.stats.autocorrelation import integrated_autocorrelation_time
from svag.stats.blocks import BlockPlan, independent_blocks, plan_blocks
from svag.stats.samples import finite_row, json_number

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
