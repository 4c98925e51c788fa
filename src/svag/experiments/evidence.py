"""What final metrics and curves of a few arms say: gaps, limits, and how far two arms are apart anywhere.

What the findings of all experiments have in common: panels, runs that are missing, records that belong to none.

What one arm came to, in one metric.

The SDE limit of a metric, from SVAG at a few ell: fitted, and by Richardson from the two largest.

Do SGD and the largest ell differ anywhere in training? The max-t permutation test on their curves.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar, Generic, Literal, Protocol, TypeVar

import numpy as np

from svag.arrays import FloatArray
from svag.experiments.base import Metric
from svag.experiments.runs import ArmName, MissingRun, not_used, plain
from svag.records.record import RunRecord
from svag.stats.curves import compare_curves, gap_band
from svag.stats.means import Contrast, contrast, fit_limit


class PanelFinding(Protocol):
    """What an experiment asks of the finding of a panel."""

    @property
    def missing(self) -> tuple[MissingRun, ...]:
        """Runs without a result."""
        ...

    def to_dict(self) -> dict[str, object]:
        """Return the panel for a JSON document."""
        ...


Panel = TypeVar("Panel", bound=PanelFinding, covariant=True)


@dataclass(frozen=True)
class ExperimentFinding(Generic[Panel]):
    """What an experiment found; each kind is a class of its own, so that readers can tell them apart.

    Attributes:
        title: of the experiment.
        panels: one finding each.
        strangers: records that belong to no panel, each a sentence.
    """

    kind: ClassVar[str]
    title: str
    panels: tuple[Panel, ...]
    strangers: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[MissingRun, ...]:
        """Runs without a result, over all panels."""
        return tuple(run for panel in self.panels for run in panel.missing)

    def to_dict(self) -> dict[str, object]:
        """Return the finding for a JSON document; the fields of a single panel stand at the top as well."""
        panels = [panel.to_dict() for panel in self.panels]
        top = panels[0] if len(panels) == 1 else {}
        return {"kind": self.kind, "title": self.title, **top, "panels": panels, "strangers": list(self.strangers)}

    def __str__(self) -> str:
        return "\n\n".join([*not_used(self.strangers, self.missing), *(str(panel) for panel in self.panels)])


@dataclass(frozen=True)
class ArmResult:
    """The seeds of one arm.

    Attributes:
        arm: what it is called.
        kind: of its process.
        refinement: ell of SVAG, parts of the coupled ladder, 1 of the others.
        seeds: runs with a result.
        diverged: how many of them diverged.
        mean: mean final metric of those that finished; NaN if none did.
        std: their standard deviation; NaN with fewer than two.
        low: lower 95% limit of the mean; −∞ with fewer than two.
        high: upper limit.
        finals: final metric by seed, NaN where diverged.
    """

    arm: str
    kind: str
    refinement: int
    seeds: int
    diverged: int
    mean: float
    std: float
    low: float
    high: float
    finals: tuple[tuple[int, float], ...]

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document; unknown numbers are null."""
        finals = [plain({"seed": seed, "value": value}) for seed, value in self.finals]
        return {**plain({**asdict(self), "finals": None}), "finals": finals}

    def __str__(self) -> str:
        spread = f" ± {self.std:.2g}" if math.isfinite(self.std) else ""
        lost = f", {self.diverged} diverged" if self.diverged else ""
        return f"{self.arm} {self.mean:.4g}{spread} ({self.seeds} seed{'' if self.seeds == 1 else 's'}{lost})"


def arm_result(arm: ArmName, finals: Mapping[int, float]) -> ArmResult:
    """Sum up one arm from its final metric by seed.

    >>> print(arm_result(ArmName("svag", 4), {0: 0.5, 1: 0.7, 2: math.nan}))
    SVAG ell=4 0.6 ± 0.14 (3 seeds, 1 diverged)
    """
    values = np.array([value for value in finals.values() if math.isfinite(value)])
    low, high = contrast([values], [1.0]).interval() if values.size > 1 else (-math.inf, math.inf)
    return ArmResult(
        arm=str(arm),
        kind=arm.kind,
        refinement=arm.refinement,
        seeds=len(finals),
        diverged=len(finals) - values.size,
        mean=float(values.mean()) if values.size else math.nan,
        std=float(values.std(ddof=1)) if values.size > 1 else math.nan,
        low=low,
        high=high,
        finals=tuple(sorted(finals.items())),
    )


