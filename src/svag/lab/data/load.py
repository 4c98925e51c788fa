"""`load_data`: any data set by its name, ready for training."""

from pathlib import Path

import torch

from svag.lab.data import members, small
from svag.lab.data.dataset import DataSet
from svag.lab.data.npz import read_npz
from svag.lab.data.places import data_folder
from svag.lab.data.prepare import prepare
from svag.lab.data.sources import SOURCES

DATA_NAMES = (small.NAME, *SOURCES, "npz")
"""The data sets there are; `npz` is a user's own."""


def load_data(
    name: str,
    *,
    path: Path | str | None = None,
    data_dir: Path | str | None = None,
    subset: int | None = None,
    subset_seed: int = 0,
    pool: int = 1,
    normalise: bool = True,
    device: torch.device | str = "cpu",
) -> DataSet:
    """Load a data set onto a device, fetching its official files when they are not in the data folder.

    >>> print(load_data("fashion-small", subset=500, pool=2))
    fashion-small: 500 training and 10000 test examples of 1×7×7, 10 classes

    Args:
        name: `fashion-small`, `fashion-mnist`, `cifar10`, `cifar100`, `svhn` or `npz`.
        path: the file of an `npz`.
        data_dir: the data folder; $SVAG_DATA or the user's cache when None.
        subset: how many training examples to keep; all when None.
        subset_seed: which ones; independent of the seed of a run, so that the arms of a comparison share their data.
        pool: side of the squares of pixels that are averaged.
        normalise: whether to normalise each channel: by the paper's numbers for CIFAR, else by the training images.
        device: where the tensors shall be.
    """
    if name not in DATA_NAMES:
        raise ValueError(f"no data set is called {name!r}: there are {', '.join(DATA_NAMES)}")
    if (path is None) == (name == "npz"):
        raise ValueError("npz needs the path of your file" if name == "npz" else f"{name} takes no path: leave it out")
    mean = std = None
    if path is not None:
        arrays = read_npz(Path(path))
    elif name == small.NAME:
        arrays = small.read_small()
    else:
        source = SOURCES[name]
        arrays, mean, std = members.read(source, data_folder(data_dir)), source.mean, source.std
    return prepare(
        arrays, name, subset=subset, subset_seed=subset_seed, pool=pool, normalise=normalise, mean=mean, std=std
    ).to(device)
