"""Which process a run follows: SGD, SVAG, the coupled ladder, noisy gradient descent, gradient descent, the SDE."""

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from svag.records.numbers import Count
from svag.theory.refinement import MomentumLimit


class _Process(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


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
        """Whether nothing is amplified and the second batch is never looked at."""
        return self.ell == 1 and self.split == 1


class GlsrSpec(_Process):
    """The run's own draws cut into `parts` consecutive batches of batch_size/parts at lr/parts (def:glsr)."""

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


FULL_PASS = (NgdSpec, GdSpec, SdeSpec)

Process: TypeAlias = Annotated[SgdSpec | SvagSpec | GlsrSpec | NgdSpec | GdSpec | SdeSpec, Field(discriminator="kind")]


def substeps(process: Process) -> int:
    """How many updates one effective step is made of."""
    match process:
        case SvagSpec():
            return process.ell
        case GlsrSpec():
            return process.parts
        case SdeSpec():
            return process.refine
    return 1
