"""Does the SDE describe my SGD? SGD and SVAG at several ell from one base spec (fig:svag_accs)."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypedDict, Unpack

from pydantic import BaseModel, ConfigDict, Field

from svag.lab.experiments import wording
from svag.lab.experiments.arms import (
    NGD,
    ArmName,
    ArmSpec,
    Slot,
    other_arm,
    processes_at,
    require_sgd,
    shared_by_seeds,
    svag_arm,
    svag_arms,
    svag_fields,
)
from svag.lab.experiments.experiment import MARGIN, Experiment, Metric, Panel, described, metric_of
from svag.lab.records.record import RunRecord
from svag.lab.specs.fields import Count, Positive, SpecError
from svag.lab.specs.parts import GlsrSpec, NgdSpec, SdeSpec
from svag.lab.specs.spec import RunSpec
from svag.theory.optimizers import MomentumLimit
from svag.theory.weights import pair_cost

if TYPE_CHECKING:
    from svag.lab.experiments.compare_finding import CompareFinding


ELLS = (1, 4, 16)
# The pilot of a planned comparison: seeds of SGD and of one cheap SVAG arm, which the plan then uses too.
PILOT_ELL, PILOT_SEEDS = 4, 4


class SdePlan(BaseModel):
    """How the SDE's value is found to a given accuracy for the fewest examples; it prints itself.

    Attributes:
        metric: what is compared.
        within: the accuracy wanted, in units of the metric: the margin of the comparison.
        ells: the ell of each arm; 1 is SGD.
        seeds: number of seeds of each arm.
        weights: weight of the mean of each arm in the SDE limit; 0 for arms that are not in it.
        split: into how many parts SVAG cuts its batches.
        spread: standard deviation over seeds in the pilot.
        constant: how far SGD may be from its SDE, by the pilot: its estimate plus one standard error.
        bias: error that may remain in the limit if no coefficient of E_∞ + c₁/l + c₂/l² + … is above `constant`.
        chance: probability of the answer "equivalent" if there is no gap.
        examples: examples that all runs look at, those of the pilot included.
        plain_ell: the ell at which plain SVAG does the same for the fewest examples.
        plain_seeds: number of seeds of SGD, and of that SVAG.
        plain_examples: examples that those runs would look at.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    metric: Metric
    within: Positive
    ells: tuple[Count, ...]
    seeds: tuple[Count, ...]
    weights: tuple[float, ...]
    split: Count
    spread: float
    constant: float
    bias: float
    chance: float
    examples: int
    plain_ell: Count
    plain_seeds: tuple[Count, Count]
    plain_examples: int

    @property
    def limit_weights(self) -> dict[int, float]:
        """The arms that the limit is made of."""
        return {ell: weight for ell, weight in zip(self.ells, self.weights, strict=True) if weight}

    @property
    def saving(self) -> float:
        """Examples of plain SVAG over those of this plan."""
        return self.plain_examples / self.examples

    def said(self) -> str:
        """The cost, beside that of plain SVAG."""
        plain = f"plain SVAG at ell={self.plain_ell} would take {self.plain_examples:,}"
        return f"{self.examples:,} examples; {plain}, {self.saving:.2g} times as many"

    def __str__(self) -> str:
        def size(number: float) -> str:
            return wording.difference(number, self.metric).removeprefix("+")

        arms = ", ".join(f"{n} of {svag_arm(ell)}" for ell, n in zip(self.ells, self.seeds, strict=True))
        terms = " + ".join(f"{weight:.3f}·E_{ell}" for ell, weight in self.limit_weights.items()).replace("-", "−")
        cut = f", batches cut in {self.split}" if self.split > 1 else ""
        lines = (
            f"Plan: the SDE's {wording.UNITS[self.metric]} to ±{size(self.within)}",
            f"  pilot: spread {size(self.spread)}, SGD at most {size(self.constant)} from its SDE",
            f"  seeds: {arms}{cut}",
            f"  SDE limit: {terms}, which may still miss {size(self.bias)}",
            f'  chance of "equivalent" if there is no gap: {self.chance:.2f}',
            f"  cost: {self.said()}",
        )
        return "\n".join(lines)


