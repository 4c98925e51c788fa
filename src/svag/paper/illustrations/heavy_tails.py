"""Are the gradients of a network heavy-tailed? What N and the tail index read on them (sec:app_heayvtailed)."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from scipy.stats import levy_stable

from svag.arrays import FloatArray
from svag.as_json import json_fields
from svag.printed import Printed
from svag.stats.means import Contrast, contrast
from svag.theory.estimators import u_statistic
from svag.theory.tail_index import (
    inverse_tail_index,
    inverse_tail_index_of_gaussians,
    inverse_tail_index_per_coordinate,
)

CONTROL_ALPHA = 1.5
CONTROL = f"α-stable control, α = {CONTROL_ALPHA:g}"
_BLOCK = 10
_FEWEST = 4  # batches in the first row: N from fewer says little
_GROUPS = 4  # the median of fewer is too unsteady to fit a growth to
_DRAWS = 80  # so that the growth is fitted to two rows or more


@dataclass(frozen=True)
class TraceRow:
    """N estimated from `batches` batches: the median over disjoint groups of the table, for it and for the control."""

    batches: int
    groups: int
    noise_trace: float
    control: float


@dataclass(frozen=True)
class TracePoint:
    """N of one source from a number of batches: a row for drawing.

    Attributes:
        source: the gradients, or the control.
        batches: how many.
        noise_trace: the estimate, a median over groups of this many batches.
        relative: the same over the estimate from the fewest batches.
    """

    source: str
    batches: int
    noise_trace: float
    relative: float


@dataclass(frozen=True)
class TailFinding(Printed):
    """What a table of gradients says about their tails.

    Attributes:
        rows: N against the number of batches it is estimated from.
        growth: exponent of that growth; 0 for a finite variance.
        control_growth: the same of α-stable values of the same shape; its expectation is 2/α − 1.
        naive_alpha: the tail index read off whole gradients laid end to end, as is often done.
        gaussian_alpha: what that reads on *Gaussian* gradients of the same covariance (thm:test_on_gaussian).
        alpha: the tail index read off each coordinate by itself, averaged; 2 for a Gaussian.
        alpha_low: lower 95% limit of that, from the spread over blocks of draws.
        alpha_high: upper limit.
        draws: gradients in the table.
        coordinates: of each.
        left_out: coordinates that are exactly 0 somewhere, as behind a dead unit: they have no logarithm.
    """

    rows: tuple[TraceRow, ...]
    growth: float
    control_growth: float
    naive_alpha: float
    gaussian_alpha: float
    alpha: float
    alpha_low: float
    alpha_high: float
    draws: int
    coordinates: int
    left_out: int

    @property
    def flat(self) -> bool:
        """Whether N grows less than half as fast as that of α-stable values is expected to."""
        return self.growth < (2 / CONTROL_ALPHA - 1) / 2

    def traces(self, source: str = "the network's gradients") -> tuple[TracePoint, ...]:
        """The estimates of N for `source`, then those for the control, each relative to its own first one."""
        first = self.rows[0]
        ours = (TracePoint(source, r.batches, r.noise_trace, r.noise_trace / first.noise_trace) for r in self.rows)
        control = (TracePoint(CONTROL, r.batches, r.control, r.control / first.control) for r in self.rows)
        return (*ours, *control)

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document."""
        return {**json_fields(vars(self)), "rows": [asdict(row) for row in self.rows], "flat": self.flat}

    def __str__(self) -> str:
        first, last = self.rows[0], self.rows[-1]
        verdict = "stays flat, as with a finite covariance" if self.flat else "grows, as without a finite covariance"
        return (
            f"N from {first.batches} to {last.batches} batches grows like n^{self.growth:+.2f} (α-stable control "
            f"n^{self.control_growth:+.2f}): it {verdict}.\n"
            f"Tail index of gradients laid end to end: {self.naive_alpha:.2f}, where Gaussians of this covariance read "
            f"{self.gaussian_alpha:.2f}; coordinate by coordinate: {self.alpha:.2f} "
            f"[{self.alpha_low:.2f}, {self.alpha_high:.2f}] (Gaussian: 2).\n"
            f"Next: {self._next()}"
        )

    def _next(self) -> str:
        if self.draws < 400:
            return f"collect about 400 gradients for a steadier reading; these are {self.draws}."
        return "nothing more to run." if self.flat else "collect more gradients, or look for examples of extreme loss."


