"""The data sets: official files with their checksums, and the embedded `fashion-small` and `moby-dick`.

The checksums of Fashion-MNIST, CIFAR-10 and CIFAR-100 are published by their authors, those of SVHN by torchvision.
Those of unpacked files were computed from copies of Fashion-MNIST and CIFAR-10. There are none for CIFAR-100, whose
unpacked files are checked by their size and labels only. `fashion-small` has 10,000 + 10,000 images of Fashion-MNIST at
14×14, so that everything can be tried without a download; `tools/make_fashion_small.py` makes it.
"""

import lzma
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources

import numpy as np

from svag.lab.data.formats import Arrays, read_cifar, read_idx, read_svhn


@dataclass(frozen=True)
class Member:
    """One file of a data set, unpacked."""

    name: str
    md5: str | None


@dataclass(frozen=True)
class Download:
    """One file that can be downloaded, and the files in it."""

    url: str
    md5: str
    megabytes: float
    members: tuple[Member, ...]

    @property
    def filename(self) -> str:
        """The name under which it is stored."""
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class Source:
    """A data set and its official files; `examples` counts training and test images."""

    name: str
    title: str
    folder: str
    examples: tuple[int, int]
    downloads: tuple[Download, ...]
    read: Callable[[Mapping[str, bytes]], Arrays]
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    @property
    def megabytes(self) -> float:
        """Size of all downloads."""
        return sum(download.megabytes for download in self.downloads)


def _read_fashion(files: Mapping[str, bytes]) -> Arrays:
    images, labels = ({split: read_idx(files[f"{split}-{kind}"]) for split in ("train", "t10k")} for kind in _IDX)
    if any(x.ndim != 3 for x in images.values()) or any(y.ndim != 1 for y in labels.values()):
        raise ValueError("its IDX files are not images and labels")
    train_y, test_y = labels["train"].astype(np.int64), labels["t10k"].astype(np.int64)
    return Arrays(images["train"][:, None], train_y, images["t10k"][:, None], test_y, 10)


def _read_cifar10(files: Mapping[str, bytes]) -> Arrays:
    parts = [read_cifar(files[f"data_batch_{number}.bin"], 1) for number in range(1, 6)]
    train_x, train_y = (np.concatenate(pieces) for pieces in zip(*parts, strict=True))
    return Arrays(train_x, train_y, *read_cifar(files["test_batch.bin"], 1), 10)


def _read_cifar100(files: Mapping[str, bytes]) -> Arrays:
    return Arrays(*read_cifar(files["train.bin"], 2), *read_cifar(files["test.bin"], 2), 100)


def _read_svhn(files: Mapping[str, bytes]) -> Arrays:
    return Arrays(*read_svhn(files["train_32x32.mat"]), *read_svhn(files["test_32x32.mat"]), 10)


_IDX = ("images-idx3-ubyte", "labels-idx1-ubyte")
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_CIFAR = "https://www.cs.toronto.edu/~kriz"
_SVHN = "http://ufldl.stanford.edu/housenumbers"
# The numbers with which the paper's authors normalise. Fashion-MNIST is normalised by its own training images.
_CIFAR_MEAN, _CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
_HALF = (0.5, 0.5, 0.5)


def _fashion(name: str, gz_md5: str, megabytes: float, md5: str) -> Download:
    return Download(f"{_FASHION}/{name}.gz", gz_md5, megabytes, (Member(name, md5),))


def _svhn(name: str, md5: str, megabytes: float) -> Download:
    return Download(f"{_SVHN}/{name}", md5, megabytes, (Member(name, md5),))


