import json
import math

import numpy as np
import pytest

from svag.paper.verify import LABELS, verify
from svag.paper.verify.check import Check, claims, z_score

claim, control = claims("thm:sde_svag")


@pytest.mark.parametrize(
    ("check", "passed", "tolerance"),
    [
        (claim.near("slope", -1.009, -1, 0.01), True, "-1 ± 0.01"),
        (claim.near("slope", -1.011, -1, 0.01), False, "-1 ± 0.01"),
        (claim.at_most("error", 1e-13, 1e-12), True, "≤ 1e-12"),
        (claim.at_most("error", 2e-12, 1e-12), False, "≤ 1e-12"),
        (claim.at_least("gap", 3.0, 2.0), True, "≥ 2"),
        (claim.at_least("gap", 1.0, 2.0), False, "≥ 2"),
        (claim.at_most("error", math.nan, 1.0), False, "≤ 1"),
        (claim.at_least("error", math.nan, 1.0), False, "≥ 1"),
    ],
)
def test_a_check_passes_inside_its_range_only(check: Check, passed: bool, tolerance: str) -> None:
    assert check.passed is passed
    assert check.tolerance == tolerance


def test_a_check_is_json_even_when_it_is_not_a_number() -> None:
    assert json.loads(json.dumps(control.at_most("error", math.nan, 1.0).to_dict(), allow_nan=False))["control"] is True


def test_z_score_by_hand() -> None:
    assert z_score(np.array([1.0, 3.0])) == pytest.approx(2.0)


def test_a_choice_of_labels_does_not_change_the_numbers() -> None:
    alone = verify(["thm:test"])
    together = [check for check in verify(["lem:sc", "thm:test"]) if check.label == "thm:test"]
    assert alone == together


def test_every_label_with_a_correction_has_a_negative_control() -> None:
    """The labels whose printed statement is wrong, plus the one whose mistakes are tempting."""
    corrected = {"lem:D", "thm:one_step_to_multi_steps", "app:lem:ito_taylor", "eq:norm_sde_wd", "thm:sde_svag"}
    assert corrected <= set(LABELS)
    assert {check.label for check in verify(corrected) if check.control} == corrected
