"""What the arms of a panel are called, and which arm a run belongs to."""

from dataclasses import dataclass
from typing import Literal

from svag.records.process_spec import GdSpec, GlsrSpec, NgdSpec, Process, SgdSpec, SvagSpec
from svag.theory.refinement import MomentumLimit

Kind = Literal["sgd", "svag", "glsr", "ngd", "gd"]


@dataclass(frozen=True)
class ArmName:
    """One arm of a panel.

    >>> str(ArmName("svag", 4)), str(ArmName("sgd"))
    ('SVAG ell=4', 'SGD')

    Attributes:
        kind: of the process.
        refinement: ell of SVAG, parts of the coupled ladder, 1 of the others.
    """

    kind: Kind
    refinement: int = 1

    def __str__(self) -> str:
        match self.kind:
            case "svag":
                return f"SVAG ell={self.refinement}"
            case "glsr":
                return f"ladder parts={self.refinement}"
        return self.kind.upper()


SGD, NGD, GD = ArmName("sgd"), ArmName("ngd"), ArmName("gd")


def svag_arm(ell: int) -> ArmName:
    """The arm of SVAG(ell); ell = 1 is SGD."""
    return SGD if ell == 1 else ArmName("svag", ell)


def arm_of(process: Process, split: int, limit: MomentumLimit | None) -> ArmName | None:
    """The arm that runs of this process belong to, in a panel whose SVAG arms have this split and momentum limit.

    None for no arm: what tends to another limit, or tends to it differently, is not pooled.

    >>> arm_of(SvagSpec(ell=4, split=2), split=2, limit=None), arm_of(SvagSpec(ell=4, split=2), split=1, limit=None)
    (ArmName(kind='svag', refinement=4), None)
    """
    match process:
        case SgdSpec():
            return SGD
        case SvagSpec():
            if process.is_sgd:
                return SGD
            same = (process.split, process.momentum_limit) == (split, limit)
            return ArmName("svag", process.ell) if same else None
        case GlsrSpec():
            return ArmName("glsr", process.parts)
        case NgdSpec():
            return NGD
        case GdSpec():
            return GD
    return None
