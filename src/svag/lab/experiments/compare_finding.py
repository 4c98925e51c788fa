"""What a comparison of SGD with SVAG found: the verdict on the SDE, and everything beside it (fig:svag_accs)."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations

import numpy as np

from svag.arrays import FloatArray
from svag.lab.experiments import wording
from svag.lab.experiments.base import NGD, SGD, ArmName, Metric, setting, svag_arm
from svag.lab.experiments.compare import Compare, ComparePanel, SdePlan
from svag.lab.experiments.evidence import (
    TONES,
    AcrossPanels,
    ArmResult,
    Difference,
    Finding,
    Limit,
    LimitEstimate,
    across,
    arm_result,
    decided,
    fitted_limit,
    planned_limit,
    richardson_limit,
    sgd_curve,
)
from svag.lab.experiments.runs import CurveRow, MissingRun, PanelRuns, RunRow, gather
from svag.lab.experiments.sde_evidence import (
    Closeness,
    CurveGap,
    Decomposition,
    OwnNoise,
    curve_gap,
    equilibrium_closeness,
    gaussian_route,
    ladder_route,
    own_noise,
)
from svag.lab.experiments.wording import Answer
from svag.lab.records.record import RunRecord
from svag.verdicts.sde import SDEVerdict, sde_verdict

_REFINED = ("sgd", "svag")
_ROUTES = {"gaussian": "decomposed through NGD", "ladder": "decomposed through the ladder"}


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
        curve: SGD against the largest ell with the most seeds over the whole of training; None without enough curves.
        closeness: R, G and N of SGD over those of the largest ell at equilibrium; None without readings of both.
        own_noise: whether N/G of SGD alone rules its SDE out; None without readings of SGD.
        decompositions: why SGD and the SDE end apart, by each route that the runs allow.
        euler: the SDE's value by Euler–Maruyama, and SVAG's limit minus it; None without its runs.
        runs: all results.
        curves: all evaluations.
        missing: runs without a result.
        status: what to do next.
        optimizer: what people call the one that is compared with its SDE.
        plan: how seeds and limit were planned, if they were.
        loss: the verdict on the final test loss, where the experiment has a margin for it.
        collapsed: ell of the arms with a seed that learned less than half of what the best arm did; no limit is
            extrapolated from them.
        loss_decompositions: as `decompositions`, of the final test loss where that is compared.
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
    own_noise: OwnNoise | None
    decompositions: tuple[Decomposition, ...]
    runs: tuple[RunRow, ...]
    curves: tuple[CurveRow, ...]
    missing: tuple[MissingRun, ...]
    status: str
    optimizer: str
    plan: SdePlan | None = None
    euler: tuple[Limit, Difference] | None = None
    loss: SDEVerdict | None = None
    collapsed: tuple[int, ...] = ()
    loss_decompositions: tuple[Decomposition, ...] = ()

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
            "collapsed": list(self.collapsed),
            "loss": None if self.loss is None else self.loss.to_dict(),
            "curve": None if self.curve is None else self.curve.to_dict(),
            "closeness": None if self.closeness is None else self.closeness.to_dict(),
            "own_noise": None if self.own_noise is None else self.own_noise.to_dict(),
            "decompositions": [one.to_dict() for one in self.decompositions],
            "loss_decompositions": [one.to_dict() for one in self.loss_decompositions],
            "euler": None if self.euler is None else {**self.euler[1].to_dict(), "limit": self.euler[0].to_dict()},
            "runs": [row.to_dict() for row in self.runs],
            "missing": [asdict(run) for run in self.missing],
            "status": self.status,
            **({} if self.plan is None else {"plan": {**self.plan.model_dump(), "saving": self.plan.saving}}),
        }

    def answer(self) -> Answer:
        """Whether SGD ends where its SDE ends, the gap, the limit and the arms first."""
        found, metric, nothing = (
            self.verdict,
            self.metric,
            f"No answer yet: {self.optimizer} and SVAG both need results.",
        )
        numbers = []
        if found is not None:
            limits = wording.interval(found.low, found.high, metric)
            numbers.append((f"{self.optimizer} − SDE", f"{wording.difference(found.gap, metric)} {limits}"))
        if self.limit is not None:
            numbers.append(("SDE limit", self.limit.said(metric)))
        if self.plan is not None:
            numbers.append(("planned", self.plan.said()))
        numbers += [(arm.arm, arm.said(metric)) for arm in self.arms]
        return Answer(
            self.name,
            nothing if found is None else _headline(found, metric, self.optimizer),
            "open" if found is None else TONES[found.answer],
            (*numbers, *self._more()),
            self.status,
            *sgd_curve(self.curves, metric),
            first=len(numbers),
        )

    def _more(self) -> Iterator[tuple[str, str]]:
        """One row for everything else that was found."""
        if self.curve is not None:
            yield "over the curve", self.curve.said(self.metric, self.optimizer)
        if self.verdict is not None:
            yield "convergence in ell", _convergence(self.verdict)
        if self.loss is not None:
            apart = wording.difference(self.loss.gap, "test_loss")
            limits = wording.interval(self.loss.low, self.loss.high, "test_loss")
            yield "final test loss", f"{self.loss.answer}: {self.optimizer} − SDE {apart} {limits}"
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
        for one in self.decompositions:
            yield _ROUTES[one.route], one.said(self.metric)
        for one in self.loss_decompositions:
            yield f"test loss, {_ROUTES[one.route]}", one.said("test_loss")
        if self.euler is not None:
            limit, gap = self.euler
            steps = " and ".join(map(str, limit.ells))
            yield "Euler–Maruyama", f"{limit.said(self.metric)} from refine = {steps}"
            yield "the same limit?", f"{gap.answer}: {gap.said(self.metric)}"
        if self.verdict is not None:
            yield (
                "p values",
                wording.p_values(self.verdict.p_different, self.verdict.p_equivalent, self.verdict.p_divergence),
            )

    def __str__(self) -> str:
        return str(self.answer())


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
        """One a panel, and one on the panels that differ only in how batches are drawn."""
        return (*super().answers(), *([self._across()] if self.across else []))

    def _across(self) -> Answer:
        metric = self.panels[0].metric
        margin = wording.difference(self.across[0].margin, metric).removeprefix("+")
        found = {one.answer for one in self.across}
        if found == {"equivalent"}:
            said, tone = (
                f"Yes: however batches are drawn, the result is the same to within ±{margin}.",
                TONES["equivalent"],
            )
        elif "different" in found:
            said, tone = "No: how batches are drawn matters.", TONES["different"]
        else:
            said, tone = f"Not decided: whether sampling matters by more than ±{margin}.", TONES["inconclusive"]
        numbers = [(f"{one.of}: {one.answer}", pair.said(metric)) for one in self.across for pair in one.pairs]
        todo = "run more seeds." if tone == "open" else "nothing more to run."
        return Answer("Does sampling matter?", said, tone, tuple(numbers), todo)

    def to_dict(self) -> dict[str, object]:
        """Return the finding for a JSON document."""
        return {**super().to_dict(), **({"across": [one.to_dict() for one in self.across]} if self.across else {})}


def _headline(found: SDEVerdict, metric: Metric, optimizer: str) -> str:
    margin = wording.difference(found.margin, metric).removeprefix("+")
    far = wording.difference(abs(found.gap), metric).removeprefix("+")
    side = "above" if found.gap > 0 else "below"
    match found.answer:
        case "equivalent":
            seen = f" It ends {far} {side}, within that margin." if found.p_different < 0.05 else ""
            return f"Yes: {optimizer} ends where its SDE ends, to within ±{margin}.{seen}"
        case "different":
            if not (math.isfinite(found.gap) and found.p_different < 0.05):
                return f"No: {optimizer} and its SDE do not diverge equally often."
            return f"No: {optimizer} ends {far} {side} its SDE."
        case "inconclusive":
            return f"Not decided: these runs cannot tell whether the gap is within ±{margin}."


def _convergence(found: SDEVerdict) -> str:
    shown = f"shown from ell = {found.converged_at} on" if found.converged else "not shown"
    tested = "untested" if found.lack_of_fit is None else f"lack of fit p = {found.lack_of_fit:.2g}"
    match found.limit:
        case "fit":
            return f"{shown}; the limit is E_∞ of E_∞ + c/ell ({tested})"
        case "largest_ell":
            return f"{shown}; the limit is the largest ell, because E_∞ + c/ell does not fit ({tested})"
        case "collapsed":
            return f"{shown}; the limit is the largest ell, because an arm collapsed"
        case "plan":
            return f"{shown}; the limit is by the planned weights"
        case "none":
            return f"{shown}; the spread is unknown"


def find_compare(experiment: Compare, records: Sequence[RunRecord]) -> CompareFinding:
    """Find in each panel whether SGD ends where its SDE ends."""
    found, strangers = gather(experiment, records, experiment.metric)
    panels = tuple(_panel(experiment, panel, runs) for panel, runs in zip(experiment.panels, found, strict=True))
    return CompareFinding(experiment.title, panels, strangers, _across_sampling(experiment, panels))


def _across_sampling(experiment: Compare, panels: Sequence[ComparePanelFinding]) -> tuple[AcrossPanels, ...]:
    """Compare every two panels of which only the sampling differs: SGD itself, and the SDE limit."""
    alike = defaultdict(list)
    for panel, found in zip(experiment.panels, panels, strict=True):
        alike[setting(panel.base).model_copy(update={"sampling": None})].append(found)
    several = [one for one in alike.values() if len(one) > 1]
    sgd = [pair for one in several for pair in _pairs(one, _itself, experiment.margin)]
    sde = [pair for one in several for pair in _pairs(one, _limit_of, experiment.margin)]
    compared = ((experiment.panels[0].optimizer, sgd), ("SDE limit", sde))
    return tuple(across(name, pairs, experiment.margin) for name, pairs in compared if pairs)


def _pairs(
    panels: Sequence[ComparePanelFinding],
    estimated: Callable[[ComparePanelFinding], LimitEstimate | None],
    margin: float,
) -> Iterator[Difference]:
    known = [(panel.name, found) for panel in panels if (found := estimated(panel)) is not None]
    for (one, ours), (other, theirs) in combinations(known, 2):
        trusted = ours.trusted and theirs.trusted
        yield decided(f"{one} − {other}", ours.minus_limit(theirs), margin, trusted=trusted)


def _finals(panel: ComparePanelFinding) -> dict[int, FloatArray]:
    return {arm.refinement: np.array([value for _, value in arm.finals]) for arm in panel.arms if arm.kind in _REFINED}


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
    arms = {arm.refinement: found for arm, found in finals.items() if arm == NGD or arm.kind == "sde"}
    limit = fitted_limit({refine: np.array(list(found.values())) for refine, found in arms.items()})
    if svag is None or limit is None:
        return None
    trusted = svag.trusted and limit.trusted
    return limit.limit, decided("SVAG's limit − Euler–Maruyama's", svag.minus_limit(limit), margin, trusted=trusted)


def _panel(experiment: Compare, panel: ComparePanel, runs: PanelRuns) -> ComparePanelFinding:
    size, metric = panel.base.batch_size, experiment.metric
    finals = {arm: runs.finals(arm, size, metric) for arm, _ in panel.arms()}
    by_ell = {ell: found for ell in sorted({1, *panel.ells}) if (found := finals[svag_arm(ell)])}
    arrays = {ell: np.array(list(found.values())) for ell, found in by_ell.items()}
    largest = max(by_ell, default=1)
    weights, bias = (None, 0.0) if panel.plan is None else (panel.plan.limit_weights, panel.plan.bias)
    compared = 1 in by_ell and largest > 1
    collapsed = _collapsed(runs, size, by_ell, metric)
    judge = partial(sde_verdict, limit_weights=weights, bias=bias, extrapolate=not collapsed)
    verdict = judge(arrays, experiment.margin) if compared else None
    with_loss = compared and experiment.loss_margin is not None
    losses = {arm: runs.finals(arm, size, "test_loss") for arm in finals} if with_loss else {}
    loss_by_ell = {ell: losses[svag_arm(ell)] for ell in by_ell if with_loss}
    limit = None if weights is None else planned_limit(arrays, weights, bias)
    if weights is None and largest > 1:
        limit = fitted_limit(arrays, extrapolate=not collapsed)
    refined = richardson_limit(arrays) if largest > 1 else None
    best_known = max(by_ell, key=lambda ell: (ell > 1, len(by_ell[ell]), ell), default=1)
    return ComparePanelFinding(
        name=panel.name,
        batch_size=size,
        metric=metric,
        verdict=verdict,
        arms=tuple(arm_result(arm, found) for arm, found in finals.items() if found),
        limit=None if limit is None else limit.limit,
        richardson=None if refined is None else refined.limit,
        curve=None if largest == 1 else curve_gap(*_curves(runs, size, best_known), best_known, metric),
        closeness=None if largest == 1 else _closeness(runs, size, largest),
        own_noise=own_noise([one for own in runs.readings(SGD, size).values() for one in own]),
        decompositions=_decompositions(panel, finals, by_ell),
        runs=runs.rows(),
        curves=runs.curves(),
        missing=runs.missing,
        status=runs.remedy if verdict is None or runs.missing else _next_step(verdict, panel, metric),
        optimizer=panel.optimizer,
        plan=panel.plan,
        euler=_euler(finals, limit, experiment.margin),
        loss=None
        if experiment.loss_margin is None or not compared
        else judge({ell: np.array(list(found.values())) for ell, found in loss_by_ell.items()}, experiment.loss_margin),
        collapsed=collapsed,
        loss_decompositions=_decompositions(panel, losses, loss_by_ell) if with_loss else (),
    )


def _collapsed(
    runs: PanelRuns, size: int, by_ell: Mapping[int, Mapping[int, float]], metric: Metric
) -> tuple[int, ...]:
    """The ell with a seed that learned less than half of what the best arm did, from before the first step on."""
    first = [
        dict(run.curve(metric)).get(0, math.nan) for ell in by_ell for run in runs.of(svag_arm(ell), size).values()
    ]
    start = float(np.mean(first)) if first else math.nan
    learned = {ell: np.abs(np.array(list(found.values())) - start) for ell, found in by_ell.items()}
    most = max((float(np.nanmean(one)) for one in learned.values() if np.isfinite(one).any()), default=math.nan)
    return tuple(ell for ell, one in learned.items() if np.any(one < most / 2))


def _next_step(verdict: SDEVerdict, panel: ComparePanel, metric: Metric) -> str:
    """What to do after the verdict, which is made of numbers alone: in the names and the flags of this comparison."""
    if panel.plan is None or verdict.limit != "plan" or verdict.answer != "inconclusive" or verdict.p_divergence:
        return verdict.status.replace(str(SGD), panel.optimizer)
    wanted = panel.plan.within * (100 if wording.is_share(metric) else 1)
    if verdict.seeds_needed is None:
        return f"widen --within {wanted:g}: more than 200 seeds of some arm would be needed to decide."
    return (
        f"run the same command with --within {wanted / 2:g}: it keeps these runs and adds seeds, "
        f"and its narrower interval can also settle ±{wanted:g}."
    )


def _curves(runs: PanelRuns, size: int, ell: int) -> tuple[list[RunRecord], list[RunRecord]]:
    return list(runs.of(SGD, size).values()), list(runs.of(svag_arm(ell), size).values())


def _closeness(runs: PanelRuns, size: int, ell: int) -> Closeness | None:
    sgd, svag = (runs.readings(arm, size).values() for arm in (SGD, svag_arm(ell)))
    return equilibrium_closeness([one for own in sgd for one in own], [one for own in svag for one in own], ell)


def _decompositions(
    panel: ComparePanel, finals: Mapping[ArmName, Mapping[int, float]], by_ell: Mapping[int, Mapping[int, float]]
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