@dataclass(frozen=True)
class TailMoments(Printed):
    """What gradients say at several moments of one training, the last of them at its end.

    Attributes:
        findings: effective steps taken → what the gradients say there, in order.
    """

    findings: Mapping[int, TailFinding]

    @property
    def last(self) -> TailFinding:
        """At the end of the training."""
        return self.findings[max(self.findings)]

    @property
    def flat(self) -> bool:
        """Whether N stays flat at every moment."""
        return all(finding.flat for finding in self.findings.values())

    def traces(self) -> tuple[TracePoint, ...]:
        """The estimates of N at every moment, then those for the control of the last."""
        ours = [
            row
            for steps, finding in self.findings.items()
            for row in finding.traces(f"after {steps:,} steps")
            if row.source != CONTROL
        ]
        return (*ours, *(row for row in self.last.traces() if row.source == CONTROL))

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document: the end of the training, then every moment."""
        moments = [{"steps": steps, **finding.to_dict()} for steps, finding in self.findings.items()]
        return {**self.last.to_dict(), "moments": moments}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls({saved["steps"]: _finding(saved) for saved in fields["moments"]})

    def __str__(self) -> str:
        growths = [
            f"n^{round(finding.growth, 2) + 0.0:+.2f} after {steps:,}" for steps, finding in self.findings.items()
        ]
        return f"Growth of N with the number of batches n: {', '.join(growths)} steps.\n{self.last}"


def _finding(fields: Mapping[str, Any]) -> TailFinding:
    own = {name: value for name, value in fields.items() if name not in {"rows", "flat", "steps"}}
    return TailFinding(rows=tuple(TraceRow(**row) for row in fields["rows"]), **own)


def heavy_tails(gradients: FloatArray, seed: int = 0) -> TailFinding:
    """Read N and the tail index off a table of independent batch gradients (draws × coordinates) at one point.

    The tail index is read off differences of two draws, which have no mean to be subtracted.

    >>> table = np.random.default_rng(0).normal(size=(400, 50))
    >>> found = heavy_tails(table)
    >>> found.flat, found.alpha_low < 2 < found.alpha_high
    (True, True)

    Args:
        gradients: from `svag.lab.training.measuring.gradient_table`.
        seed: of the α-stable control.
    """
    table = np.asarray(gradients, dtype=np.float64)
    if table.ndim != 2 or len(table) < _DRAWS or table.shape[1] < 2:
        raise ValueError(
            f"gradients must be a table of at least {_DRAWS} draws × 2 coordinates, got shape {table.shape}"
        )
    if not np.all(np.isfinite(table)):
        raise ValueError("gradients must be finite: the run has diverged")
    rng = np.random.default_rng(seed)
    control = np.asarray(levy_stable.rvs(CONTROL_ALPHA, 0.0, size=table.shape, random_state=rng), dtype=np.float64)
    counts = [_FEWEST * 2**power for power in range(int(math.log2(len(table) / _FEWEST)) + 1)]
    rows = tuple(
        TraceRow(count, len(table) // count, _typical_trace(table, count), _typical_trace(control, count))
        for count in counts
    )
    if min(row.noise_trace for row in rows) <= 0:
        raise ValueError("gradients must differ: these batches all have the same one")
    pairs = (table[0::2][: len(table) // 2] - table[1::2]) / math.sqrt(2)
    pairs = pairs[: len(pairs) // _BLOCK * _BLOCK]
    alive = np.all(pairs != 0, axis=0)
    if np.count_nonzero(alive) < 2:
        raise ValueError("nearly every coordinate is exactly 0 in some gradient: choose other parameters")
    used = pairs[:, alive]
    inverse = _per_coordinate(used)
    low, high = inverse.interval()
    return TailFinding(
        rows=rows,
        growth=_growth([(row.batches, row.noise_trace) for row in rows if row.groups >= _GROUPS]),
        control_growth=_growth([(row.batches, row.control) for row in rows if row.groups >= _GROUPS]),
        naive_alpha=1 / inverse_tail_index(used.ravel(), used.shape[1]),
        gaussian_alpha=1 / inverse_tail_index_of_gaussians(_mean_square(used), float(_mean_square(used.sum(axis=1)))),
        alpha=1 / inverse.value,
        alpha_low=1 / high,
        alpha_high=1 / low if low > 0 else math.inf,
        draws=len(table),
        coordinates=table.shape[1],
        left_out=int(np.count_nonzero(~alive)),
    )


def _typical_trace(table: FloatArray, count: int) -> float:
    """Median of N over disjoint groups of `count` draws: a mean would be as heavy at every count as all draws are."""
    groups = table[: len(table) // count * count].reshape(-1, count, table.shape[1])
    return float(
        np.median(
            [
                u_statistic(float(np.square(group).sum()), float(np.square(group.sum(axis=0)).sum()), count).noise_trace
                for group in groups
            ]
        )
    )


def _mean_square(values: FloatArray) -> FloatArray:
    squares: FloatArray = np.square(values).mean(axis=0)
    return squares


def _per_coordinate(pairs: FloatArray) -> Contrast:
    """1/α coordinate by coordinate; blocks of draws are independent however correlated the coordinates are."""
    blocks = pairs.reshape(-1, _BLOCK, pairs.shape[1])
    return contrast([np.array([inverse_tail_index_per_coordinate(block, _BLOCK).mean() for block in blocks])], [1.0])


def _growth(points: list[tuple[int, float]]) -> float:
    """Slope of log N against log n."""
    counts, traces = zip(*points, strict=True)
    return float(np.polyfit(np.log(counts), np.log(traces), 1)[0])