FASHION_MNIST = Source(
    "fashion-mnist",
    "28×28 grey, 10 classes of clothes",
    "fashion-mnist",
    (60_000, 10_000),
    (  # .gz: the README of zalandoresearch/fashion-mnist, and torchvision
        _fashion(
            "train-images-idx3-ubyte", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26.4, "f4a8712d7a061bf5bd6d2ca38dc4d50a"
        ),
        _fashion(
            "train-labels-idx1-ubyte", "25c81989df183df01b3e8a0aad5dffbe", 0.03, "9018921c3c673c538a1fc5bad174d6f9"
        ),
        _fashion("t10k-images-idx3-ubyte", "bef4ecab320f06d8554ea6380940ec79", 4.4, "8181f5470baa50b63fa0f6fddb340f0a"),
        _fashion(
            "t10k-labels-idx1-ubyte", "bb300cfdad3c16e7a12a480ee83cd310", 0.005, "15d484375f8d13e6eb1aabb0c3f46965"
        ),
    ),
    _read_fashion,
)
CIFAR10 = Source(
    "cifar10",
    "32×32 colour, 10 classes",
    "cifar-10-batches-bin",
    (50_000, 10_000),
    (
        Download(
            f"{_CIFAR}/cifar-10-binary.tar.gz",
            "c32a1d4ab5d03f1284b67883e8d87530",  # the page of the data set
            170.1,
            (
                Member("data_batch_1.bin", "5dd7e06a14cb22eb9f671a540d1b7c25"),
                Member("data_batch_2.bin", "5ea93a67294ea407fff1d09f752e9692"),
                Member("data_batch_3.bin", "942cd6a4bcdd0dd3c604fbe906cb4421"),
                Member("data_batch_4.bin", "ae636b3ba5c66a11e91e8cb52e771fcb"),
                Member("data_batch_5.bin", "53f37980c15c3d472c316c40844f3f0d"),
                Member("test_batch.bin", "803d5f7f4d78ea53de84dbe85f74fb6d"),
            ),
        ),
    ),
    _read_cifar10,
    _CIFAR_MEAN,
    _CIFAR_STD,
)
CIFAR100 = Source(
    "cifar100",
    "32×32 colour, 100 classes",
    "cifar-100-binary",
    (50_000, 10_000),
    (
        Download(
            f"{_CIFAR}/cifar-100-binary.tar.gz",
            "03b5dce01913d631647c71ecec9e9cb8",  # published in several public loaders
            168.5,
            (Member("train.bin", None), Member("test.bin", None)),
        ),
    ),
    _read_cifar100,
    _CIFAR_MEAN,
    _CIFAR_STD,
)
SVHN = Source(
    "svhn",
    "32×32 colour, 10 digits of house numbers",
    "svhn",
    (73_257, 26_032),
    (  # torchvision
        _svhn("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373", 182.0),
        _svhn("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3", 64.3),
    ),
    _read_svhn,
    _HALF,
    _HALF,
)
SOURCES: dict[str, Source] = {source.name: source for source in (FASHION_MNIST, CIFAR10, CIFAR100, SVHN)}


NAME = "fashion-small"
TITLE = "14×14 grey, 10 classes of clothes"
COUNT = 10_000
SIDE = 14


TEXT_TITLES = {"moby-dick": "Moby-Dick by Herman Melville, in characters"}
"""The embedded texts."""


def read_text(name: str) -> str:
    """Read an embedded text.

    >>> read_text("moby-dick")[22:38]
    'Call me Ishmael.'
    """
    packed = resources.files("svag.lab.data").joinpath(f"{name.replace('-', '_')}.xz").read_bytes()
    return lzma.decompress(packed).decode()


def read_small() -> Arrays:
    """Read the embedded `fashion-small`."""
    packed = resources.files("svag.lab.data").joinpath("fashion_small.xz").read_bytes()
    flat = np.frombuffer(lzma.decompress(packed), np.uint8)
    images, labels = np.split(flat, [2 * COUNT * SIDE**2])
    train_x, test_x = images.reshape(2, COUNT, 1, SIDE, SIDE)
    train_y, test_y = labels.reshape(2, COUNT).astype(np.int64)
    return Arrays(train_x, train_y, test_x, test_y, 10)
