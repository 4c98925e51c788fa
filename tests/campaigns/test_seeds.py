"""A campaign that fails says which seed it had, wherever it ran, and takes that seed again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CAMPAIGN = """
def test_draws(seeded, say):
    seed = seeded(77)
    say(f"drawn with {seed}")
    assert seed < 70
"""


def said(folder: Path, workers: int, seed: str | None) -> tuple[int, str]:
    (folder / "test_one.py").write_text(CAMPAIGN)
    given = {} if seed is None else {"SVAG_SEED": seed}
    own = {name: value for name, value in os.environ.items() if not name.startswith(("SVAG_SEED", "PYTEST_"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "-n", str(workers), str(folder)],
        cwd=folder,
        env={**own, **given, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("workers", [0, 1])
def test_a_campaign_that_fails_shows_its_seed(tmp_path: Path, workers: int) -> None:
    code, text = said(tmp_path, workers, None)
    assert (code, text.count("SVAG_SEED=77"), text.count("drawn with 77")) == (1, 1, 1)


def test_a_seed_can_be_given_again(tmp_path: Path) -> None:
    code, text = said(tmp_path, 1, "12")
    assert (code, text.count("seed 12"), text.count("drawn with 12")) == (0, 1, 1)
