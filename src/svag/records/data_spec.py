"""Which data a run trains on."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from svag.records.numbers import Count, Whole
from svag.records.refusal import SpecError

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


class AugmentSpec(BaseModel):
    """Random crop after padding by `pad` pixels, and a random horizontal flip."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pad: Whole = 0
    flip: bool = False


class DataSpec(BaseModel):
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

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: DataName
    path: str | None = None
    subset: Count | None = None
    pool: Count = 1
    augment: AugmentSpec | None = None

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
        """How many examples it trains on; None for an npz file without `subset`, which must be opened to know."""
        if self.subset is not None:
            return self.subset
        return None if self.name == "npz" else FACTS[self.name].examples

    @property
    def augmented(self) -> bool:
        """Whether a batch is drawn with random changes."""
        return self.augment is not None and (self.augment.pad > 0 or self.augment.flip)
