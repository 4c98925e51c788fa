"""Does the SDE describe my SGD? The runs of SGD and SVAG at several ell, and what they found (fig:svag_accs).

The runs behind "does the SDE describe my SGD?": SGD, SVAG at several ell, the coupled ladder, NGD.

What a comparison of SGD and SVAG found, panel by panel, as objects that speak (fig:svag_accs).

From the records of SGD and SVAG to the verdict on the SDE, and to everything beside it (fig:svag_accs).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from svag.experiments.arms import over_seeds, panel, require_sgd, svag_arms, unmeasured_where_it_must
from svag.experiments.base import Compare, ComparePanel, Metric
from svag.experiments.evidence import (
    ArmResult,
    CurveGap,
    ExperimentFinding,
    Limit,
    arm_result,
    curve_gap,
    fitted_limit,
    richardson_limit,
)
from svag.experiments.runs import (
    CONTINUE,
    NGD,
    SGD,
    ArmName,
    CurveRow,
    MissingRun,
    PanelRuns,
    RunRow,
    arms_of,
    missing_first,
    runs_of,
    strangers,
    svag_arm,
)
from svag.experiments.sde_evidence import Closeness, Decomposition, closeness, gaussian_route, ladder_route
from svag.findings.sde_verdict import SDEVerdict, sde_verdict
from svag.records.fields import SpecError
from svag.records.record import RunRecord
from svag.records.spec import RunSpec


def runs(experiment: Compare) -> list[RunSpec]:
    """SGD and the other arms of every panel, with every seed; what the theory does not cover is refused.

    >>> base = RunSpec.from_yaml("{data: {name: svhn}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: 9}")
    >>> panel = ComparePanel(name="mine", base=base, ells=(1, 4), glsr=(2,))
    >>> found = runs(Compare(title="mine", panels=(panel,), seeds=(0, 1)))
    >>> [(spec.process.kind, spec.seed) for spec in found]
    [('sgd', 0), ('sgd', 1), ('svag', 0), ('svag', 1), ('glsr', 0), ('glsr', 1)]
    """
    found: list[RunSpec] = []
    for one in experiment.panels:
        with panel(one.name, len(experiment.panels)):
            found += over_seeds(_arms(one), experiment.seeds_of(one))
    return found


def _arms(one: ComparePanel) -> list[RunSpec]:
    require_sgd(one.base)
    arms = [one.base, *svag_arms(one.base, one.ells, one.split, one.momentum_limit)]
    others = [{"kind": "glsr", "parts": parts} for parts in dict.fromkeys(one.glsr) if parts > 1]
    others += [{"kind": "ngd"}] if one.ngd else []
    arms += [unmeasured_where_it_must(one.base, process) for process in others]
    if not any(ell > 1 for ell in one.ells):
        raise SpecError("ell", "SGD alone has nothing to be compared with: name at least one ell above 1")
    return arms


@dataclass(frozen=True)
class ComparePanelFinding:
    """Whether SGD ends where its SDE ends, in one setting.

    Attributes:
        name: of the panel.
        batch_size: B.
        metric: what is compared.
        verdict: on the final metric; None when SGD or all of SVAG have no result.
        arms: what each arm came to, SGD first.
        limit: the SDE's value, fitted to all ell; None without two arms of two seeds.
        richardson: the same from the two largest ell alone.
        curve: SGD against the largest ell over the whole of training; None without enough curves.
        closeness: R, G and N of SGD over those of the largest ell at equilibrium; None without readings of both.
        decompositions: why SGD and the SDE end apart, by each route that the runs allow.
        runs: all results.
        curves: all evaluations.
        missing: runs without a result.
        status: what to do next.
    """

    name: str
    batch_size: int
    metric: Metric
    verdict: SDEVerdict | None
    arms: tuple[ArmResult, ...]
    limit: Limit | None
    richardson: Limit | None
    curve: CurveGap | None
    closeness: Closeness | None
    decompositions: tuple[Decomposition, ...]
    runs: tuple[RunRow, ...]
    curves: tuple[CurveRow, ...]
    missing: tuple[MissingRun, ...]
    status: str

    def to_dict(self) -> dict[str, object]:
        """Return the panel for a JSON document: the fields of the verdict, then the rest; without the curves."""
        verdict = {} if self.verdict is None else self.verdict.to_dict()
        return {
            "answer": None,
            "gap": None,
            "low": None,
            "high": None,
            **verdict,
            "name": self.name,
            "batch_size": self.batch_size,
            "metric": self.metric,
            "results": [arm.to_dict() for arm in self.arms],
            "limit_value": None if self.limit is None else self.limit.to_dict(),
            "richardson": None if self.richardson is None else self.richardson.to_dict(),
            "curve": None if self.curve is None else self.curve.to_dict(),
            "closeness": None if self.closeness is None else self.closeness.to_dict(),
            "decompositions": [one.to_dict() for one in self.decompositions],
            "runs": [row.to_dict() for row in self.runs],
            "missing": [asdict(run) for run in self.missing],
            "status": self.status,
        }

    def __str__(self) -> str:
        lines = [*missing_first(self.missing, len(self.runs)), f"{self.name} ({self.metric}):"]
        lines.append(", ".join(str(arm) for arm in self.arms))
        if self.verdict is not None:
            lines += str(self.verdict).split("\n")[:2]
        if self.richardson is not None:
            lines.append(str(self.richardson))
        lines += [str(one) for one in (self.curve, self.closeness) if one is not None]
        lines += [str(one) for one in self.decompositions]
        return "\n".join([*lines, f"Next: {self.status}"])


class CompareFinding(ExperimentFinding[ComparePanelFinding]):
    """What an experiment `compare` found; it prints itself.

    >>> CompareFinding("mine", panels=()).to_dict()
    {'kind': 'compare', 'title': 'mine', 'panels': [], 'strangers': []}
    """

    kind = "compare"


ByEll = Mapping[int, Mapping[int, float]]


def find_compare(experiment: Compare, records: Sequence[RunRecord]) -> CompareFinding:
    """Find in each panel whether SGD ends where its SDE ends."""
    panels = tuple(_panel(experiment, panel, records) for panel in experiment.panels)
    return CompareFinding(experiment.title, panels, strangers(experiment, records))


def _panel(experiment: Compare, panel: ComparePanel, records: Sequence[RunRecord]) -> ComparePanelFinding:
    size, metric = panel.base.batch_size, experiment.metric
    runs = runs_of(panel, experiment.seeds_of(panel), records, metric)
    finals = {arm: runs.finals(arm, size, metric) for arm in arms_of(panel)}
    by_ell = {ell: found for ell in sorted({1, *panel.ells}) if (found := finals[svag_arm(ell)])}
    arrays = {ell: np.array(list(found.values())) for ell, found in by_ell.items()}
    largest = max(by_ell, default=1)
    verdict = sde_verdict(arrays, experiment.margin) if 1 in by_ell and largest > 1 else None
    limit = fitted_limit(arrays) if largest > 1 else None
    refined = richardson_limit(arrays) if largest > 1 else None
    return ComparePanelFinding(
        name=panel.name,
        batch_size=size,
        metric=metric,
        verdict=verdict,
        arms=tuple(arm_result(arm, found) for arm, found in finals.items() if found),
        limit=None if limit is None else limit.limit,
        richardson=None if refined is None else refined.limit,
        curve=None if largest == 1 else curve_gap(*_curves(runs, size, largest), largest, metric),
        closeness=None if largest == 1 else _closeness(runs, size, largest),
        decompositions=_decompositions(panel, finals, by_ell),
        runs=runs.rows(),
        curves=runs.curves(),
        missing=runs.missing,
        status=_next(runs, verdict),
    )


def _curves(runs: PanelRuns, size: int, ell: int) -> tuple[list[RunRecord], list[RunRecord]]:
    return list(runs.of(SGD, size).values()), list(runs.of(svag_arm(ell), size).values())


def _closeness(runs: PanelRuns, size: int, ell: int) -> Closeness | None:
    sgd, svag = (runs.readings(arm, size).values() for arm in (SGD, svag_arm(ell)))
    return closeness([one for own in sgd for one in own], [one for own in svag for one in own], ell)


def _decompositions(
    panel: ComparePanel, finals: Mapping[ArmName, Mapping[int, float]], by_ell: ByEll
) -> tuple[Decomposition, ...]:
    sgd, svag = finals[SGD], {ell: found for ell, found in by_ell.items() if ell > 1}
    found = []
    if panel.ngd and svag:
        found.append(gaussian_route(sgd, finals[NGD], svag))
    for parts in sorted(set(panel.glsr) - {1}):
        if svag:
            ell = parts if parts in svag else max(svag)
            found.append(ladder_route(sgd, finals[ArmName("glsr", parts)], svag[ell], parts, ell))
    return tuple(one for one in found if one is not None)


def _next(runs: PanelRuns, verdict: SDEVerdict | None) -> str:
    if runs.missing:
        return CONTINUE
    if verdict is None:
        return "run SGD and SVAG at some ell, best 4 and 16: there is nothing to compare yet."
    return verdict.status
