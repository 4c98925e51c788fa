"""`svag predict` as a user runs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.experiments.on_disk import at, readings_at, write_run
from typer.testing import CliRunner

from svag.cli.app import app
from svag.theory.bounds import critical_batch_size

invoke = CliRunner().invoke


def baseline(root: Path, size: int = 32, grad_sq: float = 1.0, noise: float = 10.0, seed: int = 0) -> Path:
    spec = at(size, seed=seed)
    return write_run(root, spec, 0.9, readings=readings_at(spec, grad_sq, noise))


def test_one_run_predicts(tmp_path: Path) -> None:
    folder = baseline(tmp_path)
    result = invoke(app, ["predict", str(folder)])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Scaling from batch size 32: beyond B* = 384")
    found = json.loads(invoke(app, ["predict", str(folder), "--json", "--c2", "3"]).stdout)
    assert found["critical_batch"] == pytest.approx(critical_batch_size(32, 10.0, c2=3.0, lr_wd=1e-4), rel=1e-9)
    assert found["ok"] is True
    assert found["runs"] == [str(folder)]


def test_seeds_are_pooled_and_batch_sizes_are_not(tmp_path: Path) -> None:
    baseline(tmp_path, 64, 1.0, 4.0)
    baseline(tmp_path, 32, 0.5, 8.0)
    baseline(tmp_path, 32, 1.5, 12.0, seed=1)
    found = json.loads(invoke(app, ["predict", str(tmp_path), "--json"]).stdout)
    assert [row["batch_size"] for row in found["predictions"]] == [32, 64]
    assert [row["noise_to_signal"] for row in found["predictions"]] == pytest.approx([10.0, 4.0])
    assert len(found["predictions"][0]["runs"]) == 2
    assert "critical_batch" not in found


def test_a_window_in_steps_and_in_fractions(tmp_path: Path) -> None:
    spec = at(32)  # 18,720 steps; the readings are at 10,000 … 10,399
    folder = write_run(tmp_path, spec, 0.9, readings=readings_at(spec, 1.0, 10.0))
    for window in (["10000", "10200"], ["0.5", "0.545"]):  # 0.545 of the budget is step 10,202
        found = json.loads(invoke(app, ["predict", str(folder), "--json", "--window", *window]).stdout)
        assert found["readings"] in (200, 202)
    late = invoke(app, ["predict", str(folder), "--window", "0.9", "1.0"])
    assert (late.exit_code, "no reading lies in the window" in late.stderr) == (2, True)
    wrong = invoke(app, ["predict", str(folder), "--window", "a", "1.0"])
    assert wrong.exit_code == 2
    assert "Error: --window: must be an effective step" in wrong.stderr


@pytest.mark.parametrize(
    ("edits", "state", "sentence"),
    [
        ({}, "finished", "has no readings of the noise: run it with a probe"),
        ({}, "diverged", "diverged and has no equilibrium to measure at: lower the learning rate"),
        ({}, "failed", "failed (x): repair that"),
        ({}, None, "was interrupted at effective step 0 of 18720: run its spec again into the same folder"),
        ({"process": {"kind": "svag", "ell": 4}}, "finished", "is a run of svag, and the prediction is about SGD"),
    ],
)
def test_a_run_that_says_nothing_says_what_to_do(
    tmp_path: Path, edits: dict[str, object], state: str | None, sentence: str
) -> None:
    folder = write_run(tmp_path / "a", at(32, **edits), state=state)
    alone = invoke(app, ["predict", str(folder)])
    assert alone.exit_code == 2
    assert sentence in alone.stderr
    assert alone.stderr.count("\n") == 1
    baseline(tmp_path / "b", seed=5)
    together = invoke(app, ["predict", str(tmp_path)])
    assert together.exit_code == 0
    assert f"Note: {folder} " in together.stderr


def test_folders_without_runs(tmp_path: Path) -> None:
    for folder, sentence in ((tmp_path / "none", "there is no folder"), (tmp_path, "there is no run in")):
        result = invoke(app, ["predict", str(folder)])
        assert (result.exit_code, sentence in result.stderr) == (2, True)
    (tmp_path / "spec.json").write_text("{")
    assert "cannot be read" in invoke(app, ["predict", str(tmp_path)]).stderr


def test_c2_of_1_is_refused_in_a_sentence(tmp_path: Path) -> None:
    result = invoke(app, ["predict", str(baseline(tmp_path)), "--c2", "1"])
    assert (result.exit_code, "must exceed 1" in result.stderr) == (2, True)


def test_no_torch_is_needed(tmp_path: Path) -> None:
    folder = baseline(tmp_path)
    code = (
        "import sys, svag.cli\n"
        "try:\n    svag.cli.main()\n"
        "except SystemExit as stop:\n    assert not stop.code, stop.code\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, "predict", str(folder)], check=True, capture_output=True)
