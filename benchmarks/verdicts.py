"""How long the statistics take: they must never be what a user waits for."""

import time

import numpy as np

from svag.stats.ratio import ratio_interval


def main() -> None:
    rng = np.random.default_rng(0)
    series = rng.normal(size=(100, 2, 10_000)) + 1
    start = time.perf_counter()
    for num, den in series:
        ratio_interval(num, den)
    print(f"interval of a ratio, 10,000 readings: {(time.perf_counter() - start) / len(series) * 1e3:.1f} ms each")


if __name__ == "__main__":
    main()
