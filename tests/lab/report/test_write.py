"""From a folder to its report: the answer in words, what is missing, what cannot be read."""

import json
import math
import re
import shutil
from pathlib import Path

import pytest
from tests.lab.report.charts.drawn import layers
from tests.lab.report.conftest import Build, Find
from tests.lab.report.folders import BASE, CASES, compare_folder, write_run

from svag.lab.experiments import EXPERIMENT, FAMILIES, save_experiment
from svag.lab.experiments.baseline import predict_from_runs
from svag.lab.experiments.from_runs import experiment_of_runs
from svag.lab.records.identity import NUMERICS_VERSION
from svag.lab.records.record import RUNS, load_records
from svag.lab.report import write
from svag.lab.report.figures import PAGES, WORDS
from svag.lab.report.loose_runs import DRAWN
from svag.lab.report.save import save
from svag.lab.report.write import build_report, provenance, write_files
from svag.lab.specs.fields import SpecError
from svag.paper.charts.sections import gallery_figures, side_by_side

RESULTS = Path(__file__).parents[3] / "results"

TONES = {
    "compare_equal": "yes",
    "compare_different": "no",
    "compare_diverged": "no",
    "compare_one_seed": "open",
    "compare_inconclusive": "open",
    "ladder": "yes",
    "ladder_never_fails": "open",
    "ladder_diverged": "yes",
    "ladder_one_seed": "note",
    "ngd": "yes",
}


@pytest.mark.parametrize("name", TONES)
def test_every_page_has_an_answer_a_next_step_and_its_runs(report_of: Build, name: str) -> None:
    answer = report_of(name).answers[0]
    assert answer.tone == TONES[name]
    assert answer.headline.endswith(".")
    assert answer.next
    assert report_of(name).runs.rows


def test_the_answer_comes_in_words(report_of: Build) -> None:
    said = {name: report_of(name).answers[0].headline for name in ("compare_different", "compare_one_seed", "ngd")}
    assert said == {
        "compare_different": "No: SGD ends 4.71 points below its SDE.",
        "compare_one_seed": "Not decided: these runs cannot tell whether the gap is within ±1.00 points.",
        "ngd": (
            "Yes: NGD ends where SGD ends, so only the covariance of the noise matters here; GD, without noise, does "
            "not end there, so the noise itself matters."
        ),
    }


def test_a_ladder_answers_in_data_and_time_and_keeps_the_statistics_below(report_of: Build) -> None:
    """Losses of the made-up runs depend on the share of the budget alone, so that no batch needs more data."""
    (card,) = report_of("ladder").cards
    assert card.answer.headline == (
        "No larger batch was faster than batch size 16: for its training loss, batch size 32 needed 1.00× the examples "
        "(1.04× by the gain rule) and 1.00× the time."
    )
    ((name, statistics),) = card.answer.in_card
    assert name == "statistics"
    assert "B* = 409 [401, 417]" in statistics
    assert card.prices is not None
    assert [row["batch size"] for row in card.prices.rows] == ["16", "32", "64", "128", "256", "512", "1024"]


def test_seeds_that_only_some_processes_survive_are_an_answer(tmp_path: Path) -> None:
    folder = compare_folder(tmp_path, {1: [math.nan] * 5, 16: [0.84, 0.841, 0.842, 0.843, 0.844]})
    (answer,) = build_report(folder).answers
    assert answer.tone == "no"


def test_figures_of_each_kind_have_a_sentence_and_their_numbers(report_of: Build) -> None:
    names = {kind: [figure.name for figure in report_of(kind).figures] for kind in ("compare_equal", "ladder", "ngd")}
    assert names == {
        "compare_equal": ["gap", "panel1-curves", "panel1-limit"],
        "ladder": [
            "panel1-examples",
            "panel1-loss-examples",
            "panel1-loss-seconds",
            "panel1-drift",
            "panel1-ratio",
            "panel1-error",
            "panel1-curves",
        ],
        "ngd": ["panel1-gap", "panel1-test-accuracy", "panel1-train-loss"],
    }
    for kind in names:
        for figure in report_of(kind).figures:
            assert figure.sentence.endswith(".")
            assert all(table.rows for table in figure.tables)


def test_what_is_missing_or_was_not_asked_for_is_said_first(tmp_path: Path) -> None:
    folder = compare_folder(tmp_path, {1: [0.8, 0.81], 4: [0.8, 0.82]})
    shutil.rmtree(folder / RUNS / "p0-ell4-seed1")
    write_run(folder / RUNS / "stranger", BASE.edited({"lr": 0.9}), 0.5)
    missing, strange = build_report(folder).warnings
    assert "SVAG ell=4 B=64 seed 1 (not run)" in missing
    assert str(folder / RUNS / "stranger") in strange


def test_an_experiment_without_a_single_run_still_has_a_page(tmp_path: Path) -> None:
    folder = compare_folder(tmp_path, {1: [0.8], 4: [0.8]})
    shutil.rmtree(folder / RUNS)
    report = build_report(folder)
    assert report.answers[0].tone == "open"
    assert report.figures == ()


