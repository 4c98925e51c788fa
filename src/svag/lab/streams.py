"""Randomness by name: every use has its own generator, so that one never moves another."""

import hashlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

from svag.dynamics.sampler import BatchSampler
from svag.lab.augment import augment
from svag.lab.data.dataset import DataSet
from svag.records.spec import RunSpec

Batch = tuple[Tensor, Tensor]


def stream_seed(seed: int, name: str) -> int:
    """Seed of the stream `name` in a run with this seed.

    >>> stream_seed(0, "batches") != stream_seed(0, "noise") != stream_seed(1, "noise")
    True
    """
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8], "big") >> 1


def stream(seed: int, name: str) -> torch.Generator:
    """The generator of the stream `name`, on the CPU, so that a run draws the same on every device."""
    return torch.Generator().manual_seed(stream_seed(seed, name))


class BatchStream:
    """Endless batches of images and labels: index draws, then augmentation of the whole batch on the device."""

    def __init__(self, data: DataSet, spec: RunSpec, name: str, batch_size: int, *, independent: bool = False) -> None:
        """Batches of the stream `name`; `independent` ones even if the run itself goes through epochs."""
        self._data = data
        sampling = "without_replacement" if independent and spec.sampling == "shuffle" else spec.sampling
        self._sampler = BatchSampler(
            len(data.train_x), batch_size, sampling=sampling, generator=stream(spec.seed, name)
        )
        self._augment = spec.data.augment if spec.data.augmented else None
        self._changes = stream(spec.seed, f"{name}/augment")

    def draw(self) -> Batch:
        """The next batch."""
        # by way of numpy and index_select: several times cheaper than torch.tensor(list) and [rows]
        rows = torch.from_numpy(np.array(self._sampler.draw(), dtype=np.int64)).to(self._data.device)
        images, labels = self._data.train_x.index_select(0, rows), self._data.train_y.index_select(0, rows)
        if self._augment is not None:
            images = augment(
                images,
                pad=self._augment.pad,
                flip=self._augment.flip,
                black=self._data.black,
                generator=self._changes,
            )
        return images, labels

    def state_dict(self) -> dict[str, Any]:
        """Where the stream is."""
        return {"sampler": self._sampler.state_dict(), "changes": self._changes.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called."""
        self._sampler.load_state_dict(state["sampler"])
        self._changes.set_state(state["changes"])
