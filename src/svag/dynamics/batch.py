"""What a batch is: tensors, alone or in tuples, lists and dicts, with one example per row."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, TypeAlias

from torch import Tensor

Batch: TypeAlias = Any  # whatever the user's loss function takes


def tensors(batch: Batch) -> Iterator[Tensor]:
    """Every tensor in a batch, in order."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from tensors(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from tensors(value)


def size(batch: Batch) -> int:
    """Number of examples: the leading dimension of the first tensor.

    >>> import torch
    >>> size((torch.zeros(4, 2), torch.zeros(4)))
    4
    """
    first = next(tensors(batch), None)
    if first is None or first.ndim == 0:
        raise ValueError(f"a batch must hold a tensor with one example per row, got {type(batch).__name__}")
    return len(first)


def parts(batch: Batch, count: int) -> list[Batch]:
    """Cut a batch into `count` consecutive parts of nearly equal size.

    >>> import torch
    >>> [part["x"].tolist() for part in parts({"x": torch.arange(5)}, 2)]
    [[0, 1, 2], [3, 4]]
    """
    examples = size(batch)
    if count > examples:
        raise ValueError(f"a batch of {examples} examples cannot be cut into chunks={count}: lower chunks")
    longer = examples % count
    ends = [(examples // count) * j + min(j, longer) for j in range(count + 1)]
    return [rows(batch, slice(*bounds), examples) for bounds in pairwise(ends)]


def rows(batch: Batch, which: slice, examples: int) -> Batch:
    """The same batch with only these of its `examples` rows; what is not a tensor stays as it is."""
    if isinstance(batch, Tensor):
        if batch.ndim == 0 or len(batch) != examples:
            raise ValueError(
                f"every tensor of a batch of {examples} examples must have {examples} rows to be cut, "
                f"got shape {tuple(batch.shape)}: close over what all examples share"
            )
        return batch[which]
    if isinstance(batch, Mapping):
        return {key: rows(value, which, examples) for key, value in batch.items()}
    if isinstance(batch, tuple) and type(batch) is not tuple:  # a named tuple
        return type(batch)(*(rows(value, which, examples) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(rows(value, which, examples) for value in batch)
    return batch


def check_pair(first: Batch, second: Batch) -> None:
    """Refuse two batches that cannot be independent draws of one kind."""
    if first is second:
        raise ValueError("the two batches of a pair must be drawn independently, got one batch twice")
    one, other = list(tensors(first)), list(tensors(second))
    if [t.dtype for t in one] != [t.dtype for t in other]:
        raise ValueError(
            "the two batches of a pair must be alike, got tensors of "
            f"{_dtypes(one)} and of {_dtypes(other)}: if this is one batch (inputs, targets) and not a pair of "
            "batches, svag.independent_pairs(loader) makes pairs"
        )
    if {t.device for t in one} != {t.device for t in other}:
        raise ValueError(
            "the two batches of a pair must be on one device, got "
            f"{', '.join(sorted({str(t.device) for t in one + other}))}: move both before the step"
        )
    if one and one[0].ndim and other[0].ndim and len(one[0]) != len(other[0]):
        raise ValueError(
            f"the two batches of a pair must be of one size, got {len(one[0])} and {len(other[0])} examples: "
            "let the loader drop its last, smaller batch"
        )


def _dtypes(found: list[Tensor]) -> str:
    return ", ".join(str(t.dtype).removeprefix("torch.") for t in found) or "none"
