"""What a comparison of SGD with SVAG found: the verdict on the SDE, and further results (fig:svag_accs)."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np

from svag.arrays import FloatArray
from svag.as_json import JsonRow, json_fields_of, json_value
from svag.lab.experiments import wording
from svag.lab.experiments.arms import NGD, SGD, ArmName, shared_by_seeds, svag_arm
from svag.lab.experiments.closeness import Closeness, OwnNoise, equilibrium_closeness, own_noise
from svag.lab.experiments.compare import Compare, ComparePanel
from svag.lab.experiments.curve_gap import CurvesCompared, curves_compared
from svag.lab.experiments.decomposition import Decomposition, Term, gaussian_route, ladder_route
from svag.lab.experiments.experiment import Metric
from svag.lab.experiments.finding import TONES, ArmResult, Finding, PanelFinding, arm_result, sgd_curve
from svag.lab.experiments.runs import PanelRuns, gather
from svag.lab.experiments.sde_limit import Finals, Limit, LimitEstimate, fitted_limit, planned_limit, richardson_limit
from svag.lab.experiments.sde_plan import SdePlan
from svag.lab.experiments.wording import Answer
from svag.lab.records.record import RunRecord
from svag.stats.decisions import Decision, holm, three_way
from svag.stats.means import Contrast
from svag.verdicts.sde import SDEVerdict, sde_verdict

_LEVEL = 0.05
_REFINED = ("sgd", "svag")
_ROUTES = {"gaussian": "decomposed through NGD", "ladder": "decomposed through the ladder"}


@dataclass(frozen=True)
class CurveGap(CurvesCompared):
    """SGD against SVAG over the whole of training.

    Attributes:
        ell: the ell of the SVAG arm.
        diverged: number of seeds that diverged, in both arms.
    """

    ell: int
    diverged: int

    def said(self, metric: Metric, optimizer: str) -> str:
        """The test and the largest distance, in words."""
        limits = ""
        if math.isfinite(self.low):
            limits = f" {wording.interval(self.low, self.high, metric)}, 95% at all steps at once"
        lost = f", before {wording.count(self.diverged, 'seed')} diverged" if self.diverged else ""
        weak = "; more seeds are needed for a p below 0.05" if self.smallest_p >= _LEVEL else ""
        return (
            f"p = {self.p_value:.2g}, {optimizer} against SVAG ell={self.ell} up to effective step "
            f"{self.until_step:,}{lost}; "
            f"furthest apart at {self.at_step:,}, by {wording.difference(self.gap, metric)}{limits}; "
            f"{self.smallest_p:.2g} is the smallest p possible{weak}"
        )


@dataclass(frozen=True)
class Difference(Term):
    """The difference of two values estimated from different runs.

    Attributes:
        answer: "equivalent" within the margin, "different" or "inconclusive".
        p_equivalent: p value for "smaller than the margin".
        p_different: p value for a difference.
    """

    answer: Decision
    p_equivalent: float
    p_different: float


def decided(name: str, estimate: Contrast, margin: float, *, trusted: bool = True) -> Difference:
    """Decide on a difference; if part of it is missing (`trusted` is False), the answer is never "equivalent".

    >>> difference = decided("one − other", Contrast(0.002, 0.003, 8), margin=0.01)
    >>> difference.answer, difference.said("test_accuracy")
    ('equivalent', 'one − other = +0.20 points [−0.49, +0.89]')
    """
    answer = three_way(estimate, margin, _LEVEL)
    if answer == "equivalent" and not trusted:
        answer = "inconclusive"
    p_values = estimate.p_equivalent(margin), estimate.p_different()
    return Difference(name, estimate.value, *estimate.interval(), answer, *p_values)


@dataclass(frozen=True)
class AcrossPanels(JsonRow):
    """Whether a quantity is the same in several panels.

    Attributes:
        of: name of the quantity.
        answer: "equivalent" if every two panels are (intersection–union: each test at 5%); "different" if some two are
            after Holm's correction; otherwise "inconclusive".
        margin: the difference that would not matter.
        pairs: every two panels.
    """

    of: str
    answer: Decision
    margin: float
    pairs: tuple[Difference, ...]


def across(of: str, pairs: Sequence[Difference], margin: float) -> AcrossPanels:
    """Decide on all pairs at once."""
    answer: Decision = "inconclusive"
    if all(pair.answer == "equivalent" for pair in pairs):
        answer = "equivalent"
    elif min(holm([pair.p_different for pair in pairs])) < _LEVEL:
        answer = "different"
    return AcrossPanels(of, answer, margin, tuple(pairs))


@dataclass(frozen=True, kw_only=True)
class ComparePanelFinding(PanelFinding):
    """Whether SGD ends where its SDE ends, in one setting.

    Attributes:
        batch_size: B.
        verdict: verdict on the final metric; None when SGD or all of SVAG have no result.
        arms: the result of each arm, SGD first.
        limit: the SDE's value, fitted to all ell; None without two arms of two seeds.
        richardson: the same from the two largest ell alone.
        curve: SGD against the largest ell with the most seeds over the whole of training; None without enough curves.
        closeness: R, G and N of SGD over those of the largest ell at equilibrium; None without readings of both.
        own_noise: whether N/G of SGD alone rules its SDE out; None without readings of SGD.
        decompositions: why SGD and the SDE end apart, for each route that the runs allow.
        euler: the SDE's value by Euler–Maruyama, and SVAG's limit minus it; None without its runs.
        optimizer: name of the optimizer that is compared with its SDE.
        plan: how seeds and limit were planned, if they were.
        loss: the verdict on the final test loss, if the experiment has a margin for it.
        collapsed: ell of the arms with a seed that learned less than half of what the best arm did; no limit is
            extrapolated from them.
        loss_decompositions: like `decompositions`, for the final test loss if it is compared.
    """

    batch_size: int
    verdict: SDEVerdict | None
    arms: tuple[ArmResult, ...]
    limit: Limit | None
    richardson: Limit | None
    curve: CurveGap | None
    closeness: Closeness | None
    own_noise: OwnNoise | None
    decompositions: tuple[Decomposition, ...]
    optimizer: str
    plan: SdePlan | None = None
    euler: tuple[Limit, Difference] | None = None
    loss: SDEVerdict | None = None
    collapsed: tuple[int, ...] = ()
    loss_decompositions: tuple[Decomposition, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the panel for a JSON document: the fields of the verdict, then the rest; without the curves."""
        plan, euler = self.plan, self.euler
        return {
            **dict.fromkeys(("answer", "gap", "low", "high")),
            **({} if self.verdict is None else self.verdict.to_dict()),
            **self.shared_fields(),
            **json_fields_of(self, "batch_size", "richardson", "collapsed", "loss", "curve", "closeness", "own_noise"),
            **json_fields_of(self, "decompositions", "loss_decompositions"),
            "results": json_value(self.arms),
            "limit_value": json_value(self.limit),
            "euler": None if euler is None else {**euler[1].to_dict(), "limit": euler[0].to_dict()},
            **({} if plan is None else {"plan": {**plan.model_dump(), "saving": plan.saving}}),
        }

    def answer(self) -> Answer:
        """Whether SGD ends where its SDE ends, the gap, the limit and the arms first."""
        verdict, metric = self.verdict, self.metric
        headline, tone = f"No answer yet: {self.optimizer} and SVAG both need results.", TONES["inconclusive"]
        numbers = []
        if verdict is not None:
            headline, tone = _headline(verdict, metric, self.optimizer), TONES[verdict.answer]
            gap = wording.estimated(verdict.gap, verdict.low, verdict.high, metric)
            numbers.append((f"{self.optimizer} − SDE", gap))
        if self.limit is not None:
            numbers.append(("SDE limit", self.limit.said(metric)))
        if self.plan is not None:
            numbers.append(("planned", self.plan.said()))
        numbers += [(arm.arm, arm.said(metric)) for arm in self.arms]
        return Answer(
            self.name,
            headline,
            tone,
            (*numbers, *self._more()),
            self.status,
            *sgd_curve(self.curves, metric),
            first=len(numbers),
        )

    def _more(self) -> Iterator[tuple[str, str]]:
        """Everything else that was found, one row each."""
        if self.curve is not None:
            yield "over the curve", self.curve.said(self.metric, self.optimizer)
        if self.verdict is not None:
            shown = f"shown from ell = {self.verdict.converged_at} on" if self.verdict.converged else "not shown"
            yield "convergence in ell", f"{shown}; {self.verdict.limit_said}"
        if self.loss is not None:
            gap = wording.estimated(self.loss.gap, self.loss.low, self.loss.high, "test_loss")
            yield "final test loss", f"{self.loss.answer}: {self.optimizer} − SDE {gap}"
        if self.richardson is not None:
            ells = " and ".join(map(str, self.richardson.ells))
            yield "Richardson", f"{self.richardson.said(self.metric)} from ell = {ells}"
        if self.own_noise is not None:
            yield from self.own_noise.rows(self.optimizer)
        if self.closeness is not None:
            yield from self.closeness.rows(self.optimizer)
        if self.collapsed:
            arms = ", ".join(str(svag_arm(ell)) for ell in self.collapsed)
            yield "collapsed", f"{arms}: a seed learned less than half of what the best arm did"
        for decomposition in self.decompositions:
            yield _ROUTES[decomposition.route], decomposition.said(self.metric)
        for decomposition in self.loss_decompositions:
            yield f"test loss, {_ROUTES[decomposition.route]}", decomposition.said("test_loss")
        if self.euler is not None:
            limit, apart = self.euler
            steps = " and ".join(map(str, limit.ells))
            yield "Euler–Maruyama", f"{limit.said(self.metric)} from refine = {steps}"
            yield "the same limit?", f"{apart.answer}: {apart.said(self.metric)}"
        if self.verdict is not None:
            yield (
                "p values",
                wording.p_values(self.verdict.p_different, self.verdict.p_equivalent, self.verdict.p_divergence),
            )


