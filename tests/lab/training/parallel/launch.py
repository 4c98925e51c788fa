"""Start programs under torchrun, on a free port."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]


def torchrun(*command: str, processes: int = 2) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", *command],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}/src:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )


def sentences(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What our processes said of their end; torchrun's own report comes after it."""
    return [line for line in done.stderr.splitlines() if line.startswith(("Error: ", "interrupted"))]
