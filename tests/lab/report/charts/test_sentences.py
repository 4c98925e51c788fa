"""What stands under each chart: every sentence once. The other tests are about the rows and the marks."""

import math
from dataclasses import replace

import pytest
from tests.lab.report.charts.test_experiments import compare, evaluation, run
from tests.lab.report.charts.test_ladder import ladder
from tests.lab.report.conftest import Find

from svag.lab.report.charts import gap, ladder_error, signal_to_noise, statistics_drift, training_curves

BARS = "Bars: 95% intervals of the mean."
DASHED = "Dashed line: the error that the rule allows."
PINK = "Pink line and area: test error +20% over the lowest, with its 95% interval."
FRAME = "Dashed frame: the range of B*, where D reaches C², which is about training statistics."


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "ladder",
            (
                f"Test error is more than 20% above the lowest from batch size 415 [370, 519] on. {BARS} {DASHED} "
                f"{PINK} {FRAME}"
            ),
        ),
        (
            "ladder_never_fails",
            (
                "Test error is nowhere more than 20% above the lowest, up to batch size 128; 95% interval of where it "
                f"would be [128, ∞). {BARS} {DASHED} {FRAME}"
            ),
        ),
        (
            "ladder_one_seed",
            (
                "Not decided by test error: the means would put the failure at batch size 348, but there are too few "
                f"seeds for an interval. {DASHED}"
            ),
        ),
        (
            "ladder_diverged",
            (
                "Test error is more than 20% above the lowest from batch size 362 [256, ∞) on, as seeds diverged at "
                f"512. 2 seeds diverged at batch size 512 (✕). {BARS} {DASHED} {PINK} {FRAME}"
            ),
        ),
    ],
)
def test_under_the_errors_of_a_ladder(finding_of: Find, name: str, said: str) -> None:
    found = ladder_error.error_table(ladder(finding_of, name))
    assert ladder_error.error_sentence(found) == said
    without = ladder_error.error_sentence(replace(found, regions=[]))
    assert without == said.replace(f" {PINK}", "").replace(f" {FRAME}", ""), "only what is drawn is explained"


def test_under_the_ratio(finding_of: Find) -> None:
    found = signal_to_noise.table(ladder(finding_of, "ladder"))
    slope = "G/N grows with slope 1.00 [0.99, 1.00] (log–log); at slope 1, B_simple would not depend on the batch. "
    lines = (
        "Dashed line: G/N = C² = 2, the threshold in the paper's figures. Coloured dashes: slope 1 from a baseline; "
        "they reach the threshold at 756 and 751, the paper's plotted B*."
    )
    left_out = " Not shown, because G is not resolved or was not measured: B = 32."
    changed = (found, replace(found, slope=None), replace(found, left_out=[32]))
    assert [signal_to_noise.sentence(one) for one in changed] == [slope + lines, lines, slope + lines + left_out]


def test_under_the_drift(finding_of: Find) -> None:
    panel = ladder(finding_of, "ladder")
    assert panel.drift is not None
    pairs = tuple(replace(pair, second_moment_over_noise=pair.distortion) for pair in panel.drift.pairs)
    adam = replace(panel, drift=replace(panel.drift, compared="V", pairs=pairs))
    found, rings = statistics_drift.table(panel), statistics_drift.table(adam)
    assert found is not None
    assert rings is not None
    first = (
        "Scaling from batch size 16, training statistics must drift apart by a factor of 2 by B* = 409 [401, 417]; "
        "they did at 403 [390, 408], 0.98 [0.97, 1.01] of B*. Lines: the predicted distortion D with its 95% interval; "
    )
    theorem, estimate = "by a theorem, points lie on it or above.", "an estimate here: no theorem applies."
    points = " Points: the measured drift of {}, gradient |∇L|² and noise κN, with 95% intervals."
    norm, moment = points.format("weight norm |x|²"), points.format("second moment κV")
    assert [statistics_drift.sentence(one) for one in (found, replace(found, theorem=False), rings)] == [
        first + theorem + norm,
        first + estimate + norm,
        f"{first}{theorem}{moment} Rings: κV′/V over κN′/N, which D is an estimate of.",
    ]


def test_under_training_curves() -> None:
    two = [evaluation(0, 20, 0.5), evaluation(1, 20, 0.9)]
    lost = [evaluation(0, 0, 0.1), evaluation(0, 10, 0.4), evaluation(1, 20, 0.6)]
    bands = training_curves.table(two, [run(0), run(1)], "test_accuracy")
    crosses = training_curves.table(lost, [run(0, "diverged"), run(1)], "test_accuracy")
    assert [training_curves.sentence(one) for one in (bands, crosses)] == [
        "Lines: means over 2 seeds; bands: from the lowest to the highest seed.",
        "One seed a line. 1 run diverged, at the cross.",
    ]


def test_under_the_limit_and_the_gap(finding_of: Find) -> None:
    names = ("compare_different", "compare_diverged", "compare_inconclusive", "compare_one_seed")
    fitted, diverged, largest, none = (gap.limit_sentence(gap.limit_table(compare(finding_of, name))) for name in names)
    assert fitted == "The SDE limit is 84.73% [84.35%, 85.10%], fitted to all ell as E_∞ + c/ell."
    assert diverged.endswith("fitted to all ell as E_∞ + c/ell. Not shown: 2 diverged.")
    assert "because E_∞ + c/ell does not fit" in largest
    assert none.startswith("No SDE limit")
    rows = [
        gap.GapRow("a", "different", -0.05, -0.06, -0.04, 0.01),
        gap.GapRow("b", "inconclusive", math.nan, -math.inf, math.inf, 0.01),
    ]
    assert gap.sentence(rows, "test_accuracy") == (
        "a: different, −5.00 points [−6.00, −4.00]; b: inconclusive, unknown (−∞, ∞). Grey: the margin. Bars: 95% "
        "intervals. Equivalence is judged by two one-sided tests at 5%, so the bar of an equivalent pair may reach "
        "slightly beyond the margin."
    )
