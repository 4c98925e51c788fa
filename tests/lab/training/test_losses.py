"""The training loss at 50 points of a run: the means of the steps' own losses, whatever the clock does."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.lab.training.small import go, interrupted, same_bits, small
from torch import Tensor

from svag.lab.records.record import RunRecord, read_record
from svag.lab.training.loop import loss_points
from svag.lab.training.run import run
from svag.lab.training.state import Progress

PROBED = {"probe": {"kind": "in_run", "parts": 2, "window": [3, 77]}}


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The loss of every step that is taken."""
    seen, add = list[float](), Progress.add

    def noted(self: Progress, loss: Tensor, time: float, step: int) -> None:
        seen.append(loss.item())
        add(self, loss, time, step)

    monkeypatch.setattr(Progress, "add", noted)
    return seen


def test_rows_are_the_means_of_the_steps_between_them(npz: Path, tmp_path: Path, losses: list[float]) -> None:
    record = go(small(npz, {"budget": 120, "evaluate.every": 50}), tmp_path / "run")
    points = [0, *loss_points(120)]
    assert len(record.losses) == 50
    assert [step for step, _ in record.losses] == points[1:]
    means = [sum(losses[a:b]) / (b - a) for a, b in pairwise(points)]
    assert [mean for _, mean in record.losses] == pytest.approx(means, rel=1e-12)
    # the evaluations have the means since the one before, as ever
    evaluated = [sum(losses[a:b]) / (b - a) for a, b in ((0, 50), (50, 100), (100, 120))]
    assert [value for _, value in record.curve("train_loss")] == pytest.approx(evaluated, rel=1e-12)


def test_a_short_run_has_a_row_for_every_step(npz: Path, tmp_path: Path, losses: list[float]) -> None:
    record = go(small(npz), tmp_path / "run")
    assert [step for step, _ in record.losses] == list(range(1, 11))
    assert [loss for _, loss in record.losses] == pytest.approx(losses)


@pytest.mark.parametrize("edits", [{}, PROBED], ids=["plain", "probed"])
def test_checkpoints_do_not_change_the_rows(npz: Path, tmp_path: Path, edits: dict[str, Any]) -> None:
    spec = small(npz, {"budget": 80, "evaluate.every": 30, **edits})
    for name, seconds in (("always", 0.0), ("never", 1000.0)):
        run(spec, tmp_path / name, device="cpu", progress=False, save_seconds=seconds)
    assert same_bits(tmp_path / "always", tmp_path / "never")


@pytest.mark.parametrize("edits", [{}, PROBED], ids=["plain", "probed"])
def test_a_resumed_run_has_the_same_rows(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edits: dict[str, Any]
) -> None:
    spec = small(npz, {"budget": 130, "evaluate.every": 4, **edits})  # step 5, where it stops, is between two rows
    interrupted(spec, tmp_path / "run", monkeypatch)
    go(spec, tmp_path / "run")
    go(spec, tmp_path / "straight")
    assert same_bits(tmp_path / "run", tmp_path / "straight")
    assert len(read_record(tmp_path / "run").losses) == 50


def test_a_diverged_run_has_rows_until_it_diverged(npz: Path, tmp_path: Path) -> None:
    record = go(small(npz, {"lr": 1e20, "weight_decay": 0.0, "budget": 50}), tmp_path / "run")
    assert record.state == "diverged"
    assert 0 < len(record.losses) < 50
    json.dumps(record.losses, allow_nan=False)


def test_a_record_without_such_rows_has_those_of_its_evaluations() -> None:
    rows = ({"kind": "evaluation", "step": 0, "train_loss": None}, {"kind": "evaluation", "step": 9, "train_loss": 0.5})
    assert RunRecord(Path("run"), "finished", None, "", 9, rows, {}).losses == [(9, 0.5)]


def test_a_row_that_makes_no_sense_breaks_the_record(npz: Path, tmp_path: Path) -> None:
    go(small(npz), tmp_path / "run")
    metrics, outcome = tmp_path / "run" / "metrics.jsonl", tmp_path / "run" / "outcome.json"
    outcome.unlink()
    assert read_record(tmp_path / "run").state == "interrupted"
    metrics.write_text(metrics.read_text() + '{"kind": "loss", "step": 10, "train_loss": "low"}\n')
    assert read_record(tmp_path / "run").state == "broken"
