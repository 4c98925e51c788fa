"""What a batch is, its mean loss and gradient, and what a DataLoader says about its batches.

A batch is a tensor, or nested tuples, lists and mappings of tensors, whose leading dimension counts the examples.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, SequentialSampler

from svag.theory import domain

Batch = TypeVar("Batch")


def batch_size_of(batch: object) -> int:
    """Leading dimension of the first tensor in `batch`."""
    first = batch[0] if isinstance(batch, list | tuple) and batch else batch
    if (
        isinstance(first, Tensor) and first.ndim and (size := first.shape[0])
    ):  # nearly always: it takes a third of the time
        return size
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


def divisors(pieces: Sequence[object], weights: Tensor | Sequence[float] | None, size: int) -> list[float]:
    """Return what to divide the mean loss of each piece by, so that the quotients add up to the mean loss of the batch.

    Args:
        pieces: the batch, cut.
        weights: one number per piece, or per example; None counts the examples.
        size: examples of the batch.

    >>> batch = torch.zeros(4, 1).split(2)
    >>> divisors(batch, None, 4), divisors(batch, [3, 1], 4), divisors(batch, [2, 1, 1, 0], 4)
    ([2.0, 2.0], [1.3333333333333333, 4.0], [1.3333333333333333, 4.0])
    """
    sizes = [batch_size_of(piece) for piece in pieces]
    if weights is None:
        return [size / count for count in sizes]
    found = torch.as_tensor(weights, dtype=torch.float64).reshape(-1)
    if len(found) == size:
        found = torch.stack([some.sum() for some in found.split(sizes)])
    if len(found) != len(pieces):
        raise ValueError(
            f"weights must be one number per example ({size}) or per part ({len(pieces)}), got {len(found)}"
        )
    shares = [domain.non_negative("weights", weight) for weight in found.tolist()]
    if not sum(shares):
        raise ValueError("all weights of a batch are 0: it has nothing to average over, leave it out")
    return [sum(shares) / share if share else math.inf for share in shares]


@dataclass(frozen=True)
class Cutting:
    """How a probe cuts the batches of a run, and which batches it refuses.

    Attributes:
        batch_size: examples of one step, on all ranks.
        ranks: how many ranks have a share of them.
        uneven: whether the shares of the ranks may differ in size.
        at_least: minimum number of parts per rank.
    """

    batch_size: int
    ranks: int = 1
    uneven: bool = False
    at_least: int = 2

    def is_short(self, size: int) -> bool:
        """Whether a rank's batch has fewer examples than the others."""
        return not self.uneven and size * self.ranks < self.batch_size

    def pieces(self, batch: Batch, parts: int, *, measured: bool, short: bool) -> list[Batch]:
        """Return what to back-propagate: a rank's batch in parts if the step is measured, otherwise whole."""
        if measured:
            return self._short_pieces(batch, parts) if short else self._parts(batch, parts)
        if not short:
            self._refuse_other_size(batch_size_of(batch))
        return [batch]

    def warn_of_short(self, size: int, epoch: int | None = None) -> None:
        """Warn once that a short batch was back-propagated without a reading; it still counts as a step.

        A short batch ends an epoch: if the number of examples in that `epoch` is known, also warn of a missing
        population.
        """
        missing = "" if epoch is None else without_population(self.batch_size, epoch)
        warnings.warn(
            f"a batch of {size} examples, fewer than batch_size={self.batch_size}, was back-propagated without a "
            f"reading, and so will the next ones; drop_last=True leaves them out{f'; {missing}' if missing else ''}",
            stacklevel=3,
        )

    def _parts(self, batch: Batch, parts: int) -> list[Batch]:
        """Cut a rank's batch into equal parts."""
        size = batch_size_of(batch)
        self._refuse_other_size(size)
        if self.uneven and self.batch_size * domain.whole("parts", parts) % size:
            raise ValueError(
                f"{parts} parts of {size} examples on this rank do not divide batch_size={self.batch_size} into parts "
                "of one size: give ranks whole parts"
            )
        if domain.whole("parts", parts, at_least=0) < self.at_least:
            raise ValueError(f"parts must be at least 2, got {parts}: one gradient cannot tell signal from noise")
        return split(batch, int(parts))

    def _short_pieces(self, batch: Batch, parts: int) -> list[Batch]:
        """Cut a short batch into pieces no larger than the parts of a full batch, which are known to fit in memory."""
        part = self.batch_size / self.ranks / domain.whole("parts", parts)
        return in_pieces(batch, math.ceil(batch_size_of(batch) / part))

    def _refuse_other_size(self, size: int) -> None:
        """Refuse a batch that is not a rank's share of a step."""
        if self.uneven and size >= self.batch_size:
            raise ValueError(
                f"one of {self.ranks} ranks has {size} examples, and batch_size={self.batch_size} is that of all ranks "
                "together: give every rank its own share of the batch"
            )
        if not self.uneven and size * self.ranks != self.batch_size:
            where = f" on each of {self.ranks} ranks" if self.ranks > 1 else ""
            raise ValueError(
                f"the batch has {size} examples{where}, but the probe was made for batch_size={self.batch_size}: use "
                "drop_last=True, or make the probe with the size of one optimizer step"
            )


