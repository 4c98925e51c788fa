"""Make the embedded data set `fashion-small` from the official files of Fashion-MNIST.

    python tools/make_fashion_small.py [DATA_DIR]

DATA_DIR holds (or receives) the folder fashion-mnist with the four IDX files; default as for `svag data get`.
"""

import sys
from pathlib import Path

from svag.lab.data import files, sources
from svag.lab.data.files import data_folder
from svag.lab.data.sources import FASHION_MNIST

TARGET = Path(__file__).parent.parent / "src" / "svag" / "lab" / "data" / "fashion_small.xz"


def main() -> None:
    """Read, reduce, pack, write."""
    data_dir = data_folder(sys.argv[1] if len(sys.argv) > 1 else None)
    packed = sources.pack(sources.reduce(files.read(FASHION_MNIST, data_dir)))
    TARGET.write_bytes(packed)
    print(f"{TARGET.name}: {len(packed):,} bytes")


if __name__ == "__main__":
    main()
