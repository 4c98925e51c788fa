"""Every example runs as its first lines say, prints its results, and stays short."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
TWO_RANKS = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
# how it is started, in how many steps where it takes them, and what it must say
RUNS: dict[str, tuple[list[str], list[str], list[str]]] = {
    "plain_loop.py": ([], ["250"], ["B* ", "N/G = ", "125 readings"]),
    "accumulation.py": ([], ["250"], ["B* ", "N/G = ", "125 readings"]),
    "data_parallel.py": (TWO_RANKS, ["250"], ["B* ", "N/G = ", "125 readings"]),
    "svag_loop.py": ([], [], ["ell = 4"]),
    "ngd_against_sgd.py": ([], [], ["NGD"]),
    "svag_predicts_critical_batch.py": (
        [],
        [],
        ["Scaling from batch size 8: beyond B* = ", "training statistics must change"],
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_example(name: str) -> None:
    how, steps, words = RUNS[name]
    command = [sys.executable, *how, str(EXAMPLES / name), *steps]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    for word in words:
        assert word in done.stdout


def test_examples_are_short_and_all_are_run() -> None:
    files = {path.name: path.read_text().count("\n") for path in EXAMPLES.glob("*.py")}
    assert files.keys() == RUNS.keys()
    assert max(files.values()) < 60