def resized(batch: Batch, size: int) -> Batch:
    """Return a batch of `size` examples: those of `batch` in order, repeated from the start if there are too few.

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
    """Apply `change` to every tensor of `size` rows and keep the structure; refuse other contents with a remedy."""

    def walk(value: object) -> object:
        if isinstance(value, Tensor):
            if value.ndim and value.shape[0] != size:
                raise ValueError(
                    f"a tensor of the batch has {value.shape[0]} rows where the first has {size}: {remedy}"
                )
            return change(value) if value.ndim else value
        if isinstance(value, Mapping):
            return {key: walk(item) for key, item in value.items()}
        if isinstance(value, tuple) and type(value) is not tuple:  # a named tuple
            return type(value)(*map(walk, value))  # type: ignore[arg-type]
        if isinstance(value, list | tuple):
            return type(value)(map(walk, value))
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise TypeError(f"a batch with a {type(value).__name__} in it cannot be cut: {remedy}")

    return walk(batch)  # type: ignore[return-value]  # the same structure


def mean_loss(loss_fn: Callable[[Batch], Tensor], batch: Batch) -> Tensor:
    """Return `loss_fn(batch)`; refuse an empty batch, and a loss that is not a single number with a gradient."""
    with suppress(TypeError):  # a loss function may take something without tensors
        batch_size_of(batch)
    return scalar_loss(loss_fn, batch)


def scalar_loss(loss_fn: Callable[[Batch], Tensor], batch: Batch) -> Tensor:
    """Return `loss_fn(batch)`, or refuse what is not one number with a gradient."""
    try:
        loss = loss_fn(batch)
    except TypeError as error:
        if not _takes_one(loss_fn):
            raise TypeError(
                f"loss_fn takes the batch as one argument, and this one cannot be called so ({error}): write "
                "lambda batch: loss_fn(*batch) if it takes the elements of a tuple, **batch for those of a mapping, or "
                "lambda batch: loss_fn(model(batch[0]), batch[1]) if it takes outputs and targets"
            ) from error
        raise
    if not isinstance(loss, Tensor):
        raise TypeError(f"loss_fn must return a tensor, got {type(loss).__name__}")
    if loss.numel() != 1:
        raise ValueError(f"loss_fn must return the mean loss as a scalar, got shape {tuple(loss.shape)}: take its mean")
    if not loss.requires_grad:
        raise ValueError(
            "the loss does not depend on any trainable parameter: is it computed under no_grad or detached?"
        )
    return loss.reshape(()) if loss.ndim else loss  # a reshape would add a node to the backward pass


def refuse_swapped(loss_fn: object, batch: object) -> None:
    """Refuse a loss function and a batch that were given in the wrong order."""
    if not callable(loss_fn):
        remedy = ": swap the two, the loss function comes first" if callable(batch) else ""
        raise TypeError(f"loss_fn must be a function of a batch, got a {type(loss_fn).__name__}{remedy}")


def _takes_one(function: Callable[..., object]) -> bool:
    """Whether a function can be called with one argument; True where Python cannot tell."""
    try:
        # a module hands whatever it is given on to its forward
        signature(function.forward if isinstance(function, nn.Module) else function).bind(None)
    except ValueError:
        return True
    except TypeError:
        return False
    return True


def gradients_of(loss: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """Gradient of a loss, 0 where it does not depend on a parameter; `.grad` is left alone.

    A loss that depends on none of the parameters is refused: it belongs to another model, such as a copy.
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


# Warn of a missing population when a batch is at least this share of an epoch: N is too large by about as much.
_SHARE = 0.02


def without_population(batch_size: int, epoch: int | None) -> str:
    """Say how wrong N is without population=, if a loop shows the size of an epoch; empty if the error is small.

    >>> without_population(256, 1024)
    'an epoch seems to have 1024 examples: give population=1024, or N comes out 1.33 times too large'
    >>> without_population(256, 50_000), without_population(256, None)
    ('', '')
    """
    if epoch is None or not _SHARE * epoch <= batch_size < epoch:
        return ""
    return (
        f"an epoch seems to have {epoch} examples: give population={epoch}, or N comes out "
        f"{epoch / (epoch - batch_size):.3g} times too large"
    )


def epoch_size(batches: Iterable[object]) -> int | None:
    """Number of examples that a DataLoader divides into disjoint batches; None for any other source of batches."""
    if not isinstance(batches, DataLoader) or not isinstance(batches.batch_sampler, BatchSampler):
        return None
    # Accelerate puts another sampler of batches around that of the loader, to share the batches out among ranks
    inner = getattr(batches.batch_sampler, "batch_sampler", batches.batch_sampler)
    order, examples = getattr(inner, "sampler", None), batches.dataset
    once = isinstance(order, SequentialSampler | DistributedSampler) or (
        isinstance(order, RandomSampler) and not order.replacement
    )
    return len(examples) if once and isinstance(examples, Sized) else None


def _owners(batches: Iterable[object]) -> list[object]:
    if not isinstance(batches, DataLoader):
        return []
    inner = getattr(batches.batch_sampler, "sampler", None)
    return [batches, batches.sampler, batches.batch_sampler, inner]
