"""Every example runs as its first lines say, in fewer steps, and ends with the three lines of a prediction."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
COMMANDS = {
    "plain_loop.py": [sys.executable],
    "accumulation.py": [sys.executable],
    "data_parallel.py": [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_example(name: str) -> None:
    command = [*COMMANDS[name], str(EXAMPLES / name), "250"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "B* " in done.stdout
    assert "N/G = " in done.stdout
    assert "125 readings" in done.stdout


def test_examples_are_short_and_all_are_run() -> None:
    files = {path.name: path.read_text().count("\n") for path in EXAMPLES.glob("*.py")}
    assert {"plain_loop.py", "accumulation.py", "data_parallel.py"} <= files.keys()
    assert all(files[name] < 60 for name in COMMANDS)
