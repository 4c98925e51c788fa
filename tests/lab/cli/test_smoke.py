"""Every figure at its smallest size, from the command line to its answer: the quickest, and all in the campaign."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from svag.lab.experiments import load_experiment
from svag.lab.records.record import load_records
from svag.paper.cli.app import app
from svag.paper.figures import LABELS, family, figure

QUICKEST = "fig:ngd_sgd_b125"
OTHERS = [label for label, family in LABELS.items() if family != "theory" and label != QUICKEST]


@pytest.mark.parametrize("label", [QUICKEST, *(pytest.param(label, marks=pytest.mark.slow) for label in OTHERS)])
def test_a_figure_from_the_command_line_to_its_answer(label: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["reproduce", label, "--size", "smoke", "--out", str(out), "--workers", "2", "--json"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    experiment = figure(label, "smoke")
    assert load_experiment(out) == experiment
    records = load_records(out)
    assert {record.spec for record in records} == set(experiment.runs())
    assert all(record.ended for record in records)
    assert [panel["name"] for panel in found["panels"]] == [panel.name for panel in experiment.panels]
    if family(label) == "ladder":
        assert all(record.readings for record in records if record.state == "finished")
