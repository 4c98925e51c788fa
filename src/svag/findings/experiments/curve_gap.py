"""Do SGD and the largest ell differ anywhere in training? The max-t permutation test on their curves."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from svag.findings.experiments.runs import plain
from svag.records.experiment import Metric
from svag.records.record import RunRecord
from svag.stats.curves import compare_curves, gap_band


@dataclass(frozen=True)
class CurveGap:
    """SGD against SVAG over the whole of training.

    Attributes:
        ell: which SVAG.
        p_value: of the test that the labels SGD and SVAG do not matter, at all times at once.
        smallest_p: the smallest that so many seeds can reach.
        max_t: the largest |t| over time; infinite where the two groups do not overlap and have no spread.
        at_step: the effective step of that largest |t|.
        gap: mean of SGD minus mean of SVAG there, in the metric's units.
        low: lower 95% limit of the gap, which holds at all steps at once, and so at this one though it was chosen;
            −∞ when the seeds are too few.
        high: upper limit.
        until_step: the last effective step compared; earlier than the end if a seed diverged.
        times: evaluations compared.
        diverged: seeds that diverged, in both arms.
    """

    ell: int
    p_value: float
    smallest_p: float
    max_t: float
    at_step: int
    gap: float
    low: float
    high: float
    until_step: int
    times: int
    diverged: int

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document; an infinite t is null, and so is an infinite limit."""
        return plain(asdict(self))

    def __str__(self) -> str:
        lost = f" (before {self.diverged} seeds diverged)" if self.diverged else ""
        weak = "; more seeds are needed for a p below 0.05" if self.smallest_p >= 0.05 else ""
        return (
            f"curves of SGD and ell={self.ell} up to effective step {self.until_step}{lost}: p = {self.p_value:.2g}, "
            f"furthest apart at {self.at_step}, where SGD − SVAG = {self.gap:+.3g}{self._limits}; "
            f"{self.smallest_p:.2g} is the smallest p possible{weak}"
        )

    @property
    def _limits(self) -> str:
        return f" [{self.low:+.3g}, {self.high:+.3g}] (95%, all steps at once)" if math.isfinite(self.low) else ""


def curve_gap(sgd: Sequence[RunRecord], svag: Sequence[RunRecord], ell: int, metric: Metric) -> CurveGap | None:
    """Compare the curves where all of them are finite; None without three runs, or when they share no evaluation.

    The evaluation before the first step is left out: it knows only the seed.
    """
    groups = [[dict(run.curve(metric)) for run in runs] for runs in (sgd, svag)]
    if not all(groups) or sum(map(len, groups)) < 3:
        return None
    steps = sorted(set.intersection(*(set(curve) for group in groups for curve in group)) - {0})
    finite = [step for step in steps if all(math.isfinite(curve[step]) for group in groups for curve in group)]
    if not finite:
        return None
    one, other = ([[curve[step] for step in finite] for curve in group] for group in groups)
    test = compare_curves(np.array(one), np.array(other))
    band = gap_band(np.array(one), np.array(other))
    return CurveGap(
        ell=ell,
        p_value=test.p_value,
        smallest_p=test.smallest_p,
        max_t=test.max_t,
        at_step=finite[test.index],
        gap=float(band.gap[test.index]),
        low=float(band.low[test.index]),
        high=float(band.high[test.index]),
        until_step=finite[-1],
        times=len(finite),
        diverged=sum(run.state == "diverged" for run in [*sgd, *svag]),
    )
