"""What two batches of a pair have in common, and what they must not."""

from typing import Any, TypeAlias

from torch import Tensor

from svag.noise.batches import tensors_of

Batch: TypeAlias = Any  # whatever the user's loss function takes


def check_pair(first: Batch, second: Batch) -> None:
    """Refuse two batches that cannot be independent draws of one kind."""
    if second is None:
        raise ValueError("the second batch is missing: only with ell equal to split does a step need just one")
    if first is second:
        raise ValueError("the two batches of a pair must be drawn independently, got one batch twice")
    one, other = list(tensors_of(first)), list(tensors_of(second))
    if _kinds(one) != _kinds(other):
        raise ValueError(
            f"the two batches of a pair must be alike, got one of {_kinds(one)} and one of {_kinds(other)}: "
            "if this is one batch (inputs, targets) and not a pair, svag.independent_pairs(loader) makes pairs"
        )
    if {t.device for t in one} != {t.device for t in other}:
        raise ValueError(
            "the two batches of a pair must be on one device, got "
            f"{', '.join(sorted({str(t.device) for t in one + other}))}: move both before the step"
        )
    if one and one[0].ndim and len(one[0]) != len(other[0]):
        raise ValueError(
            f"the two batches of a pair must be of one size, got {len(one[0])} and {len(other[0])} examples: "
            "let the loader drop its last, smaller batch"
        )


def _kinds(found: list[Tensor]) -> str:
    return ", ".join(f"{t.ndim}-d {str(t.dtype).removeprefix('torch.')}" for t in found) or "no tensors"
