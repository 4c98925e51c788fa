"""The description of one run: everything that determines its numbers, and nothing else."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    ModelWrapValidatorHandler,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from svag.records import documents
from svag.records.consistency import check_spec
from svag.records.data_spec import AugmentSpec, DataSpec
from svag.records.model_spec import ModelSpec
from svag.records.numbers import Count, Factor, NonNegative, Positive, Seed
from svag.records.probe_spec import EvaluateSpec, NoProbe, Probe, named_probe
from svag.records.process_spec import Process, SgdSpec
from svag.records.refusal import SpecError, spec_error
from svag.records.schedules import Constant, Schedule

Sampling = Literal["without_replacement", "with_replacement", "shuffle"]


class Epochs(BaseModel):
    """A budget in ordinary epochs of SGD at the batch size of the spec; the last, smaller batch is not counted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: Factor


def _budget_kind(value: object) -> str:
    return "epochs" if isinstance(value, Epochs | Mapping) else "steps"


Budget = Annotated[Annotated[Count, Tag("steps")] | Annotated[Epochs, Tag("epochs")], Discriminator(_budget_kind)]


class RunSpec(BaseModel):
    """One run: data, network, process, hyperparameters, budget, probe. Frozen; nonsense is refused with a reason.

    >>> spec = RunSpec(data={"name": "fashion-small"}, model={"arch": "mlp", "norm": "layer"},
    ...                batch_size=100, lr=0.1, budget={"epochs": 2})
    >>> spec.steps(), spec.learning_rate(0)
    (200, 0.1)
    >>> spec.edited({"process": {"kind": "svag", "ell": 4}, "lr": 0.2}).process
    SvagSpec(kind='svag', ell=4, split=1, momentum_limit=None)
    >>> spec.edited({"lr": -1})
    Traceback (most recent call last):
    svag.records.refusal.SpecError: lr: must be greater than 0, got -1

    Attributes:
        data: which data set, and how it is reduced and augmented.
        model: which network.
        process: sgd, svag, glsr, ngd, gd or sde.
        batch_size: B of the SGD run in question.
        lr: η of the SGD run in question; a process that refines it does so itself.
        weight_decay: λ, coupled L2.
        momentum: β of torch.optim.SGD.
        schedule: how the learning rate changes with the effective step.
        budget: effective steps, or {"epochs": 60}.
        sampling: how batches are drawn.
        probe: whether, when and how G and N are measured.
        evaluate: when the run is evaluated.
        seed: of everything random.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: DataSpec
    model: ModelSpec
    process: Process = Field(default_factory=SgdSpec)
    batch_size: Count
    lr: Positive
    weight_decay: NonNegative = 0.0
    momentum: NonNegative = 0.0
    schedule: Schedule = Field(default_factory=Constant)
    budget: Budget
    sampling: Sampling = "without_replacement"
    probe: Probe = Field(default_factory=NoProbe)
    evaluate: EvaluateSpec = Field(default_factory=EvaluateSpec)
    seed: Seed = 0

    @field_validator("probe", mode="before")
    @classmethod
    def _named_probe(cls, value: Any) -> Any:
        return named_probe(value)

    @model_validator(mode="wrap")
    @classmethod
    def _in_one_sentence(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(value, Mapping) and (strange := [key for key in value if not isinstance(key, str)]):
            raise SpecError("", f"the name of a field must be text, got {strange[0]!r}")
        try:
            spec = handler(value)
        except ValidationError as error:
            raise spec_error(error, FIELDS) from None
        check_spec(spec, spec.data.examples)
        return spec

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Make a spec from plain values, as they come out of JSON or YAML."""
        return cls.model_validate(dict(fields))

    @classmethod
    def from_yaml(cls, text: str) -> Self:
        """Make a spec from YAML text."""
        return cls.from_dict(documents.parse(text))

    @classmethod
    def load(cls, path: str | Path, edits: Mapping[str, Any] | None = None) -> Self:
        """Read a spec from a YAML file, with some fields replaced: {"model.norm": "batch"}."""
        return cls.from_dict(documents.edited(documents.read(Path(path)), edits or {}))

    def edited(self, edits: Mapping[str, Any]) -> Self:
        """The same spec with some fields replaced, by their dotted paths; checked again.

        A new `kind` of process, schedule or probe starts from its own defaults.
        """
        return type(self).from_dict(documents.edited(self.to_dict(), edits))

    def to_dict(self) -> dict[str, Any]:
        """All fields, defaults included, as JSON values."""
        return self.model_dump(mode="json")

    def to_yaml(self) -> str:
        """The spec as YAML, which `from_yaml` reads back."""
        return documents.write(self.to_dict())

    def steps(self, examples: int | None = None) -> int:
        """The budget in effective steps. An npz file's number of examples has to be given for a budget in epochs."""
        if not isinstance(self.budget, Epochs):
            return self.budget
        known = examples if examples is not None else self.data.examples
        if known is None:
            raise SpecError("budget.epochs", f"the number of examples in {self.data.path} is needed to count epochs")
        return round(self.budget.epochs * (known // self.batch_size))

    def learning_rate(self, step: int, examples: int | None = None) -> float:
        """η in an effective step, counted from 0: held over all its sub-steps."""
        return self.lr * self.schedule.multiplier(step, self.steps(examples))


FIELDS = {
    "": tuple(RunSpec.model_fields),
    "data": tuple(DataSpec.model_fields),
    "data.augment": tuple(AugmentSpec.model_fields),
    "model": tuple(ModelSpec.model_fields),
    "evaluate": tuple(EvaluateSpec.model_fields),
    "budget": tuple(Epochs.model_fields),
    "process": ("kind", "ell", "split", "momentum_limit", "parts", "refine"),
    "schedule": ("kind", "at", "factor", "floor", "peaks", "warmup"),
    "probe": ("kind", "parts", "window", "every", "readings", "batches"),
}
