"""The estimate of N against the number of batches: flat, or growing if tails are heavy (sec:app_heayvtailed)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import altair as alt
import numpy as np
from scipy.stats import levy_stable

from svag.arrays import FloatArray
from svag.report import look
from svag.theory.estimators import u_statistic


@dataclass(frozen=True)
class Row:
    """N estimated from the first `batches` gradients, over the estimate from the first few."""

    source: str
    batches: int
    noise_trace: float
    relative: float


def table(gradients: Mapping[str, FloatArray], *, first: int = 10, points: int = 40) -> list[Row]:
    """Running estimates of N = Tr Σ, at numbers of batches that are equally spaced on a logarithmic scale.

    Args:
        gradients: name → batch gradients at frozen weights, one row a batch.
        first: how many batches the first estimate is made of.
        points: estimates a source.
    """
    rows = []
    for name, g in gradients.items():
        if len(g) <= first:
            raise ValueError(f"{name} holds {len(g)} gradients: more than {first} are needed to see a trend")
        sum_sq, sq_sum = np.cumsum((g**2).sum(axis=1)), (np.cumsum(g, axis=0) ** 2).sum(axis=1)
        counts = sorted({round(n) for n in np.geomspace(first, len(g), points)})
        found = [u_statistic(float(sum_sq[n - 1]), float(sq_sum[n - 1]), n).noise_trace for n in counts]
        rows += [Row(name, n, value, value / found[0]) for n, value in zip(counts, found, strict=True)]
    return rows


def control_gradients(alpha: float = 1.5, *, batches: int = 4000, dimension: int = 20, seed: int = 0) -> FloatArray:
    """Gradients with symmetric α-stable noise: their covariance does not exist, so its estimate must grow."""
    rng = np.random.default_rng(seed)
    return np.asarray(levy_stable.rvs(alpha, 0.0, size=(batches, dimension), random_state=rng), dtype=np.float64)


def chart(rows: Sequence[Row]) -> look.Picture:
    """Relative estimates on logarithmic axes."""
    sources = list(dict.fromkeys(row.source for row in rows))
    picked = look.shown("source", sources)
    base = (
        alt.Chart(look.data([asdict(row) for row in rows]))
        .encode(
            x=alt.X("batches:Q", title="batches", scale=look.log_scale()),
            y=alt.Y("relative:Q", title="estimate of N, first estimate = 1", scale=look.log_scale()),
            color=look.colour("source", sources),
            tooltip=["source:N", "batches:Q", alt.Tooltip("noise_trace:Q", format=".4g")],
        )
        .transform_filter(picked)
    )
    lines = base.mark_line().encode(strokeDash=look.dash("source", sources, quiet=True))
    points = base.mark_point(filled=True, size=30).encode(shape=look.shape("source", sources))
    return alt.layer(lines, points).add_params(picked, look.zoom()).properties(width=look.WIDTH, height=look.HEIGHT)


def sentence(rows: Sequence[Row]) -> str:
    """The verdict: by which factor each estimate moved from first to last."""
    moved = {row.source: row.relative for row in rows}
    return (
        "From the first to the last estimate N changed by: "
        + "; ".join(f"{source} × {factor:.3g}" for source, factor in moved.items())
        + "."
    )
