"""What SGD, NGD and GD found: whether Gaussian noise of the same covariance suffices (fig:ngd_sgd_accs)."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from svag.as_json import JsonRow, json_fields, json_fields_of, json_value
from svag.lab.experiments import wording
from svag.lab.experiments.arms import GD, NGD, SGD
from svag.lab.experiments.curve_gap import CurvesCompared, curves_compared
from svag.lab.experiments.experiment import Metric
from svag.lab.experiments.finding import TONES, ArmResult, Finding, PanelFinding, arm_result, sgd_curve
from svag.lab.experiments.ngd import Ngd, NgdPanel
from svag.lab.experiments.runs import PanelRuns, gather
from svag.lab.experiments.wording import Answer, Tone
from svag.lab.records.record import RunRecord
from svag.stats.decisions import Decision, compare_rates, holm, samples_to_decide, three_way
from svag.stats.means import paired, welch

_LEVEL = 0.05
# With at least this many seeds, compare pairwise; with fewer, pairing loses more in degrees of freedom than it gains.
_PAIRS = 4
_ROUNDING = 1e-12
LAST_STEPS = 100  # the paper's train curves are means over this many steps


@dataclass(frozen=True)
class ArmGap(JsonRow):
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
        in_pairs: whether the arms were compared seed by seed.
    """

    name: str
    answer: Decision
    gap: float
    low: float
    high: float
    p_equivalent: float
    p_different: float
    p_divergence: float | None
    seeds_needed: int | None
    in_pairs: bool = False

    def said(self, metric: Metric) -> str:
        """The difference with its interval."""
        return wording.estimated(self.gap, self.low, self.high, metric)


def arm_gap(name: str, first: Mapping[int, float], second: Mapping[int, float], margin: float) -> ArmGap | None:
    """Compare two arms, final metrics by seed; a diverged seed (NaN) is an outcome. None if an arm has no result.

    With diverged seeds the answer is "different" or "inconclusive": the survivors alone cannot show equivalence.
    Arms that finished the same four seeds or more are compared seed by seed, since the arms of a seed start from the
    same weights; others by Welch's test.

    >>> gap = arm_gap("SGD − GD", {0: 0.89, 1: 0.90}, {0: 0.75, 1: 0.76}, margin=0.01)
    >>> gap.answer, gap.said("test_accuracy")
    ('different', '+14.00 points [+10.96, +17.04]')
    """
    if not first or not second:
        return None
    rows = [np.array(list(finals.values()), dtype=np.float64) for finals in (first, second)]
    finite = [row[np.isfinite(row)] for row in rows]
    lost = [row.size - kept.size for row, kept in zip(rows, finite, strict=True)]
    value = float(finite[0].mean() - finite[1].mean()) if all(row.size for row in finite) else math.nan
    p_rates = compare_rates(lost[0], rows[0].size, lost[1], rows[1].size) if any(lost) else None
    measured = all(row.size > 1 for row in finite) and any(np.ptp(row) > 0 for row in finite)
    if not measured:
        different = p_rates is not None and p_rates < _LEVEL
        answer: Decision = "different" if different else "inconclusive"
        p_value = 1.0 if p_rates is None else p_rates
        return ArmGap(name, answer, value, -math.inf, math.inf, 1.0, p_value, p_rates, None)
    estimate, in_pairs = welch(*finite), False
    if not any(lost) and first.keys() == second.keys() and len(first) >= _PAIRS:
        in_order = np.array([second[seed] for seed in first])
        in_pairs = bool(np.ptp(finite[0] - in_order) > _ROUNDING)  # equal differences have no spread
        estimate = paired(finite[0], in_order) if in_pairs else estimate
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
    return ArmGap(name, answer, value, low, high, p_equivalent, p_different, p_rates, needed, in_pairs)


@dataclass(frozen=True)
class CurvesApart(CurvesCompared):
    """How far apart the curves of SGD and NGD are, over the whole of training.

    Attributes:
        name: which curves: "training curves" or "test curves".
        metric: "train_set_accuracy" or "train_loss", or what the experiment compares.
        answer: "different" where permuting the labels SGD and NGD says so at 5%; "equivalent" where the 95% limits lie
            within the margin at all steps at once; otherwise "inconclusive".
    """

    name: str
    metric: str
    answer: Decision

    def said(self) -> str:
        """The test, and where the two are furthest apart."""
        within = ""
        if math.isfinite(self.reach):
            reach = wording.size(self.reach, self.metric)
            within = f"; within {reach} of each other at every step, 95% at all steps at once"
        return (
            f"p = {self.p_value:.2g} ({self.smallest_p:.2g} is the smallest possible); furthest apart at step "
            f"{self.at_step:,}, by {wording.difference(self.gap, self.metric)}{within}"
        )


