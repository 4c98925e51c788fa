"""The IDX format of MNIST and Fashion-MNIST: a magic number, the sizes, the bytes."""

import math
import struct

import numpy as np
from numpy.typing import NDArray


def read_idx(content: bytes) -> NDArray[np.uint8]:
    """Return the array of bytes that an uncompressed IDX file holds.

    >>> read_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]))
    array([7, 9], dtype=uint8)
    """
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise ValueError("it does not begin like an IDX file of bytes")
    dimensions = content[3]
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise ValueError("it ends within its header")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    if len(content) != start + math.prod(shape):
        raise ValueError(f"it has {len(content)} bytes, but its header promises {start + math.prod(shape)}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
