"""From the records of SGD and SVAG to the verdict on the SDE, and to everything beside it (fig:svag_accs)."""

from collections.abc import Mapping, Sequence

import numpy as np

from svag.findings.experiments.arm_name import NGD, SGD, ArmName, svag_arm
from svag.findings.experiments.arm_result import arm_result
from svag.findings.experiments.closeness import Closeness, closeness
from svag.findings.experiments.compare_finding import CompareFinding, ComparePanelFinding
from svag.findings.experiments.curve_gap import curve_gap
from svag.findings.experiments.decomposition import Decomposition, gaussian_route, ladder_route
from svag.findings.experiments.limit import fitted_limit, richardson_limit
from svag.findings.experiments.panel_runs import arms_of, runs_of, strangers
from svag.findings.experiments.runs import PanelRuns
from svag.findings.experiments.wording import CONTINUE
from svag.findings.sde.answer import SDEVerdict
from svag.findings.sde.verdict import sde_verdict
from svag.records.experiment import Compare, ComparePanel
from svag.records.record import RunRecord

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