def curves_apart(
    name: str, metric: str, first: Iterable[RunRecord], second: Iterable[RunRecord], margin: float | None
) -> CurvesApart | None:
    """Compare two groups of curves; None where `curves_compared` cannot.

    Without a `margin`, curves can be found different but not equivalent.
    """
    test = curves_compared(first, second, metric)
    if test is None:
        return None
    answer: Decision = "inconclusive"
    if test.p_value < _LEVEL:
        answer = "different"
    elif margin is not None and test.reach <= margin:
        answer = "equivalent"
    return CurvesApart(**vars(test), name=name, metric=metric, answer=answer)


@dataclass(frozen=True, kw_only=True)
class NgdPanelFinding(PanelFinding):
    """Whether Gaussian noise of the same covariance does what SGD's noise does.

    Attributes:
        batch_size: B.
        margin: the gap that would not matter.
        arms: the results of SGD, NGD and GD.
        best: mean over seeds of the best metric along the run, by arm, as the paper prints it; NaN without results.
        sgd_ngd: SGD − NGD; None while either has no result.
        sgd_gd: SGD − GD; None while either has no result.
        train_ngd: SGD − NGD in train accuracy at the end, a mean over the last `LAST_STEPS`; None where it was not
            evaluated.
        train_gd: SGD − GD in the same.
        apart: the curves of SGD and NGD over the whole of training: of the training set, and of the metric.
        verdict: one sentence.
    """

    batch_size: int
    margin: float
    arms: tuple[ArmResult, ...]
    best: tuple[tuple[str, float], ...]
    sgd_ngd: ArmGap | None
    sgd_gd: ArmGap | None
    train_ngd: ArmGap | None
    train_gd: ArmGap | None
    apart: tuple[CurvesApart, ...]
    verdict: str

    def to_dict(self) -> dict[str, object]:
        """Return the panel for a JSON document, without the curves."""
        return {
            **self.shared_fields(),
            **json_fields_of(self, "batch_size", "margin", "verdict", "arms"),
            **json_fields_of(self, "sgd_ngd", "sgd_gd", "train_ngd", "train_gd"),
            "curves": json_value(self.apart),
            "best": json_fields(dict(self.best)),
        }

    @property
    def gaps(self) -> tuple[ArmGap, ...]:
        """The known gaps."""
        return tuple(gap for gap in (self.sgd_ngd, self.sgd_gd) if gap is not None)

    def answer(self) -> Answer:
        """The verdict, with the gaps and the arms first."""
        numbers = [(gap.name, gap.said(self.metric)) for gap in self.gaps]
        numbers += [(arm.arm, arm.said(self.metric)) for arm in self.arms]
        return Answer(
            self.name,
            self.verdict,
            _tone(self.sgd_ngd, self.sgd_gd),
            (*numbers, *self._more()),
            self.status,
            *sgd_curve(self.curves, self.metric),
            first=len(numbers),
        )

    def _more(self) -> Iterator[tuple[str, str]]:
        best = [f"{arm} {wording.value(value, self.metric)}" for arm, value in self.best if math.isfinite(value)]
        if best:
            yield "best along the run", f"{', '.join(best)} (means over seeds, as the paper prints them)"
        for gap in (self.train_ngd, self.train_gd):
            if gap is not None:
                yield f"{gap.name} in train accuracy", f"{gap.answer}: {gap.said('test_accuracy')}"
        if any(gap.in_pairs for gap in self.gaps):
            yield "compared", "seed by seed: the arms of a seed start from the same weights"
        for curves in self.apart:
            yield f"{curves.name}, SGD − NGD", curves.said()
        for gap in self.gaps:
            yield f"p values of {gap.name}", wording.p_values(gap.p_different, gap.p_equivalent, gap.p_divergence)


class NgdFinding(Finding[NgdPanelFinding]):
    """What an experiment `ngd` found.

    >>> from svag.lab.specs.spec import RunSpec
    >>> base = RunSpec.from_yaml(
    ...     "{data: {name: svhn}, model: {arch: mlp, norm: none}, batch_size: 8, lr: 1, budget: 9}")
    >>> found = Ngd.of(base, seeds=1).find([])
    >>> len(found.missing), found.to_dict()["sgd_ngd"]
    (3, None)
    >>> print(found.panels[0])
    mlp none on svhn: No answer yet: SGD and NGD both need results.
    Next: start the same command again: it continues with the runs that have no result.
    """

    kind = "ngd"


def find_ngd(experiment: Ngd, records: Sequence[RunRecord]) -> NgdFinding:
    """Find in each panel whether SGD and NGD end together, and whether GD does."""
    gathered, strangers = gather(experiment, records, experiment.metric)
    panels = tuple(_panel(experiment, panel, runs) for panel, runs in zip(experiment.panels, gathered, strict=True))
    return NgdFinding(experiment.title, panels, strangers)


