"""What a batch is: nested tuples, lists and mappings of tensors whose leading dimension counts the examples."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

from torch import Tensor

Batch = TypeVar("Batch")


def batch_size_of(batch: object) -> int:
    """Leading dimension of the first tensor in `batch`."""
    for tensor in tensors_of(batch):
        if tensor.ndim:
            if not tensor.shape[0]:
                raise ValueError("the batch is empty: its first tensor has 0 examples")
            return tensor.shape[0]
    raise TypeError(f"a batch must hold a tensor of examples, got {type(batch).__name__}")


def split(batch: Batch, parts: int) -> list[Batch]:
    """Cut a batch into equal consecutive parts without copying.

    Tensors are cut along their leading dimension; numbers, strings and None are handed to every part.
    """
    size = batch_size_of(batch)
    if parts < 1 or size % parts:
        raise ValueError(f"parts must divide the batch: {size} examples cannot be cut into {parts} equal parts")
    length = size // parts
    return [_cut(batch, size, part * length, length) for part in range(parts)]


def tensors_of(batch: object) -> Iterator[Tensor]:
    """Every tensor in `batch`, in order."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from tensors_of(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from tensors_of(value)


def _cut(batch: Batch, size: int, start: int, length: int) -> Batch:
    piece: object
    if isinstance(batch, Tensor):
        if batch.ndim and batch.shape[0] != size:
            raise ValueError(
                f"a tensor of the batch has {batch.shape[0]} rows where the first has {size}: cut the batch "
                "yourself and use micro_batch() and close_step()"
            )
        piece = batch.narrow(0, start, length) if batch.ndim else batch
    elif isinstance(batch, Mapping):
        piece = {key: _cut(value, size, start, length) for key, value in batch.items()}
    elif isinstance(batch, tuple) and type(batch) is not tuple:  # a named tuple
        piece = type(batch)(*(_cut(value, size, start, length) for value in batch))
    elif isinstance(batch, list | tuple):
        piece = type(batch)(_cut(value, size, start, length) for value in batch)
    elif batch is None or isinstance(batch, bool | int | float | str):
        piece = batch
    else:
        raise TypeError(
            f"a batch with a {type(batch).__name__} in it cannot be cut: cut it yourself and use micro_batch() and "
            "close_step()"
        )
    return piece  # type: ignore[return-value]  # the same structure, one part of it
