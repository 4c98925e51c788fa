"""From arrays in a file to tensors for training: subset, average pooling, normalisation. Once, before the run."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from svag.lab.data.arrays import Arrays
from svag.lab.data.dataset import DataSet
from svag.records.refusal import SpecError


def prepare(
    arrays: Arrays,
    name: str,
    *,
    subset: int | None = None,
    subset_seed: int = 0,
    pool: int = 1,
    normalise: bool = True,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> DataSet:
    r"""Cut, pool and normalise.

    $$x \leftarrow (\operatorname{mean}_{pool\times pool}(x)/255 - \text{mean}) / \text{std}$$

    where bytes are divided by 255 and floats are not, and mean and std are per channel: the ones given, else those of
    all training images before pooling. `normalise=False` leaves that last step out.

    Args:
        arrays: what a reader has returned.
        name: what the data set is called.
        subset: how many training examples to keep; all when None. The test set stays whole.
        subset_seed: which ones. The subsets of one seed are nested, and drawn without looking at labels.
        pool: side of the squares that are averaged; it must divide height and width.
        normalise: whether to subtract the mean and divide by the standard deviation.
        mean: per channel, for values in [0, 1].
        std: per channel, for values in [0, 1].
    """
    n = len(arrays.train_x)
    keep = np.arange(n) if subset is None else np.sort(_chosen(n, subset, subset_seed))
    height, width = arrays.train_x.shape[2:]
    if pool < 1 or height % pool or width % pool:
        raise SpecError("data.pool", f"must divide the image size {height}×{width}, got {pool}")
    scale = 255.0 if arrays.train_x.dtype == np.uint8 else 1.0
    if not normalise:
        mean, std = [0.0] * arrays.train_x.shape[1], [1.0] * arrays.train_x.shape[1]
    elif mean is None or std is None:
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
    """Return mean and standard deviation of each channel, of bytes divided by 255; exact sums for bytes.

    A channel that never changes gets the standard deviation 1.
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


def _chosen(n: int, subset: int, seed: int) -> NDArray[np.int64]:
    if not 1 <= subset <= n:
        raise SpecError("data.subset", f"must lie between 1 and the {n} training examples, got {subset}")
    return np.random.default_rng(seed).permutation(n)[:subset]


def _pooled(x: Tensor, pool: int) -> Tensor:
    """Sums over pool × pool squares, exact for bytes."""
    return x.float() if pool == 1 else nn.functional.avg_pool2d(x.float(), pool, divisor_override=1)