Source = Literal["fit", "richardson", "largest_ell"]
_LEVEL = 0.05


@dataclass(frozen=True)
class Limit:
    """An estimate of where SVAG converges to.

    Attributes:
        value: the estimate.
        low: lower 95% limit.
        high: upper 95% limit.
        source: "fit" (E_∞ of E_ell = E_∞ + c/ell), "richardson" (the same through the two largest ell), or
            "largest_ell" (the line does not fit).
        ells: the ell it was made of.
        diverged: seeds that diverged there, and are not in it.
    """

    value: float
    low: float
    high: float
    source: Source
    ells: tuple[int, ...]
    diverged: int

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document."""
        return {**plain(asdict(self)), "ells": list(self.ells)}

    def __str__(self) -> str:
        how = {"fit": "E_∞ + c/ell", "richardson": "Richardson", "largest_ell": "the largest ell"}[self.source]
        ells = ", ".join(map(str, self.ells))
        return f"limit by {how} from ell = {ells}: {self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


@dataclass(frozen=True, eq=False)
class LimitEstimate:
    """A limit and what it was made of, for further arithmetic.

    Attributes:
        limit: the estimate.
        groups: the finished seeds by ell.
        weights: of their means in the limit, in the same order.
    """

    limit: Limit
    groups: Mapping[int, FloatArray]
    weights: tuple[float, ...]

    def minus(self, other: FloatArray) -> Contrast:
        """The limit minus the mean of other runs."""
        return contrast([*self.groups.values(), other], [*self.weights, -1.0])

    def minus_arm(self, ell: int) -> Contrast:
        """The limit minus the mean of one of its own arms, which it is not independent of."""
        return contrast(
            list(self.groups.values()), [w - (own == ell) for own, w in zip(self.groups, self.weights, strict=True)]
        )


def fitted_limit(finals: Mapping[int, FloatArray]) -> LimitEstimate | None:
    """The limit from all ell, ell = 1 being SGD, or from the largest when 1/ell does not fit; None without spread.

    >>> found = fitted_limit({1: np.array([3.0, 5.0]), 4: np.array([1.0, 1.0])})
    >>> found.limit.source, round(found.limit.value, 12)
    ('fit', 0.0)
    """
    used, diverged = _usable(finals)
    if len(used) < 2:
        return None
    fit = fit_limit([1 / ell for ell in used], list(used.values()))
    if fit.lack_of_fit is None or fit.lack_of_fit >= _LEVEL:
        return _result(used, fit.limit_weights, "fit", tuple(used), diverged)
    largest = max(used)
    return _result(used, [float(ell == largest) for ell in used], "largest_ell", (largest,), diverged)


def richardson_limit(finals: Mapping[int, FloatArray]) -> LimitEstimate | None:
    """The limit from the two largest ell: (r E_rl − E_l)/(r − 1), which is of second order in 1/ell; None without two.

    >>> found = richardson_limit({1: np.array([9.0, 9.5]), 4: np.array([3.0, 3.2]), 16: np.array([2.0, 2.2])})
    >>> round(found.limit.value, 12)  # (4 × 2.1 − 3.1)/3
    1.766666666667
    """
    used, diverged = _usable(finals)
    if len(used) < 2:
        return None
    last = {ell: used[ell] for ell in sorted(used)[-2:]}
    fit = fit_limit([1 / ell for ell in last], list(last.values()))
    return _result(last, fit.limit_weights, "richardson", tuple(last), diverged)


def _usable(finals: Mapping[int, FloatArray]) -> tuple[dict[int, FloatArray], int]:
    finite = {ell: values[np.isfinite(values)] for ell, values in sorted(finals.items())}
    diverged = sum(values.size for values in finals.values()) - sum(values.size for values in finite.values())
    return {ell: values for ell, values in finite.items() if values.size > 1}, diverged


def _result(
    groups: Mapping[int, FloatArray], weights: Sequence[float], source: Source, ells: tuple[int, ...], diverged: int
) -> LimitEstimate:
    estimate = contrast(list(groups.values()), weights)
    low, high = estimate.interval()
    return LimitEstimate(Limit(estimate.value, low, high, source, ells, diverged), groups, tuple(weights))


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