class ComparePanel(Panel):
    """SGD and SVAG from one base spec.

    Attributes:
        ells: refinements of SVAG; ell = 1 is SGD and is always run.
        split: into how many parts SVAG cuts its batches.
        glsr: also run the coupled ladder (def:glsr) with these numbers of parts, for the decomposition over it.
        ngd: also run NGD, for the paper's decomposition (eq:noise_decomposition).
        sde: also run Euler–Maruyama (eq:em) with these refinements, another way to the SDE; refine = 1 is NGD.
        momentum_limit: which limit SVAG follows if the base has momentum.
        plan: which seeds each arm gets, and how the limit is made of them; without one every arm gets all seeds.
        fewer: (ell, seeds) of the SVAG arms that get fewer seeds than the others: a large ell is expensive.
    """

    ells: tuple[Count, ...]
    split: Count = 1
    glsr: tuple[Count, ...] = ()
    ngd: bool = False
    sde: tuple[Count, ...] = ()
    momentum_limit: MomentumLimit | None = None
    plan: SdePlan | None = None
    fewer: tuple[tuple[Count, Count], ...] = ()

    def asks_for(self, slot: Slot) -> bool:
        """Whether this seed of this arm belongs to the plan."""
        if self.plan is not None:
            return slot.seed < dict(zip(self.plan.ells, self.plan.seeds, strict=True))[slot.arm.refinement]
        return slot.seed < dict(self.fewer).get(slot.arm.refinement, math.inf) or slot.arm.kind != "svag"

    def arms(self) -> list[ArmSpec]:
        """SGD, SVAG by increasing ell, the coupled ladder by increasing parts, NGD, Euler–Maruyama."""
        require_sgd(self.base)
        arms = [(self.itself, self.base), *svag_arms(self.base, self.ells, self.split, self.momentum_limit)]
        others = [(ArmName("glsr", parts), {"kind": "glsr", "parts": parts}) for parts in sorted(set(self.glsr) - {1})]
        others += [(NGD, {"kind": "ngd"})] if self.ngd else []
        refined = sorted(set(self.sde) - {1})
        others += [(ArmName("sde", refine), {"kind": "sde", "refine": refine}) for refine in refined]
        arms += [other_arm(arm, self.base, process) for arm, process in others]
        if not any(ell > 1 for ell in self.ells):
            alone = f"{self.optimizer} alone has nothing to be compared with"
            raise SpecError("ell", f"{alone}: name at least one ell above 1")
        return arms

    def smallest(self, edits: Mapping[str, Any]) -> Self:
        """SGD and one SVAG."""
        return super().smallest(edits).model_copy(update={"ells": (1, 2), "plan": None, "fewer": ()})


class CompareOptions(TypedDict, total=False):
    """Options besides base, ell and seeds.

    Each is a field of `ComparePanel` or `Compare`, an argument of `svag.lab.compare` and a flag of `svag compare`.
    """

    split: int
    glsr: Iterable[int]
    ngd: bool
    momentum_limit: MomentumLimit | None
    margin: float
    metric: Metric | None


