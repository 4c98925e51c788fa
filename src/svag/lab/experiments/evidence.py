"""What the findings of all experiments are made of: panels with an answer each, arms, and the SDE limit of a metric."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar, Generic, Literal, Protocol, TypeVar

import numpy as np

from svag.arrays import FloatArray
from svag.lab.experiments import wording
from svag.lab.experiments.base import SGD, ArmName, Metric
from svag.lab.experiments.runs import CurveRow, MissingRun
from svag.lab.experiments.wording import Answer, Tone
from svag.printed import Printed
from svag.stats.decisions import Decision, holm, three_way
from svag.stats.means import Contrast, contrast, fit_limit
from svag.stats.samples import json_fields

# What the three answers of a test of equivalence mean to the question whether two things end together.
TONES: dict[str, Tone] = {"equivalent": "yes", "different": "no", "inconclusive": "open"}


class PanelFinding(Protocol):
    """What the finding of an experiment asks of the finding of a panel."""

    @property
    def missing(self) -> tuple[MissingRun, ...]:
        """Runs without a result."""
        ...

    def answer(self) -> Answer:
        """The answer in words, as plain data."""
        ...

    def to_dict(self) -> dict[str, object]:
        """Return the panel for a JSON document."""
        ...


AnyPanel = TypeVar("AnyPanel", bound=PanelFinding, covariant=True)


@dataclass(frozen=True)
class Finding(Printed, Generic[AnyPanel]):
    """What an experiment found; each family has a class of its own, so that readers can tell them apart.

    Attributes:
        title: of the experiment.
        panels: one finding each.
        strangers: records that belong to no panel, each a sentence.
    """

    kind: ClassVar[str]
    title: str
    panels: tuple[AnyPanel, ...]
    strangers: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[MissingRun, ...]:
        """Runs without a result, over all panels."""
        return tuple(run for panel in self.panels for run in panel.missing)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know before the answers: runs that are missing, and records that were not used."""
        return wording.warnings(self.missing, self.strangers)

    def answers(self) -> tuple[Answer, ...]:
        """One a panel."""
        return tuple(panel.answer() for panel in self.panels)

    def to_dict(self) -> dict[str, object]:
        """Return the finding for a JSON document; the fields of a single panel stand at the top as well."""
        panels = [panel.to_dict() for panel in self.panels]
        top = panels[0] if len(panels) == 1 else {}
        return {"kind": self.kind, "title": self.title, **top, "panels": panels, "strangers": list(self.strangers)}

    def __str__(self) -> str:
        return "\n\n".join([*self.warnings, *map(str, self.answers())])


def sgd_curve(rows: tuple[CurveRow, ...], metric: Metric) -> tuple[tuple[float, ...], str]:
    """The curve of the first seed of the optimizer itself, and what it is."""
    mine = [row for row in rows if wording.is_optimizer(row.arm)]
    first = min((row.seed for row in mine), default=0)
    found = (getattr(row, metric) for row in mine if row.seed == first)
    values = tuple(float(value) for value in found if value is not None)
    return values, f"{wording.UNITS[metric]} of {mine[0].arm if mine else SGD}, seed {first}"


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
        finals = [json_fields({"seed": seed, "value": value}) for seed, value in self.finals]
        return {**json_fields({**asdict(self), "finals": None}), "finals": finals}

    def said(self, metric: Metric) -> str:
        """Mean, spread and seeds."""
        spread = f" ± {wording.value(self.std, metric)}" if math.isfinite(self.std) else ""
        lost = f", {self.diverged} diverged" if self.diverged else ""
        return f"{wording.value(self.mean, metric)}{spread} ({wording.count(self.seeds, 'seed')}{lost})"


def arm_result(arm: ArmName, finals: Mapping[int, float]) -> ArmResult:
    """Sum up one arm from its final metric by seed.

    >>> found = arm_result(ArmName("svag", 4), {0: 0.5, 1: 0.7, 2: math.nan})
    >>> found.arm, found.said("test_accuracy")
    ('SVAG ell=4', '60.00% ± 14.14% (3 seeds, 1 diverged)')
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


# A single evaluation is noisy while the learning rate is large: trajectories are means of so many in a row.
SMOOTHED = 4

LimitMethod = Literal["fit", "richardson", "largest_ell", "collapsed", "plan"]
_LEVEL = 0.05


@dataclass(frozen=True)
class Limit:
    """An estimate of where SVAG converges to.

    Attributes:
        value: the estimate.
        low: lower 95% limit.
        high: upper 95% limit.
        source: "fit" (E_∞ of E_ell = E_∞ + c/ell), "richardson" (the same through the two largest ell),
            "largest_ell" (the line does not fit), "collapsed" (the largest ell too, because an arm collapsed), or
            "plan" (weights that were chosen beforehand).
        ells: the ell it was made of.
        diverged: seeds that diverged there, and are not in it.
    """

    value: float
    low: float
    high: float
    source: LimitMethod
    ells: tuple[int, ...]
    diverged: int

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document."""
        return {**json_fields(asdict(self)), "ells": list(self.ells)}

    def said(self, metric: Metric) -> str:
        """The limit with its interval, and how many seeds are not in it."""
        low, high = (wording.value(wording.within(edge, metric), metric) for edge in (self.low, self.high))
        lost = f", {self.diverged} diverged left out" if self.diverged else ""
        return f"{wording.value(self.value, metric)} ({low} to {high}){lost}"


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

    def minus_limit(self, other: "LimitEstimate") -> Contrast:
        """The limit minus another one, from other runs."""
        groups = [*self.groups.values(), *other.groups.values()]
        return contrast(groups, [*self.weights, *(-weight for weight in other.weights)])

    @property
    def trusted(self) -> bool:
        """Whether it stands for the SDE: 1/ell fits, and every seed finished."""
        return self.limit.source in {"fit", "plan"} and not self.limit.diverged

    def minus_arm(self, ell: int) -> Contrast:
        """The limit minus the mean of one of its own arms, which it is not independent of."""
        return contrast(
            list(self.groups.values()), [w - (own == ell) for own, w in zip(self.groups, self.weights, strict=True)]
        )


