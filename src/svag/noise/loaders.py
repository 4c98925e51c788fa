"""Where a DataLoader is in its data: the generators and samplers that drawing batches moves on."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import torch
from torch.utils.data import DataLoader


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


def _owners(batches: Iterable[object]) -> list[object]:
    if not isinstance(batches, DataLoader):
        return []
    inner = getattr(batches.batch_sampler, "sampler", None)
    return [batches, batches.sampler, batches.batch_sampler, inner]
