"""The parts of a spec: image data, network and process, and when a run is measured and evaluated."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from svag.lab.specs.fields import (
    DEEPEST,
    WIDEST,
    Count,
    Factor,
    FileName,
    NonNegative,
    Positive,
    Several,
    Spacing,
    SpecError,
    SpecPart,
    When,
    Whole,
    cut,
    shown,
    step_of,
)
from svag.lab.specs.text import TEXTS, TextSpec, TransformerSpec, data_kind, model_kind
from svag.prices.plan import GainPlan
from svag.theory.optimizers import MomentumLimit, Rule

DataName = Literal["fashion-small", "fashion-mnist", "cifar10", "cifar100", "svhn", "npz"]


@dataclass(frozen=True)
class Facts:
    """What is known about a data set before it is loaded."""

    examples: int
    pixels: int
    channels: int
    classes: int


FACTS = {
    "fashion-small": Facts(10_000, 14, 1, 10),
    "fashion-mnist": Facts(60_000, 28, 1, 10),
    "cifar10": Facts(50_000, 32, 3, 10),
    "cifar100": Facts(50_000, 32, 3, 100),
    "svhn": Facts(73_257, 32, 3, 10),
}


class AugmentSpec(SpecPart):
    """Random crop after padding by `pad` pixels, and a random horizontal flip."""

    pad: Whole = 0
    flip: bool = False


class DataSpec(SpecPart):
    """A data set by name, or the arrays train_x, train_y, test_x, test_y of an npz file.

    >>> DataSpec(name="cifar10", subset=5000).examples
    5000

    Attributes:
        name: one of the data sets, or "npz".
        path: the npz file; only with `name: npz`.
        subset: train on this many of the examples, chosen by a fixed seed.
        pool: average pixels in squares of this many by this many.
        augment: random crops and flips; None (in YAML: false) for none.
    """

    name: DataName
    path: FileName | None = None
    subset: Count | None = None
    pool: Count = 1
    augment: AugmentSpec | None = None

    @field_validator("name", mode="before")
    @classmethod
    def _known(cls, name: Any) -> Any:
        names = (*get_args(DataName)[:-1], *TEXTS)
        if name not in (*names, "npz"):
            raise ValueError(f"must be one of {', '.join(names)} or npz, got {shown(name)}")
        return name

    @field_validator("augment", mode="before")
    @classmethod
    def _false_is_none(cls, value: Any) -> Any:
        if value is True:
            raise ValueError("must say how, for example {pad: 4, flip: true}")
        return None if value is False else value

    @model_validator(mode="after")
    def _consistent(self) -> "DataSpec":
        if self.name == "npz":
            if not self.path:
                raise SpecError("data.path", "is missing: name: npz needs the path of the file")
            return self
        if self.path is not None:
            raise SpecError("data.path", f"belongs to name: npz, not to {self.name}")
        facts = FACTS[self.name]
        if self.subset is not None and self.subset > facts.examples:
            raise SpecError("data.subset", f"{self.name} has {facts.examples} examples, got {self.subset}")
        if facts.pixels % self.pool:
            raise SpecError("data.pool", f"must divide the {facts.pixels} pixels of {self.name}, got {self.pool}")
        if self.augment is not None and self.augment.pad >= facts.pixels // self.pool:
            raise SpecError("data.augment.pad", f"must be less than the {facts.pixels // self.pool} pixels of an image")
        return self

    @property
    def examples(self) -> int | None:
        """Number of training examples; None for an npz file without `subset`, which has to be opened first."""
        if self.subset is not None:
            return self.subset
        return None if self.name == "npz" else FACTS[self.name].examples

    @property
    def augmented(self) -> bool:
        """Whether images are changed at random."""
        return self.augment is not None and (self.augment.pad > 0 or self.augment.flip)


Data: TypeAlias = Annotated[
    Annotated[DataSpec, Tag("images")] | Annotated[TextSpec, Tag("text")], Discriminator(data_kind)
]

Norm = Literal["batch", "group", "layer", "none"]

_CALLABLE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_VGGS = ("vgg11", "vgg13", "vgg16", "vgg19")


def family_and_depth(arch: str) -> tuple[str, int]:
    """What the name of a network says: "preresnet", "resnet", "vgg" or "mlp", and its depth; others are refused.

    >>> family_and_depth("preresnet32"), family_and_depth("vgg16"), family_and_depth("mlp")
    (('preresnet', 32), ('vgg', 16), ('mlp', 0))
    """
    if arch == "mlp":
        return "mlp", 0
    if arch in _VGGS:
        return "vgg", int(arch[3:])
    residual = re.fullmatch(r"((?:pre)?resnet)(\d+)", arch)
    if residual is None:
        raise ValueError(
            f"no network is called {shown(arch)}: there are preresnet<depth>, resnet<depth>, {', '.join(_VGGS)}, "
            "mlp, in a spec transformer, and your own as package.module:callable"
        )
    family, depth = residual[1], int(residual[2][:9])
    if depth > DEEPEST:
        raise ValueError(f"a residual network has at most {DEEPEST} layers, got {shown(arch)}")
    if depth % 6 != 2 or depth < 8:
        near = max(8, 6 * round((depth - 2) / 6) + 2)
        raise ValueError(f"the depth of {cut(arch)} must be 6n+2 with n ≥ 1: the nearest is {family}{near}")
    return family, depth


CHANNELS = {"preresnet": 16, "resnet": 16, "vgg": 64, "mlp": 256}
"""Channels of the first stage, or hidden units, at width 1."""


class ModelSpec(SpecPart):
    """A network by name, or a user's callable by its import path.

    >>> ModelSpec(arch="my_package.nets:build").is_callable
    True

    Attributes:
        arch: preresnet{d} and resnet{d} with d = 6n + 2, vgg11, vgg13, vgg16, vgg19, mlp, or "package.module:callable".
        norm: normalisation layers.
        width: factor on the number of channels.
        scale_invariant: the loss does not change when all trainable weights are multiplied by one number.
        init_scale: factor on the initial trainable weights, which does not change the loss of a scale-invariant
            network; √(R*/R₀) starts the weight norm at its equilibrium. Not for other networks.
    """

    arch: str
    norm: Norm = "batch"
    width: Factor = 1.0
    scale_invariant: bool = False
    init_scale: Positive = 1.0

    @property
    def is_callable(self) -> bool:
        """Whether the network is the user's own."""
        return ":" in self.arch

    @field_validator("arch")
    @classmethod
    def _known(cls, arch: str) -> str:
        if not _CALLABLE.fullmatch(arch):
            family_and_depth(arch)
        return arch

    @model_validator(mode="after")
    def _consistent(self) -> "ModelSpec":
        if self.scale_invariant and self.norm == "none":
            raise SpecError("model.scale_invariant", "needs a normalisation: set model.norm to batch, group or layer")
        if self.init_scale != 1 and not self.scale_invariant:
            raise SpecError("model.init_scale", "changes the loss of this network: set model.scale_invariant to true")
        if self.is_callable:
            return self
        channels = CHANNELS[family_and_depth(self.arch)[0]]
        if channels * self.width % 1 or channels * self.width > WIDEST:
            rule = "a whole number of channels" if channels * self.width % 1 else f"at most {WIDEST} channels"
            raise SpecError("model.width", f"{channels} × width must be {rule}, got {self.width}")
        return self


