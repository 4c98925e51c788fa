"""How long the statistics take: budget, 1,000 verdicts of 3 × 6 numbers in under 5 s."""

import time
from collections.abc import Callable

import numpy as np

import svag
from svag.stats.ratios import ratio_interval


def seconds(run: Callable[[int], object], repeats: int) -> float:
    run(0)
    start = time.perf_counter()
    for i in range(repeats):
        run(i)
    return time.perf_counter() - start


def main() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(1000, 3, 6))
    series = rng.normal(size=(100, 2, 10_000)) + 1

    def sde(i: int) -> object:
        return svag.sde_verdict({1: noise[i, 0], 4: noise[i, 1], 16: noise[i, 2]}, margin=2.0)

    def scaling(i: int) -> object:
        return svag.scaling_verdict(dict(zip((32, 64, 128), 0.1 + 0.002 * noise[i], strict=True)))

    def ratio(i: int) -> object:
        return ratio_interval(*series[i])

    print(f"sde_verdict, 1,000 × 3 × 6 numbers:     {seconds(sde, 1000):.2f} s (budget 5)")
    print(f"scaling_verdict, 1,000 × 3 × 6 numbers: {seconds(scaling, 1000):.2f} s (budget 5)")
    print(f"ratio_interval, 100 × 10,000 readings:  {seconds(ratio, 100):.2f} s")


if __name__ == "__main__":
    main()
