"""From the records of SGD, NGD and GD to whether Gaussian noise of the same covariance suffices (fig:ngd_sgd_accs)."""

import math
from collections.abc import Iterable, Sequence

from svag.findings.experiments.arm_gap import arm_gap
from svag.findings.experiments.arm_name import GD, NGD, SGD
from svag.findings.experiments.arm_result import arm_result
from svag.findings.experiments.ngd_finding import ArmGap, NgdFinding, NgdPanelFinding
from svag.findings.experiments.panel_runs import arms_of, runs_of, strangers
from svag.findings.experiments.runs import PanelRuns
from svag.findings.experiments.wording import CONTINUE
from svag.records.experiment import Metric, Ngd, NgdPanel
from svag.records.record import RunRecord


def find_ngd(experiment: Ngd, records: Sequence[RunRecord]) -> NgdFinding:
    """Find in each panel whether SGD and NGD end together, and whether GD does."""
    panels = tuple(_panel(experiment, panel, records) for panel in experiment.panels)
    return NgdFinding(experiment.title, panels, strangers(experiment, records))


def _panel(experiment: Ngd, panel: NgdPanel, records: Sequence[RunRecord]) -> NgdPanelFinding:
    size, metric = panel.base.batch_size, experiment.metric
    runs = runs_of(panel, experiment.seeds_of(panel), records, metric)
    finals = {arm: runs.finals(arm, size, metric) for arm in arms_of(panel)}
    with_ngd = arm_gap("SGD − NGD", finals[SGD], finals[NGD], experiment.margin)
    with_gd = arm_gap("SGD − GD", finals[SGD], finals[GD], experiment.margin)
    return NgdPanelFinding(
        name=panel.name,
        batch_size=size,
        metric=metric,
        margin=experiment.margin,
        arms=tuple(arm_result(arm, found) for arm, found in finals.items() if found),
        best=tuple((str(arm), _best(runs.of(arm, size).values(), metric)) for arm in finals),
        sgd_ngd=with_ngd,
        sgd_gd=with_gd,
        verdict=_verdict(with_ngd, with_gd),
        runs=runs.rows(),
        curves=runs.curves(),
        missing=runs.missing,
        status=_next(runs, with_ngd, with_gd),
    )


def _best(runs: Iterable[RunRecord], metric: Metric) -> float:
    """Mean over the finished runs of the best value along each; NaN without any."""
    best = max if metric == "test_accuracy" else min
    values = [best(value for _, value in run.curve(metric)) for run in runs if run.state == "finished"]
    return math.fsum(values) / len(values) if values else math.nan


def _verdict(with_ngd: ArmGap | None, with_gd: ArmGap | None) -> str:
    if with_ngd is None:
        return "no verdict: SGD or NGD have no result."
    noise = {
        "equivalent": "NGD ends where SGD ends: beyond its covariance, the noise does not matter",
        "different": "NGD does not end where SGD ends: more than the covariance of the noise matters",
        "inconclusive": "whether NGD ends where SGD ends is not decided",
    }[with_ngd.answer]
    if with_gd is None:
        return f"{noise}."
    none = {
        "equivalent": "GD ends there too, so in this setting the noise itself hardly matters",
        "different": "GD does not, so the noise itself matters",
        "inconclusive": "whether GD does is not decided",
    }[with_gd.answer]
    return f"{noise}; {none}."


def _next(runs: PanelRuns, with_ngd: ArmGap | None, with_gd: ArmGap | None) -> str:
    if runs.missing:
        return CONTINUE
    gaps = [gap for gap in (with_ngd, with_gd) if gap is not None]
    open_gaps = [gap for gap in gaps if gap.answer == "inconclusive"]
    if not open_gaps:
        return "nothing more to run."
    gap = open_gaps[0]
    if gap.p_divergence is not None:
        return "lower the learning rate until every seed finishes: the survivors alone cannot show equivalence."
    if math.isinf(gap.high):
        return "run more seeds, 5 is a good number: fewer than two finished with a spread of their own."
    if gap.seeds_needed is None:
        return "widen the margin, or take a metric that varies less: more than 200 seeds would be needed to decide."
    return f"run {gap.seeds_needed} seeds per arm: that would probably decide {gap.name}."