def fitted_limit(finals: Mapping[int, FloatArray], *, extrapolate: bool = True) -> LimitEstimate | None:
    """The limit from all ell, ell = 1 being SGD, or from the largest when 1/ell does not fit; None without spread.

    Where an arm collapsed (`extrapolate` is False) no line is drawn: the limit is the largest ell.

    >>> found = fitted_limit({1: np.array([3.0, 5.0]), 4: np.array([1.0, 1.0])})
    >>> found.limit.source, round(found.limit.value, 12)
    ('fit', 0.0)
    """
    used, diverged = _usable(finals)
    if len(used) < 2:
        return None
    fit = fit_limit([1 / ell for ell in used], list(used.values()))
    if extrapolate and (fit.lack_of_fit is None or fit.lack_of_fit >= _LEVEL):
        return _result(used, fit.limit_weights, "fit", tuple(used), diverged)
    largest = max(used)
    source: LimitMethod = "largest_ell" if extrapolate else "collapsed"
    return _result(used, [float(ell == largest) for ell in used], source, (largest,), diverged)


def planned_limit(finals: Mapping[int, FloatArray], weights: Mapping[int, float], bias: float) -> LimitEstimate | None:
    """The limit by weights that were chosen beforehand, its interval widened by `bias`; None while an arm is missing.

    >>> found = planned_limit({1: np.ones(2), 4: np.array([1.0, 1.0]), 16: np.array([2.0, 4.0])}, {16: 1.0}, bias=0.5)
    >>> found.limit.value, found.limit.source
    (3.0, 'plan')
    """
    used, diverged = _usable(finals)
    if set(weights) - set(used):
        return None
    groups = {ell: used[ell] for ell in weights}
    found = _result(groups, list(weights.values()), "plan", tuple(weights), diverged)
    return replace(found, limit=replace(found.limit, low=found.limit.low - bias, high=found.limit.high + bias))


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
    groups: Mapping[int, FloatArray],
    weights: Sequence[float],
    source: LimitMethod,
    ells: tuple[int, ...],
    diverged: int,
) -> LimitEstimate:
    estimate = contrast(list(groups.values()), weights)
    low, high = estimate.interval()
    return LimitEstimate(Limit(estimate.value, low, high, source, ells, diverged), groups, tuple(weights))


@dataclass(frozen=True)
class Difference:
    """Two values that were estimated from different runs, one minus the other.

    Attributes:
        name: which minus which.
        answer: "equivalent" within the margin, "different" or "inconclusive".
        value: the difference.
        low: lower 95% limit.
        high: upper 95% limit.
        p_equivalent: p value for "smaller than the margin".
        p_different: p value for a difference.
    """

    name: str
    answer: Decision
    value: float
    low: float
    high: float
    p_equivalent: float
    p_different: float

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document."""
        return json_fields(asdict(self))

    def said(self, metric: Metric) -> str:
        """The difference with its interval."""
        return f"{self.name} = {wording.difference(self.value, metric)} {wording.interval(self.low, self.high, metric)}"


def decided(name: str, estimate: Contrast, margin: float, *, trusted: bool = True) -> Difference:
    """Decide on a difference; where something is missing from it (`trusted` is False) nothing is equivalent.

    >>> found = decided("one − other", Contrast(0.002, 0.003, 8), margin=0.01)
    >>> found.answer, found.said("test_accuracy")
    ('equivalent', 'one − other = +0.20 points [−0.49, +0.89]')
    """
    answer = three_way(estimate, margin, _LEVEL)
    if answer == "equivalent" and not trusted:
        answer = "inconclusive"
    p_values = estimate.p_equivalent(margin), estimate.p_different()
    return Difference(name, answer, estimate.value, *estimate.interval(), *p_values)


@dataclass(frozen=True)
class AcrossPanels:
    """Whether one quantity is the same in all of several panels.

    Attributes:
        of: the quantity.
        answer: "equivalent" if every two panels are (intersection–union: each test at 5%); "different" if some two are
            after Holm's correction; otherwise "inconclusive".
        margin: the difference that would not matter.
        pairs: every two panels.
    """

    of: str
    answer: Decision
    margin: float
    pairs: tuple[Difference, ...]

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document."""
        return {**asdict(self), "pairs": [pair.to_dict() for pair in self.pairs]}


def across(of: str, pairs: Sequence[Difference], margin: float) -> AcrossPanels:
    """Decide on all pairs at once."""
    answer: Decision = "inconclusive"
    if all(pair.answer == "equivalent" for pair in pairs):
        answer = "equivalent"
    elif min(holm([pair.p_different for pair in pairs])) < _LEVEL:
        answer = "different"
    return AcrossPanels(of, answer, margin, tuple(pairs))
