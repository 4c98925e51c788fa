"""What a tracker is sent: the numbers of the records, once, live or afterwards."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.lab.cli.answers import invoke
from typer.testing import Result

from svag.lab.records.record import RunRecord, load_records
from svag.lab.records.storage import METRICS
from svag.lab.report import tracking
from svag.lab.report.tracking import TRACKERS, following, replay
from svag.lab.specs.fields import SpecError
from svag.paper.cli.app import app
from svag.prices.scalars import logged_numbers

SPEC = """
data: {name: fashion-small, subset: 200}
model: {arch: mlp, width: 0.125, norm: none}
batch_size: 32
lr: 0.05
budget: 400
probe: {kind: in_run, parts: 4, window: [0.0, 1.0]}
evaluate: {every: 0.25}
"""


def answer(*arguments: str) -> Result:
    return invoke(app, list(arguments))


class Notebook:
    """A tracker that writes down what it is sent."""

    runs: ClassVar[dict[str, "Notebook"]] = {}

    def __init__(self, out: Path, run: RunRecord) -> None:
        self.name, self.last_step = run.path.name, -1
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.outcome: dict[str, Any] | None = None
        if (earlier := self.runs.get(run.identity)) is not None:
            self.last_step, self.logged = earlier.logged[-1][0], earlier.logged
        self.runs[run.identity] = self

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        self.logged.append((step, dict(scalars)))

    def finish(self, outcome: Mapping[str, Any]) -> None:
        self.outcome = dict(outcome)


@pytest.fixture
def notebooks(monkeypatch: pytest.MonkeyPatch) -> dict[str, Notebook]:
    monkeypatch.setattr(tracking, "_SINKS", dict.fromkeys(TRACKERS, Notebook))
    monkeypatch.setattr(tracking, "check_tracker", lambda tracker: None)
    monkeypatch.setattr(Notebook, "runs", {})
    return Notebook.runs


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tracked")
    (folder / "base.yaml").write_text(SPEC)
    assert answer("run", str(folder / "base.yaml"), "--out", str(folder / "run")).exit_code == 0
    return folder / "run"


def test_finished_runs_are_replayed_with_the_numbers_of_the_records(
    finished: Path, notebooks: dict[str, Notebook]
) -> None:
    [record] = load_records(finished)
    assert replay(finished, "wandb") == 1
    [sent] = notebooks.values()
    evaluations = [(step, row) for step, row in sent.logged if "evaluation/test_accuracy" in row]
    assert [(step, row["evaluation/test_accuracy"]) for step, row in evaluations] == record.curve("test_accuracy")
    losses = [(step, row["train/loss"]) for step, row in sent.logged if "train/loss" in row]
    assert losses == record.losses
    assert sent.outcome == record.outcome
    last = evaluations[-1][1]
    expected = {f"svag/{name}": value for name, value in logged_numbers(record.readings).items()}
    assert expected
    assert {name: value for name, value in last.items() if name.startswith("svag/")} == expected
    assert "svag/noise_to_signal" not in evaluations[0][1], "before the first reading there is nothing to say"


def test_a_run_is_followed_while_it_runs_and_sent_once(
    finished: Path, notebooks: dict[str, Notebook], tmp_path: Path
) -> None:
    lines = (finished / METRICS).read_bytes().splitlines(keepends=True)
    run = tmp_path / "run"
    run.mkdir()
    (run / "spec.json").write_bytes((finished / "spec.json").read_bytes())
    with following(tmp_path, "wandb", seconds=0.01), (run / METRICS).open("wb", buffering=0) as file:
        for line in lines:  # in two pieces, so that a look may find half a line
            file.write(line[:7])
            file.write(line[7:])
    live = dict(notebooks).popitem()[1].logged
    assert replay(finished, "wandb") == 1
    assert live == notebooks.popitem()[1].logged, "the replay had nothing to add"
    steps = [step for step, row in live if "evaluation/lr" in row]
    assert steps == sorted(set(steps))


@pytest.mark.parametrize("command", [["run", "--budget", "8"], ["ngd", "--seeds", "1", "--budget", "8"]])
def test_the_commands_track_what_they_run(command: list[str], notebooks: dict[str, Notebook], tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(SPEC)
    name, *flags = command
    out = tmp_path / "out"
    done = answer(name, str(tmp_path / "base.yaml"), *flags, "--out", str(out), "--track", "tensorboard")
    assert done.exit_code == 0, done.output
    assert sorted(sent.name for sent in notebooks.values()) == sorted(one.path.name for one in load_records(out))
    assert all(sent.outcome is not None and sent.outcome["state"] == "finished" for sent in notebooks.values())


def test_nothing_is_tracked_unless_it_is_asked_for(notebooks: dict[str, Notebook], tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(SPEC)
    done = answer("run", str(tmp_path / "base.yaml"), "--out", str(tmp_path / "out"), "--budget", "4")
    assert done.exit_code == 0
    assert notebooks == {}
    assert not {"tensorboard", "wandb", "mlflow"} & set(sys.modules)


def test_a_report_sends_its_runs(finished: Path, notebooks: dict[str, Notebook], tmp_path: Path) -> None:
    done = answer("report", str(finished), "--out", str(tmp_path), "--track", "mlflow", "--json")
    assert done.exit_code == 0
    assert "1 run " in done.stderr
    assert json.loads(done.stdout)
    assert len(notebooks) == 1


@pytest.mark.parametrize("tracker", TRACKERS)
def test_a_tracker_that_is_not_installed_is_named(tracker: tracking.Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SpecError, match=rf"^--track: {tracker} .*'\.\[{tracker}\]'"):
        tracking.check_tracker(tracker)


def test_a_label_of_the_theory_has_no_curves(tmp_path: Path) -> None:
    done = answer("reproduce", "lem:D", "--track", "wandb", "--out", str(tmp_path))
    assert done.exit_code == 2
    assert "--track: " in done.stderr
