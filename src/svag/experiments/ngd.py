"""Is it the covariance of the noise that matters? SGD, NGD and GD, and what they found (fig:ngd_sgd_accs).

The runs behind "is it the covariance of the noise that matters?": SGD, NGD with matching covariance, GD.

What SGD, NGD and GD found side by side, as objects that speak (fig:ngd_sgd_accs).

Do two arms end together? Three answers from the final metric of a few seeds each.

From the records of SGD, NGD and GD to whether Gaussian noise of the same covariance suffices (fig:ngd_sgd_accs).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from svag.experiments.arms import over_seeds, panel, require_sgd, unmeasured_where_it_must
from svag.experiments.base import Metric, Ngd, NgdPanel
from svag.experiments.evidence import ArmResult, ExperimentFinding, arm_result
from svag.experiments.runs import (
    CONTINUE,
    GD,
    NGD,
    SGD,
    CurveRow,
    MissingRun,
    PanelRuns,
    RunRow,
    arms_of,
    missing_first,
    plain,
    runs_of,
    strangers,
)
from svag.records.record import RunRecord
from svag.records.spec import RunSpec
from svag.stats.decisions import Answer, compare_rates, holm, samples_to_decide, three_way
from svag.stats.means import welch


def runs(experiment: Ngd) -> list[RunSpec]:
    """SGD, NGD (eq:noisy_gd) and GD of every panel, with every seed; of GD a seed only changes the first weights.

    >>> from svag.experiments.base import NgdPanel
    >>> base = RunSpec.from_yaml(
    ...     "{data: {name: svhn}, model: {arch: mlp, norm: layer}, batch_size: 8, lr: 1, budget: 9}")
    >>> [spec.process.kind for spec in runs(Ngd(title="", panels=(NgdPanel(name="", base=base),), seeds=(0,)))]
    ['sgd', 'ngd', 'gd']
    """
    found: list[RunSpec] = []
    for one in experiment.panels:
        with panel(one.name, len(experiment.panels)):
            require_sgd(one.base)
            arms = [one.base, *(unmeasured_where_it_must(one.base, {"kind": kind}) for kind in ("ngd", "gd"))]
            found += over_seeds(arms, experiment.seeds_of(one))
    return found


@dataclass(frozen=True)
class ArmGap:
    """The difference of two arms in the final metric.

    Attributes:
        name: which minus which.
        answer: "equivalent" within the margin, "different" or "inconclusive".
        gap: the difference of the means; NaN when an arm has no finished seed.
        low: lower 95% limit, −∞ when the spread is unknown.
        high: upper limit.
        p_equivalent: p value for "smaller than the margin"; 1 when the spread is unknown.
        p_different: p value for a gap, or for unequal rates of divergence; corrected by Holm if both were tested.
        p_divergence: Fisher's p value for unequal rates of divergence; None if no seed diverged.
        seeds_needed: seeds per arm that would probably decide; None if that is not the remedy.
    """

    name: str
    answer: Answer
    gap: float
    low: float
    high: float
    p_equivalent: float
    p_different: float
    p_divergence: float | None
    seeds_needed: int | None

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document; unknown numbers are null."""
        return plain(asdict(self))

    def __str__(self) -> str:
        gap = "unknown" if math.isnan(self.gap) else f"{self.gap:+.4g}"
        if math.isfinite(self.low):
            gap += f" [{self.low:+.4g}, {self.high:+.4g}]"
        return f"{self.answer}: {self.name} = {gap}"