@dataclass(frozen=True)
class CompareFinding(Finding[ComparePanelFinding]):
    """What an experiment `compare` found; `across` compares panels that differ only in how batches are drawn.

    >>> from svag.lab.specs.spec import RunSpec
    >>> base = RunSpec.from_yaml(
    ...     "{data: {name: svhn}, model: {arch: mlp, norm: none}, batch_size: 8, lr: 1, budget: 9}")
    >>> found = Compare.of(base, ells=[4], seeds=1).find([])
    >>> len(found.missing), found.to_dict()["answer"]
    (2, None)
    >>> print(found.panels[0])
    mlp none on svhn: No answer yet: SGD and SVAG both need results.
    Next: start the same command again: it continues with the runs that have no result.
    """

    kind = "compare"
    across: tuple[AcrossPanels, ...] = ()

    def answers(self) -> tuple[Answer, ...]:
        """One answer per panel, and one on the panels that differ only in how batches are drawn."""
        return (*super().answers(), *([self._across()] if self.across else []))

    def _across(self) -> Answer:
        metric = self.panels[0].metric
        margin = wording.size(self.across[0].margin, metric)
        answers = {quantity.answer for quantity in self.across}
        answer: Decision = "inconclusive"
        headline = f"Not decided: whether sampling matters by more than ±{margin}."
        if answers == {"equivalent"}:
            answer = "equivalent"
            headline = f"Yes: however batches are drawn, the result is the same to within ±{margin}."
        elif "different" in answers:
            answer, headline = "different", "No: how batches are drawn matters."
        numbers = [
            (f"{quantity.of}: {quantity.answer}", pair.said(metric))
            for quantity in self.across
            for pair in quantity.pairs
        ]
        todo = "run more seeds." if answer == "inconclusive" else "nothing more to run."
        return Answer("Does sampling matter?", headline, TONES[answer], tuple(numbers), todo)

    def to_dict(self) -> dict[str, object]:
        """Return the finding for a JSON document."""
        return {**super().to_dict(), **({"across": json_value(self.across)} if self.across else {})}


