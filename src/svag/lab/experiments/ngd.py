"""Is it the covariance of the noise that matters? SGD, NGD with matching covariance, and GD (fig:ngd_sgd_accs)."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Self, TypedDict, Unpack

from pydantic import Field

from svag.lab.experiments.arms import GD, NGD, SGD, ArmSpec, other_arm, require_sgd
from svag.lab.experiments.experiment import MARGIN, Experiment, Metric, Panel, described, metric_of
from svag.lab.records.record import RunRecord
from svag.lab.specs.fields import Positive
from svag.lab.specs.spec import RunSpec

if TYPE_CHECKING:
    from svag.lab.experiments.ngd_finding import NgdFinding


class NgdPanel(Panel):
    """SGD, NGD with matching covariance (eq:noisy_gd), and GD from one base spec."""

    def arms(self) -> list[ArmSpec]:
        """SGD, NGD and GD; for GD a seed only changes the initial weights."""
        require_sgd(self.base)
        return [(SGD, self.base), *(other_arm(arm, self.base, {"kind": arm.kind}) for arm in (NGD, GD))]


class NgdOptions(TypedDict, total=False):
    """Options besides the base and its seeds: fields of `Ngd`, arguments of `svag.lab.ngd`, flags of `svag ngd`."""

    margin: float
    metric: Metric | None


class Ngd(Experiment):
    """Does Gaussian noise of the same covariance do what SGD's noise does?

    >>> base = RunSpec.from_yaml(
    ...     "{data: {name: svhn}, model: {arch: mlp, norm: layer}, batch_size: 8, lr: 1, budget: 9}")
    >>> [spec.process.kind for spec in Ngd.of(base, seeds=1).runs()]
    ['sgd', 'ngd', 'gd']

    Attributes:
        margin: the gap in `metric` that would not matter, in its units (accuracies are fractions).
        metric: what is compared; by default test accuracy, or bits per character of a text.
    """

    question: ClassVar[str] = "Can Gaussian noise replace the noise of SGD?"
    method: ClassVar[str] = (
        "Noisy gradient descent (NGD) adds Gaussian noise with the covariance of SGD's noise to the full gradient; "
        "gradient descent (GD) adds none."
    )
    needs: ClassVar[str] = "SGD, and NGD or GD with all other fields equal"
    options: ClassVar[type] = NgdOptions
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
        name: str | None = None,
        file: Path | None = None,
        **options: Unpack[NgdOptions],
    ) -> Self:
        """One panel around a base spec, see `Experiment.about`."""
        return cls.about(base, seeds, "SGD, NGD and GD", {}, options, name=name, file=file)

    def asked(self) -> str:
        """The arms and the margin."""
        return f"SGD, NGD and GD; margin {self.margin:g} in {self.metric}"

    def find(self, records: Sequence[RunRecord]) -> "NgdFinding":
        """Find in each panel whether SGD and NGD end together, and whether GD does."""
        from svag.lab.experiments.ngd_finding import find_ngd

        return find_ngd(self, records)

    @classmethod
    def around(cls, base: RunSpec, known: Collection[RunSpec]) -> NgdPanel:
        """SGD, NGD and GD at the batch size of the base."""
        return NgdPanel(name=f"{described(base)}, B={base.batch_size}", base=base)
