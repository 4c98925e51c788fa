"""SIGKILL at random moments of a run and of a ladder: afterwards the same command ends with the same bits."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.lab.training.small import same_bits, small
from tests.lab.training.test_kill import ROOT, order, verdicts

RUNS, KILLS_OF_A_RUN, KILLS_OF_A_LADDER, SEED = 12, 5, 6, 18_301
STRUCK = 40  # of 60: nearly all do, but on a busy machine a moment may come after the end of a run


def trials(npz: Path, seed: int) -> list[dict[str, Any]]:
    """Runs of every process, with a checkpoint after every step, or now and then."""
    choose = random.Random(seed)
    processes = [{"kind": "sgd"}, {"kind": "svag", "ell": 3}, {"kind": "ngd"}, {"kind": "sde", "refine": 2}]
    made = []
    for number in range(RUNS):
        edits = {"process": processes[number % len(processes)], "budget": 200, "seed": number, "evaluate.every": 20}
        kills = [("moment", seed + choose.randrange(10**6)) for _ in range(KILLS_OF_A_RUN)]
        made.append(order(npz, edits, kills, save_seconds=choose.choice([0, 0.02])))
    return made


@pytest.mark.slow
def test_runs_that_are_killed_at_random_moments(
    npz: Path, tmp_path: Path, say: Callable[[str], None], seeded: Callable[[int], int]
) -> None:
    seed = seeded(SEED)
    found = verdicts(tmp_path, trials(npz, seed))
    struck, same = sum(sum(one["killed"]) for one in found), sum(one["same"] for one in found)
    say(f"{struck} kills of {RUNS} runs at random moments (seed {seed}): {same} ended with the same bits")
    assert same == RUNS
    assert struck >= STRUCK


@pytest.mark.slow
def test_a_ladder_that_is_killed_at_random_moments(
    npz: Path, tmp_path: Path, say: Callable[[str], None], seeded: Callable[[int], int]
) -> None:
    seed = seeded(SEED)
    base = tmp_path / "base.yaml"
    base.write_text(small(npz, {"budget": 2000, "evaluate.every": 500}).to_yaml())
    choose, struck = random.Random(seed), 0

    def ladder(out: str, moment: float | None = None) -> bool:
        """Carry out a ladder; whether it was killed, some seconds after a run had begun."""
        command = ["ladder", str(base), "--batch-sizes", "8", "16", "--seeds", "2", "--workers", "1"]
        with subprocess.Popen(
            [sys.executable, "-m", "svag", *command, "--out", str(tmp_path / out)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stderr is not None
            starts = (" begins, ", " continues at ")
            if moment is not None and any(start in line for line in process.stderr for start in starts):
                time.sleep(moment)
                process.send_signal(signal.SIGKILL)
            said, complained = process.communicate()
        assert "Traceback" not in said + complained
        assert process.returncode in {0, -signal.SIGKILL}, complained[-2000:]
        return process.returncode != 0

    ladder("straight")
    for _ in range(KILLS_OF_A_LADDER):
        struck += ladder("broken", choose.uniform(0.0, 0.5))
    ladder("broken")
    straight = sorted((tmp_path / "straight" / "runs").iterdir())
    same = sum(same_bits(one, tmp_path / "broken" / "runs" / one.name) for one in straight)
    say(f"{struck} kills of a ladder (seed {seed}): {same} of its {len(straight)} runs have the same bits")
    assert (same, len(straight)) == (4, 4)
    assert struck >= KILLS_OF_A_LADDER // 2
