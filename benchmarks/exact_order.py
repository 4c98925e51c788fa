"""Seconds of the exact weak orders, and how long the command line takes to start, as a share of `import torch`.

Budgets: the weak orders of SVAG in one dimension, degrees 1–4, l up to 256, below 2 s; `svag --help` below half of
`import torch`.
"""

import subprocess
import sys
import time
from statistics import median

from svag.paper.exact.processes import EulerMaruyama, Ito, SmallerBatches, Svag
from svag.paper.verify.beds import SKEWED
from svag.paper.verify.svag_limit import affine_order


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    start = time.perf_counter()
    for process in (Svag, EulerMaruyama, SmallerBatches):
        affine_order(SKEWED, process, Ito())
    print(f"exact weak order, 3 processes, degrees 1–4, l to 256: {time.perf_counter() - start:.2f} s (budget 2 s)")
    interleaved = [
        (seconds([sys.executable, "-m", "svag", "--help"]), seconds([sys.executable, "-c", "import torch"]))
        for _ in range(5)
    ]
    ratio = median(help_ for help_, _ in interleaved) / median(torch for _, torch in interleaved)
    print(f"svag --help over import torch: {ratio:.2f} (budget 0.5)")


if __name__ == "__main__":
    main()
