"""SVAG and its SDE: weak errors, sample paths and learning rates.

Of the paper: thm:sde_svag, fig:proof_concept and fig:app_exotic_lr.
"""

from collections.abc import Sequence
from dataclasses import asdict

import altair as alt

from svag.findings.illustrations import REFERENCE, LearningRate, SamplePaths, WeakError
from svag.report import look


def weak_error_chart(rows: Sequence[WeakError]) -> look.Picture:
    """One panel a degree, both axes logarithmic: what converges at order 1 runs parallel to the reference."""
    series = [name for name in dict.fromkeys(row.series for row in rows) if name != REFERENCE]
    base = alt.Chart().encode(
        x=alt.X("ell:Q", title="ell (refinement)", scale=look.log_scale(2)),
        y=alt.Y("error:Q", title="weak error, maximum over steps", scale=look.log_scale()).axis(
            format=".0e", tickCount=5
        ),
        color=look.colour("series", series, grey=[REFERENCE]),
        tooltip=["series:N", "degree:O", "ell:Q", alt.Tooltip("error:Q", format=".3g")],
    )
    lines = base.mark_line().encode(strokeDash=look.dash("series", series, grey=[REFERENCE], quiet=True))
    points = (
        base.mark_point(filled=True, size=40)
        .encode(shape=look.shape("series", series, grey=[REFERENCE]))
        .transform_filter(alt.datum.series != REFERENCE)
    )
    drawn = alt.layer(lines, points, data=look.data([asdict(row) for row in rows]))
    names = alt.Header(title=None, labelExpr="'degree ' + datum.value")
    return drawn.properties(width=185, height=240).facet(column=alt.Column("degree:O", header=names))


def sample_path_chart(found: SamplePaths) -> look.Picture:
    """One panel a process, the same ellipses under all of them."""
    processes = list(dict.fromkeys(row.process for row in found.paths))
    paths = look.data([{**asdict(row), "one": f"path {row.path + 1}"} for row in found.paths])
    levels = look.data([asdict(row) for row in found.levels])
    names = list(dict.fromkeys(f"path {row.path + 1}" for row in found.paths))
    x, y = (alt.X("x:Q", title="first weight"), alt.Y("y:Q", title="second weight"))

    def panel(process: str) -> look.Picture:
        ellipses = (
            alt.Chart(levels)
            .mark_line(style="backdrop")
            .encode(x=x, y=y, order="order:Q", detail="level:N", tooltip=[alt.Tooltip("level:Q", format=".0%")])
        )
        lines = (
            alt.Chart(paths)
            .mark_line(strokeWidth=1.2, point=alt.OverlayMarkDef(size=20) if process == "SGD" else False)
            .encode(x=x, y=y, order="order:Q", color=look.colour("one", names).legend(None))
            .transform_filter(alt.datum.process == process)
        )
        return alt.layer(ellipses, lines, title=process).properties(width=250, height=250)

    drawn: alt.HConcatChart = alt.hconcat(*map(panel, processes)).resolve_scale(x="shared", y="shared")
    return drawn


def learning_rate_chart(rows: Sequence[LearningRate]) -> look.Picture:
    """One column a schedule: above the rate η of the run, the same for every ell; below what each update applies."""
    rows_of = look.data([{**asdict(row), "series": f"ell = {row.ell}"} for row in rows])
    series = list(dict.fromkeys(f"ell = {row.ell}" for row in rows))
    schedules = list(dict.fromkeys(row.schedule for row in rows))

    def panel(schedule: str, field: str, title: str) -> alt.Chart:
        drawn: alt.Chart = (
            alt.Chart(rows_of, title=f"{schedule}: {title}")
            .mark_line(strokeWidth=2)
            .encode(
                x=alt.X("effective_step:Q", title="effective steps (updates / ell)"),
                y=alt.Y(f"{field}:Q", title="learning rate"),
                color=look.colour("series", series),
                strokeDash=look.dash("series", series),
                tooltip=["series:N", alt.Tooltip("effective_step:Q", format=",.0f"), "lr:Q", "applied:Q"],
            )
            .transform_filter(alt.datum.schedule == schedule)
            .properties(width=300, height=180)
        )
        return drawn

    return alt.hconcat(
        *(alt.vconcat(panel(one, "lr", "η"), panel(one, "applied", "applied, η/ell")) for one in schedules)
    )
