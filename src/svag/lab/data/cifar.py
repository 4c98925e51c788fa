"""The binary distribution of CIFAR-10 and CIFAR-100: records of label bytes and 3×32×32 pixels. No pickle."""

import numpy as np
from numpy.typing import NDArray

PIXELS = 3 * 32 * 32


def read_cifar(content: bytes, label_bytes: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images (n, 3, 32, 32) and labels of one binary file.

    The last label byte is the class: CIFAR-10 has one, CIFAR-100 a coarse and a fine one.

    >>> images, labels = read_cifar(bytes([3, 5]) + bytes(3072), label_bytes=2)
    >>> images.shape, labels
    ((1, 3, 32, 32), array([5]))
    """
    record = label_bytes + PIXELS
    if not content or len(content) % record:
        raise ValueError(f"it has {len(content)} bytes, which is not a multiple of {record}")
    rows = np.frombuffer(content, np.uint8).reshape(-1, record)
    return rows[:, label_bytes:].reshape(-1, 3, 32, 32), rows[:, label_bytes - 1].astype(np.int64)