Model: TypeAlias = Annotated[
    Annotated[ModelSpec, Tag("network")] | Annotated[TransformerSpec, Tag("transformer")], Discriminator(model_kind)
]


class _Process(SpecPart):
    kind: str

    @property
    def name(self) -> str:
        """Name of the process: its kind and its settings, as in svag ell=4 split=1."""
        settings = self.model_dump(exclude={"kind"}, exclude_none=True)
        return " ".join([self.kind, *(f"{name}={value}" for name, value in settings.items())])


class SgdSpec(_Process):
    """Plain SGD at the batch size of the spec."""

    kind: Literal["sgd"] = "sgd"


class SvagSpec(_Process):
    """SVAG(l): every effective step is `ell` steps at lr/ell on pairs of batches of batch_size/split (eq:svag_iter).

    >>> SvagSpec(ell=1).is_sgd
    True
    """

    kind: Literal["svag"] = "svag"
    ell: Count
    split: Count = 1
    momentum_limit: MomentumLimit | None = None

    @property
    def is_sgd(self) -> bool:
        """Whether it is SGD: nothing is amplified, and the second batch is not used."""
        return self.ell == 1 and self.split == 1


class GlsrSpec(_Process):
    """SGD's own batches, each cut into `parts` consecutive batches of batch_size/parts at lr/parts (def:glsr)."""

    kind: Literal["glsr"] = "glsr"
    parts: Count


class NgdSpec(_Process):
    """Gradient descent with Gaussian noise of SGD's covariance (eq:noisy_gd)."""

    kind: Literal["ngd"] = "ngd"


class GdSpec(_Process):
    """Gradient descent."""

    kind: Literal["gd"] = "gd"


class SdeSpec(_Process):
    """The Itô SDE by Euler–Maruyama with step lr/refine (eq:em)."""

    kind: Literal["sde"] = "sde"
    refine: Count


