"""What Ray adds to a plan: the time to start, and the time per run, against as many local workers.

Budget: 20 one-minute runs take at most 5% longer. Nobody waits 20 minutes for that: a plan of n equal runs takes
start + n · each, so that plans of two sizes give both numbers of an executor (`each` is a run's share of the plan,
divided by the workers already), and

    ratio = (start_ray + 20 · (60 s / workers + each_ray − each_local)) / (start_local + 20 · 60 s / workers).

The two executors take turns, each on a fresh folder, so that a busy machine slows them alike. Starting a Ray on this
machine is part of the time.
"""

import argparse
from statistics import median

from local_workers import seconds
from svag.lab.execution.execution import Executor

RUNS, SECONDS, BUDGET = 20, 60.0, 1.05
EXECUTORS: tuple[Executor, ...] = ("local", "ray")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--few", type=int, default=4)
    parser.add_argument("--many", type=int, default=16)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    start, each = {}, {}
    for executor, (few, many) in _rounds(asked.workers, asked.few, asked.many, asked.steps, asked.rounds).items():
        each[executor] = (many - few) / (asked.many - asked.few)  # of the plan, so already divided by the workers
        start[executor] = few - asked.few * each[executor]
        print(
            f"{executor}: {asked.few} runs {few:.2f} s, {asked.many} runs {many:.2f} s: "
            f"start {start[executor]:.2f} s, and {each[executor]:.3f} s of the plan per run"
        )
    over = each["ray"] - each["local"]
    work = RUNS * SECONDS / asked.workers
    ratio = (start["ray"] + work + RUNS * over) / (start["local"] + work)
    print(
        f"({start['ray']:.2f} + {work:.0f} + {RUNS} · {over:.3f}) / ({start['local']:.2f} + {work:.0f}) s: "
        f"Ray takes {ratio:.4f} times as long as {asked.workers} local workers for {RUNS} runs of a minute "
        f"(budget {BUDGET})"
    )


def _rounds(workers: int, few: int, many: int, steps: int, rounds: int) -> dict[str, tuple[float, float]]:
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for runs in (few, many):
            for name in EXECUTORS:
                times.setdefault((name, runs), []).append(seconds(name, workers, runs, steps))
    return {name: (median(times[name, few]), median(times[name, many])) for name in EXECUTORS}


if __name__ == "__main__":
    main()
