"""`fashion-small`, embedded: 10,000 + 10,000 images of Fashion-MNIST at 14×14, so that everything runs at once."""

import lzma
from importlib import resources

import numpy as np

from svag.lab.data.arrays import Arrays

NAME = "fashion-small"
TITLE = "14×14 grey, 10 classes of clothes"
COUNT = 10_000
SIDE = 14


def pack(arrays: Arrays) -> bytes:
    """Return the embedded file: training images, test images, training labels, test labels, as one compressed block."""
    parts = (arrays.train_x, arrays.test_x, arrays.train_y.astype(np.uint8), arrays.test_y.astype(np.uint8))
    return lzma.compress(b"".join(part.tobytes() for part in parts), preset=9 | lzma.PRESET_EXTREME)


def reduce(arrays: Arrays) -> Arrays:
    """Return the first 10,000 images of each half of Fashion-MNIST by means over 2×2 pixels, rounded half up."""
    train_x, test_x = (
        ((x[:COUNT].reshape(-1, 1, SIDE, 2, SIDE, 2).sum((3, 5), dtype=np.uint16) + 2) // 4).astype(np.uint8)
        for x in (arrays.train_x, arrays.test_x)
    )
    return Arrays(train_x, arrays.train_y[:COUNT], test_x, arrays.test_y[:COUNT], arrays.num_classes)


def read_small() -> Arrays:
    """Read the embedded data."""
    packed = resources.files("svag.lab.data").joinpath("fashion_small.xz").read_bytes()
    flat = np.frombuffer(lzma.decompress(packed), np.uint8)
    images, labels = np.split(flat, [2 * COUNT * SIDE**2])
    train_x, test_x = images.reshape(2, COUNT, 1, SIDE, SIDE)
    train_y, test_y = labels.reshape(2, COUNT).astype(np.int64)
    return Arrays(train_x, train_y, test_x, test_y, 10)