def test_a_mere_folder_of_runs_says_how_they_went_and_what_they_predict(tmp_path: Path) -> None:
    write_run(tmp_path / "a", BASE, 0.85, noise_to_signal=6.0)
    write_run(tmp_path / "b", BASE.edited({"seed": 1}), math.nan)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "spec.json").write_text("{")
    report = build_report(tmp_path)
    went, priced = report.cards
    assert went.answer.tone == "note"
    assert (went.answer.headline, went.answer.next) == (
        "3 runs: 1 finished, 1 diverged, 1 broken.",
        f"restore {tmp_path / 'c'} from a copy, or remove it and run its spec again.",
    )
    assert dict(went.answer.numbers)["best test accuracy"] == "85.00% (sgd B=64 seed=0 (a))"
    assert priced.answer.panel == "sgd B=64 seed=0 (a)"
    assert priced.prices is not None
    assert [row["batch size"] for row in priced.prices.rows] == ["128", "256", "512", "1024", "2048", "4096"]
    assert [figure.name for figure in report.figures] == ["examples1", "noise1", "test-accuracy", "train-loss"]
    assert [row["state"] for row in report.runs.rows] == ["finished", "diverged", "broken"]
    json.dumps(report.finding, allow_nan=False)


@pytest.mark.parametrize("runs", [DRAWN, DRAWN + 5])
def test_a_chart_draws_the_first_runs_of_the_table_and_says_so(tmp_path: Path, runs: int) -> None:
    for seed in range(runs):  # the order of the folders is not that of the seeds
        write_run(tmp_path / f"{runs - seed:03}", BASE.edited({"seed": seed}), 0.5 + seed / 100)
    report = build_report(tmp_path)
    assert [row["seed"] for row in report.runs.rows] == list(range(runs))
    for figure in report.figures:
        series = list(dict.fromkeys(row["series"] for row in figure.tables[0].rows))
        assert series == [f"sgd B=64 seed={seed} ({runs - seed:03})" for seed in range(DRAWN)]
        assert {row["series"] for layer in layers(figure.chart) for row in layer["rows"]} == set(series)
        assert (f" {DRAWN} of {runs} " in figure.sentence) == (runs > DRAWN)
    assert dict(report.answers[0].numbers)["best test accuracy"].endswith(f"seed={runs - 1} (001))"), "of all runs"


def test_a_page_has_so_many_figures_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = compare_folder(tmp_path, {1: [0.8, 0.81], 4: [0.8, 0.82]}, panels=("a", "b"))
    every, notes = build_report(folder).figures, build_report(folder).notes
    assert (len(every), notes) == (5, ())
    monkeypatch.setattr(write, "MOST_FIGURES", 3)
    report = build_report(folder)
    assert [figure.name for figure in report.figures] == [figure.name for figure in every[:3]]
    assert len(report.answers) == 2
    (note,) = report.notes
    assert re.findall(r"\d+", note) == ["3", "2"]


def test_a_ladder_whose_learning_rates_are_not_known_has_a_page(tmp_path: Path) -> None:
    folder = RESULTS / "recipes" / "measured" / "conv_adamw"
    assert write_files(build_report(folder), tmp_path, ()).page.exists()


def test_a_mere_folder_predicts_what_svag_predict_does(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path / f"sgd{seed}", BASE.edited({"seed": seed}), 0.85, noise_to_signal=6.0)
    svag_run = BASE.edited({"process": {"kind": "svag", "ell": 4}, "probe": {"kind": "none"}})
    write_run(tmp_path / "svag", svag_run, 0.85, noise_to_signal=6.0)
    finding = build_report(tmp_path).finding
    [prediction] = predict_from_runs(load_records(tmp_path)).predictions
    assert finding["predictions"] == {"sgd B=64 seed=0 (sgd0) and 1 more seed": prediction.to_dict()}
    for seed in (0, 1):
        shutil.rmtree(tmp_path / f"sgd{seed}")
    report = build_report(tmp_path)
    assert report.finding["predictions"] == {}
    assert "svag" in dict(report.answers[0].numbers)["prices"]


def test_nothing_is_guessed_about_a_mere_folder_and_the_way_to_say_it_is_named(tmp_path: Path) -> None:
    folder = CASES["ladder_never_fails"](tmp_path)
    (folder / EXPERIMENT).unlink()
    report = build_report(folder)
    assert report.finding["kind"] == "folder"
    assert all(family in report.notes[0].partition("--as ")[2] for family in FAMILIES)
    save_experiment(experiment_of_runs(folder, "ladder"), folder)
    assert build_report(folder).finding["kind"] == "ladder"


def test_runs_of_two_versions_of_the_numerics_are_refused_in_one_sentence(tmp_path: Path) -> None:
    folder = CASES["ladder_never_fails"](tmp_path)
    header = folder / RUNS / "b64-seed0" / "spec.json"
    now = f'"numerics": {NUMERICS_VERSION}'
    header.write_text(header.read_text().replace(now, '"numerics": 7'))
    with pytest.raises(
        SpecError,
        match=rf"version {NUMERICS_VERSION} .*b64-seed0 .*version 7\b",
    ):
        build_report(folder)
    for one in (folder / RUNS).glob("*/spec.json"):
        one.write_text(one.read_text().replace(now, '"numerics": 7'))
    assert build_report(folder).finding["kind"] == "ladder"


