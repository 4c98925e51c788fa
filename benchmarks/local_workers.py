"""Two local workers against one on a plan of equal runs.

Budget: at least 1.8 times as fast. One and two workers take turns, each on a fresh folder, so that a busy machine slows
them alike; the number means something only where two cores are idle. Starting the workers is part of the time.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

from svag.lab.execution.conduct import execute
from svag.lab.execution.execution import Execution, Executor, usable_cores
from svag.lab.execution.plan import plan_runs
from svag.lab.specs.spec import RunSpec

SPEC = """
data: {name: fashion-small, subset: 2000}
model: {arch: preresnet8, norm: group, width: 0.5, scale_invariant: true}
batch_size: 32
lr: 0.1
weight_decay: 1.0e-3
evaluate: {every: 1.0}
budget: 1
"""


def seconds(executor: Executor, workers: int, runs: int, steps: int) -> float:
    """The time an executor takes for a plan of equal runs, on a fresh folder."""
    execution = Execution(executor=executor, workers=workers, device="cpu", progress=False)
    base = RunSpec.from_yaml(SPEC).edited({"budget": steps})
    with tempfile.TemporaryDirectory() as folder:
        plan = plan_runs([base.edited({"seed": seed}) for seed in range(runs)], Path(folder))
        start = time.perf_counter()
        records = execute(plan, execution)
        spent = time.perf_counter() - start
    assert all(record.state == "finished" for record in records)
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    if usable_cores() < 2:
        print("local workers: needs two cores")
        return
    times = [
        tuple(seconds("local", workers, asked.runs, asked.steps) for workers in (1, 2)) for _ in range(asked.rounds)
    ]
    ratio = median(one / two for one, two in times)
    print(
        f"local workers: 2 finish {asked.runs} equal runs {ratio:.2f} times as fast as 1 (budget 1.8); "
        f"{median(one for one, _ in times):.1f} s and {median(two for _, two in times):.1f} s"
    )


if __name__ == "__main__":
    main()
