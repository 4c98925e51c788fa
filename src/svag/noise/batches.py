"""What a batch is, its mean loss and gradient, and what a DataLoader tells about its batches.

A batch is a tensor, or nested tuples, lists and mappings of tensors, whose leading dimension counts the examples.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, SequentialSampler

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
    return in_pieces(batch, parts)


def in_pieces(batch: Batch, pieces: int) -> list[Batch]:
    """Cut a batch into consecutive pieces whose sizes differ by at most one, the larger first; without copying.

    >>> [len(piece) for piece in in_pieces(torch.zeros(17, 2), 3)]
    [6, 6, 5]
    """
    size = batch_size_of(batch)
    remedy = "cut the batch yourself and use micro_batch() and close_step()"
    sizes = [size // pieces + (piece < size % pieces) for piece in range(pieces)]
    starts = [sum(sizes[:piece]) for piece in range(pieces)]
    return [
        _each(batch, size, partial(torch.narrow, dim=0, start=at, length=count), remedy)
        for at, count in zip(starts, sizes, strict=True)
    ]


def resized(batch: Batch, size: int) -> Batch:
    """A batch of `size` examples: those of `batch` in order, from the start again when they run out.

    >>> resized((torch.tensor([1, 2, 3]), "mean"), 5)
    (tensor([1, 2, 3, 1, 2]), 'mean')
    """
    length = batch_size_of(batch)
    taken = torch.arange(size) % length
    return _each(
        batch, length, lambda rows: rows[taken.to(rows.device)], "give a batch of tensors with one row per example"
    )


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


def _each(batch: Batch, size: int, change: Callable[[Tensor], Tensor], remedy: str) -> Batch:
    """The same structure with every tensor of `size` rows changed; what cannot be changed is refused with a remedy."""

    def walk(value: object) -> object:
        if isinstance(value, Tensor):
            if value.ndim and value.shape[0] != size:
                raise ValueError(
                    f"a tensor of the batch has {value.shape[0]} rows where the first has {size}: {remedy}"
                )
            return change(value) if value.ndim else value
        if isinstance(value, Mapping):
            return {key: walk(one) for key, one in value.items()}
        if isinstance(value, tuple) and type(value) is not tuple:  # a named tuple
            return type(value)(*map(walk, value))  # type: ignore[arg-type]
        if isinstance(value, list | tuple):
            return type(value)(map(walk, value))
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise TypeError(f"a batch with a {type(value).__name__} in it cannot be cut: {remedy}")

    return walk(batch)  # type: ignore[return-value]  # the same structure


def mean_loss(loss_fn: Callable[[Batch], Tensor], batch: Batch) -> Tensor:
    """Return `loss_fn(batch)`, or refuse what is not one number with a gradient."""
    loss = loss_fn(batch)
    if not isinstance(loss, Tensor):
        raise TypeError(f"loss_fn must return a tensor, got {type(loss).__name__}")
    if loss.numel() != 1:
        raise ValueError(f"loss_fn must return the mean loss as a scalar, got shape {tuple(loss.shape)}: take its mean")
    if not loss.requires_grad:
        raise ValueError(
            "the loss does not depend on any trainable parameter: is it computed under no_grad or detached?"
        )
    return loss.reshape(())


def gradients_of(loss: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """Gradient of a loss, 0 where it does not depend on a parameter; `.grad` is left alone.

    A loss that depends on none of them is one of another model, a copy perhaps: refused.
    """
    found: tuple[Tensor | None, ...] = torch.autograd.grad(loss, list(parameters), allow_unused=True)
    if all(gradient is None for gradient in found):
        raise ValueError(
            "the loss does not depend on any of the measured parameters: give the model that loss_fn uses, not a copy"
        )
    return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]


@runtime_checkable
class Stateful(Protocol):
    """A sampler whose position can be saved, such as `svag.BatchSampler`."""

    def state_dict(self) -> dict[str, Any]: ...  # noqa: D102
    def load_state_dict(self, state: dict[str, Any]) -> None: ...  # noqa: D102


@contextmanager
def kept_position(batches: Iterable[object]) -> Iterator[None]:
    """Put the samplers and generators of a DataLoader back to where they were; anything else is left alone."""
    owners = _owners(batches)
    saved = [(owner, owner.state_dict()) for owner in owners if isinstance(owner, Stateful)]
    found = [getattr(owner, "generator", None) for owner in owners]
    states = [(g, g.get_state()) for g in found if isinstance(g, torch.Generator)]
    try:
        yield
    finally:
        for generator, before in states:
            generator.set_state(before)
        for owner, state in saved:
            owner.load_state_dict(state)


def epoch_size(batches: Iterable[object]) -> int | None:
    """Number of examples that a DataLoader shares out among disjoint batches; None if it does not, or is none."""
    if not isinstance(batches, DataLoader) or not isinstance(batches.batch_sampler, BatchSampler):
        return None
    order, examples = batches.batch_sampler.sampler, batches.dataset
    once = isinstance(order, SequentialSampler | DistributedSampler) or (
        isinstance(order, RandomSampler) and not order.replacement
    )
    return len(examples) if once and isinstance(examples, Sized) else None


def _owners(batches: Iterable[object]) -> list[object]:
    if not isinstance(batches, DataLoader):
        return []
    inner = getattr(batches.batch_sampler, "sampler", None)
    return [batches, batches.sampler, batches.batch_sampler, inner]
