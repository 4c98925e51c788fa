"""Named random streams, so that one use of randomness never affects another, and the batches drawn with them.

Augmentation works on whole batches, on their device; each image is shifted and flipped independently.
"""

import hashlib
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from svag.dynamics.sampler import BatchSampler
from svag.lab.data.load import DataSet
from svag.lab.specs.spec import RunSpec

LabelledBatch = tuple[Tensor, Tensor]

# Small batches are made several at a time, up to this many batches and numbers, which still fit into the caches. A
# backward pass empties the caches, so making a single batch after it takes several times as long.
AHEAD, _NUMBERS = 32, 2**17


def stream_seed(seed: int, name: str) -> int:
    """Seed of the stream `name` in a run with this seed.

    >>> stream_seed(0, "batches") != stream_seed(0, "noise") != stream_seed(1, "noise")
    True
    """
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8], "big") >> 1


def stream(seed: int, name: str) -> torch.Generator:
    """The generator of the stream `name`, on the CPU, so that a run draws the same numbers on every device."""
    return torch.Generator().manual_seed(stream_seed(seed, name))


def own_randomness(rank: int, seed: int, occasion: str) -> None:
    """Let dropout draw other masks on this rank than on rank 0, which uses the stream of an ordinary run.

    The generator is seeded anew each time, so that its state need not be saved.
    """
    if rank:
        torch.manual_seed(stream_seed(seed, f"dropout/{rank}/{occasion}"))


class BatchStream:
    """Endless batches of inputs and labels: drawn by index, then augmented as a whole on the device.

    Batches are drawn ahead of time. The saved state holds where these began and how many were taken.
    """

    def __init__(self, data: DataSet, spec: RunSpec, name: str, batch_size: int, *, independent: bool = False) -> None:
        """Batches of the stream `name`; `independent` ones even if the run itself goes through epochs."""
        self._data = data
        sampling = "without_replacement" if independent and spec.sampling == "shuffle" else spec.sampling
        self._sampler = BatchSampler(
            len(data.train_x), batch_size, sampling=sampling, generator=stream(spec.seed, name)
        )
        self._augment = spec.data.augment if spec.data.augmented else None
        self._changes = stream(spec.seed, f"{name}/augment")
        self._ahead = min(max(_NUMBERS // (batch_size * data.train_x[0].numel()), 1), AHEAD)
        self._drawn: list[LabelledBatch] = []  # in reverse order
        self._began: dict[str, Any] = {}

    def draw(self) -> LabelledBatch:
        """The next batch."""
        if not self._drawn:
            self._began = self._position()
            self._drawn = self._make(self._ahead)[::-1]
        return self._drawn.pop()

    def state_dict(self) -> dict[str, Any]:
        """The state of the stream."""
        taken = self._ahead - len(self._drawn)
        return {**self._began, "taken": taken} if self._drawn else {**self._position(), "taken": 0}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called."""
        self._sampler.load_state_dict(state["sampler"])
        self._changes.set_state(state["changes"])
        self._drawn = []
        for _ in range(state["taken"]):
            self.draw()

    def _position(self) -> dict[str, Any]:
        return {"sampler": self._sampler.state_dict(), "changes": self._changes.get_state()}

    def _make(self, count: int) -> list[LabelledBatch]:
        """The next batches: indices drawn for one after the other, as if made singly, then looked up together."""
        size, drawn = self._sampler.batch_size, [self._sampler.draw() for _ in range(count)]
        # through numpy, which is several times faster than torch.tensor(list)
        rows = torch.from_numpy(np.array(drawn, dtype=np.int64).reshape(-1)).to(self._data.device)
        images, labels = self._data.batch(rows)
        if self._augment is not None:
            images = augment(
                images,
                pad=self._augment.pad,
                flip=self._augment.flip,
                black=self._data.black,
                generator=self._changes,
                batches=count,
            ).to(memory_format=self._data.layout)
        return list(zip(images.split(size), labels.split(size), strict=True))


def augment(
    images: Tensor, *, pad: int, flip: bool, black: Tensor, generator: torch.Generator, batches: int = 1
) -> Tensor:
    """Pad every image, crop it to its old size at a random place, and mirror it with probability ½.

    The shift is uniform on {−pad, …, pad}² and, like the mirroring, independent for every image. The draws depend only
    on the generator and on the numbers of images and batches.

    >>> image = torch.arange(4.0).reshape(1, 1, 2, 2)
    >>> augment(image, pad=1, flip=True, black=torch.zeros(1), generator=torch.Generator().manual_seed(2)).shape
    torch.Size([1, 1, 2, 2])
    >>> augment(image, pad=0, flip=False, black=torch.zeros(1), generator=torch.Generator()) is image
    True

    Args:
        images: one batch or several, (n, channels, height, width).
        pad: pixels added on each side; 0 for no shift.
        flip: whether to mirror left and right.
        black: the value of padded pixels, per channel (`DataSet.black`).
        generator: source of the draws; it may be on another device than the images.
        batches: number of equal batches in `images`; each gets the draws that it would get by itself.
    """
    if pad < 0:
        raise ValueError(f"pad must not be negative, got {pad}")
    if not pad and not flip:
        return images
    n, channels, height, width = images.shape
    choice = _choices(n // batches, batches, pad, flip, generator).to(images.device)
    chosen = _sources(height, width, pad, images.device).index_select(0, choice)
    blackened = torch.cat([images.flatten(2), black.view(1, channels, 1).expand(n, channels, 1)], dim=2)
    return blackened.gather(2, chosen.unsqueeze(1).expand(-1, channels, -1)).view_as(images)


def _choices(size: int, batches: int, pad: int, flip: bool, generator: torch.Generator) -> Tensor:
    """The row of `_sources` for each image; all draws of one batch come before those of the next."""
    places, device = 2 * pad + 1, generator.device
    shifts, mirrored = [], []
    for _ in range(batches):
        if pad:
            shifts.append(torch.randint(places, (2, size), generator=generator, device=device))
        if flip:
            mirrored.append(torch.randint(2, (size,), generator=generator, device=device))
    choice = torch.zeros((), dtype=torch.int64, device=device)
    if pad:
        down, right = torch.stack(shifts, dim=1)
        choice = down * places + right
    if flip:
        choice = choice + places**2 * torch.stack(mirrored)
    return choice.reshape(-1)


@lru_cache(maxsize=4)
def _sources(height: int, width: int, pad: int, device: torch.device) -> Tensor:
    """Index of the pixel that each pixel comes from, one row per shift and mirroring; the last index is black."""
    shifts = torch.arange(-pad, pad + 1).view(-1, 1)
    down, right = shifts + torch.arange(height), shifts + torch.arange(width)
    down, right = down.view(-1, 1, height, 1), right.view(1, -1, 1, width)
    inside = (down >= 0) & (down < height) & (right >= 0) & (right < width)
    shifted = torch.where(inside, down * width + right, height * width)
    return torch.stack([shifted, shifted.flip(3)]).view(-1, height * width).to(device)
