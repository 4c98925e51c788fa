"""Is it the covariance of the noise that matters? SGD, NGD with matching covariance, and GD (fig:ngd_sgd_accs)."""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field

from svag.lab.experiments.base import (
    GD,
    MARGIN,
    NGD,
    SGD,
    ArmName,
    Experiment,
    Metric,
    Panel,
    described,
    metric_of,
    other_arm,
    require_sgd,
    seeds_from,
)
from svag.lab.records.record import RunRecord
from svag.lab.specs.fields import Positive
from svag.lab.specs.spec import RunSpec

if TYPE_CHECKING:
    from svag.lab.experiments.ngd_finding import NgdFinding


class NgdPanel(Panel):
    """SGD, NGD with matching covariance (eq:noisy_gd), and GD from one base spec."""

    def arms(self) -> list[tuple[ArmName, RunSpec]]:
        """SGD, NGD and GD; of GD a seed only changes the first weights."""
        require_sgd(self.base)
        return [(SGD, self.base), *(other_arm(arm, self.base, {"kind": arm.kind}) for arm in (NGD, GD))]


class Ngd(Experiment):
    """Does Gaussian noise of the same covariance do what SGD's noise does?

    >>> base = RunSpec.from_yaml(
    ...     "{data: {name: svhn}, model: {arch: mlp, norm: layer}, batch_size: 8, lr: 1, budget: 9}")
    >>> [spec.process.kind for spec in Ngd.of(base, seeds=1).runs()]
    ['sgd', 'ngd', 'gd']

    Attributes:
        margin: the gap in `metric` that would not matter, in its units (accuracies are fractions).
        metric: what is compared.
    """

    question: ClassVar[str] = "Can Gaussian noise replace the noise of SGD?"
    method: ClassVar[str] = (
        "Noisy gradient descent (NGD) adds Gaussian noise with the covariance of SGD's noise to the full gradient; "
        "gradient descent (GD) adds none."
    )
    needs: ClassVar[str] = "SGD, and NGD or GD with all other fields equal"
    subject: ClassVar[str] = "SGD, NGD and GD"
    default_seeds: ClassVar[int] = 3

    kind: Literal["ngd"] = "ngd"
    panels: tuple[NgdPanel, ...] = Field(min_length=1)
    margin: Positive = MARGIN
    metric: Metric = Field(default_factory=metric_of)

    @classmethod
    def of(
        cls,
        base: RunSpec,
        seeds: int | Iterable[int],
        *,
        margin: float = MARGIN,
        metric: Metric | None = None,
        name: str | None = None,
        title: str = subject,
    ) -> Self:
        """One panel from a base spec.

        Args:
            base: the SGD run in question.
            seeds: how many, or which.
            margin: the gap that would not matter.
            metric: what is compared; when None test accuracy, or bits per character of a text.
            name: of the panel; network and data when None.
            title: one line.
        """
        panel = {"name": name or described(base), "base": base}
        fields = {"title": title, "seeds": seeds_from(seeds), "panels": (panel,), "margin": margin}
        return cls.model_validate(fields if metric is None else {**fields, "metric": metric})

    def asked(self) -> str:
        """The arms and the margin."""
        return f"SGD, NGD and GD; margin {self.margin:g} in {self.metric}"

    def find(self, records: Sequence[RunRecord]) -> "NgdFinding":
        """Find in each panel whether SGD and NGD end together, and whether GD does."""
        from svag.lab.experiments.ngd_finding import find_ngd

        return find_ngd(self, records)

    @classmethod
    def _around(cls, base: RunSpec, settings: Collection[RunSpec]) -> NgdPanel:
        return NgdPanel(name=f"{described(base)}, B={base.batch_size}", base=base)