def test_every_family_has_figures() -> None:
    assert PAGES.keys() == FAMILIES.keys()
    assert FAMILIES.keys() <= WORDS.keys()
    assert {kind: family.model_fields["kind"].default for kind, family in FAMILIES.items()} == {
        kind: kind for kind in FAMILIES
    }


@pytest.mark.parametrize(
    ("name", "kind", "drawn"),
    [
        ("compare_different", "compare", ["panel1-curves", "panel2-curves"]),
        ("ladder", "ladder", ["panel1-drift", "panel1-error"]),
        ("ngd", "ngd", ["panel1-test-accuracy", "panel1-train-loss"]),
    ],
)
def test_the_gallery_shows_what_the_paper_draws_in_one_still_picture(
    finding_of: Find, tmp_path: Path, name: str, kind: str, drawn: list[str]
) -> None:
    figures = gallery_figures(kind, finding_of(name))
    assert [one.name for one in figures] == drawn
    picture = side_by_side(figures)
    assert '"param' not in json.dumps(picture.to_dict()), "nothing is left to click on"
    assert [one["title"] for one in picture.to_dict()["concat"]] == [one.panel for one in figures]
    assert save(picture, tmp_path / "picture.svg").stat().st_size > 5000


@pytest.mark.parametrize("name", ["ladder", "ladder_diverged", "compare_one_seed", "ngd"])
def test_the_finding_is_json(report_of: Build, name: str) -> None:
    json.dumps(report_of(name).finding, allow_nan=False)


def test_a_folder_that_is_not_there_or_empty_is_refused_in_one_sentence(tmp_path: Path) -> None:
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(SpecError) as refused:
            build_report(folder)
        assert refused.value.path == str(folder)


def test_a_page_is_called_by_its_question_and_a_figure_s_title_is_the_paper_s_claim(tmp_path: Path) -> None:
    folder = compare_folder(tmp_path, {1: [0.8, 0.81], 4: [0.8, 0.82]}, title="SGD is its SDE")
    asked = json.loads((folder / EXPERIMENT).read_text())
    assert (build_report(folder).subject, build_report(folder).notes) == ("SGD is its SDE", ())
    label = {"label": "fig:svag_accs", "size": "small", "note": "one image for all of them"}
    (folder / EXPERIMENT).write_text(json.dumps({**asked, **label}))
    report = build_report(folder)
    assert re.search(r"^fig:svag_accs .*\bsmall$", report.subject)
    claim = "The paper's claim: SGD is its SDE."
    assert report.notes == (claim, "Setting: one image for all of them.")
    assert report.warnings == ()


def test_alike_runs_stand_together_with_their_accuracy_before_names_and_states(report_of: Build) -> None:
    rows = report_of("compare_diverged").runs.rows
    assert list(rows[0])[:3] == ["process", "batch_size", "test_accuracy"]
    assert list(rows[0])[-1] == "run"
    order = [(row["process"], row["batch_size"], row["seed"]) for row in rows]
    processes = ("sgd", "svag ell=4 split=1", "svag ell=16 split=1")
    assert order == [(process, 64, seed) for process in processes for seed in range(5)]
    sizes = [row["batch_size"] for row in report_of("ladder").runs.rows]
    assert sizes == sorted(sizes)
    assert sizes[0] == 16
    assert sizes[-1] == 1024


def test_how_it_was_measured_names_seeds_versions_hardware_and_seconds(report_of: Build) -> None:
    facts = dict(report_of("ladder").provenance.facts)
    assert facts["seeds"] == "0, 1, 2"
    assert facts["compute time"].startswith("4 min 22 s in all, 12 s ")
    assert "torch 2.13.0+cpu" in facts["versions"]
    assert facts["hardware"] == "Some CPU (cpu, 2 cores, 1 thread)"
    assert ("numerics" in facts, "note" in facts) == (False, False), "of the present version"
    assert facts["setup"].endswith("16, 32, 64, 128, 256, 512, 1024; tolerance 20%, C² = 2")
    ((name, spec),) = report_of("ladder").provenance.specs
    assert name == "preresnet8"
    assert "arch: preresnet8" in spec


def test_that_the_first_runs_have_no_digest_is_said_once() -> None:
    for folder in sorted(path.parent for path in RESULTS.glob("*/experiment.json")):
        records = load_records(folder)
        facts = dict(provenance(None, records).facts)
        old = [record for record in records if record.numerics == 1]
        present = records[0].numerics == NUMERICS_VERSION
        assert facts.get("numerics") == (None if present else f"version {records[0].numerics}")
        said = (
            f"{len(old)} of {len(records)} runs: no digest of the metrics, so that damage to them would not be noticed"
        )
        assert facts.get("note") == (said if old else None)