def _panel(experiment: Ngd, panel: NgdPanel, runs: PanelRuns) -> NgdPanelFinding:
    size, metric = panel.base.batch_size, experiment.metric
    finals = {arm: runs.finals(arm, size, metric) for arm in (SGD, NGD, GD)}
    with_ngd = arm_gap("SGD − NGD", finals[SGD], finals[NGD], experiment.margin)
    with_gd = arm_gap("SGD − GD", finals[SGD], finals[GD], experiment.margin)
    train = {arm: _train_finals(runs.of(arm, size)) for arm in finals}
    return NgdPanelFinding(
        name=panel.name,
        batch_size=size,
        metric=metric,
        margin=experiment.margin,
        arms=tuple(arm_result(arm, own) for arm, own in finals.items() if own),
        best=tuple((str(arm), _best(runs.of(arm, size).values(), metric)) for arm in finals),
        sgd_ngd=with_ngd,
        sgd_gd=with_gd,
        train_ngd=arm_gap("SGD − NGD", train[SGD], train[NGD], experiment.margin),
        train_gd=arm_gap("SGD − GD", train[SGD], train[GD], experiment.margin),
        apart=tuple(_apart(runs, size, metric, experiment.margin)),
        verdict=_verdict(with_ngd, with_gd),
        **runs.listed(),
        status=_next(runs, with_ngd, with_gd),
    )


def _train_finals(runs: Mapping[int, RunRecord]) -> dict[int, float]:
    """Train accuracy over the last steps by seed, NaN if diverged; empty unless every run evaluated it."""
    curves = {seed: run.curve("train_set_accuracy") for seed, run in runs.items()}
    if not all(curves.values()):
        return {}
    return {
        seed: float(np.mean([value for step, value in curve if step > curve[-1][0] - LAST_STEPS]))
        if runs[seed].state == "finished"
        else math.nan
        for seed, curve in curves.items()
    }


def _apart(runs: PanelRuns, size: int, metric: Metric, margin: float) -> Iterator[CurvesApart]:
    """Curves of the training set, by its accuracy if that was evaluated, and of the metric."""
    ours, theirs = (list(runs.of(arm, size).values()) for arm in (SGD, NGD))
    evaluated = all(run.curve("train_set_accuracy") for run in (*ours, *theirs))
    train, allowed = ("train_set_accuracy", margin) if evaluated else ("train_loss", None)
    for name, which, within in (("training curves", train, allowed), ("test curves", str(metric), margin)):
        if (curves := curves_apart(name, which, ours, theirs, within)) is not None:
            yield curves


def _best(runs: Iterable[RunRecord], metric: Metric) -> float:
    """Mean over the finished runs of the best value along each; NaN without any."""
    best = max if metric == "test_accuracy" else min
    values = [best(value for _, value in run.curve(metric)) for run in runs if run.state == "finished"]
    return math.fsum(values) / len(values) if values else math.nan


def _tone(with_ngd: ArmGap | None, with_gd: ArmGap | None) -> Tone:
    """That NGD ends where SGD ends is a yes only where GD does not: otherwise any noise would do."""
    if with_ngd is None:
        return "open"
    if with_ngd.answer == "equivalent" and with_gd is not None and with_gd.answer != "different":
        return "open"
    return TONES[with_ngd.answer]


def _verdict(with_ngd: ArmGap | None, with_gd: ArmGap | None) -> str:
    if with_ngd is None:
        return "No answer yet: SGD and NGD both need results."
    if with_ngd.answer == "equivalent" and with_gd is not None and with_gd.answer != "different":
        ends = "so does GD, without noise" if with_gd.answer == "equivalent" else "perhaps so does GD, without noise"
        return f"Cannot tell: NGD ends where SGD ends, but {ends}. Where no noise does as well, any noise would do."
    noise = {
        "equivalent": "Yes: NGD ends where SGD ends, so only the covariance of the noise matters here",
        "different": "No: NGD does not end where SGD ends, so more than the covariance of the noise matters",
        "inconclusive": "Not decided: these runs cannot tell whether NGD ends where SGD ends",
    }[with_ngd.answer]
    if with_gd is None:
        return f"{noise}."
    none = {
        "equivalent": "GD, without noise, ends there too, so the noise itself hardly matters here",
        "different": "GD, without noise, does not end there, so the noise itself matters",
        "inconclusive": "whether GD, without noise, ends there is not decided",
    }[with_gd.answer]
    return f"{noise}; {none}."


def _next(runs: PanelRuns, with_ngd: ArmGap | None, with_gd: ArmGap | None) -> str:
    if runs.missing:
        return runs.remedy
    gaps = [gap for gap in (with_ngd, with_gd) if gap is not None]
    open_gaps = [gap for gap in gaps if gap.answer == "inconclusive"]
    if not open_gaps:
        if [gap.answer for gap in gaps] == ["equivalent", "equivalent"]:
            return "compare where GD ends elsewhere: another --metric, a smaller batch or a larger learning rate."
        return "nothing more to run."
    gap = open_gaps[0]
    if gap.p_divergence is not None:
        return "lower the learning rate until every seed finishes: the survivors alone cannot show equivalence."
    if math.isinf(gap.high):
        return "run more seeds, for example 5: fewer than two finished, so there is no spread."
    if gap.seeds_needed is None:
        return "widen the margin, or take a metric that varies less: more than 200 seeds would be needed to decide."
    return f"run {gap.seeds_needed} seeds per arm: that would probably decide {gap.name}."
