"""The estimate of N against the number of batches: flat, or growing if tails are heavy (sec:app_heayvtailed)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import altair as alt

from svag.findings.heavy_tails import CONTROL_ALPHA, TailFinding
from svag.report import look

CONTROL = f"α-stable control, α = {CONTROL_ALPHA:g}"


@dataclass(frozen=True)
class Row:
    """N estimated from so many batches.

    Attributes:
        source: the gradients, or the control.
        batches: how many.
        noise_trace: the estimate, a median over groups of so many batches.
        relative: the same over the first one.
    """

    source: str
    batches: int
    noise_trace: float
    relative: float


def table(found: TailFinding, source: str = "the network's gradients") -> list[Row]:
    """The gradients and the control of a finding, each over its own first estimate."""
    first = found.rows[0]
    ours = [Row(source, one.batches, one.noise_trace, one.noise_trace / first.noise_trace) for one in found.rows]
    return ours + [Row(CONTROL, one.batches, one.control, one.control / first.control) for one in found.rows]


def chart(rows: Sequence[Row]) -> look.Picture:
    """Relative estimates on logarithmic axes."""
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


def sentence(found: TailFinding) -> str:
    """The verdict of the finding: its first line."""
    return str(found).partition("\n")[0]
