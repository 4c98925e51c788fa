"""The range of a price: weights by hand, coverage over ladders, and the numbers of the committed pairs."""

import math
from typing import Any

import numpy as np
import pytest
from tests.docs.tools import load

from svag.prices.ranges import Calibration, committed, price_range

tool = load("make_ranges")


def test_the_package_has_the_table_that_the_records_give() -> None:
    assert tool.TABLE.read_text(encoding="utf-8") == tool.table(), "run `python tools/make_ranges.py`"


def test_the_numbers_of_the_committed_pairs() -> None:
    """By hand: each of 36 pairs weighs 1/38, so that 0.9 of the weight ends at the 35th from either side."""
    found = committed()
    assert (len(found.ladders), {len(ratios) for ratios in found.ladders}) == (18, {2})
    ratios = sorted(ratio for one in found.ladders for ratio in one)
    assert price_range() == (ratios[1], ratios[-2]) == (0.603, 1.102)
    assert math.isinf(ratios[-1]), "a planned run that did not reach its baseline's loss"
    assert found.upper(0.99) == math.inf


def test_weights_by_hand() -> None:
    """Three ladders: weights 1/4; 1/8, 1/8; 1/12 three times; 1/4 is beyond."""
    found = Calibration("", ((1.0,), (0.5, 2.0), (0.8, 1.2, math.inf)))
    # from below: .5 (1/8), .8 (5/24), 1.0 (11/24), 1.2 (13/24), 2.0 (2/3), ∞ (3/4)
    for level, ratio in ((0.125, 0.5), (0.126, 0.8), (11 / 24, 1.0), (0.46, 1.2), (0.6, 2.0), (0.7, math.inf)):
        assert found.upper(level) == ratio
    # from above: ∞ (1/12), 2.0 (5/24), 1.2 (7/24), 1.0 (13/24), .8 (5/8), .5 (3/4), 0
    for level, ratio in ((0.2, 2.0), (0.25, 1.2), (0.5, 1.0), (0.6, 0.8), (0.75, 0.5), (0.76, 0.0)):
        assert found.lower(level) == ratio


@pytest.mark.parametrize(("ladders", "known"), [(8, False), (9, True)])
def test_a_two_sided_range_of_80_percent_needs_nine_ladders(ladders: int, known: bool) -> None:
    low, high = price_range(calibration=Calibration("", tuple((0.5 + one,) for one in range(ladders))))
    assert (low > 0, math.isfinite(high)) == (known, known)


def test_a_new_ladder_lies_within_as_often_as_promised() -> None:
    """2,000 sets of 12 ladders that differ more than their pairs; pairs as units promise too much."""
    rng, trials, level = np.random.default_rng(0), 2000, 0.8
    inside: list[bool] = []
    as_pairs: list[bool] = []
    for _ in range(trials):
        ladders = [tuple(np.exp(rng.normal() + 0.1 * rng.normal(size=rng.integers(1, 7)))) for _ in range(13)]
        new = rng.choice(ladders[-1])
        for units, found in ((ladders[:-1], inside), ([(r,) for one in ladders[:-1] for r in one], as_pairs)):
            low, high = price_range(level=level, calibration=Calibration("", tuple(units)))
            found.append(low <= new <= high)
    # error rate 1e-6: z = 4.9
    allowed = 4.9 * math.sqrt(level * (1 - level) / trials)
    assert np.mean(inside) > level - allowed
    assert np.mean(as_pairs) < level, "the control: pairs of one ladder are not independent"


def test_only_more_sampling_error_than_the_calibration_had_widens_the_range() -> None:
    found = Calibration("", tuple((0.5 + one,) for one in range(9)), log_error=0.05)
    plain = price_range(calibration=found)
    assert price_range(log_error=0.05, calibration=found) == plain
    low, high = price_range(log_error=0.13, calibration=found)  # 5, 12, 13
    assert math.log(high / plain[1]) == pytest.approx(1.2815515655446004 * 0.12, rel=1e-9)
    assert math.log(plain[0] / low) == pytest.approx(1.2815515655446004 * 0.12, rel=1e-9)


@pytest.mark.parametrize("wrong", [{"level": 1.0}, {"level": 0.0}, {"log_error": -0.1}, {"log_error": math.nan}])
def test_what_is_no_level_or_error_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        price_range(**wrong)
