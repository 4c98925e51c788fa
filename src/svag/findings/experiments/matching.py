"""Whether a run belongs to a panel: its spec is the base spec, moved along the linear scaling rule if at all."""

import math
from typing import Any

from svag.records.spec import RunSpec

# What may differ between the runs of a panel: the arm, the seed, and what is measured on the way.
_FREE = {"process", "seed", "probe", "evaluate"}
_SCALED = {"batch_size", "lr", "budget", "schedule"}
_SAME = tuple(name for name in RunSpec.model_fields if name not in _FREE | _SCALED)


def on_ladder(base: RunSpec, spec: RunSpec) -> bool:
    """Whether `spec` is `base` at another batch size by the linear rule: κB and κη, and 1/κ of any number of steps.

    Process, seed, probe and evaluation are free. Step counts may be rounded either way.

    >>> base = RunSpec(data={"name": "cifar10"}, model={"arch": "vgg16"}, batch_size=64, lr=0.1, budget=99)
    >>> on_ladder(base, base.edited({"batch_size": 128, "lr": 0.2, "budget": 50, "seed": 3}))
    True
    >>> on_ladder(base, base.edited({"batch_size": 128, "lr": 0.1, "budget": 50}))
    False
    """
    kappa = spec.batch_size / base.batch_size
    if not math.isclose(spec.lr, kappa * base.lr, rel_tol=1e-6):
        return False
    if any(getattr(base, name) != getattr(spec, name) for name in _SAME):
        return False
    ours, theirs = (one.model_dump(include={"budget", "schedule"}) for one in (base, spec))
    return _alike(ours, theirs, kappa)


def same_setting(base: RunSpec, spec: RunSpec) -> bool:
    """Whether `spec` is `base` up to process, seed, probe and evaluation."""
    return base.batch_size == spec.batch_size and on_ladder(base, spec)


def _alike(base: Any, other: Any, kappa: float) -> bool:
    """Whether two trees of values agree, whole numbers being effective steps, of which κ times the batch needs 1/κ."""
    if isinstance(base, dict) and isinstance(other, dict):
        return base.keys() == other.keys() and all(_alike(base[key], other[key], kappa) for key in base)
    if isinstance(base, list | tuple) and isinstance(other, list | tuple):
        return len(base) == len(other) and all(_alike(b, o, kappa) for b, o in zip(base, other, strict=True))
    if kappa != 1 and type(base) is int and type(other) is int:
        return abs(other - base / kappa) < 1
    return bool(base == other)
