"""What a comparison of SGD with SVAG found: the verdict on the SDE, and everything beside it (fig:svag_accs)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from svag.experiments import wording
from svag.experiments.base import NGD, SGD, ArmName, Metric, svag_arm
from svag.experiments.compare import PILOT_ELL, PILOT_SEEDS, Compare, ComparePanel, SdePlan
from svag.experiments.evidence import (
    TONES,
    ArmResult,
    Finding,
    Limit,
    arm_result,
    fitted_limit,
    planned_limit,
    richardson_limit,
    sgd_curve,
)
from svag.experiments.runs import CurveRow, MissingRun, PanelRuns, RunRow, gather
from svag.experiments.sde_evidence import (
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
from svag.experiments.wording import Answer
from svag.findings.sde_verdict import SDEVerdict, sde_verdict
from svag.records.fields import SpecError
from svag.records.record import RunRecord
from svag.stats.allocation import Level, chance_of_equivalence, plan_gap
from svag.stats.means import remaining_bias
from svag.theory.weights import pair_cost

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
        curve: SGD against the largest ell over the whole of training; None without enough curves.
        closeness: R, G and N of SGD over those of the largest ell at equilibrium; None without readings of both.
        own_noise: whether N/G of SGD alone rules its SDE out; None without readings of SGD.
        decompositions: why SGD and the SDE end apart, by each route that the runs allow.
        runs: all results.
        curves: all evaluations.
        missing: runs without a result.
        status: what to do next.
        optimizer: what people call the one that is compared with its SDE.
        plan: how seeds and limit were planned, if they were.
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
            "own_noise": None if self.own_noise is None else self.own_noise.to_dict(),
            "decompositions": [one.to_dict() for one in self.decompositions],
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
        if self.richardson is not None:
            ells = " and ".join(map(str, self.richardson.ells))
            yield "Richardson", f"{self.richardson.said(self.metric)} from ell = {ells}"
        if self.own_noise is not None:
            yield from self.own_noise.rows(self.optimizer)
        if self.closeness is not None:
            yield from self.closeness.rows(self.optimizer)
        for one in self.decompositions:
            yield _ROUTES[one.route], one.said(self.metric)
        if self.verdict is not None:
            yield (
                "p values",
                wording.p_values(self.verdict.p_different, self.verdict.p_equivalent, self.verdict.p_divergence),
            )

    def __str__(self) -> str:
        return str(self.answer())


class CompareFinding(Finding[ComparePanelFinding]):
    """What an experiment `compare` found.

    >>> from svag.records.spec import RunSpec
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


def _headline(found: SDEVerdict, metric: Metric, optimizer: str) -> str:
    margin = wording.difference(found.margin, metric).removeprefix("+")
    match found.answer:
        case "equivalent":
            return f"Yes: {optimizer} ends where its SDE ends, to within ±{margin}."
        case "different":
            if not (math.isfinite(found.gap) and found.p_different < 0.05):
                return f"No: {optimizer} and its SDE do not diverge equally often."
            side = "above" if found.gap > 0 else "below"
            far = wording.difference(abs(found.gap), metric).removeprefix("+")
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
        case "plan":
            return f"{shown}; the limit is by the planned weights"
        case "none":
            return f"{shown}; the spread is unknown"


def find_compare(experiment: Compare, records: Sequence[RunRecord]) -> CompareFinding:
    """Find in each panel whether SGD ends where its SDE ends."""
    found, strangers = gather(experiment, records, experiment.metric)
    panels = tuple(_panel(experiment, panel, runs) for panel, runs in zip(experiment.panels, found, strict=True))
    return CompareFinding(experiment.title, panels, strangers)


def _panel(experiment: Compare, panel: ComparePanel, runs: PanelRuns) -> ComparePanelFinding:
    size, metric = panel.base.batch_size, experiment.metric
    finals = {arm: runs.finals(arm, size, metric) for arm, _ in panel.arms()}
    by_ell = {ell: found for ell in sorted({1, *panel.ells}) if (found := finals[svag_arm(ell)])}
    arrays = {ell: np.array(list(found.values())) for ell, found in by_ell.items()}
    largest = max(by_ell, default=1)
    weights, bias = (None, 0.0) if panel.plan is None else (panel.plan.limit_weights, panel.plan.bias)
    compared = 1 in by_ell and largest > 1
    verdict = sde_verdict(arrays, experiment.margin, limit_weights=weights, bias=bias) if compared else None
    limit = None if weights is None else planned_limit(arrays, weights, bias)
    if weights is None and largest > 1:
        limit = fitted_limit(arrays)
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
        own_noise=own_noise([one for own in runs.readings(SGD, size).values() for one in own]),
        decompositions=_decompositions(panel, finals, by_ell),
        runs=runs.rows(),
        curves=runs.curves(),
        missing=runs.missing,
        status=runs.remedy if verdict is None or runs.missing else _next_step(verdict, panel, metric),
        optimizer=panel.optimizer,
        plan=panel.plan,
    )


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


