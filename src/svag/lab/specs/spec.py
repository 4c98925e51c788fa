"""The spec of a run: everything that determines its numbers, and the checks that involve several fields."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    ModelWrapValidatorHandler,
    Tag,
    ValidationError,
    model_validator,
)

from svag.lab.specs import documents
from svag.lab.specs.fields import (
    STEEPEST,
    Count,
    Factor,
    NonNegative,
    Positive,
    RefusesInOneSentence,
    Seed,
    SpecError,
    SpecPart,
    cut,
    fields_of,
    kinds_of,
    members_of,
    refuse_endless,
    shown,
    spec_error,
)
from svag.lab.specs.optimizers import AdamwOptimizer, Optimizer, SgdOptimizer, check_process, optimizer_of_a_kind
from svag.lab.specs.parts import (
    FULL_PASS,
    AugmentSpec,
    Data,
    DataSpec,
    EvaluateSpec,
    FrozenProbe,
    GainSpec,
    GdSpec,
    GlsrSpec,
    InRunProbe,
    Model,
    ModelSpec,
    NoProbe,
    Probe,
    Process,
    SgdSpec,
    SvagSpec,
    named_probe,
    named_process,
    substeps,
)
from svag.lab.specs.schedules import Constant, Schedule
from svag.lab.specs.text import TextSpec, TransformerSpec
from svag.prices.plan import GainPlan
from svag.theory.weights import Sampling, finite_population_weights, svag_weights


def check_spec(spec: "RunSpec", examples: int | None) -> None:
    """Refuse fields that contradict each other; `examples` is None while the size of an npz file is not known."""
    _check_text(spec)
    _check_process(spec)
    _check_rate(spec)
    check_process(spec.optimizer, spec.process)
    _check_full_pass(spec)
    if examples is not None:
        _check_size(spec, examples)
    _check_cuts(spec)
    if examples is not None or isinstance(spec.budget, int):
        _check_times(spec, spec.steps(examples))


def smallest_batch(spec: "RunSpec") -> int:
    """Number of examples in one forward pass of training, apart from the probe."""
    match spec.process:
        case SvagSpec():
            return spec.batch_size // spec.process.split
        case GlsrSpec():
            return spec.batch_size // spec.process.parts
    return spec.batch_size


def _check_process(spec: "RunSpec") -> None:
    process, size = spec.process, spec.batch_size
    match process:
        case SvagSpec():
            if size % process.split:
                raise SpecError("process.split", f"must divide batch_size={size}, got {process.split}")
            if process.split > 2 * process.ell:
                raise SpecError(
                    "process.split", f"must be at most 2·ell = {2 * process.ell}, got {process.split}: raise ell"
                )
            if process.split > 1 and spec.model.norm == "batch" and not spec.model.is_callable:
                raise SpecError(
                    "process.split",
                    "batch norm sees the whole batch, which split cuts: use model.norm group, or split 1",
                )
        case GlsrSpec():
            if size % process.parts:
                raise SpecError("process.parts", f"must divide batch_size={size}, got {process.parts}")
        case GainSpec():
            if process.plan is None and not isinstance(spec.probe, InRunProbe):
                raise SpecError(
                    "probe.kind", "a gain that is measured needs readings of the run: use in_run, or give process.plan"
                )
            plan_of(spec)
    if spec.clip_norm is not None and not isinstance(process, SgdSpec | GainSpec):
        raise SpecError(
            "clip_norm", f"{process.kind} moves along sums of gradients that were not clipped one by one: leave it out"
        )
    if spec.model.norm == "batch" and not spec.model.is_callable and smallest_batch(spec) < 2:
        raise SpecError("model.norm", "batch norm cannot normalise a batch of one example: use group")


def plan_of(spec: "RunSpec") -> GainPlan | None:
    """The plan of a run by the gain rule; None if the gain is measured, and for every other process."""
    if not isinstance(spec.process, GainSpec):
        return None
    decoupled = isinstance(spec.optimizer, AdamwOptimizer)
    return spec.process.gain_plan(spec.batch_size, spec.optimizer.rule, decoupled=decoupled)


def _check_text(spec: "RunSpec") -> None:
    arch, name = spec.model.arch, spec.data.name
    text, transformer = isinstance(spec.data, TextSpec), isinstance(spec.model, TransformerSpec)
    if text and not transformer:
        raise SpecError("model.arch", f"{arch} takes images, and {name} is text: use transformer")
    if transformer and not text:
        raise SpecError("model.arch", f"a transformer reads text, and {name} has images: use data.name moby-dick")


def _check_rate(spec: "RunSpec") -> None:
    plan = plan_of(spec)
    largest = 1.0 if plan is None else max(plan.factors_of(gain).lr for _, gain in plan.phases)
    top = spec.lr * spec.schedule.top * largest
    if top > STEEPEST:
        raise SpecError("schedule", f"raises the learning rate to {top:g}, above the largest possible, {STEEPEST:g}")
    decay = top * spec.weight_decay
    if decay >= 2 and isinstance(spec.optimizer, SgdOptimizer | AdamwOptimizer):
        raise SpecError(
            "weight_decay", f"lr × weight_decay must stay below 2, got {decay:g}: weight decay alone would diverge"
        )


def _check_full_pass(spec: "RunSpec") -> None:
    if not isinstance(spec.process, FULL_PASS):
        return
    kind = spec.process.kind
    if spec.model.norm == "batch" and not spec.model.is_callable:
        raise SpecError("model.norm", f"{kind} needs a loss for every example, which batch norm mixes: use group")
    if spec.data.augmented:
        raise SpecError("data.augment", f"{kind} needs the same data in every pass: set it to false")
    if spec.sampling == "shuffle" and not isinstance(spec.process, GdSpec):
        raise SpecError(
            "sampling", f"{kind} has the noise of independent batches: use without_replacement or with_replacement"
        )
    if isinstance(spec.probe, InRunProbe):
        raise SpecError("probe.kind", f"{kind} computes no batch gradients to measure in the run: use frozen")


def _check_cuts(spec: "RunSpec") -> None:
    """Check the parts into which an in-run probe cuts the batches of SGD, glsr and gain."""
    if not isinstance(spec.probe, InRunProbe) or not cuts_batches(spec):
        return
    size, parts = smallest_batch(spec), spec.probe.parts
    if size < 2:
        raise SpecError("probe.kind", "batches of one example cannot be cut into parts to measure: use frozen or none")
    if size % parts:
        raise SpecError("probe.parts", f"must divide the batch of {size} examples, got {parts}")
    if spec.model.norm == "batch" and size // parts < 2 and not spec.model.is_callable:
        raise SpecError("probe.parts", f"batch norm cannot normalise parts of one example: use fewer than {parts}")


def cuts_batches(spec: "RunSpec") -> bool:
    """Whether an in-run probe would have to cut batches into parts."""
    return isinstance(spec.process, SgdSpec | GlsrSpec | GainSpec) or (
        isinstance(spec.process, SvagSpec) and spec.process.is_sgd
    )


def _check_size(spec: "RunSpec", examples: int) -> None:
    size, process = spec.batch_size, spec.process
    if size > examples:
        raise SpecError("batch_size", f"must not exceed the {examples} examples of the data, got {size}")
    if isinstance(process, GainSpec) and process.base_batch_size >= examples:
        raise SpecError(
            "process.base_batch_size",
            f"must be less than the {examples} examples of the data, got {process.base_batch_size}",
        )
    if spec.sampling != "with_replacement" and size == examples:
        if isinstance(process, SvagSpec) and not process.is_sgd:
            raise SpecError("batch_size", "a batch of all examples has no noise to amplify: lower it, or use gd")
        if isinstance(spec.probe, InRunProbe | FrozenProbe):
            raise SpecError("probe.kind", "a batch of all examples has no noise to measure: use none")
    if isinstance(process, SvagSpec):
        try:
            if spec.sampling == "with_replacement" or size == examples:
                svag_weights(process.ell, process.split)
            else:
                finite_population_weights(process.ell, process.split, batch_size=size, population=examples)
        except ValueError as error:
            raise SpecError("process.split", str(error)) from None


def _check_times(spec: "RunSpec", steps: int) -> None:
    if steps < 1:
        raise SpecError("budget.epochs", "is less than one step at this batch size: increase it")
    spec.schedule.check(steps)
    if isinstance(spec.probe, InRunProbe | FrozenProbe):
        spec.probe.steps(steps)


class Epochs(SpecPart):
    """A budget in epochs of SGD at the batch size of the spec; an incomplete last batch is not counted.

    With the gain rule, these are epochs of the baseline at its batch size.
    """

    epochs: Factor


def _budget_kind(value: object) -> str:
    return "epochs" if isinstance(value, Epochs | Mapping) else "steps"


Budget = Annotated[Annotated[Count, Tag("steps")] | Annotated[Epochs, Tag("epochs")], Discriminator(_budget_kind)]


class RunSpec(RefusesInOneSentence):
    """One run: data, network, process, hyperparameters, budget, probe. Frozen; invalid values raise SpecError.

    >>> spec = RunSpec(data={"name": "fashion-small"}, model={"arch": "mlp", "norm": "layer"},
    ...                batch_size=100, lr=0.1, budget={"epochs": 2})
    >>> spec.steps(), spec.learning_rate(0)
    (200, 0.1)
    >>> spec.edited({"process": {"kind": "svag", "ell": 4}, "lr": 0.2}).process
    SvagSpec(kind='svag', ell=4, split=1, momentum_limit=None)
    >>> spec.edited({"lr": -1})
    Traceback (most recent call last):
    svag.lab.specs.fields.SpecError: lr: must be greater than 0, got -1

    Attributes:
        data: the data set, and how it is reduced and augmented.
        model: the network.
        process: sgd, svag, glsr, ngd, gd, sde or gain.
        batch_size: B of the SGD run in question; with gain, the larger batch size.
        lr: η of the SGD run in question; a process that refines it does so itself. With gain, this and all other
            settings are those of the baseline.
        weight_decay: λ, decoupled with adamw, coupled (L2) with every other optimizer.
        clip_norm: largest norm of a gradient; longer ones are scaled down before the step, after they were measured.
        optimizer: {"kind": "sgd", "momentum": 0.9}, or adam, adamw, rmsprop; an old spec's `momentum: 0.9` means SGD.
        schedule: how the learning rate changes with the effective step.
        budget: effective steps, or {"epochs": 60}.
        sampling: how batches are drawn.
        probe: whether, when and how G and N are measured.
        evaluate: when the run is evaluated.
        seed: seed of everything random.
        compile: train through `torch.compile`. Numbers agree up to rounding, so it counts as another run.
    """

    data: Data
    model: Model
    process: Annotated[Process, BeforeValidator(named_process)] = Field(default_factory=SgdSpec)
    batch_size: Count
    lr: Positive
    weight_decay: NonNegative = 0.0
    clip_norm: Positive | None = None
    optimizer: Annotated[Optimizer, BeforeValidator(optimizer_of_a_kind)] = Field(default_factory=SgdOptimizer)
    schedule: Schedule = Field(default_factory=Constant)
    budget: Budget
    sampling: Sampling = "without_replacement"
    probe: Annotated[Probe, BeforeValidator(named_probe)] = Field(default_factory=NoProbe)
    evaluate: EvaluateSpec = Field(default_factory=EvaluateSpec)
    seed: Seed = 0
    compile: bool = False

    @model_validator(mode="wrap")
    @classmethod
    def _in_one_sentence(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(value, Mapping) and (strange := [key for key in value if not isinstance(key, str)]):
            raise SpecError("", f"the name of a field must be text, got {shown(strange[0])}")
        refuse_endless(value)
        try:
            spec = handler(_with_optimizer(value) if isinstance(value, Mapping) else value)
        except ValidationError as error:
            raise spec_error(error, FIELDS, KINDS) from None
        check_spec(spec, spec.data.examples)
        return spec

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Make a spec from plain values, as they come out of JSON or YAML."""
        return cls.model_validate(dict(fields))

    @classmethod
    def of(cls, base: "Base") -> Self:
        """A spec from a spec, a mapping of its fields, or the path of a YAML file."""
        match base:
            case str() | Path():
                return cls.load(base)
            case cls():
                return base
            case Mapping():
                return cls.from_dict(base)
        raise SpecError("", f"a spec is a RunSpec, a mapping of fields or the path of a YAML file, got {shown(base)}")

    @classmethod
    def from_yaml(cls, text: str) -> Self:
        """Make a spec from YAML text."""
        return cls.from_dict(documents.parse(text))

    @classmethod
    def load(cls, path: str | Path, edits: Mapping[str, Any] | None = None) -> Self:
        """Read a spec from a YAML file, with some fields replaced: {"model.norm": "batch"}."""
        return cls.from_dict(documents.edited(_with_optimizer(documents.read(Path(path))), _renamed(edits or {})))

    def edited(self, edits: Mapping[str, Any]) -> Self:
        """The same spec with some fields replaced, by their dotted paths, and checked again.

        A new `kind` of process, schedule or probe starts from its own defaults.
        """
        return type(self).from_dict(documents.edited(self.to_dict(), _renamed(edits)))

    @property
    def name(self) -> str:
        """Name of the run: optimizer and process, batch size, seed."""
        return f"{self.method} B={self.batch_size} seed={self.seed}"

    def to_dict(self) -> dict[str, Any]:
        """All fields, defaults included, as JSON values."""
        return self.model_dump(mode="json")

    def to_yaml(self) -> str:
        """The spec as YAML, which `from_yaml` reads back."""
        return documents.write(self.to_dict())

    @property
    def method(self) -> str:
        """Name of optimizer and process: sgd, svag ell=4 split=1, adamw, adamw svag ell=4 split=1."""
        kind = self.optimizer.kind
        if isinstance(self.process, SgdSpec):
            return kind
        return self.process.name if kind == "sgd" else f"{kind} {self.process.name}"

    @property
    def step_name(self) -> str:
        """What messages call a step of the budget: only for SVAG and its kin is it made of smaller steps."""
        if isinstance(self.process, GainSpec):
            return "baseline step"
        return "effective step" if substeps(self.process) > 1 else "step"

    def steps(self, examples: int | None = None) -> int:
        """The budget in effective steps. For epochs of an npz file, the number of examples has to be given."""
        if not isinstance(self.budget, Epochs):
            return self.budget
        known = examples if examples is not None else self.data.examples
        if known is None:
            raise SpecError(
                "budget.epochs", f"the number of examples in {cut(self.data.path or '')} is needed to count epochs"
            )
        size = self.process.base_batch_size if isinstance(self.process, GainSpec) else self.batch_size
        return round(self.budget.epochs * (known // size))

    def learning_rate(self, step: int, examples: int | None = None) -> float:
        """η in an effective step, counted from 0; constant over its sub-steps."""
        return self.lr * self.schedule.multiplier(step, self.steps(examples))


_BOTH = "is a field of optimizer, which is given too: write optimizer.momentum only"


def _with_optimizer(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Move the `momentum` of an old spec to `optimizer`."""
    if "momentum" not in fields:
        return dict(fields)
    if "optimizer" in fields:
        raise SpecError("momentum", _BOTH)
    rest = {name: value for name, value in fields.items() if name != "momentum"}
    return {**rest, "optimizer": {"kind": "sgd", "momentum": fields["momentum"]}}


def _renamed(edits: Mapping[str, Any]) -> dict[str, Any]:
    """The same for dotted paths: `momentum` is `optimizer.momentum`."""
    if "momentum" in edits and any(path.partition(".")[0] == "optimizer" for path in edits):
        raise SpecError("momentum", _BOTH)
    return {"optimizer.momentum" if path == "momentum" else path: value for path, value in edits.items()}


Base = RunSpec | Mapping[str, Any] | str | Path
"""Anything that `RunSpec.of` accepts as a spec."""

_UNIONS = {"optimizer": Optimizer, "process": Process, "schedule": Schedule, "probe": Probe}
FIELDS = {
    "": (*fields_of(RunSpec), "momentum"),  # the last is an old name
    "data": fields_of(DataSpec, TextSpec),
    "data.augment": fields_of(AugmentSpec),
    "model": fields_of(ModelSpec, TransformerSpec),
    "evaluate": fields_of(EvaluateSpec),
    "budget": fields_of(Epochs),
    **{part: fields_of(*members_of(union)) for part, union in _UNIONS.items()},
}
KINDS = {part: kinds_of(union) for part, union in _UNIONS.items()}


# A gain that is not known beforehand is taken to cost this many times the examples of the baseline.
_ASSUMED_PRICE = 2.0


def examples_per_step(spec: RunSpec, examples: int) -> float:
    """Number of examples that one effective step uses, in a data set of `examples`; with the gain rule, on average.

    >>> spec = RunSpec.from_yaml("{data: {name: svhn}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: 9}")
    >>> examples_per_step(spec, 1000), examples_per_step(spec.edited({"process": {"kind": "svag", "ell": 4}}), 1000)
    (8, 64)
    >>> examples_per_step(spec.edited({"process": {"kind": "gain", "base_batch_size": 4, "plan": [[0, 1.5]]}}), 1000)
    5.333333333333333
    """
    process = spec.process
    if isinstance(process, FULL_PASS):
        return substeps(process) * examples
    if isinstance(process, SvagSpec) and not process.is_sgd:
        return 2 * process.ell * (spec.batch_size // process.split)
    if isinstance(process, GainSpec):
        return spec.batch_size * updates_per_step(spec, examples)
    return spec.batch_size


def updates_per_step(spec: RunSpec, examples: int) -> float:
    """Number of batch gradients that one effective step computes; a pass over the data counts as one.

    With the gain rule it is less than one, as an update is worth `gain` effective steps.
    """
    process = spec.process
    if isinstance(process, GainSpec):
        plan, steps = plan_of(spec), spec.steps(examples)
        if plan is not None:
            return plan.steps(steps) / steps
        return min(_ASSUMED_PRICE * process.base_batch_size / spec.batch_size, 1.0)
    pairs = isinstance(process, SvagSpec) and not process.is_sgd
    return (2 if pairs else 1) * substeps(process)
