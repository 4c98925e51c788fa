"""Make the embedded data set `fashion-small` from the official files of Fashion-MNIST.

    python tools/make_fashion_small.py [DATA_DIR]

DATA_DIR holds (or receives) the folder fashion-mnist with the four IDX files; default as for `svag data get`.
"""

import lzma
import sys
from pathlib import Path

import numpy as np

from svag.lab.data import downloads
from svag.lab.data.downloads import data_folder
from svag.lab.data.formats import Arrays
from svag.lab.data.sources import COUNT, FASHION_MNIST, SIDE

TARGET = Path(__file__).parent.parent / "src" / "svag" / "lab" / "data" / "fashion_small.xz"


def reduce(arrays: Arrays) -> Arrays:
    """Return the first 10,000 images of each half of Fashion-MNIST by means over 2×2 pixels, rounded half up."""
    train_x, test_x = (
        ((x[:COUNT].reshape(-1, 1, SIDE, 2, SIDE, 2).sum((3, 5), dtype=np.uint16) + 2) // 4).astype(np.uint8)
        for x in (arrays.train_x, arrays.test_x)
    )
    return Arrays(train_x, arrays.train_y[:COUNT], test_x, arrays.test_y[:COUNT], arrays.num_classes)


def pack(arrays: Arrays) -> bytes:
    """Return the embedded file: training images, test images, training labels, test labels, as one compressed block."""
    parts = (arrays.train_x, arrays.test_x, arrays.train_y.astype(np.uint8), arrays.test_y.astype(np.uint8))
    return lzma.compress(b"".join(part.tobytes() for part in parts), preset=9 | lzma.PRESET_EXTREME)


def main() -> None:
    """Read, reduce, pack, write."""
    data_dir = data_folder(sys.argv[1] if len(sys.argv) > 1 else None)
    packed = pack(reduce(downloads.read(FASHION_MNIST, data_dir)))
    TARGET.write_bytes(packed)
    print(f"{TARGET.name}: {len(packed):,} bytes")


if __name__ == "__main__":
    main()