def _headline(verdict: SDEVerdict, metric: Metric, optimizer: str) -> str:
    margin, far = wording.size(verdict.margin, metric), wording.size(verdict.gap, metric)
    side = "above" if verdict.gap > 0 else "below"
    match verdict.answer:
        case "equivalent":
            seen = f" It ends {far} {side}, within that margin." if verdict.p_different < _LEVEL else ""
            return f"Yes: {optimizer} ends where its SDE ends, to within ±{margin}.{seen}"
        case "different":
            if not (math.isfinite(verdict.gap) and verdict.p_different < _LEVEL):
                return f"No: {optimizer} and its SDE do not diverge equally often."
            return f"No: {optimizer} ends {far} {side} its SDE."
        case "inconclusive":
            return f"Not decided: these runs cannot tell whether the gap is within ±{margin}."


def find_compare(experiment: Compare, records: Sequence[RunRecord]) -> CompareFinding:
    """Find in each panel whether SGD ends where its SDE ends."""
    gathered, strangers = gather(experiment, records, experiment.metric)
    panels = tuple(_panel(experiment, panel, runs) for panel, runs in zip(experiment.panels, gathered, strict=True))
    return CompareFinding(experiment.title, panels, strangers, _across_sampling(experiment, panels))


def _across_sampling(experiment: Compare, panels: Sequence[ComparePanelFinding]) -> tuple[AcrossPanels, ...]:
    """Compare all pairs of panels that differ only in the sampling: SGD itself, and the SDE limit."""
    alike = defaultdict(list)
    for panel, finding in zip(experiment.panels, panels, strict=True):
        alike[shared_by_seeds(panel.base).model_copy(update={"sampling": None})].append(finding)
    groups = [group for group in alike.values() if len(group) > 1]
    sgd = [pair for group in groups for pair in _pairs(group, _itself, experiment.margin)]
    sde = [pair for group in groups for pair in _pairs(group, _limit_of, experiment.margin)]
    compared = ((experiment.panels[0].optimizer, sgd), ("SDE limit", sde))
    return tuple(across(name, pairs, experiment.margin) for name, pairs in compared if pairs)


