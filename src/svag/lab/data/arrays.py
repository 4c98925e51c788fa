"""What every reader returns: images and labels as they are in the file, checked."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from svag.lab.data.errors import DataError


@dataclass(frozen=True, eq=False)
class Arrays:
    """Images (n, channels, height, width) as bytes or floats, and labels 0 … num_classes − 1."""

    train_x: NDArray[np.uint8] | NDArray[np.float32]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.uint8] | NDArray[np.float32]
    test_y: NDArray[np.int64]
    num_classes: int


def checked(arrays: Arrays, where: str, fix: str) -> Arrays:
    """Return `arrays`, or refuse labels that do not fit the images or the classes."""
    for split, x, y in (("train", arrays.train_x, arrays.train_y), ("test", arrays.test_x, arrays.test_y)):
        if len(x) != len(y) or not len(x):
            raise DataError(f"{where} holds {len(x)} {split} images and {len(y)} {split} labels: {fix}")
        if y.min() < 0 or y.max() >= arrays.num_classes:
            raise DataError(
                f"{where} holds {split} labels from {y.min()} to {y.max()} instead of 0 to {arrays.num_classes - 1}: "
                f"{fix}"
            )
    if arrays.train_x.shape[1:] != arrays.test_x.shape[1:]:
        raise DataError(
            f"{where} holds training examples of shape {arrays.train_x.shape[1:]} and test examples of shape "
            f"{arrays.test_x.shape[1:]}: {fix}"
        )
    return arrays
