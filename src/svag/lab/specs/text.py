"""Text data in a spec, as windows of characters, and the transformer that predicts the next character."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import model_validator

from svag.lab.specs.fields import DEEPEST, LARGEST, WIDEST, Count, SpecError, SpecPart, shown


@dataclass(frozen=True)
class TextFacts:
    """Numbers about a text, known before it is loaded; characters before `test_from` are for training.

    >>> TEXTS["moby-dick"].windows(context=64)
    (16750, 1861)
    """

    characters: int
    test_from: int

    def windows(self, context: int) -> tuple[int, int]:
        """Number of training and test windows; they do not overlap, and each needs one more character as label."""
        return (self.test_from - 1) // context, (self.characters - self.test_from - 1) // context


# the test set is the last tenth of the book, wherever that is in a chapter
TEXTS = {"moby-dick": TextFacts(1_191_159, 1_072_043)}


class TextSpec(SpecPart):
    """A text as windows of `context` characters, each of which is predicted from those before it in the window.

    >>> TextSpec(name="moby-dick", context=128).examples
    8375

    Attributes:
        name: name of the text.
        context: number of characters in a window; windows do not overlap.
        subset: number of windows to train on, chosen by a fixed seed.
    """

    name: Literal["moby-dick"]
    context: Count = 64
    subset: Count | None = None

    path: ClassVar[None] = None
    augment: ClassVar[None] = None
    augmented: ClassVar[bool] = False

    @model_validator(mode="after")
    def _consistent(self) -> "TextSpec":
        facts = TEXTS[self.name]
        train, test = facts.windows(self.context)
        if test < 1:
            most = facts.characters - facts.test_from - 1
            raise SpecError("data.context", f"must be at most the {most} characters of the test set")
        if self.subset is not None and self.subset > train:
            raise SpecError("data.subset", f"{self.name} has {train} windows of {self.context}, got {self.subset}")
        return self

    @property
    def examples(self) -> int:
        """Number of training windows."""
        return TEXTS[self.name].windows(self.context)[0] if self.subset is None else self.subset


class TransformerSpec(SpecPart):
    """A decoder-only transformer, with LayerNorm before attention and before the perceptron of every block.

    >>> TransformerSpec(arch="transformer", depth=2, width=48).heads
    4

    Attributes:
        arch: "transformer".
        depth: number of blocks.
        width: features of a character; a multiple of `heads`.
        heads: attention heads.
        tied: whether the last layer has the weights of the embedding.
    """

    arch: Literal["transformer"]
    depth: Count = 2
    width: Count = 64
    heads: Count = 4
    tied: bool = True

    norm: ClassVar[Literal["layer"]] = "layer"
    scale_invariant: ClassVar[bool] = False
    is_callable: ClassVar[bool] = False

    @model_validator(mode="after")
    def _consistent(self) -> "TransformerSpec":
        for name, value, most in (("depth", self.depth, DEEPEST), ("width", self.width, WIDEST)):
            if value > most:
                raise SpecError(f"model.{name}", f"must be at most {most}, got {shown(value)}")
        if (weights := 12 * self.depth * self.width**2) > LARGEST:
            raise SpecError("model.width", f"makes {weights:.1e} weights, and at most {LARGEST:.0e} can be trained")
        if self.width % self.heads:
            raise SpecError("model.heads", f"must divide the width of {self.width} features, got {self.heads}")
        return self


def data_kind(value: Any) -> str:
    """Which class describes a data set: "text" or "images"."""
    name = value.get("name") if isinstance(value, dict) else getattr(value, "name", None)
    return "text" if isinstance(name, str) and name in TEXTS else "images"


def model_kind(value: Any) -> str:
    """Which class describes a network: "transformer" or "network"."""
    arch = value.get("arch") if isinstance(value, dict) else getattr(value, "arch", None)
    return "transformer" if arch == "transformer" else "network"
