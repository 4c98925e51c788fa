"""One bad record does not spoil a folder: `list`, `predict` and `report` go on with the others, and name it."""

import csv
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.lab.specs.damage import damaged
from tests.lab.specs.fuzz import answers_within
from typer.testing import CliRunner

from svag.paper.cli.app import app

invoke = CliRunner().invoke


@pytest.fixture
def healthy(base: Path, tmp_path: Path) -> Path:
    flags = ["--probe", "{kind: in_run, parts: 2}", "--out", str(tmp_path / "healthy")]
    done = invoke(app, ["run", str(base), *flags])
    assert done.exit_code == 0, done.output
    return tmp_path / "healthy"


def _pipe(folder: Path) -> None:
    (folder / "metrics.jsonl").unlink()
    os.mkfifo(folder / "metrics.jsonl")


def _endless(folder: Path) -> None:
    path = folder / "spec.json"
    path.write_text(path.read_text().replace('"steps": 20', '"steps": Infinity'))


def _deep(folder: Path) -> None:
    (folder / "spec.json").write_text('{"spec": ' + "[" * 10**5 + "]" * 10**5 + "}")


@pytest.mark.parametrize("damage", [_deep, _endless, _pipe])
def test_the_others_are_answered_and_the_bad_one_is_named(
    healthy: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    folder = tmp_path / "runs"
    for name in ("good", "bad"):
        shutil.copytree(healthy, folder / name)
    damage(folder / "bad")
    with answers_within(120):
        listed, predicted, reported = (
            invoke(app, [*command, str(folder)]) for command in (["list"], ["predict", "--details"], ["report"])
        )
    assert (listed.exit_code, predicted.exit_code, reported.exit_code) == (0, 0, 0)
    [row] = [line for line in listed.stdout.splitlines() if line.startswith("bad")]
    assert "broken" in row
    assert f"Note: {folder / 'bad'} cannot be read: " in predicted.stderr
    assert "good" in predicted.stdout
    with (folder / "report" / "tables" / "runs.csv").open(newline="") as table:
        states = {row["run"]: row["state"] for row in csv.DictReader(table)}
    assert states == {"good": "finished", "bad": "broken"}


def test_random_damage_is_answered(healthy: Path, tmp_path: Path) -> None:
    for seed in range(25):
        folder = tmp_path / str(seed)
        for name in ("good", "bad"):
            shutil.copytree(healthy, folder / name)
        how = damaged(folder / "bad", seed)
        with answers_within(120):
            listed, predicted = (invoke(app, [name, str(folder)]) for name in ("list", "predict"))
        assert (listed.exit_code, predicted.exit_code) == (0, 0), f"seed {seed}: {how}"
        assert {line.split()[0] for line in listed.stdout.splitlines()[1:]} == {"good", "bad"}, f"seed {seed}: {how}"
