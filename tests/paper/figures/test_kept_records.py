"""Records of a figure are found in a folder of results by what was run, and only if all of its runs are there."""

import json
import shutil
from pathlib import Path

import pytest
from tests.lab.experiments.on_disk import at, readings_at, write_run

from svag.lab.experiments.ngd import Ngd, NgdPanel
from svag.lab.records.record import load_headers
from svag.lab.records.storage import digest
from svag.paper.figures import figure, kept_records

BASE = at(32)
ASKED = Ngd(title="t", label="fig:ngd_sgd_vgg", size="small", seeds=(0, 1), panels=(NgdPanel(name="p", base=BASE),))


def fill(folder: Path, numerics: int = 1, **edits: object) -> list[Path]:
    """The six runs of the experiment, as the version of the numerics says that computed them."""
    folders = [write_run(folder, spec.edited(edits), 0.8) for spec in ASKED.runs()]
    for run in folders if numerics > 1 else ():
        set_version(run, numerics)
    return folders


def set_version(run: Path, numerics: int) -> None:
    header = json.loads((run / "spec.json").read_text())
    (run / "spec.json").write_text(json.dumps({**header, "numerics": numerics}))
    outcome = json.loads((run / "outcome.json").read_text())
    sha = digest((run / "metrics.jsonl").read_bytes())
    (run / "outcome.json").write_text(json.dumps({**outcome, "metrics_sha256": sha}))


def test_they_are_found_whatever_was_measured_on_the_way(tmp_path: Path) -> None:
    assert kept_records(ASKED, tmp_path) == []
    fill(tmp_path / "deep" / "runs", evaluate={"every": 0.5})
    found = kept_records(ASKED, tmp_path)
    assert len(found) == 6
    assert not ASKED.find(found).missing


@pytest.mark.parametrize("damage", ["gone", "interrupted", "broken"])
def test_a_run_without_a_result_makes_them_useless(tmp_path: Path, damage: str) -> None:
    first, *_ = fill(tmp_path, numerics=2)
    assert len(kept_records(ASKED, tmp_path)) == 6
    match damage:
        case "gone":
            shutil.rmtree(first)
        case "interrupted":
            (first / "outcome.json").unlink()
        case "broken":
            (first / "metrics.jsonl").write_text("{}\n")
    assert kept_records(ASKED, tmp_path) == []


def test_another_spec_is_no_record(tmp_path: Path) -> None:
    fill(tmp_path, lr=0.2)
    assert kept_records(ASKED, tmp_path) == []


def test_the_newest_version_that_has_all_runs_counts(tmp_path: Path) -> None:
    fill(tmp_path / "old")
    first, *_ = fill(tmp_path / "new", numerics=2)
    assert {record.numerics for record in kept_records(ASKED, tmp_path)} == {2}
    shutil.rmtree(first)
    assert {record.numerics for record in kept_records(ASKED, tmp_path)} == {1}, "never both in one answer"


def test_of_two_records_the_one_that_measured_more_counts_then_the_one_at_home(tmp_path: Path) -> None:
    home = tmp_path / "figures" / "fig-ngd_sgd_vgg" / "runs"
    fill(tmp_path / "figures" / "a")
    fill(home)
    fill(tmp_path / "figures" / "z")
    assert {record.path.parent for record in kept_records(ASKED, tmp_path)} == {home}
    probed = BASE.edited({"probe": {"kind": "in_run"}})
    measured = write_run(tmp_path / "more", probed, 0.8, readings=readings_at(probed, 1.0, 2.0, count=4))
    found = [record.path for record in kept_records(ASKED, tmp_path)]
    assert (found.count(measured), len(found)) == (1, 6)


def test_a_probe_that_is_asked_for_counts_before_one_that_measured_more(tmp_path: Path) -> None:
    asked, more = ({"kind": "frozen", "readings": readings} for readings in (2, 9))
    probed = BASE.edited({"probe": asked})
    experiment = Ngd(title="t", size="small", seeds=(0,), panels=(NgdPanel(name="p", base=probed),))
    for spec in experiment.runs():
        other = spec.edited({"probe": more})
        write_run(tmp_path / "a", spec, 0.8, readings=readings_at(spec, 1.0, 2.0, count=2))
        write_run(tmp_path / "b", other, 0.8, readings=readings_at(other, 1.0, 2.0, count=9))
    assert {record.path.parent for record in kept_records(experiment, tmp_path)} == {tmp_path / "a"}


def test_a_header_is_read_without_the_metrics(tmp_path: Path) -> None:
    run, other = write_run(tmp_path, BASE, 0.8), write_run(tmp_path, BASE.edited({"seed": 1}), 0.8)
    (run / "metrics.jsonl").unlink()
    (other / "spec.json").write_text("{")
    [header] = load_headers(tmp_path)
    assert (header.path, header.numerics, header.spec) == (run, 1, BASE)
    assert header.identity.startswith(run.name)


def test_the_committed_records_answer_their_figures() -> None:
    results = Path(__file__).parents[3] / "results"
    for label in ("fig:svag_accs", "fig:ngd_sgd_accs"):
        experiment = figure(label, "small")
        found = kept_records(experiment, results)
        assert len(found) == len(experiment.runs())
        assert not experiment.find(found).missing
