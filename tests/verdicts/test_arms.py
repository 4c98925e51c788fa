import math

import numpy as np
import pytest

from svag.verdicts.arms import ArmSummary, describe, read_arms


def test_arms_come_in_order_and_count_what_diverged() -> None:
    arms = read_arms("finals", {16: [1.0, math.nan, math.inf], 1: np.array([2.0, 4.0])}, "ell")
    assert [(arm.key, arm.seeds, arm.diverged, arm.has_spread) for arm in arms] == [(1, 2, 0, True), (16, 3, 2, False)]
    assert arms[1].summary() == ArmSummary(16, 3, 2, 1.0)


def test_an_arm_that_diverged_altogether_has_no_mean() -> None:
    (arm,) = read_arms("finals", {1: [math.nan]}, "ell")
    assert math.isnan(arm.summary().mean)
    assert arm.summary().to_dict("ell") == {"ell": 1, "seeds": 1, "diverged": 1, "mean": None}


@pytest.mark.parametrize(
    ("arms", "named"),
    [
        ({}, r"^finals\b.*got \{\}"),
        ([1.0, 2.0], r"^finals\b.*got \[1\.0, 2\.0\]"),
        ({1: 93.1}, r"^finals\[1\] .*got 93\.1"),
        ({1: []}, r"^finals\[1\] .*got \[\]"),
        ({1: [[1.0]]}, r"^finals\[1\] "),
        ({1: ["a"]}, r"^finals\[1\] "),
        ({"1": [1.0]}, r"\bfinals\b.*'1'"),
        ({0: [1.0]}, r"^ell\b.*got 0"),
        ({1.5: [1.0]}, r"^ell\b.*got 1\.5"),
    ],
)
def test_what_is_not_a_table_of_seeds_is_refused(arms: dict[int, list[float]], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        read_arms("finals", arms, "ell")


def test_the_description_hides_no_divergence() -> None:
    assert describe([ArmSummary(32, 3, 0, 0.1)], "batch size") == "3 seeds at batch size = 32"
    assert "diverged: 1 of 3 at ell=4" in describe([ArmSummary(4, 3, 1, 0.1)], "ell")
