"""A metric against effective steps, one line per arm, with the range of its seeds (fig:svag_accs, fig:ngd_sgd_accs)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import altair as alt

from svag.lab.experiments.experiment import Metric
from svag.lab.experiments.runs import CurveRow, DivergedEnd, MeanPoint, RunRow, mean_curves
from svag.lab.experiments.wording import UNITS, is_optimizer, is_share
from svag.lab.report import look

Across = Literal["step", "effective_step", "budget"]
_TITLES = {"step": "steps", "effective_step": "effective steps", "budget": "share of training"}


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
    """The means over seeds, by arm or by rung, and the horizontal axis."""
    means = mean_curves(curves, runs, metric, series_of)
    return CurveTable(metric, across, means.points, means.diverged)


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
