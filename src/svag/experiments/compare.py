"""Does the SDE describe my SGD? SGD and SVAG at several ell from one base spec (fig:svag_accs)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field

from svag.experiments.base import (
    MARGIN,
    NGD,
    SGD,
    ArmName,
    Experiment,
    Metric,
    Panel,
    described,
    other_arm,
    processes_at,
    require_sgd,
    seeds_from,
    setting,
    svag_arms,
    svag_fields,
)
from svag.records.fields import Count, Positive, SpecError
from svag.records.parts import GlsrSpec, NgdSpec
from svag.records.record import RunRecord
from svag.records.spec import RunSpec
from svag.theory.optimizers import MomentumLimit

if TYPE_CHECKING:
    from svag.experiments.compare_finding import CompareFinding


ELLS = (1, 4, 16)


class ComparePanel(Panel):
    """SGD and SVAG from one base spec.

    Attributes:
        ells: refinements of SVAG; ell = 1 is SGD and is always run.
        split: of all SVAG arms with ell > 1.
        glsr: numbers of parts of the coupled ladder (def:glsr), for the decomposition over it; none if empty.
        ngd: whether to run NGD too, for the paper's decomposition (eq:noise_decomposition).
        momentum_limit: which limit the SVAG arms of a base with momentum follow.
    """

    ells: tuple[Count, ...]
    split: Count = 1
    glsr: tuple[Count, ...] = ()
    ngd: bool = False
    momentum_limit: MomentumLimit | None = None

    def arms(self) -> list[tuple[ArmName, RunSpec]]:
        """SGD, SVAG by increasing ell, the coupled ladder by increasing parts, NGD."""
        require_sgd(self.base)
        found = [(SGD, self.base), *svag_arms(self.base, self.ells, self.split, self.momentum_limit)]
        others = [(ArmName("glsr", parts), {"kind": "glsr", "parts": parts}) for parts in sorted(set(self.glsr) - {1})]
        others += [(NGD, {"kind": "ngd"})] if self.ngd else []
        found += [other_arm(arm, self.base, process) for arm, process in others]
        if not any(ell > 1 for ell in self.ells):
            raise SpecError("ell", "SGD alone has nothing to be compared with: name at least one ell above 1")
        return found

    def smallest(self, edits: Mapping[str, Any]) -> Self:
        """SGD and one SVAG."""
        return super().smallest(edits).model_copy(update={"ells": (1, 2)})


class Compare(Experiment):
    """Does SVAG converge in ell, and is SGD where it converges to?

    >>> base = RunSpec.from_yaml("{data: {name: svhn}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: 9}")
    >>> [(spec.process.kind, spec.seed) for spec in Compare.of(base, ells=[1, 4], seeds=2, glsr=[2]).runs()]
    [('sgd', 0), ('sgd', 1), ('svag', 0), ('svag', 1), ('glsr', 0), ('glsr', 1)]

    Attributes:
        margin: the gap in `metric` that would not matter, in its units (accuracies are fractions).
        metric: what is compared.
    """

    question: ClassVar[str] = (
        "Does the SDE describe this SGD? SVAG converges to the SDE as ell grows; the gap is SGD minus that limit."
    )
    needs: ClassVar[str] = "SGD, and SVAG at some ell above 1 with all other fields equal"
    subject: ClassVar[str] = "SGD and SVAG"
    default_seeds: ClassVar[int] = 5

    kind: Literal["compare"] = "compare"
    panels: tuple[ComparePanel, ...] = Field(min_length=1)
    margin: Positive = MARGIN
    metric: Metric = "test_accuracy"

    @classmethod
    def of(
        cls,
        base: RunSpec,
        ells: Iterable[int],
        seeds: int | Iterable[int],
        *,
        split: int = 1,
        glsr: Iterable[int] = (),
        ngd: bool = False,
        momentum_limit: MomentumLimit | None = None,
        margin: float = MARGIN,
        metric: Metric = "test_accuracy",
        name: str | None = None,
        title: str = subject,
    ) -> Self:
        """One panel from a base spec.

        Args:
            base: the SGD run in question.
            ells: refinements of SVAG.
            seeds: how many, or which.
            split: into how many parts SVAG cuts its batches.
            glsr: numbers of parts of the coupled ladder.
            ngd: whether to run NGD too.
            momentum_limit: which limit SVAG follows, if the base has momentum.
            margin: the gap that would not matter.
            metric: what is compared.
            name: of the panel; network and data when None.
            title: one line.
        """
        panel = {
            "name": name or described(base),
            "base": base,
            "ells": tuple(ells),
            "split": split,
            "glsr": tuple(glsr),
            "ngd": ngd,
            "momentum_limit": momentum_limit,
        }
        fields = {"title": title, "seeds": seeds_from(seeds), "panels": (panel,), "margin": margin, "metric": metric}
        return cls.model_validate(fields)

    def asked(self) -> str:
        """The ell of every panel, and the margin."""
        ells = "; ".join(f"{panel.name}: ell = {', '.join(map(str, panel.ells))}" for panel in self.panels)
        return f"{ells}; margin {self.margin:g} in {self.metric}"

    def find(self, records: Sequence[RunRecord]) -> "CompareFinding":
        """Find in each panel whether SGD ends where its SDE ends."""
        from svag.experiments.compare_finding import find_compare

        return find_compare(self, records)

    @classmethod
    def _around(cls, base: RunSpec, settings: Collection[RunSpec]) -> ComparePanel:
        there = processes_at({setting(base)}, settings)
        svag = svag_fields(there)
        return ComparePanel(
            name=f"{described(base)}, B={base.batch_size}",
            base=base,
            glsr=tuple(sorted({one.parts for one in there if isinstance(one, GlsrSpec)})),
            ngd=any(isinstance(one, NgdSpec) for one in there),
            **{**svag, "ells": (1, *svag["ells"])},
        )
