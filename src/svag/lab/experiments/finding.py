"""The parts of every finding: panels with an answer each, and the results of their arms."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import numpy as np

from svag.arrays import FloatArray
from svag.as_json import JsonRow, json_fields_of, json_number
from svag.lab.experiments import wording
from svag.lab.experiments.arms import SGD, ArmName
from svag.lab.experiments.experiment import Metric
from svag.lab.experiments.runs import CurveRow, MissingRun, RunRow
from svag.lab.experiments.wording import Answer, Tone
from svag.printed import Printed
from svag.stats.means import contrast

# The tone of a panel about whether two things end together, by the answer of its test of equivalence.
TONES: dict[str, Tone] = {"equivalent": "yes", "different": "no", "inconclusive": "open"}


@dataclass(frozen=True, kw_only=True)
class PanelFinding(ABC):
    """The base of the findings of all panels.

    Attributes:
        name: name of the panel.
        metric: what is compared, or what scaling is judged by.
        runs: all results.
        curves: all evaluations.
        missing: runs without a result.
        status: what to do next.
    """

    name: str
    metric: Metric
    runs: tuple[RunRow, ...]
    curves: tuple[CurveRow, ...]
    missing: tuple[MissingRun, ...]
    status: str

    @abstractmethod
    def answer(self) -> Answer:
        """The answer in words, as plain data."""

    @abstractmethod
    def to_dict(self) -> dict[str, object]:
        """Return the panel for a JSON document, without the curves."""

    def shared_fields(self) -> dict[str, object]:
        """The fields common to all panels, for a JSON document."""
        return json_fields_of(self, "name", "metric", "runs", "missing", "status")

    def __str__(self) -> str:
        return str(self.answer())


AnyPanel = TypeVar("AnyPanel", bound=PanelFinding, covariant=True)


@dataclass(frozen=True)
class Finding(Printed, Generic[AnyPanel]):
    """What an experiment found; the base of one class per family.

    Attributes:
        title: title of the experiment.
        panels: one finding each.
        strangers: one sentence for each record that belongs to no panel.
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
        """Warnings to show before the answers: missing runs, and records that were not used."""
        return wording.warnings(self.missing, self.strangers)

    def answers(self) -> tuple[Answer, ...]:
        """One answer per panel."""
        return tuple(panel.answer() for panel in self.panels)

    def to_dict(self) -> dict[str, object]:
        """Return the finding for a JSON document; the fields of a single panel are also at the top level."""
        panels = [panel.to_dict() for panel in self.panels]
        top = panels[0] if len(panels) == 1 else {}
        return {"kind": self.kind, "title": self.title, **top, "panels": panels, "strangers": list(self.strangers)}

    def __str__(self) -> str:
        return "\n\n".join([*self.warnings, *map(str, self.answers())])


def sgd_curve(rows: tuple[CurveRow, ...], metric: Metric) -> tuple[tuple[float, ...], str]:
    """The curve of the first seed of the optimizer itself, and its caption."""
    own = [row for row in rows if wording.is_optimizer(row.arm)]
    first = min((row.seed for row in own), default=0)
    values = (getattr(row, metric) for row in own if row.seed == first)
    curve = tuple(float(value) for value in values if value is not None)
    return curve, f"{wording.UNITS[metric]} of {own[0].arm if own else SGD}, seed {first}"


@dataclass(frozen=True)
class ArmResult(JsonRow):
    """The seeds of one arm.

    Attributes:
        arm: name of the arm.
        kind: kind of its process.
        refinement: ell of SVAG, number of parts of the coupled ladder, otherwise 1.
        seeds: number of runs with a result.
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
        return {**super().to_dict(), "finals": by_seed_rows(self.finals, "value")}

    def said(self, metric: Metric) -> str:
        """Mean, spread and number of seeds."""
        spread = f" ± {wording.value(self.std, metric)}" if math.isfinite(self.std) else ""
        lost = f", {self.diverged} diverged" if self.diverged else ""
        return f"{wording.value(self.mean, metric)}{spread} ({wording.count(self.seeds, 'seed')}{lost})"


def finished(finals: Mapping[int, float]) -> FloatArray:
    """The final metrics of the seeds that did not diverge."""
    return np.array([value for value in finals.values() if math.isfinite(value)])


def arm_result(arm: ArmName, finals: Mapping[int, float]) -> ArmResult:
    """Sum up one arm from its final metric by seed.

    >>> result = arm_result(ArmName("svag", 4), {0: 0.5, 1: 0.7, 2: math.nan})
    >>> result.arm, result.said("test_accuracy")
    ('SVAG ell=4', '60.00% ± 14.14% (3 seeds, 1 diverged)')
    """
    values = finished(finals)
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


def by_seed_rows(values: tuple[tuple[int, float], ...], name: str) -> list[dict[str, object]]:
    """Numbers by seed for a JSON document, under this name."""
    return [{"seed": seed, name: json_number(value)} for seed, value in values]
