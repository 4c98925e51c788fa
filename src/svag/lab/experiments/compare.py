"""Does the SDE describe my SGD? SGD and SVAG at several ell from one base spec (fig:svag_accs)."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypedDict, Unpack

from pydantic import Field

from svag.lab.experiments.arms import (
    NGD,
    ArmName,
    ArmSpec,
    Slot,
    other_arm,
    processes_at,
    require_sgd,
    shared_by_seeds,
    svag_arms,
    svag_fields,
)
from svag.lab.experiments.experiment import MARGIN, Experiment, Metric, Panel, described, metric_of
from svag.lab.experiments.sde_plan import PILOT_ELL, PILOT_SEEDS, SdePlan
from svag.lab.records.record import RunRecord
from svag.lab.specs.fields import Count, Positive, SpecError
from svag.lab.specs.parts import GlsrSpec, NgdSpec, SdeSpec
from svag.lab.specs.spec import RunSpec
from svag.theory.optimizers import MomentumLimit

if TYPE_CHECKING:
    from svag.lab.experiments.compare_finding import CompareFinding


ELLS = (1, 4, 16)


class ComparePanel(Panel):
    """SGD and SVAG from one base spec.

    Attributes:
        ells: refinements of SVAG; ell = 1 is SGD and is always run.
        split: into how many parts SVAG cuts its batches.
        glsr: also run the coupled ladder (def:glsr) with these numbers of parts, for the decomposition over it.
        ngd: also run NGD, for the paper's decomposition (eq:noise_decomposition).
        sde: also run Euler–Maruyama (eq:em) with these refinements, another way to the SDE; refine = 1 is NGD.
        momentum_limit: which limit SVAG follows if the base has momentum.
        plan: the seeds of each arm, and the weights of the limit; without one every arm gets all seeds.
        fewer: (ell, seeds) of the arms that get fewer seeds than SGD, since a large ell is expensive. Parts of the
            ladder and refinements of Euler–Maruyama count as their ell, and NGD as ell = 1.
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
        return slot.arm.kind == "sgd" or slot.seed < dict(self.fewer).get(slot.arm.refinement, math.inf)

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
    """Does SVAG converge in ell, and does SGD agree with its limit?

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
        **options: Unpack[CompareOptions],
    ) -> Self:
        """One panel around a base spec, see `Experiment.about`."""
        subject, ell = f"{base.optimizer.title} and SVAG", {"ells": tuple(ells)}
        return cls.about(base, seeds, subject, ell, options, name=name, file=file)

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

        Batches are cut in two if possible: this takes half the examples, and SGD lies on the same curve in 1/l.

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
        except SpecError:  # because of BatchNorm, or a batch that cannot be halved
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
        """The panel of this base with all arms at its batch size that are among the known specs."""
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
