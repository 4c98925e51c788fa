"""The experiments' tables as numbers, their charts as data."""

import math
from dataclasses import replace

import pytest
from tests.lab.report.charts.drawn import layers, marks, of_kind
from tests.lab.report.charts.test_ladder import ladder
from tests.lab.report.conftest import Build, Find
from tests.lab.report.folders import CASES

from svag.lab.experiments.compare_finding import CompareFinding, ComparePanelFinding
from svag.lab.experiments.runs import CurveRow, RunRow
from svag.lab.report.charts import gap, training_curves


def compare(finding_of: Find, name: str) -> ComparePanelFinding:
    found = finding_of(name)
    assert isinstance(found, CompareFinding)
    return found.panels[0]


def evaluation(seed: int, step: int, accuracy: float | None, arm: str = "SGD", size: int = 64) -> CurveRow:
    return CurveRow(arm, size, seed, step, accuracy, None, None)


def run(seed: int, state: str = "finished", arm: str = "SGD") -> RunRow:
    return RunRow(arm, 64, 0.1, seed, state, 20, 0.5, 1.0, 1.0, 0, "x")


def test_several_seeds_have_bands() -> None:
    found = training_curves.table([evaluation(0, 20, 0.5), evaluation(1, 20, 0.9)], [run(0), run(1)], "test_accuracy")
    assert found.rows == (training_curves.MeanPoint("SGD", 20, 1.0, 0.7, 0.5, 0.9, 2),)
    assert marks(training_curves.chart(found)) == ["area", "line", "point"]


def test_a_diverged_run_ends_in_a_cross() -> None:
    rows = [evaluation(0, 0, 0.1), evaluation(0, 10, 0.4), evaluation(1, 20, 0.6)]
    found = training_curves.table(rows, [run(0, "diverged"), run(1)], "test_accuracy")
    drawn = training_curves.chart(found)
    assert marks(drawn) == ["line", "point", "point"], "a single seed has no band"
    assert layers(drawn)[-1]["rows"] == [{"series": "SGD", "seed": 0, "step": 10, "budget": 0.5, "value": 0.4}]


def test_curves_of_a_comparison_are_drawn_against_effective_steps_and_can_be_hidden(finding_of: Find) -> None:
    panel = compare(finding_of, "compare_equal")
    found = training_curves.table(panel.curves, panel.runs, panel.metric, across="effective_step")
    drawn = training_curves.chart(found)
    (line,) = of_kind(drawn, "line")
    assert line["encoding"]["x"]["field"] == "step"
    assert len(line["rows"]) == 3 * 11
    names = [param["name"] for param in drawn.to_dict()["params"]]
    assert names == ["shown", "zoom"]
    shown = drawn.to_dict()["params"][0]
    assert shown["bind"] == "legend"
    assert [one["series"] for one in shown["value"]] == ["SGD", "SVAG ell=4", "SVAG ell=16"]
    band = of_kind(drawn, "area")[0]["encoding"]
    assert (band["y"]["field"], band["y2"]["field"]) == ("low", "high")


def test_curves_of_a_ladder_share_one_axis_of_budgets(finding_of: Find) -> None:
    panel = ladder(finding_of, "ladder")
    found = training_curves.table(panel.curves, panel.runs, "test_accuracy", training_curves.by_batch_size, "budget")
    assert {row.series for row in found.rows if row.budget == 1} == {f"B = {2**k}" for k in range(4, 11)}
    assert of_kind(training_curves.chart(found), "line")[0]["encoding"]["x"]["field"] == "budget"


def test_the_limit_is_the_finding_s_and_the_line_runs_from_the_sde_to_sgd(finding_of: Find) -> None:
    panel = compare(finding_of, "compare_different")
    assert panel.limit is not None
    assert panel.verdict is not None
    found = gap.limit_table(panel)
    (one,) = [row for row in found.rows if row.kind == gap.LIMIT]
    assert (one.inverse_ell, one.value, one.low, one.high) == (
        0.0, panel.limit.value, panel.limit.low, panel.limit.high
    )  # fmt: skip
    assert [row.inverse_ell for row in found.rows if row.kind == gap.MEAN] == [1.0, 0.25, 1 / 16]
    assert sum(row.kind == gap.SEEDS for row in found.rows) == 15
    left, right = found.line
    assert right.value - left.value == pytest.approx(panel.verdict.gap, rel=1e-12)
    # the least-squares line passes through the weighted means: the fit is close to each of them
    for row in found.rows:
        if row.kind == gap.MEAN:
            assert left.value + panel.verdict.gap * row.inverse_ell == pytest.approx(row.value, abs=0.003)
    drawn = gap.limit_chart(found)
    assert marks(drawn) == ["line", "rule", "point", "point"]


