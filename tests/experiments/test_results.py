"""Every run that lies in results/ has its place in the experiment that asked for it."""

from pathlib import Path

import pytest

from svag.experiments import load_experiment
from svag.records.record import load_records

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in RESULTS.glob("*/experiment.json")), ids=lambda p: p.name
)
def test_the_runs_on_disk_are_exactly_those_that_were_asked_for(folder: Path) -> None:
    experiment, records = load_experiment(folder), load_records(folder)
    assert experiment is not None
    finding = experiment.find(records)
    assert (finding.missing, finding.strangers) == ((), ())
    assert len(experiment.slots()) == len(records) > 0


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in RESULTS.glob("*/experiment.json")), ids=lambda p: p.name
)
def test_their_specs_alone_tell_which_runs_belong_together(folder: Path) -> None:
    experiment, records = load_experiment(folder), load_records(folder)
    assert experiment is not None
    specs = [record.spec for record in records if record.spec is not None]
    again = type(experiment).from_specs(specs, experiment.title)
    assert len(again.panels) == len(experiment.panels)
    assert set(again.runs()) == set(specs)
