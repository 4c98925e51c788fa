"""Means over seeds, by hand."""

import math

from svag.lab.experiments.runs import CurveRow, RunRow
from svag.lab.report.charts.training_curves import DivergedEnd, MeanPoint, table


def evaluation(seed: int, step: int, accuracy: float | None, arm: str = "SGD") -> CurveRow:
    return CurveRow(arm, 64, seed, step, accuracy, None, None)


def run(seed: int, state: str = "finished", arm: str = "SGD") -> RunRow:
    return RunRow(arm, 64, 0.1, seed, state, 20, 0.5, 1.0, 1.0, 0, "x")


def test_a_point_is_the_mean_with_the_range_of_the_seeds() -> None:
    rows = [evaluation(0, 0, 0.125), evaluation(0, 20, 0.5), evaluation(1, 0, 0.375), evaluation(1, 20, 0.75)]
    first, last = table(rows, [run(0), run(1)], "test_accuracy").rows
    assert first == MeanPoint("SGD", 0, 0.0, 0.25, 0.125, 0.375, 2)
    assert last == MeanPoint("SGD", 20, 1.0, 0.625, 0.5, 0.75, 2)


def test_what_is_not_finite_or_missing_is_left_out_and_a_diverged_run_ends_where_it_was_last_evaluated() -> None:
    rows = [evaluation(0, 0, 0.1), evaluation(0, 10, 0.4), evaluation(0, 20, math.nan), evaluation(1, 20, 0.6)]
    found = table([*rows, evaluation(1, 10, None)], [run(0, "diverged"), run(1)], "test_accuracy")
    assert [(point.step, point.seeds) for point in found.rows] == [(0, 1), (10, 1), (20, 1)]
    assert found.diverged == (DivergedEnd("SGD", 0, 10, 0.5, 0.4),)


def test_series_keep_their_order_and_each_has_a_budget_of_its_own() -> None:
    rows = [evaluation(0, 40, 0.2, "SVAG ell=4"), evaluation(0, 20, 0.1), evaluation(0, 10, 0.3, "SVAG ell=4")]
    points = table(rows, [], "test_accuracy").rows
    assert [(point.series, point.step, point.budget) for point in points] == [
        ("SVAG ell=4", 10, 0.25), ("SVAG ell=4", 40, 1.0), ("SGD", 20, 1.0)
    ]  # fmt: skip


def test_a_run_that_diverged_before_its_first_evaluation_has_no_end_to_show() -> None:
    assert table([], [run(0, "diverged")], "test_accuracy").diverged == ()
