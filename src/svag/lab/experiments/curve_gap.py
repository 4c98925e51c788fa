"""Do two groups of training curves differ anywhere? A permutation test of whole curves, and their distance."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from svag.as_json import JsonRow
from svag.lab.records.record import RunRecord
from svag.stats.curves import compare_curves, gap_band, running_means

# A single evaluation is noisy while the learning rate is large: trajectories are means of this many in a row.
SMOOTHED = 4


@dataclass(frozen=True)
class CurvesCompared(JsonRow):
    """Two groups of curves over the whole of training, the first minus the second.

    Attributes:
        p_value: p value of the test that the group does not matter, at all steps at once.
        smallest_p: the smallest p value that this many seeds can reach.
        at_step: the effective step at which |t| is largest.
        gap: difference of the means there, in the metric's units.
        low: lower 95% limit of the gap. It holds at all steps at once, hence also at this selected one; −∞ with too few
            seeds.
        high: upper limit.
        until_step: the last effective step compared; earlier than the end if a seed diverged.
        reach: the largest distance from 0 of any 95% limit at any step: the margin within which the trajectories, means
            of `SMOOTHED` evaluations in a row, are known to be.
        apart: lower 95% limit of the largest distance of the trajectories; 0 if the limits include 0 at every step.
    """

    p_value: float
    smallest_p: float
    at_step: int
    gap: float
    low: float
    high: float
    until_step: int
    reach: float
    apart: float


def curves_compared(first: Iterable[RunRecord], second: Iterable[RunRecord], metric: str) -> CurvesCompared | None:
    """Compare the curves while all are finite; None without three runs, or without an evaluation that all share.

    The evaluation before the first step is left out: it depends on the seed alone.
    """
    groups = [[dict(run.curve(metric)) for run in runs] for runs in (first, second)]
    curves = [curve for group in groups for curve in group]
    if not all(groups) or len(curves) < 3:
        return None
    shared = sorted(set.intersection(*map(set, curves)) - {0})
    steps = [step for step in shared if all(math.isfinite(curve[step]) for curve in curves)]
    if not steps:
        return None
    ours, theirs = (np.array([[curve[step] for step in steps] for curve in group]) for group in groups)
    test, band = compare_curves(ours, theirs), gap_band(ours, theirs)
    smooth = gap_band(running_means(ours, SMOOTHED), running_means(theirs, SMOOTHED))
    return CurvesCompared(
        p_value=test.p_value,
        smallest_p=test.smallest_p,
        at_step=steps[test.index],
        gap=float(band.gap[test.index]),
        low=float(band.low[test.index]),
        high=float(band.high[test.index]),
        until_step=steps[-1],
        reach=float(np.maximum(-smooth.low, smooth.high).max()),
        apart=max(float(np.maximum(smooth.low, -smooth.high).max()), 0.0),
    )