# The ell that a plan may choose from, and the power it aims at: the chance is computed to within .02 of the truth.
_MENU = (4, 8, 16, 32, 64, 128, 256)
_PLAIN_MENU = (2, *_MENU, 512, 1024, 2048, 4096)
_POWER = 0.82


def plan_within(pilot: Compare, records: Sequence[RunRecord], within: float) -> Compare:
    """Plan a comparison that places the gap, and the SDE's value, within a given distance, from the runs of a pilot.

    The arms are SGD, the SVAG of the pilot, and what the cheapest extrapolation from at most three ell needs. Their
    seeds are so many that "equivalent" is the answer with probability .8 if there is no gap, on average over what the
    true spread may be after a pilot as short as this. The spread is taken to be the same in all arms.

    Args:
        pilot: from `Compare.pilot`.
        records: its runs, all ended.
        within: the margin: percentage points of an accuracy, otherwise in units of the metric.
    """
    (panel,), metric = pilot.panels, pilot.metric
    margin = within / 100 if wording.is_share(metric) else within
    if not (math.isfinite(margin) and margin > 0):
        raise SpecError("--within", f"must be a positive number, got {within:g}")
    (runs,), _ = gather(pilot, records, metric)
    size = panel.base.batch_size
    sgd, svag = (np.array(list(runs.finals(svag_arm(ell), size, metric).values())) for ell in (1, PILOT_ELL))
    if runs.missing or not np.isfinite([*sgd, *svag]).all():
        raise SpecError("--within", "a plan needs a pilot in which every seed finishes: lower the learning rate")
    gap, freedom = remaining_bias(1.0, 1 / PILOT_ELL, sgd, svag), sgd.size + svag.size - 2
    constant = abs(gap.value) + gap.error
    spread = math.sqrt((float(sgd.var(ddof=1)) * (sgd.size - 1) + float(svag.var(ddof=1)) * (svag.size - 1)) / freedom)
    if spread == 0:
        raise SpecError("--within", f"the seeds of the pilot agree to the last digit of {metric}: take another metric")

    def level(ell: int, split: int) -> Level:
        return Level(1 / ell, pair_cost(ell, split), spread)

    first, cut = level(1, 1), [level(ell, panel.split) for ell in _MENU]
    cheapest = partial(plan_gap, first, margin=margin, constant=constant, power=_POWER, pilot_freedom=freedom)
    best = cheapest(menu=cut, begun={first: PILOT_SEEDS, cut[0]: PILOT_SEEDS}, most=3)
    plain = cheapest(menu=[level(ell, 1) for ell in _PLAIN_MENU], begun={first: PILOT_SEEDS}, most=1)
    if best is None or plain is None:
        raise SpecError(
            "--within",
            f"is out of reach at {within:g}: the spread of the pilot is {wording.value(spread, metric)}, and SGD may "
            f"be {wording.value(constant, metric)} from its SDE; widen it",
        )
    examples = size * next(iter(runs.found.values())).steps  # of one run of SGD
    plan = SdePlan(
        metric=metric,
        within=margin,
        ells=tuple(round(1 / one.x) for one in best.levels),
        seeds=tuple(map(round, best.samples)),
        weights=tuple((one == first) - weight for one, weight in zip(best.levels, best.weights, strict=True)),
        split=panel.split,
        spread=spread,
        constant=constant,
        bias=best.bias,
        chance=chance_of_equivalence(best, margin, pilot_freedom=freedom),
        examples=round(examples * best.cost),
        plain_ell=round(1 / plain.levels[-1].x),
        plain_seeds=(round(plain.samples[0]), round(plain.samples[1])),
        plain_examples=round(examples * plain.cost),
    )
    return pilot.with_plan(plan)
