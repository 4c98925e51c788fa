"""A metric against effective steps, one line per arm, with the range of its seeds (fig:svag_accs, fig:ngd_sgd_accs)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import altair as alt

from svag.lab.experiments.experiment import Metric
from svag.lab.experiments.runs import CurveRow, RunRow
from svag.lab.experiments.wording import UNITS, is_optimizer, is_share
from svag.lab.report import look

Across = Literal["step", "effective_step", "budget"]
_TITLES = {"step": "steps", "effective_step": "effective steps", "budget": "share of training"}


@dataclass(frozen=True)
class MeanPoint:
    """One series at one evaluation.

    Attributes:
        series: name of the arm or rung.
        step: the effective step.
        budget: that step as a share of the longest run of the series.
        mean: mean over the seeds that were still running then.
        low: their smallest value.
        high: their largest value.
        seeds: number of these seeds.
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
class CurveTable:
    """The curves of one panel.

    Attributes:
        metric: what is drawn.
        across: the horizontal axis: the step, called effective if SVAG divides it, or the share of the budget if
            budgets differ.
        rows: the means.
        diverged: the points at which runs ended early.
    """

    metric: Metric
    across: Across
    rows: tuple[MeanPoint, ...]
    diverged: tuple[DivergedEnd, ...]


def by_arm(row: CurveRow | RunRow) -> str:
    """The series of a comparison: its arms."""
    return row.arm


def by_batch_size(row: CurveRow | RunRow) -> str:
    """The series of a ladder: its rungs."""
    return f"B = {row.batch_size}" if is_optimizer(row.arm) else f"B = {row.batch_size}, {row.arm}"


def table(
    curves: Sequence[CurveRow],
    runs: Sequence[RunRow],
    metric: Metric,
    series_of: Callable[[CurveRow | RunRow], str] = by_arm,
    across: Across = "step",
) -> CurveTable:
    """Average a metric over the seeds, by arm or by rung.

    Evaluations without it, or where it is not finite, are left out.

    >>> rows = [CurveRow("SGD", 64, seed, 20, accuracy, None, None) for seed, accuracy in enumerate((0.5, 0.75))]
    >>> (point,) = table(rows, [], "test_accuracy").rows
    >>> point.series, point.mean, point.low, point.high
    ('SGD', 0.625, 0.5, 0.75)

    Args:
        curves: every evaluation of every run.
        runs: every run with its state.
        metric: what to average.
        series_of: the name of the series that an evaluation or a run belongs to.
        across: what to draw it against.
    """
    values: dict[str, dict[int, list[float]]] = {}
    last: dict[tuple[str, int], tuple[int, float]] = {}
    for row in curves:
        value = getattr(row, metric)
        if value is not None and math.isfinite(value):
            values.setdefault(series_of(row), {}).setdefault(row.step, []).append(value)
            last[series_of(row), row.seed] = (row.step, value)
    longest = {series: max(1, *steps) for series, steps in values.items()}
    points = [
        MeanPoint(series, step, step / longest[series], sum(seeds) / len(seeds), min(seeds), max(seeds), len(seeds))
        for series, steps in values.items()
        for step, seeds in sorted(steps.items())
    ]
    lost = [(series_of(run), run.seed) for run in runs if run.state == "diverged"]
    ends = [
        DivergedEnd(series, seed, step, step / longest[series], value)
        for series, seed in lost
        if (series, seed) in last
        for step, value in (last[series, seed],)
    ]
    return CurveTable(metric, across, tuple(points), tuple(ends))


def chart(curves: CurveTable) -> look.Picture:
    """Lines for the means, bands from the smallest to the largest seed, a cross where a seed diverged."""
    series = look.DrawnSeries("series", [row.series for row in curves.rows])
    share = is_share(curves.metric)
    field, on_axis = ("budget", "%") if curves.across == "budget" else ("step", ",d")
    x = alt.X(f"{field}:Q", title=_TITLES[curves.across], scale=alt.Scale(nice=False, padding=10))
    x = x.axis(tickCount=8, format=on_axis)
    axis, style = (alt.Axis(format="%"), ".1%") if share else (alt.Axis(), ".4g")
    step = alt.Tooltip("step:Q", title="effective step" if curves.across == "effective_step" else "step", format=",d")
    base = series.base(curves.rows, x, [step, *look.tips(mean=style, low=style, high=style, seeds="d")])
    y = alt.Y("mean:Q", title=UNITS[curves.metric], scale=alt.Scale(zero=False), axis=axis)
    layers = series.points(base, y, size=45)
    if any(row.seeds > 1 for row in curves.rows):  # the band of one seed has no width, and still takes time to draw
        bands = base.mark_area(opacity=0.18, tooltip=False)
        layers.insert(0, bands.encode(y=alt.Y("low:Q", axis=axis), y2="high:Q"))
    if curves.diverged:
        last = alt.Tooltip("step:Q", title="last evaluation before it diverged")
        crosses = series.base(curves.diverged, x, [*look.tips("seed"), last])
        cross = crosses.mark_point(shape="M-1,-1L1,1M-1,1L1,-1", size=120, strokeWidth=3, opacity=1)
        layers.append(cross.encode(y=alt.Y("value:Q")))
    return series.layered(*layers)


def sentence(curves: CurveTable) -> str:
    """What the bands are, and how many runs diverged."""
    most = max((row.seeds for row in curves.rows), default=0)
    said = "One seed a line."
    if most > 1:
        said = f"Lines: means over {most} seeds; bands: from the lowest to the highest seed."
    if curves.diverged:
        many = len(curves.diverged)
        said += f" {many} run{'' if many == 1 else 's'} diverged, at the cross{'' if many == 1 else 'es'}."
    return said
