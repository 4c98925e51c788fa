"""The demo asks the two questions: a baseline first, then what checks it."""

from pathlib import Path

import pytest
from tests.lab.report.folders import CASES

from svag.lab.experiments import load_experiment
from svag.lab.experiments.compare_finding import CompareFinding
from svag.lab.experiments.demo import SCALING, SDE, baseline_runs, learned
from svag.lab.experiments.ladder_finding import LadderFinding
from svag.lab.records.record import load_records


def test_the_ladder_begins_with_its_own_baseline() -> None:
    runs = SCALING.runs()
    assert [(spec.batch_size, spec.lr) for spec in runs if spec.seed == 0] == [(8, 0.025), (32, 0.1), (128, 0.4)]
    assert len(runs) == 6
    assert all(spec in runs for spec in baseline_runs())


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


def test_a_stranger_is_told_what_a_price_is_and_what_b_star_is_not(tmp_path: Path) -> None:
    found, said = lines_of(CASES["ladder"](tmp_path))
    assert isinstance(found, LadderFinding)
    panel = found.panels[0]
    one, crossing = panel.checked[0]
    for price in panel.data:
        if price.baseline == 16:
            expected = f"about {one.linear.distortion(price.batch_size).value:.2g}× the data"
            assert f"- Batch size {price.batch_size} was expected to need {expected} for the same training loss" in said
    assert f"At B* = {one.linear.limit.value:.0f} the price reaches 2. Beyond it, weight norm" in said
    assert (
        f"must drift apart by more than that factor; in these runs they did so at {crossing.observed.value:.0f}."
        in said
    )
    assert "B* is about how the network trains and not about test error" in said
    assert f"Here the test error was {100 * panel.rungs[0].error:.2f}% at batch size 16" in said
    assert said.endswith("probe.price_list().")


def test_a_ladder_that_predicts_nothing_claims_nothing(tmp_path: Path) -> None:
    _, said = lines_of(CASES["ladder_one_seed"](tmp_path))
    assert said.startswith("For your own training: ")


@pytest.mark.parametrize(
    ("case", "meaning"),
    [
        ("compare_equal", "Yes: SGD ends where its SDE ends, to within ±1.00 points. What theory says of the SDE may"),
        (
            "compare_different",
            "No: SGD ends 4.71 points below its SDE. What theory says of the SDE is not true of this",
        ),
        ("compare_inconclusive", "whether the gap is within ±1.00 points. More seeds would tell."),
    ],
)
def test_a_stranger_is_told_what_the_sde_is_and_what_the_answer_means(tmp_path: Path, case: str, meaning: str) -> None:
    _, said = lines_of(CASES[case](tmp_path))
    assert "compared with its SDE, the idealisation of SGD with infinitely small steps" in said
    assert meaning in said
