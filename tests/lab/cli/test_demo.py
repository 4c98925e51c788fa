"""`svag demo` as a newcomer runs it, at the smallest size: the prediction first, then the check, then the page."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from svag.lab.experiments import demo, load_experiment
from svag.lab.experiments.compare import Compare
from svag.lab.experiments.ladder import Ladder
from svag.paper.cli.app import app
from svag.paper.figures.bases import smoke

invoke = CliRunner().invoke


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The questions at smoke size; the baseline follows the ladder by itself."""
    monkeypatch.setattr(demo, "TRAIN", smoke(demo.TRAIN))
    monkeypatch.setattr(demo, "SCALING", smoke(demo.SCALING))
    monkeypatch.setattr(demo, "SDE", smoke(demo.SDE))


@pytest.mark.usefixtures("tiny")
def test_scaling_predicts_before_it_checks_and_writes_the_page(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = invoke(app, ["demo", "--out", str(out), "--workers", "1"])
    assert done.exit_code == 0, done.output
    first, second, answer = (
        done.output.index(one) for one in ("1. The price: train at batch size 8 (2 seeds)", "2. The check", "Page: ")
    )
    assert first < done.output.index("From 2 runs. ", first) < second < answer
    assert (out / "report" / "index.html").is_file()
    asked = load_experiment(out)
    assert isinstance(asked, Ladder)
    assert [size for size, _ in asked.panels[0].plans] == [16, 32]
    again = invoke(app, ["demo", "--out", str(out), "--workers", "1", "--json"])
    found = json.loads(again.stdout)
    assert (found["kind"], [rung["batch_size"] for rung in found["rungs"]]) == ("ladder", [8, 16, 32])
    assert Path(found["page"]) == out / "report" / "index.html"


@pytest.mark.usefixtures("tiny")
def test_train_announces_the_price_and_trains_by_the_measured_rule(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = invoke(app, ["demo", "--question", "train", "--out", str(out), "--workers", "1", "--details"])
    assert done.exit_code == 0, done.output
    announced, check, answer = (
        done.output.index(one) for one in ("Price of batch size 32: ", "2. The check", "Page: ")
    )
    assert announced < check < done.output.index("Side by side") < answer
    again = invoke(app, ["demo", "--question", "train", "--out", str(out), "--workers", "1", "--json"])
    found = json.loads(again.stdout)["gain"]
    assert (found["baseline"], found["measured"]) == (8, True)
    assert all(1 <= rung["paid"] <= rung["kappa"] for rung in found["rungs"])


@pytest.mark.usefixtures("tiny")
def test_sde_compares_sgd_with_svag_and_writes_the_page(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = invoke(app, ["demo", "--question", "sde", "--out", str(out), "--workers", "1", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["kind"] == "compare"
    assert found["answer"] in {"equivalent", "different", "inconclusive"}
    assert (out / "report" / "index.html").is_file()
    assert isinstance(load_experiment(out), Compare)


def test_a_question_that_is_not_asked_is_refused() -> None:
    done = invoke(app, ["demo", "--question", "life"])
    assert done.exit_code == 2
    assert "scaling" in done.output
