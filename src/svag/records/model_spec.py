"""Which network a run trains."""

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from svag.records.numbers import Factor
from svag.records.refusal import SpecError, shown

Norm = Literal["batch", "group", "layer", "none"]

_RESIDUAL = re.compile(r"(?:pre)?resnet(\d+)")
_VGG = re.compile(r"vgg(?:11|13|16|19)")
_CALLABLE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


class ModelSpec(BaseModel):
    """A network by name, or a callable of the user's by its import path.

    >>> ModelSpec(arch="my_package.nets:build").is_callable
    True

    Attributes:
        arch: preresnet{d} and resnet{d} with d = 6n + 2, vgg11, vgg13, vgg16, vgg19, mlp, or "package.module:callable".
        norm: normalisation layers.
        width: factor on the number of channels.
        scale_invariant: the loss does not change when all trainable weights are multiplied by one number.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    arch: str
    norm: Norm = "batch"
    width: Factor = 1.0
    scale_invariant: bool = False

    @property
    def is_callable(self) -> bool:
        """Whether the network is the user's own."""
        return ":" in self.arch

    @field_validator("arch")
    @classmethod
    def _known(cls, arch: str) -> str:
        residual = _RESIDUAL.fullmatch(arch)
        if residual:
            depth = int(residual.group(1))
            if depth % 6 != 2 or depth < 8:
                raise ValueError(f"the depth of a residual network is 6n + 2 (8, 14, 20, 32, …), got {arch}")
        elif not (_VGG.fullmatch(arch) or _CALLABLE.fullmatch(arch) or arch == "mlp"):
            raise ValueError(
                "must be preresnet<depth>, resnet<depth>, vgg11, vgg13, vgg16, vgg19, mlp or an import path like "
                f"my_package.nets:build, got {shown(arch)}"
            )
        return arch

    @model_validator(mode="after")
    def _consistent(self) -> "ModelSpec":
        if self.scale_invariant and self.norm == "none":
            raise SpecError("model.scale_invariant", "needs a normalisation: set model.norm to batch, group or layer")
        channels = 64 if _VGG.fullmatch(self.arch) else 256 if self.arch == "mlp" else 16
        if not self.is_callable and channels * self.width % 1:
            raise SpecError("model.width", f"{channels} × width must be a whole number of channels, got {self.width}")
        return self
