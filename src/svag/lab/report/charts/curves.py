"""A metric against effective steps, one line an arm, with the range of its seeds (fig:svag_accs, fig:ngd_sgd_accs)."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import altair as alt

from svag.lab.experiments.experiment import Metric
from svag.lab.experiments.runs import CurveRow, DivergedEnd, MeanPoint, RunRow, mean_curves
from svag.lab.experiments.wording import UNITS, is_optimizer, is_share
from svag.lab.report import look

Across = Literal["step", "budget"]
_TITLES = {
    "step": "effective steps",
    "budget": "share of the budget in effective steps",
}


@dataclass(frozen=True)
class CurveTable:
    """The curves of one panel.

    Attributes:
        metric: what is drawn.
        across: against what: the effective step, or the share of the budget where budgets differ.
        rows: the means.
        diverged: where runs ended early.
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
    """The means over seeds, by arm or by rung, and what to draw them against."""
    found = mean_curves(curves, runs, metric, series_of)
    return CurveTable(metric, across, found.points, found.diverged)


def chart(found: CurveTable) -> look.Picture:
    """Lines of the means, bands from the smallest to the largest seed, a cross where a seed diverged."""
    series = list(dict.fromkeys(row.series for row in found.rows))
    picked = look.shown("series", series)
    style = ".1%" if is_share(found.metric) else ".4g"
    x = alt.X(f"{found.across}:Q", title=_TITLES[found.across], scale=alt.Scale(nice=False, padding=10))
    x = x.axis(tickCount=8, format=",d" if found.across == "step" else "%")
    axis = alt.Axis(format="%" if is_share(found.metric) else "")
    base = (
        alt.Chart(look.data([asdict(row) for row in found.rows]))
        .transform_filter(picked)
        .encode(
            x=x,
            color=look.colour("series", series),
            tooltip=[
                "series:N",
                alt.Tooltip("step:Q", title="effective step", format=",d"),
                alt.Tooltip("mean:Q", format=style),
                alt.Tooltip("low:Q", title="smallest", format=style),
                alt.Tooltip("high:Q", title="largest", format=style),
                "seeds:Q",
            ],
        )
    )
    y = alt.Y("mean:Q", title=UNITS[found.metric], scale=alt.Scale(zero=False), axis=axis)
    bands = base.mark_area(opacity=0.18, tooltip=False).encode(y=alt.Y("low:Q", axis=axis), y2="high:Q")
    lines = base.mark_line().encode(y=y, strokeDash=look.dash("series", series, quiet=True))
    points = base.mark_point(filled=True, size=45, opacity=1).encode(y=y, shape=look.shape("series", series))
    # the band of a single seed has no width, and still takes as long to draw as its line
    layers: list[alt.Chart] = [bands, lines, points] if any(row.seeds > 1 for row in found.rows) else [lines, points]
    if found.diverged:
        ends = alt.Chart(look.data([asdict(end) for end in found.diverged])).transform_filter(picked)
        layers.append(
            ends.mark_point(shape="M-1,-1L1,1M-1,1L1,-1", size=120, strokeWidth=3, opacity=1).encode(
                x=x,
                y=alt.Y("value:Q"),
                color=look.colour("series", series),
                tooltip=["series:N", "seed:O", alt.Tooltip("step:Q", title="last evaluation before it diverged")],
            )
        )
    return alt.layer(*layers).add_params(picked, look.zoom()).properties(width=look.WIDTH, height=look.HEIGHT)


def sentence(found: CurveTable) -> str:
    """What the bands are, and how many runs diverged."""
    most = max((row.seeds for row in found.rows), default=0)
    said = (
        f"Lines: means over {most} seeds; bands: from the lowest to the highest seed."
        if most > 1
        else "One seed a line."
    )
    if found.diverged:
        many = len(found.diverged)
        said += f" {many} run{'' if many == 1 else 's'} diverged, at the cross{'' if many == 1 else 'es'}."
    return said