def test_a_limit_that_is_the_largest_ell_has_no_line(finding_of: Find) -> None:
    found = gap.limit_table(compare(finding_of, "compare_inconclusive"))
    assert found.line == []
    assert "line" not in marks(gap.limit_chart(found))


def test_without_spread_there_is_no_limit_and_no_interval(finding_of: Find) -> None:
    found = gap.limit_table(compare(finding_of, "compare_one_seed"))
    assert marks(gap.limit_chart(found)) == ["point", "point"]


def test_diverged_seeds_are_counted_not_drawn(finding_of: Find) -> None:
    found = gap.limit_table(compare(finding_of, "compare_diverged"))
    assert found.diverged == 2
    assert sum(row.kind == gap.SEEDS for row in found.rows) == 13


def test_an_unbounded_gap_runs_to_the_edges_with_arrows() -> None:
    row = gap.GapRow("B = 64", "inconclusive", -0.003, -math.inf, math.inf, 0.01)
    assert gap.reach([row]) == pytest.approx(0.0125)
    drawn = gap.chart([row], "test_accuracy", "SGD − SDE limit")
    (values,) = [layer["rows"] for layer in of_kind(drawn, "bar")]
    assert (values[0]["x1"], values[0]["x2"]) == (pytest.approx(-1.25), pytest.approx(1.25))
    assert (values[0]["open_left"], values[0]["open_right"]) == (True, True)
    assert (values[0]["inner"], values[0]["margin_drawn"]) == (-1.0, 1.0)
    assert "(−∞, ∞)" in gap.sentence([row], "test_accuracy")


def test_a_gap_is_drawn_in_percentage_points_and_an_unknown_one_as_unknown() -> None:
    rows = [
        gap.GapRow("a", "different", -0.05, -0.06, -0.04, 0.01),
        gap.GapRow("b", "inconclusive", math.nan, -math.inf, math.inf, 0.01),
    ]
    drawn = gap.chart(rows, "test_accuracy", "SGD − SDE limit")
    points = [layer for layer in of_kind(drawn, "point") if layer["encoding"]["x"]["field"] == "x"]
    assert [one.get("x") for one in points[0]["rows"]] == [-5.0, None]
    assert points[0]["encoding"]["x"]["title"][0] == "SGD − SDE limit"


@pytest.mark.parametrize("name", CASES)
def test_every_chart_can_be_zoomed_as_the_page_promises(report_of: Build, name: str) -> None:
    for figure in report_of(name).figures:
        params = {param["name"]: param for param in figure.chart.to_dict()["params"]}
        assert params["zoom"]["bind"] == "scales", figure.name
        legends = {
            "one seed",
            "mean with 95% interval",
            "measured",
            "from 16",
            "from 32",
            "B = 64",
            "SGD",
            "SGD − SDE",
        }
        if "gap" not in figure.name and "ratio" not in figure.name:  # one answer, one series: nothing to hide
            shown = params["shown"]
            assert shown["bind"] == "legend"
            assert legends & {value for one in shown["value"] for value in one.values()}


def test_no_accuracy_is_drawn_above_all_of_it(finding_of: Find) -> None:
    panel = compare(finding_of, "compare_equal")
    assert panel.limit is not None
    arms = tuple(replace(arm, mean=0.99, high=1.03, low=0.95) for arm in panel.arms)
    wide = replace(panel, arms=arms, limit=replace(panel.limit, value=0.995, low=-0.1, high=1.1))
    found = gap.limit_table(wide)
    assert max(row.high for row in found.rows if row.high is not None) == 1.0
    (one,) = [row for row in found.rows if row.kind == gap.LIMIT]
    assert (one.low, one.high) == (0.0, 1.0)
    scales = [layer["encoding"]["y"]["scale"] for layer in of_kind(gap.limit_chart(found), "point")]
    assert all(scale["domainMax"] == 1 for scale in scales)
    ordinary = gap.limit_chart(gap.limit_table(panel))
    assert all("domainMax" not in layer["encoding"]["y"]["scale"] for layer in of_kind(ordinary, "point"))