def _pairs(
    panels: Sequence[ComparePanelFinding],
    estimated: Callable[[ComparePanelFinding], LimitEstimate | None],
    margin: float,
) -> Iterator[Difference]:
    known = [(panel.name, estimate) for panel in panels if (estimate := estimated(panel)) is not None]
    for (name, ours), (other, theirs) in combinations(known, 2):
        trusted = ours.trusted and theirs.trusted
        yield decided(f"{name} − {other}", ours.minus_limit(theirs), margin, trusted=trusted)


def _finals(panel: ComparePanelFinding) -> dict[int, dict[int, float]]:
    return {arm.refinement: dict(arm.finals) for arm in panel.arms if arm.kind in _REFINED}


def _limit_of(panel: ComparePanelFinding) -> LimitEstimate | None:
    return fitted_limit(_finals(panel))


def _itself(panel: ComparePanelFinding) -> LimitEstimate | None:
    """The mean of SGD, as the combination of one arm."""
    finals = {ell: values for ell, values in _finals(panel).items() if ell == 1}
    return planned_limit(finals, {1: 1.0}, 0.0)


def _euler(
    finals: Mapping[ArmName, Mapping[int, float]], svag: LimitEstimate | None, margin: float
) -> tuple[Limit, Difference] | None:
    """The SDE by Euler–Maruyama, extrapolated from NGD (refine = 1) and finer steps, and SVAG's limit minus it."""
    limit = fitted_limit({arm.refinement: own for arm, own in finals.items() if arm == NGD or arm.kind == "sde"})
    if svag is None or limit is None:
        return None
    trusted = svag.trusted and limit.trusted
    return limit.limit, decided("SVAG's limit − Euler–Maruyama's", svag.minus_limit(limit), margin, trusted=trusted)


def _rows(finals: Finals) -> dict[int, FloatArray]:
    """Ell → the final metric of every seed."""
    return {ell: np.array(list(by_seed.values())) for ell, by_seed in finals.items()}


