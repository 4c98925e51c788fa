"""How much two processes gain over one, each with one thread, at large and small batches.

Efficiency is images per second of two processes over those of one, by 2: 1 is perfect. The two ways take turns inside
one start of torchrun, the second process waiting while the first works alone, so that a busy machine slows both alike;
on a machine with fewer than two free cores no efficiency above 0.5 can be had. Beside it: the time of one message.

    python benchmarks/data_parallel.py
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist

from svag.lab.data.load import load_data
from svag.lab.specs.spec import RunSpec, examples_per_step
from svag.lab.training.ranks import ALONE, Ranks, joined, launched
from svag.lab.training.steppers import stepper_for
from svag.lab.training.training import Training, prepare

ROUNDS = 3
CASES = (("sgd", 32, 20), ("sgd", 512, 3), ("svag", 32, 5), ("svag", 256, 2))


def spec_of(kind: str, batch_size: int) -> RunSpec:
    process = "{kind: svag, ell: 2}" if kind == "svag" else "{kind: sgd}"
    return RunSpec.from_yaml(
        f"""
        data: {{name: fashion-small, augment: {{pad: 1, flip: true}}}}
        model: {{arch: preresnet8, norm: group, width: 0.5, scale_invariant: true}}
        process: {process}
        batch_size: {batch_size}
        lr: 0.1
        weight_decay: 1.0e-3
        budget: 1000
        """
    )


def rate(training: Training, steps: int) -> float:
    """Images per second over a few effective steps."""
    stepper = stepper_for(training)
    stepper.set_rate(0.1)
    stepper.step(0, measure=False)
    start = time.perf_counter()
    for number in range(1, steps + 1):
        stepper.step(number, measure=False).item()
    seconds = time.perf_counter() - start
    stepper.close()
    return steps * examples_per_step(training.spec, training.examples) / seconds


def message(training: Training, ranks: Ranks) -> float:
    """Seconds to average one gradient."""
    parameters = list(training.model.parameters())
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    times = []
    for _ in range(50):
        start = time.perf_counter()
        ranks.group.average_gradients(parameters, torch.zeros(()), 1)
        times.append(time.perf_counter() - start)
    return median(times)


def compare(ranks: Ranks) -> None:
    torch.set_num_threads(1)
    data = load_data("fashion-small")
    for kind, batch_size, steps in CASES:
        spec = spec_of(kind, batch_size)
        shared, alone = prepare(spec, data, ranks), prepare(spec, data, ALONE)
        ratios, rates = [], []
        for _ in range(ROUNDS):
            dist.barrier()
            one = rate(alone, steps) if ranks.rank == 0 else 0.0
            dist.barrier()
            two = rate(shared, steps)
            ratios.append(two / one if one else 0.0)
            rates.append((one, two))
        if ranks.rank == 0:
            one, two = (median(column) for column in zip(*rates, strict=True))
            print(
                f"{kind} at batch {batch_size}: {one:.0f} images/s in one process, {two:.0f} in two: "
                f"efficiency {median(ratios) / ranks.size:.2f}",
                flush=True,
            )
    seconds = message(shared, ranks)
    count = sum(parameter.numel() for parameter in shared.model.parameters())
    if ranks.rank == 0:
        print(f"averaging a gradient of {count} numbers: {seconds * 1e3:.2f} ms", flush=True)


def main() -> None:
    if launched():
        with joined("cpu") as ranks:
            compare(ranks)
        return
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the start")
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(Path(__file__))]
    subprocess.run(start, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)


if __name__ == "__main__":
    main()
