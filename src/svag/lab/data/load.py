"""`load_data`: any data set by its name, as four tensors on a device, reduced, pooled and normalised before a run.

`load_text` does the same for a text, as windows of characters.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from svag.lab.data import downloads, sources
from svag.lab.data.downloads import data_folder
from svag.lab.data.formats import Arrays, read_npz
from svag.lab.data.sources import SOURCES
from svag.lab.specs.fields import SpecError
from svag.lab.specs.text import TEXTS


@dataclass(frozen=True, eq=False)
class DataSet:
    """Training and test examples, normalised, on one device.

    Attributes:
        name: name of the data set in specs and records.
        train_x: float32 images (n, channels, height, width); vectors are images of one pixel. For a text, int64
            characters (n, context).
        train_y: int64 labels (n,); for a text, the next characters (n, context).
        test_x: like `train_x`.
        test_y: like `train_y`.
        num_classes: labels are 0 … num_classes − 1.
        black: normalised value of zero, per channel; augmentation pads with it.
        layout: memory layout of the images, which the strides of images with one channel do not tell.
    """

    name: str
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    num_classes: int
    black: Tensor
    layout: torch.memory_format = torch.contiguous_format

    @property
    def in_channels(self) -> int:
        """Channels of an image, features of a vector, or characters of a window."""
        return self.train_x.shape[1]

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of an image; 1 and 1 for a vector and for a window of characters."""
        return (1, 1) if self.is_text else (self.train_x.shape[2], self.train_x.shape[3])

    @property
    def is_text(self) -> bool:
        """Whether every example has a label at each of its positions."""
        return self.train_y.dim() > 1

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.train_x.device

    def to(self, device: torch.device | str) -> "DataSet":
        """Return the same data on another device."""
        return replace(
            self,
            train_x=self.train_x.to(device),
            train_y=self.train_y.to(device),
            test_x=self.test_x.to(device),
            test_y=self.test_y.to(device),
            black=self.black.to(device),
        )

    def laid_out(self, layout: torch.memory_format) -> "DataSet":
        """Return the same data with images in this memory layout, which batches keep."""
        if layout is self.layout:
            return self
        train_x, test_x = (images.to(memory_format=layout) for images in (self.train_x, self.test_x))
        return replace(self, train_x=train_x, test_x=test_x, layout=layout)

    def batch(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return images and labels of some training examples."""
        # index_select is several times faster than [rows], but only along the memory order
        if self.layout is torch.channels_last:
            images = self.train_x.permute(0, 2, 3, 1).index_select(0, rows).permute(0, 3, 1, 2)
        else:
            images = self.train_x.index_select(0, rows)
        return images, self.train_y.index_select(0, rows)

    def __str__(self) -> str:
        if self.is_text:
            return (
                f"{self.name}: {len(self.train_x)} training and {len(self.test_x)} test windows of {self.in_channels} "
                f"characters, {self.num_classes} of them distinct"
            )
        shape = "×".join(map(str, self.train_x.shape[1:]))
        return (
            f"{self.name}: {len(self.train_x)} training and {len(self.test_x)} test examples of {shape}, "
            f"{self.num_classes} classes"
        )


def to_dataset(
    arrays: Arrays,
    name: str,
    *,
    subset: int | None = None,
    pool: int = 1,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> DataSet:
    r"""Reduce, pool and normalise.

    $$x \leftarrow (\operatorname{mean}_{pool\times pool}(x)/255 - \text{mean}) / \text{std}$$

    where bytes are divided by 255 and floats are not, and mean and std are per channel: the given ones, otherwise those
    of all training images before pooling.

    Args:
        arrays: images and labels.
        name: name of the data set.
        subset: number of training examples to keep; all when None. Subsets are nested and do not depend on the labels
            or on the seed of a run, so that the arms of a comparison share their data. The test set stays whole.
        pool: side of the squares that are averaged; it must divide height and width.
        mean: per channel, for values in [0, 1].
        std: per channel, for values in [0, 1].
    """
    n = len(arrays.train_x)
    keep = np.arange(n) if subset is None else np.sort(_chosen(n, subset))
    height, width = arrays.train_x.shape[2:]
    if pool < 1 or height % pool or width % pool:
        raise SpecError("data.pool", f"must divide the image size {height}×{width}, got {pool}")
    scale = 255.0 if arrays.train_x.dtype == np.uint8 else 1.0
    if mean is None or std is None:
        mean, std = channel_moments(arrays.train_x)
    shift, spread = (torch.tensor(values, dtype=torch.float32).view(1, -1, 1, 1) for values in (mean, std))

    def tensor(x: NDArray[np.uint8] | NDArray[np.float32]) -> Tensor:
        pooled = _pooled(torch.from_numpy(np.array(x)), pool)
        return pooled.div_(scale * pool**2).sub_(shift).div_(spread)

    return DataSet(
        name,
        tensor(arrays.train_x[keep]),
        torch.from_numpy(arrays.train_y[keep]),
        tensor(arrays.test_x),
        torch.from_numpy(np.array(arrays.test_y)),
        arrays.num_classes,
        (-shift / spread).flatten(),
    )


def channel_moments(x: NDArray[np.uint8] | NDArray[np.float32]) -> tuple[list[float], list[float]]:
    """Return mean and standard deviation of each channel; bytes are divided by 255, and their sums are exact.

    A constant channel gets the standard deviation 1.
    """
    axes, n = (0, 2, 3), x.size // x.shape[1]
    if x.dtype == np.uint8:
        total = x.sum(axes, dtype=np.int64)
        squares = np.multiply(x, x, dtype=np.uint16).sum(axes, dtype=np.int64)
        mean = total / (255 * n)
        spread = [math.sqrt(n * int(q) - int(t) ** 2) / (255 * n) for t, q in zip(total, squares, strict=True)]
        std = np.array(spread)
    else:
        mean, std = x.mean(axes, dtype=np.float64), x.std(axes, dtype=np.float64)
    return mean.tolist(), np.where(std > 0, std, 1.0).tolist()


def _chosen(n: int, subset: int) -> NDArray[np.int64]:
    if not 1 <= subset <= n:
        raise SpecError("data.subset", f"must lie between 1 and the {n} training examples, got {subset}")
    return np.random.default_rng(0).permutation(n)[:subset]


def _pooled(x: Tensor, pool: int) -> Tensor:
    """Sums over pool × pool squares, exact for bytes."""
    return x.float() if pool == 1 else nn.functional.avg_pool2d(x.float(), pool, divisor_override=1)


DATA_NAMES = (sources.NAME, *SOURCES, "npz")
"""Names of the data sets; `npz` is a user's own."""


def load_data(
    name: str,
    *,
    path: Path | str | None = None,
    data_dir: Path | str | None = None,
    subset: int | None = None,
    pool: int = 1,
    device: torch.device | str = "cpu",
) -> DataSet:
    """Load a data set onto a device; official files that are not in the data folder are downloaded.

    CIFAR and SVHN are normalised by the numbers of the paper's authors, other data by the training images.

    >>> print(load_data("fashion-small", subset=500, pool=2))
    fashion-small: 500 training and 10000 test examples of 1×7×7, 10 classes

    Args:
        name: `fashion-small`, `fashion-mnist`, `cifar10`, `cifar100`, `svhn` or `npz`.
        path: the npz file.
        data_dir: the data folder; $SVAG_DATA or the user's cache when None.
        subset: number of training examples to keep; all when None.
        pool: side of the squares of pixels that are averaged.
        device: device of the tensors.
    """
    if name not in DATA_NAMES:
        raise ValueError(f"no data set is called {name!r}: there are {', '.join(DATA_NAMES)}")
    if (path is None) == (name == "npz"):
        raise ValueError("npz needs the path of your file" if name == "npz" else f"{name} takes no path: leave it out")
    mean = std = None
    if path is not None:
        arrays = read_npz(Path(path))
    elif name == sources.NAME:
        arrays = sources.read_small()
    else:
        source = SOURCES[name]
        arrays, mean, std = downloads.read(source, data_folder(data_dir)), source.mean, source.std
    return to_dataset(arrays, name, subset=subset, pool=pool, mean=mean, std=std).to(device)


def load_text(name: str, context: int, *, subset: int | None = None, device: torch.device | str = "cpu") -> DataSet:
    """Load a text onto a device as windows of characters that do not overlap, with the next characters as labels.

    >>> print(load_text("moby-dick", context=64, subset=500))
    moby-dick: 500 training and 1861 test windows of 64 characters, 81 of them distinct

    Characters are numbered in the order of their code points. The last tenth of the text is the test set.

    Args:
        name: `moby-dick`.
        context: number of characters in a window.
        subset: number of training windows to keep; all when None.
        device: device of the tensors.
    """
    facts, text = TEXTS[name], sources.read_text(name)
    vocabulary, numbers = np.unique(np.array(list(text)), return_inverse=True)
    windows = [
        (part[: count * context].reshape(count, context), part[1 : count * context + 1].reshape(count, context))
        for part, count in zip(np.split(numbers, [facts.test_from]), facts.windows(context), strict=True)
    ]
    (train_x, train_y), (test_x, test_y) = windows
    keep = np.arange(len(train_x)) if subset is None else np.sort(_chosen(len(train_x), subset))

    def tensor(part: NDArray[np.intp]) -> Tensor:
        return torch.from_numpy(part.astype(np.int64))

    train = tensor(train_x[keep]), tensor(train_y[keep])
    return DataSet(name, *train, tensor(test_x), tensor(test_y), len(vocabulary), torch.zeros(1)).to(device)
