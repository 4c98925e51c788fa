"""`svag list` in a terminal of 80 columns: nothing that tells runs apart is cut."""

import re
from pathlib import Path

import pytest
from tests.lab.experiments.on_disk import at, write_run
from typer.testing import CliRunner

from svag.paper.cli.app import app

COLOURED = re.compile(r"\x1b\[[0-9;]*m")


def lines_of(folder: Path, columns: int) -> list[str]:
    done = CliRunner().invoke(app, ["list", str(folder)], env={"COLUMNS": str(columns), "FORCE_COLOR": "1"})
    assert done.exit_code == 0
    return [line.rstrip() for line in COLOURED.sub("", done.stdout).splitlines()]


@pytest.mark.parametrize("name", ["a", "a-folder-with-a-name-that-leaves-little-room-in-a-line"])
def test_a_narrow_terminal_shows_what_runs_share_once_and_the_rest_whole(tmp_path: Path, name: str) -> None:
    runs = [write_run(tmp_path / name, at(32, seed=seed), 0.9) for seed in range(3)]
    lines = lines_of(tmp_path, 80)
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    assert lines[0].startswith("all runs: ")
    assert "batch 32" in lines[0]
    assert "seed" not in lines[0]
    whole = "".join("".join(lines).split())  # a long name may go on in the next line
    assert all(whole.count(run.name) == 1 for run in runs)


def test_a_wide_terminal_has_every_column(tmp_path: Path) -> None:
    for seed in range(2):
        write_run(tmp_path, at(32, seed=seed), 0.9)
    first, *rows = lines_of(tmp_path, 200)
    assert first.split()[:5] == ["run", "state", "data", "network", "process"]
    assert len(rows) == 2
