"""The demo asks the three questions: a baseline first, then what checks it."""

from pathlib import Path

import pytest
from tests.lab.report.folders import CASES

from svag.lab.experiments import load_experiment
from svag.lab.experiments.compare_finding import CompareFinding
from svag.lab.experiments.demo import SCALING, SDE, TRAIN, baseline_runs, learned
from svag.lab.experiments.ladder_finding import LadderFinding
from svag.lab.records.record import load_records


def test_the_ladder_begins_with_its_own_baseline() -> None:
    assert SCALING.waits
    assert [(spec.batch_size, spec.lr, spec.seed) for spec in SCALING.runs()] == [
        (8, 0.025, seed) for seed in (0, 1, 2)
    ]
    assert (SCALING.panels[0].rule, SCALING.panels[0].unplanned) == ("gain", [32, 128])
    assert baseline_runs(SCALING) == SCALING.runs()


def test_training_by_the_measured_rule_stands_beside_its_baseline() -> None:
    runs = TRAIN.runs()
    assert [(spec.batch_size, spec.process.kind, spec.seed) for spec in runs] == [
        (8, "sgd", 0),
        (8, "sgd", 1),
        (128, "gain", 0),
        (128, "gain", 1),
    ]
    assert baseline_runs(TRAIN) == runs[:2]


def test_the_sde_question_compares_sgd_with_svag_at_one_large_batch() -> None:
    runs = SDE.runs()
    assert {(spec.process.kind, spec.batch_size) for spec in runs} == {("sgd", 512), ("svag", 512)}
    assert len(runs) == 6


def lines_of(folder: Path) -> tuple[LadderFinding | CompareFinding, str]:
    asked = load_experiment(folder)
    assert asked is not None
    found = asked.find(load_records(folder))
    assert isinstance(found, LadderFinding | CompareFinding)
    return found, "\n".join(learned(found))


def test_a_ladder_that_predicts_nothing_claims_nothing(tmp_path: Path) -> None:
    _, said = lines_of(CASES["ladder_one_seed"](tmp_path))
    assert said.startswith("For your own training: ")


@pytest.mark.parametrize(
    ("case", "meaning"),
    [
        ("compare_equal", "What theory says of the SDE may"),
        ("compare_different", "What theory says of the SDE is not true of this"),
        ("compare_inconclusive", "More seeds would tell."),
    ],
)
def test_a_stranger_is_told_what_the_sde_is_and_what_the_answer_means(tmp_path: Path, case: str, meaning: str) -> None:
    found, said = lines_of(CASES[case](tmp_path))
    assert "SDE, the idealisation of SGD with infinitely small steps" in said
    assert f"{found.panels[0].answer().headline} {meaning}" in said