@dataclass(frozen=True)
class NgdPanelFinding:
    """Whether Gaussian noise of the same covariance does what SGD's noise does.

    Attributes:
        name: of the panel.
        batch_size: B.
        metric: what is compared.
        margin: the gap that would not matter.
        arms: what SGD, NGD and GD came to.
        best: mean over seeds of the best metric along the run, by arm, as the paper prints it; NaN without results.
        sgd_ngd: SGD − NGD; None while either has no result.
        sgd_gd: SGD − GD; None while either has no result.
        verdict: one sentence.
        runs: all results.
        curves: all evaluations.
        missing: runs without a result.
        status: what to do next.
    """

    name: str
    batch_size: int
    metric: Metric
    margin: float
    arms: tuple[ArmResult, ...]
    best: tuple[tuple[str, float], ...]
    sgd_ngd: ArmGap | None
    sgd_gd: ArmGap | None
    verdict: str
    runs: tuple[RunRow, ...]
    curves: tuple[CurveRow, ...]
    missing: tuple[MissingRun, ...]
    status: str

    def to_dict(self) -> dict[str, object]:
        """Return the panel for a JSON document, without the curves."""
        return {
            "name": self.name,
            "batch_size": self.batch_size,
            "metric": self.metric,
            "margin": self.margin,
            "verdict": self.verdict,
            "sgd_ngd": None if self.sgd_ngd is None else self.sgd_ngd.to_dict(),
            "sgd_gd": None if self.sgd_gd is None else self.sgd_gd.to_dict(),
            "arms": [arm.to_dict() for arm in self.arms],
            "best": plain(dict(self.best)),
            "runs": [row.to_dict() for row in self.runs],
            "missing": [asdict(run) for run in self.missing],
            "status": self.status,
        }

    def __str__(self) -> str:
        lines = [*missing_first(self.missing, len(self.runs)), f"{self.name} ({self.metric}): {self.verdict}"]
        lines.append(", ".join(str(arm) for arm in self.arms))
        gaps = [str(gap) for gap in (self.sgd_ngd, self.sgd_gd) if gap is not None]
        lines += [f"{'; '.join(gaps)}; margin ±{self.margin:g}"] if gaps else []
        return "\n".join([*lines, f"Next: {self.status}"])


class NgdFinding(ExperimentFinding[NgdPanelFinding]):
    """What an experiment `ngd` found; it prints itself.

    >>> NgdFinding("mine", panels=()).to_dict()
    {'kind': 'ngd', 'title': 'mine', 'panels': [], 'strangers': []}
    """

    kind = "ngd"


_LEVEL = 0.05


def arm_gap(name: str, one: Mapping[int, float], other: Mapping[int, float], margin: float) -> ArmGap | None:
    """Compare two arms, final metrics by seed; a diverged seed (NaN) is an outcome. None if an arm has no result.

    Nothing is equivalent on the survivors' word: with diverged seeds the answer is "different" or "inconclusive".

    >>> print(arm_gap("SGD − GD", {0: 0.89, 1: 0.90}, {0: 0.75, 1: 0.76}, margin=0.01))
    different: SGD − GD = +0.14 [+0.1096, +0.1704]
    """
    if not one or not other:
        return None
    rows = [np.array(list(finals.values()), dtype=np.float64) for finals in (one, other)]
    finite = [row[np.isfinite(row)] for row in rows]
    lost = [row.size - kept.size for row, kept in zip(rows, finite, strict=True)]
    value = float(finite[0].mean() - finite[1].mean()) if all(row.size for row in finite) else math.nan
    p_rates = compare_rates(lost[0], rows[0].size, lost[1], rows[1].size).p_value if any(lost) else None
    measured = all(row.size > 1 for row in finite) and any(np.ptp(row) > 0 for row in finite)
    if not measured:
        different = p_rates is not None and p_rates < _LEVEL
        answer: Answer = "different" if different else "inconclusive"
        p_value = 1.0 if p_rates is None else p_rates
        return ArmGap(name, answer, value, -math.inf, math.inf, 1.0, p_value, p_rates, None)
    estimate = welch(finite[0], finite[1])
    low, high = estimate.interval()
    p_different = min(holm([estimate.p_different(), *([] if p_rates is None else [p_rates])]))
    if p_rates is None:
        answer = three_way(estimate, margin, _LEVEL)
    else:
        answer = "different" if p_different < _LEVEL else "inconclusive"
    needed = None
    if answer == "inconclusive" and p_rates is None:
        smallest = min(row.size for row in finite)
        needed = samples_to_decide(estimate.value, estimate.error, estimate.freedom, smallest, margin)
    p_equivalent = estimate.p_equivalent(margin)
    return ArmGap(name, answer, value, low, high, p_equivalent, p_different, p_rates, needed)


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