class Compare(Experiment):
    """Does SVAG converge in ell, and is SGD where it converges to?

    >>> base = RunSpec.from_yaml("{data: {name: svhn}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: 9}")
    >>> [(spec.process.kind, spec.seed) for spec in Compare.of(base, ells=[1, 4], seeds=2, glsr=[2]).runs()]
    [('sgd', 0), ('sgd', 1), ('svag', 0), ('svag', 1), ('glsr', 0), ('glsr', 1)]

    Attributes:
        margin: the gap in `metric` that would not matter, in its units (accuracies are fractions).
        metric: what is compared; by default test accuracy, or bits per character of a text.
        loss_margin: the gap in test loss that would not matter, if that is compared as well.
    """

    question: ClassVar[str] = "Does the SDE describe this {optimizer}?"
    method: ClassVar[str] = (
        "SVAG replaces each step of {optimizer} by ell smaller, noisier ones, and follows the SDE as ell grows. The "
        "answer compares where {optimizer} ends with where that limit ends."
    )
    needs: ClassVar[str] = "SGD, and SVAG at some ell above 1 with all other fields equal"
    options: ClassVar[type] = CompareOptions
    default_seeds: ClassVar[int] = 5

    kind: Literal["compare"] = "compare"
    panels: tuple[ComparePanel, ...] = Field(min_length=1)
    margin: Positive = MARGIN
    metric: Metric = Field(default_factory=metric_of)
    loss_margin: Positive | None = None

    @classmethod
    def of(
        cls,
        base: RunSpec,
        ells: Iterable[int],
        seeds: int | Iterable[int],
        *,
        name: str | None = None,
        file: Path | None = None,
        title: str | None = None,
        **options: Unpack[CompareOptions],
    ) -> Self:
        """One panel around a base spec, see `Experiment.about`."""
        subject, ell = f"{base.optimizer.title} and SVAG", {"ells": tuple(ells)}
        return cls.about(base, seeds, subject, ell, options, name=name, file=file, title=title)

    @classmethod
    def pilot(
        cls,
        base: RunSpec,
        *,
        momentum_limit: MomentumLimit | None = None,
        metric: Metric | None = None,
        name: str | None = None,
        file: Path | None = None,
    ) -> Self:
        """A few seeds of SGD and of one cheap SVAG, from which a comparison is planned.

        Batches are cut in two where that is possible: half the examples, and SGD lies on the same curve in 1/l.

        >>> base = RunSpec.from_yaml(
        ...     "{data: {name: svhn}, model: {arch: mlp, norm: layer}, batch_size: 8, lr: 1, budget: 9}")
        >>> Compare.pilot(base).panels[0].split, Compare.pilot(base.edited({"model.norm": "batch"})).panels[0].split
        (2, 1)
        """
        options: CompareOptions = {"momentum_limit": momentum_limit, "metric": metric}
        whole = cls.of(base, (1, PILOT_ELL), PILOT_SEEDS, name=name, file=file, **options)
        (panel,) = whole.panels
        halved = panel.model_copy(update={"split": 2})
        try:
            halved.arms()
        except SpecError:  # BatchNorm, or a batch that cannot be halved
            return whole
        return whole.model_copy(update={"panels": (halved,)})

    def with_plan(self, plan: SdePlan) -> Self:
        """The same comparison with the arms and the seeds of a plan."""
        (panel,) = self.panels
        panels = (panel.model_copy(update={"ells": plan.ells, "split": plan.split, "plan": plan}),)
        seeds = tuple(range(max(plan.seeds)))
        return self.model_copy(update={"panels": panels, "seeds": seeds, "margin": plan.within})

    def planned(self) -> str:
        """The plans, where there are any."""
        return "\n".join(str(panel.plan) for panel in self.panels if panel.plan is not None)

    def asked(self) -> str:
        """The ell of every panel, and the margin."""
        ells = "; ".join(f"{panel.name}: ell = {', '.join(map(str, panel.ells))}" for panel in self.panels)
        return f"{ells}; margin {self.margin:g} in {self.metric}"

    def find(self, records: Sequence[RunRecord]) -> "CompareFinding":
        """Find in each panel whether SGD ends where its SDE ends."""
        from svag.lab.experiments.compare_finding import find_compare

        return find_compare(self, records)

    @classmethod
    def around(cls, base: RunSpec, known: Collection[RunSpec]) -> ComparePanel:
        """The base with every arm at its batch size that is among the known specs."""
        processes = processes_at({shared_by_seeds(base)}, known)
        svag = svag_fields(processes)
        return ComparePanel(
            name=f"{described(base)}, B={base.batch_size}",
            base=base,
            glsr=tuple(sorted({process.parts for process in processes if isinstance(process, GlsrSpec)})),
            ngd=any(isinstance(process, NgdSpec) for process in processes),
            sde=tuple(sorted({process.refine for process in processes if isinstance(process, SdeSpec)})),
            **{**svag, "ells": (1, *svag["ells"])},
        )


# The ell that a plan may choose from, and the power it aims at: the chance is computed to within .02 of the truth.
_MENU = (4, 8, 16, 32, 64, 128, 256)
_PLAIN_MENU = (2, *_MENU, 512, 1024, 2048, 4096)
_POWER = 0.82


def plan_within(pilot: Compare, records: Sequence[RunRecord], within: float) -> Compare:
    """Plan a comparison that finds the gap, and the SDE's value, to within a given accuracy, from the runs of a pilot.

    The arms are SGD, the SVAG of the pilot, and what the cheapest extrapolation from at most three ell needs. There are
    enough seeds that "equivalent" is the answer with probability .8 if there is no gap, averaged over what the true
    spread may be after a pilot this short. The spread is taken to be the same in all arms.

    Args:
        pilot: a pilot from `Compare.pilot`.
        records: its records, all ended.
        within: the margin: percentage points of an accuracy, otherwise in units of the metric.
    """
    import numpy as np

    from svag.lab.experiments.runs import gather
    from svag.stats.allocation import Level, chance_of_equivalence, plan_gap  # scipy, which a description needs not
    from svag.stats.means import remaining_bias

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
    examples = size * next(iter(runs.results.values())).steps  # of one run of SGD
    plan = SdePlan(
        metric=metric,
        within=margin,
        ells=tuple(round(1 / level.x) for level in best.levels),
        seeds=tuple(map(round, best.samples)),
        weights=tuple((level == first) - weight for level, weight in zip(best.levels, best.weights, strict=True)),
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