class GainSpec(_Process):
    """The gain rule at the batch size of the spec; its other settings are those of a baseline at a smaller batch.

    Effective steps are those of the baseline: budget, schedule, evaluations and the probe's window count them.

    >>> GainSpec(base_batch_size=16).name, GainSpec(base_batch_size=16, plan=[[0, 3.1]]).name
    ('gain base_batch_size=16 measured', 'gain base_batch_size=16 planned')

    Attributes:
        base_batch_size: batch size of the baseline.
        plan: pairs (first baseline step, gain), as in `svag.GainPlan`; None to measure the gain while training.
    """

    kind: Literal["gain"] = "gain"
    base_batch_size: Count
    plan: tuple[tuple[NonNegative, Positive], ...] | None = None

    @property
    def name(self) -> str:
        """Kind, batch size of the baseline, and where the gains come from."""
        return f"gain base_batch_size={self.base_batch_size} {'measured' if self.plan is None else 'planned'}"

    def gain_plan(self, batch_size: int, rule: Rule, *, decoupled: bool) -> GainPlan | None:
        """The plan at the batch size of the spec; None for a measured gain."""
        if self.plan is None:
            return None
        try:
            return GainPlan(self.base_batch_size, batch_size, self.plan, None, rule, decoupled)
        except ValueError as error:
            raise SpecError("process.plan", str(error)) from None


FULL_PASS = (NgdSpec, GdSpec, SdeSpec)

Process: TypeAlias = Annotated[
    SgdSpec | SvagSpec | GlsrSpec | NgdSpec | GdSpec | SdeSpec | GainSpec, Field(discriminator="kind")
]


def substeps(process: Process) -> int:
    """Number of updates in one effective step."""
    match process:
        case SvagSpec():
            return process.ell
        case GlsrSpec():
            return process.parts
        case SdeSpec():
            return process.refine
    return 1


def _check_window(window: tuple[float, float], steps: int) -> tuple[int, int]:
    first, last = (step_of(when, steps) for when in window)
    if isinstance(window[1], int) and window[1] == 1 and steps > 1:
        raise SpecError("probe.window", "ends at step 1: write 1.0 for the end of the run, [0.0, 1.0] for all of it")
    if not first < last:
        raise SpecError("probe.window", f"must hold at least one step, got {first} to {last}")
    if last > steps:
        raise SpecError("probe.window", f"ends at {last}, after the end of {steps} steps")
    return first, last


class NoProbe(SpecPart):
    """Measure nothing."""

    kind: Literal["none"] = "none"


class InRunProbe(SpecPart):
    """One reading per effective step of the window, or every few, from gradients that the run computes anyway.

    >>> InRunProbe(window=(0.5, 0.8), every=0.1).steps(100)
    range(50, 80, 10)

    Attributes:
        parts: number of parts into which SGD, glsr and gain cut each batch; not used by SVAG, which has pairs.
        window: first step (included) and last step (excluded).
        every: effective steps from one reading to the next, or a fraction of the budget.
    """

    kind: Literal["in_run"] = "in_run"
    parts: Several = 4
    window: tuple[When, When] = (0.0, 1.0)
    every: Spacing = 1

    def steps(self, steps: int) -> range:
        """The effective steps that are measured in a run of `steps`."""
        return range(*_check_window(self.window, steps), max(1, step_of(self.every, steps)))


class FrozenProbe(SpecPart):
    """Readings at frozen weights, spread evenly over the window.

    >>> FrozenProbe(readings=3, window=(0.5, 0.8)).steps(100)
    [50, 60, 70]

    Attributes:
        readings: number of readings.
        window: first step (included) and last step (excluded).
        batches: number of independent batches for each reading, of the run's own size.
    """

    kind: Literal["frozen"] = "frozen"
    readings: Annotated[Count, Field(le=10**6)] = 60
    window: tuple[When, When] = (0.5, 0.8)
    batches: Several = 20

    def steps(self, steps: int) -> list[int]:
        """The effective steps before which a reading is taken in a run of `steps`."""
        first, last = _check_window(self.window, steps)
        if self.readings > last - first:
            raise SpecError("probe.readings", f"the window holds {last - first} steps, too few for {self.readings}")
        return [first + number * (last - first) // self.readings for number in range(self.readings)]


Probe: TypeAlias = Annotated[NoProbe | InRunProbe | FrozenProbe, Field(discriminator="kind")]


class EvaluateSpec(SpecPart):
    """When the run is evaluated: before the first step, then at intervals, and at the end.

    Attributes:
        every: effective steps between two evaluations, or a fraction of the budget.
        train: also evaluate the whole training set, without augmentation.
    """

    every: Spacing = 0.05
    train: bool = False

    def interval(self, steps: int) -> int:
        """Effective steps between two evaluations."""
        return max(1, step_of(self.every, steps))


def named_process(value: Any) -> Any:
    """Accept `kind: optimizer`, which reads better with Adam, for the kind that is stored as `sgd`."""
    return {**value, "kind": "sgd"} if isinstance(value, Mapping) and value.get("kind") == "optimizer" else value


def named_probe(value: Any) -> Any:
    """Accept `probe: none` for `probe: {kind: none}`."""
    return {"kind": "none"} if value is None or value == "none" else value
