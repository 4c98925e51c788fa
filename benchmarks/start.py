"""How soon `svag ladder` takes its first step: budget, 2 s beyond what `import torch` takes by itself.

The command is started as a user starts it, on embedded data and with two workers; its first step has begun when a run
has written its header. Wall-clock time, the median of a few turns, so nothing else should run meanwhile. The time of
the processor, which other work hardly changes, stands beside it for the imports. The first optimizer that is made
imports torch's compiler, whoever makes it: that is torch's own share of what comes after its import.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

REPEATS, BUDGET = 9, 2.0
FIRST_OPTIMIZER = "torch; torch.optim.SGD([torch.zeros(1)], lr=1.0)"
SPEC = """
data: {name: fashion-small}
model: {arch: preresnet8, norm: group, width: 0.5, scale_invariant: true}
batch_size: 8
lr: 0.1
weight_decay: 1.0e-3
budget: {epochs: 20}
"""


def imported(modules: str) -> tuple[float, float]:
    """Seconds by the clock and of the processor that a fresh interpreter takes to import something and run the rest."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {modules}"], check=True)
    taken, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return taken, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def first_step() -> float:
    """Seconds from the command to the first step of one of its runs."""
    with tempfile.TemporaryDirectory() as place:
        spec, out = Path(place) / "base.yaml", Path(place) / "out"
        spec.write_text(SPEC)
        command = [sys.executable, "-m", "svag", "ladder", str(spec), "--batch-sizes", "8", "16", "32", "64"]
        command += ["--seeds", "1", "--workers", "2", "--out", str(out)]
        start = time.perf_counter()
        program = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            while not list(out.glob("runs/*/metrics.jsonl")):
                if program.poll() is not None:
                    raise RuntimeError("svag ladder ended before its first step: run it by hand")
                time.sleep(0.005)
            return time.perf_counter() - start
        finally:
            program.terminate()
            program.wait()


def main() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    for modules in ("svag.lab.execution.worker", "svag.cli", "svag.lab.execution.conduct", FIRST_OPTIMIZER):
        taken, processor = (min(times) for times in zip(*(imported(modules) for _ in range(3)), strict=True))
        print(f"import {modules:24} {taken:5.2f} s, {processor:5.2f} s of the processor", flush=True)
    # in turns: the machine is quicker in one minute than in another
    turns = [(imported("torch")[0], first_step()) for _ in range(REPEATS)]
    torch, begun = median(torch for torch, _ in turns), median(begun for _, begun in turns)
    beyond = median(begun - torch for torch, begun in turns)
    verdict = "met" if beyond <= BUDGET else "MISSED"
    print(
        f"first step after {begun:.2f} s, import torch {torch:.2f} s: {beyond:.2f} s beyond it (best turn "
        f"{min(begun - torch for torch, begun in turns):.2f}), budget {BUDGET}: {verdict}"
    )


if __name__ == "__main__":
    main()