def _panel(experiment: Compare, panel: ComparePanel, runs: PanelRuns) -> ComparePanelFinding:
    size, metric = panel.base.batch_size, experiment.metric
    finals = {arm: runs.finals(arm, size, metric) for arm, _ in panel.arms()}
    by_ell = {ell: own for ell in sorted({1, *panel.ells}) if (own := finals[svag_arm(ell)])}
    largest = max(by_ell, default=1)
    measured = runs.pooled_readings(SGD, size)
    refined_measured = runs.pooled_readings(svag_arm(largest), size) if largest > 1 else []
    weights, bias = (None, 0.0) if panel.plan is None else (panel.plan.limit_weights, panel.plan.bias)
    compared = 1 in by_ell and largest > 1
    collapsed = _collapsed(runs, size, by_ell, metric)
    judge = partial(sde_verdict, limit_weights=weights, bias=bias, extrapolate=not collapsed, optimizer=panel.optimizer)
    verdict = judge(_rows(by_ell), experiment.margin) if compared else None
    limit = None if weights is None else planned_limit(by_ell, weights, bias)
    if weights is None and largest > 1:
        limit = fitted_limit(by_ell, extrapolate=not collapsed)
    refined = richardson_limit(by_ell) if largest > 1 else None
    loss: SDEVerdict | None = None
    loss_decompositions: tuple[Decomposition, ...] = ()
    if compared and experiment.loss_margin is not None:
        losses = {arm: runs.finals(arm, size, "test_loss") for arm in finals}
        loss_by_ell = {ell: losses[svag_arm(ell)] for ell in by_ell}
        loss = judge(_rows(loss_by_ell), experiment.loss_margin)
        loss_decompositions = _decompositions(panel, losses, loss_by_ell)
    return ComparePanelFinding(
        name=panel.name,
        batch_size=size,
        metric=metric,
        verdict=verdict,
        arms=tuple(arm_result(arm, own) for arm, own in finals.items() if own),
        limit=None if limit is None else limit.limit,
        richardson=None if refined is None else refined.limit,
        curve=_curve_gap(runs, size, by_ell, metric),
        closeness=equilibrium_closeness(measured, refined_measured, largest),
        own_noise=own_noise(measured),
        decompositions=_decompositions(panel, finals, by_ell),
        **runs.listed(),
        status=runs.remedy if verdict is None or runs.missing else _next_step(verdict, panel, metric),
        optimizer=panel.optimizer,
        plan=panel.plan,
        euler=_euler(finals, limit, experiment.margin),
        loss=loss,
        collapsed=collapsed,
        loss_decompositions=loss_decompositions,
    )


def _collapsed(
    runs: PanelRuns, size: int, by_ell: Mapping[int, Mapping[int, float]], metric: Metric
) -> tuple[int, ...]:
    """The ell with a seed that learned less than half of what the best arm did, counted from before the first step."""
    first = [
        dict(run.curve(metric)).get(0, math.nan) for ell in by_ell for run in runs.of(svag_arm(ell), size).values()
    ]
    start = float(np.mean(first)) if first else math.nan
    learned = {ell: np.abs(finals - start) for ell, finals in _rows(by_ell).items()}
    most = max((float(np.nanmean(seeds)) for seeds in learned.values() if np.isfinite(seeds).any()), default=math.nan)
    return tuple(ell for ell, seeds in learned.items() if np.any(seeds < most / 2))


def _next_step(verdict: SDEVerdict, panel: ComparePanel, metric: Metric) -> str:
    """What to do next, in terms of flags, which the verdict itself does not know."""
    if panel.plan is None or verdict.limit != "plan" or verdict.answer != "inconclusive" or verdict.p_divergence:
        return verdict.status
    wanted = panel.plan.within * (100 if wording.is_share(metric) else 1)
    if verdict.seeds_needed is None:
        return f"widen --within {wanted:g}: more than 200 seeds of some arm would be needed to decide."
    return (
        f"run the same command with --within {wanted / 2:g}: it keeps these runs and adds seeds, "
        f"and its narrower interval can also settle ±{wanted:g}."
    )


def _curve_gap(
    runs: PanelRuns, size: int, by_ell: Mapping[int, Mapping[int, float]], metric: Metric
) -> CurveGap | None:
    """SGD against the largest ell that has the most seeds."""
    ell = max(by_ell, key=lambda ell: (ell > 1, len(by_ell[ell]), ell), default=1)
    sgd, svag = (runs.of(arm, size).values() for arm in (SGD, svag_arm(ell)))
    test = None if ell == 1 else curves_compared(sgd, svag, metric)
    diverged = sum(run.state == "diverged" for run in (*sgd, *svag))
    return None if test is None else CurveGap(**vars(test), ell=ell, diverged=diverged)


def _decompositions(
    panel: ComparePanel, finals: Mapping[ArmName, Mapping[int, float]], by_ell: Mapping[int, Mapping[int, float]]
) -> tuple[Decomposition, ...]:
    sgd, svag = finals[SGD], {ell: own for ell, own in by_ell.items() if ell > 1}
    routes = []
    if panel.ngd and svag:
        routes.append(gaussian_route(sgd, finals[NGD], svag))
    for parts in sorted(set(panel.glsr) - {1}) if svag else ():
        ell = parts if parts in svag else max(svag)
        routes.append(ladder_route(sgd, finals[ArmName("glsr", parts)], svag[ell], parts, ell))
    return tuple(route for route in routes if route is not None)
