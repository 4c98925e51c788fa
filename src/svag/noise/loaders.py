"""What a DataLoader tells about its batches: where it is in its data, and whether one epoch shares it out."""

from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, SequentialSampler


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
