"""Noise that is not Gaussian: laws under Poisson gradients, and N where tails may be heavy.

Of the paper: sec:counterexample (linear scaling without the SDE) and sec:app_heayvtailed (are tails heavy?).
"""

from collections.abc import Sequence
from dataclasses import asdict

import altair as alt

from svag.findings.heavy_tails import TracePoint
from svag.findings.illustrations import CdfPoint, LawDistance
from svag.report import look


def cdf_chart(rows: Sequence[CdfPoint]) -> look.Picture:
    """The distribution functions: the steps of SGD stay, SVAG's become the smooth curve of the SDE."""
    laws = list(dict.fromkeys(row.law for row in rows))
    picked = look.shown("law", laws)
    lines = (
        alt.Chart(look.data([asdict(row) for row in rows]))
        .mark_line(interpolate="step-after", strokeWidth=1.8)
        .encode(
            x=alt.X("x:Q", title="weight after T examples", scale=alt.Scale(zero=False, nice=False)),
            y=alt.Y("probability:Q", title="probability of a smaller weight", scale=alt.Scale(domain=[0, 1])),
            color=look.colour("law", laws),
            strokeDash=look.dash("law", laws),
            tooltip=["law:N", alt.Tooltip("x:Q", format=".3f"), alt.Tooltip("probability:Q", format=".4f")],
        )
        .transform_filter(picked)
    )
    return alt.layer(lines).add_params(picked, look.zoom()).properties(width=look.WIDTH, height=look.HEIGHT)


def distance_chart(rows: Sequence[LawDistance]) -> look.Picture:
    """Distances from the law of the SDE against ell, on logarithmic axes."""
    processes = list(dict.fromkeys(row.process for row in rows))
    base = alt.Chart(look.data([asdict(row) for row in rows])).encode(
        x=alt.X("ell:Q", title="ell (refinement)", scale=look.log_scale(2)),
        y=alt.Y("distance:Q", title="Kolmogorov distance from the SDE", scale=look.log_scale()),
        color=look.colour("process", processes),
        tooltip=["process:N", "ell:Q", alt.Tooltip("distance:Q", format=".4f")],
    )
    lines = base.mark_line().encode(strokeDash=look.dash("process", processes, quiet=True))
    points = base.mark_point(filled=True, size=60).encode(shape=look.shape("process", processes))
    return alt.layer(lines, points).properties(width=look.WIDTH, height=look.HEIGHT)


def noise_trace_chart(rows: Sequence[TracePoint]) -> look.Picture:
    """The estimate of N against the number of batches, relative to the first one: flat, or growing with heavy tails."""
    sources = list(dict.fromkeys(row.source for row in rows))
    picked = look.shown("source", sources)
    base = (
        alt.Chart(look.data([asdict(row) for row in rows]))
        .encode(
            x=alt.X("batches:Q", title="batches", scale=look.log_scale(2)),
            y=alt.Y("relative:Q", title="estimate of N, first estimate = 1", scale=look.log_scale()),
            color=look.colour("source", sources),
            tooltip=["source:N", "batches:Q", alt.Tooltip("noise_trace:Q", format=".4g")],
        )
        .transform_filter(picked)
    )
    lines = base.mark_line().encode(strokeDash=look.dash("source", sources, quiet=True))
    points = base.mark_point(filled=True, size=50).encode(shape=look.shape("source", sources))
    return alt.layer(lines, points).add_params(picked, look.zoom()).properties(width=look.WIDTH, height=look.HEIGHT)
