"""The curves of a panel: every series averaged over its seeds at each evaluation, and where diverged runs end."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from svag.experiments.base import Metric
from svag.experiments.runs import CurveRow, RunRow


@dataclass(frozen=True)
class MeanPoint:
    """One series at one evaluation.

    Attributes:
        series: the arm, or the rung.
        step: the effective step.
        budget: the same as a share of the longest run of the series.
        mean: over the seeds that were still running then.
        low: their smallest value.
        high: their largest value.
        seeds: how many they are.
    """

    series: str
    step: int
    budget: float
    mean: float
    low: float
    high: float
    seeds: int


@dataclass(frozen=True)
class DivergedEnd:
    """Where a diverged run was evaluated last."""

    series: str
    seed: int
    step: int
    budget: float
    value: float


@dataclass(frozen=True)
class MeanCurves:
    """The curves of one panel in one metric.

    Attributes:
        points: the means, series by series, in the order of the steps.
        diverged: where runs ended early.
    """

    points: tuple[MeanPoint, ...]
    diverged: tuple[DivergedEnd, ...]


def mean_curves(
    curves: Sequence[CurveRow], runs: Sequence[RunRow], metric: Metric, series_of: Callable[[CurveRow | RunRow], str]
) -> MeanCurves:
    """Average a metric over the seeds; evaluations without it, or where it is not finite, are left out.

    >>> rows = [CurveRow("SGD", 64, seed, 20, accuracy, None, None) for seed, accuracy in enumerate((0.5, 0.75))]
    >>> (point,) = mean_curves(rows, [], "test_accuracy", lambda row: row.arm).points
    >>> point.series, point.mean, point.low, point.high
    ('SGD', 0.625, 0.5, 0.75)

    Args:
        curves: every evaluation of every run.
        runs: every run with its state.
        metric: what to average.
        series_of: the name of the series that an evaluation or a run belongs to.
    """
    values: dict[str, dict[int, list[float]]] = {}
    last: dict[tuple[str, int], tuple[int, float]] = {}
    for row in curves:
        found = getattr(row, metric)
        if found is not None and math.isfinite(found):
            values.setdefault(series_of(row), {}).setdefault(row.step, []).append(found)
            last[series_of(row), row.seed] = (row.step, found)
    longest = {series: max(1, *steps) for series, steps in values.items()}
    points = [
        MeanPoint(series, step, step / longest[series], sum(found) / len(found), min(found), max(found), len(found))
        for series, steps in values.items()
        for step, found in sorted(steps.items())
    ]
    lost = [(series_of(run), run.seed) for run in runs if run.state == "diverged"]
    ends = [
        DivergedEnd(series, seed, step, step / longest[series], value)
        for series, seed in lost
        if (series, seed) in last
        for step, value in (last[series, seed],)
    ]
    return MeanCurves(tuple(points), tuple(ends))
