"""The arms of a panel: their names, their specs, and which runs count as the same."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from svag.lab.specs.fields import SpecError
from svag.lab.specs.optimizers import TITLES
from svag.lab.specs.parts import EvaluateSpec, InRunProbe, NoProbe, Process, SgdSpec, SvagSpec
from svag.lab.specs.spec import RunSpec
from svag.theory.optimizers import MomentumLimit

_REFINED = {"svag": "SVAG ell", "glsr": "ladder parts", "sde": "Euler–Maruyama refine"}


@dataclass(frozen=True)
class ArmName:
    """One arm of a panel.

    >>> str(ArmName("svag", 4)), str(ArmName("sgd"))
    ('SVAG ell=4', 'SGD')
    >>> str(ArmName("sgd", optimizer="AdamW")), ArmName("sgd", optimizer="AdamW") == SGD
    ('AdamW', True)

    Attributes:
        kind: kind of its process.
        refinement: ell of SVAG, parts of the coupled ladder, Euler–Maruyama steps per step of SGD; otherwise 1.
        optimizer: name of the optimizer, shown for the arm that is the optimizer itself. A panel has one optimizer, so
            arms that differ only in this are equal.
    """

    kind: Literal["sgd", "svag", "glsr", "ngd", "gd", "sde"]
    refinement: int = 1
    optimizer: str = field(default=TITLES["sgd"], compare=False)

    def __str__(self) -> str:
        if self.kind == "sgd":
            return self.optimizer
        if self.kind in _REFINED:
            return f"{_REFINED[self.kind]}={self.refinement}"
        return self.kind.upper()


SGD, NGD, GD = ArmName("sgd"), ArmName("ngd"), ArmName("gd")
ArmSpec = tuple[ArmName, RunSpec]


def svag_arm(ell: int) -> ArmName:
    """The arm of SVAG(ell); ell = 1 is SGD."""
    return SGD if ell == 1 else ArmName("svag", ell)


@dataclass(frozen=True)
class Slot:
    """The place of one run in an experiment.

    Attributes:
        panel: number of the panel, counted from 0.
        arm: the arm of that panel.
        batch_size: B.
        seed: the seed.
    """

    panel: int
    arm: ArmName
    batch_size: int
    seed: int


def matched(spec: RunSpec) -> RunSpec:
    """The spec without probe and evaluation, which only measure. SVAG that equals SGD counts as SGD.

    A record belongs to the slots whose spec is the same after this.

    >>> base = RunSpec.from_yaml("{data: {name: svhn}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: 9}")
    >>> probed = base.edited({"probe": {"kind": "in_run"}, "process": {"kind": "svag", "ell": 1}})
    >>> matched(probed) == matched(base), matched(base) == matched(base.edited({"seed": 1}))
    (True, False)
    """
    is_sgd = isinstance(spec.process, SvagSpec) and spec.process.is_sgd
    process = SgdSpec() if is_sgd else spec.process
    return spec.model_copy(update={"process": process, "probe": NoProbe(), "evaluate": EvaluateSpec()})


def shared_by_seeds(spec: RunSpec) -> RunSpec:
    """The key that runs share if they differ only in their seed: `matched` without the seed."""
    return matched(spec).model_copy(update={"seed": 0})


def require_sgd(base: RunSpec) -> None:
    """Refuse a base whose process is not the optimizer itself, since the arms vary the process."""
    if not isinstance(base.process, SgdSpec):
        raise SpecError(
            "process.kind",
            f"the base of an experiment is the {base.optimizer.title} run in question, got {base.process.kind}",
        )


def svag_arms(base: RunSpec, ells: Iterable[int], split: int, limit: MomentumLimit | None) -> Iterator[ArmSpec]:
    """One arm for each ell above 1; ell = 1 is SGD, which the caller runs in any case."""
    for ell in sorted(set(ells)):
        if ell > 1:
            process = {"kind": "svag", "ell": ell, "split": split, "momentum_limit": limit}
            yield svag_arm(ell), base.edited({"process": process})


def other_arm(name: ArmName, base: RunSpec, process: dict[str, Any]) -> ArmSpec:
    """The base with another process; its in-run probe is dropped if that process has no batches to cut into parts.

    Such an arm is compared by its final result, so it does not need the readings.
    """
    try:
        return name, base.edited({"process": process})
    except SpecError as error:
        if not isinstance(base.probe, InRunProbe) or not error.path.startswith("probe."):
            raise
    return name, base.edited({"process": process, "probe": {"kind": "none"}})


def processes_at(bases: Collection[RunSpec], specs: Iterable[RunSpec]) -> list[Process]:
    """The processes of the specs that otherwise equal one of these SGD specs."""
    return [spec.process for spec in specs if spec.model_copy(update={"process": SgdSpec()}) in bases]


def svag_fields(processes: Iterable[Process]) -> dict[str, Any]:
    """The fields `ells`, `split` and `momentum_limit` of a panel with these SVAG arms.

    A panel has one split and one limit: the pair with the most ell is chosen, and on a tie the smallest split.
    """
    ells: dict[tuple[int, MomentumLimit | None], set[int]] = {}
    for process in processes:
        if isinstance(process, SvagSpec):
            ells.setdefault((process.split, process.momentum_limit), set()).add(process.ell)
    if not ells:
        return {"ells": ()}
    split, limit = min(ells, key=lambda settings: (-len(ells[settings]), settings[0], str(settings[1])))
    return {"ells": tuple(sorted(ells[split, limit])), "split": split, "momentum_limit": limit}
