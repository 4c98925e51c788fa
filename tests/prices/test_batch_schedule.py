"""The batch size that a price allows along a run."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from svag.prices.batch_schedule import batch_schedule
from svag.prices.estimate import Estimate
from svag.prices.history import History, Phase
from svag.theory.gain import gain


def phase(start: int, end: int, ratio: float, error: float = 0.0) -> Phase:
    limits = (ratio * math.exp(-1.28 * error), ratio * math.exp(1.28 * error))
    return Phase(start, end, 50, Estimate(ratio, *limits), *limits, signal_error=error / ratio)


def history(*ratios: float, error: float = 0.0, batch_size: int = 16, **changes: Any) -> History:
    phases = tuple(phase(100 * i, 100 * (i + 1), ratio, error) for i, ratio in enumerate(ratios))
    return replace(History(batch_size, 100 * len(ratios), phases, starts_at=0), **changes)


def test_the_batch_is_the_largest_power_of_two_that_this_and_all_later_phases_allow() -> None:
    found = batch_schedule(history(2.0, 40.0, 14.0, 70.0), max_price=1.5)
    # 1.5 + .5ρ = 2.5, 21.5, 8.5, 36.5, and the second must not exceed the third
    assert [row.batch_size // 16 for row in found.rows] == [2, 8, 8, 32]


def test_it_saves_one_minus_the_mean_of_one_over_the_gain() -> None:
    found = batch_schedule(history(2.0, 14.0), max_price=1.5)
    gains = [2 * 3 / 4, 8 * 15 / 22]
    assert [row.gain for row in found.rows] == pytest.approx(gains, rel=1e-12)
    assert found.steps_saved == pytest.approx(1 - (1 / gains[0] + 1 / gains[1]) / 2, rel=1e-12)
    assert found.price == pytest.approx((2 / gains[0] + 8 / gains[1]) / 2, rel=1e-12)


def test_rows_begin_where_the_examples_before_them_end() -> None:
    found = batch_schedule(history(2.0, 14.0), max_price=1.5)
    first, second = found.rows
    assert (first.from_examples, first.from_step) == (0, 0)
    assert second.from_step == 100
    assert second.from_examples == round(100 / first.gain * first.batch_size)
    assert found.batch_size_at(0) == found.batch_size_at(second.from_examples - 1) == 32
    assert found.batch_size_at(second.from_examples) == found.batch_size_at(10**9) == 128
    assert first.factors.lr == first.gain


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("most", [1.05, 1.25, 2.0])
def test_no_phase_costs_more_than_was_allowed_and_the_batch_never_shrinks(seed: int, most: float) -> None:
    ratios = np.random.default_rng(seed).lognormal(2.0, 1.5, size=8)
    given = history(*ratios, error=0.2)
    found = batch_schedule(given, max_price=most)
    for phase in given.phases:
        kappa = [row.batch_size for row in found.rows if row.from_step <= phase.start][-1] / 16
        assert kappa / gain(phase.ratio_used(kappa), kappa) <= most * (1 + 1e-12)
    sizes = [row.batch_size for row in found.rows]
    assert sizes == sorted(sizes)
    assert found.price <= most


def test_the_lower_limit_counts() -> None:
    sure, unsure = (batch_schedule(history(40.0, error=error), 1.25).rows[0].batch_size for error in (0.0, 0.5))
    assert (sure, unsure) == (8 * 16, 4 * 16)  # 1.25 + .25·40 = 11.25, and 1.25 + .25·21


def test_a_gradient_estimated_below_zero_allows_no_more_than_its_error_can_tell() -> None:
    nothing = Phase(0, 100, 50, Estimate(math.inf, 90.0, math.inf), math.inf, math.inf, signal_error=0.02)
    found = batch_schedule(History(16, 100, (nothing,), starts_at=0), max_price=1.5)
    assert found.rows[0].batch_size == 16 * 16  # 1.5 + .5/(1.2816·.02) = 21
    with pytest.raises(ValueError, match="more readings"):
        batch_schedule(History(16, 100, (replace(nothing, signal_error=0.0),), starts_at=0))


def test_any_base_is_doubled_and_never_beyond_the_population() -> None:
    assert batch_schedule(history(14.0, batch_size=12), 1.5).rows[0].batch_size == 96
    assert batch_schedule(history(14.0, population=100), 1.5).rows[0].batch_size == 64


def test_adam_takes_the_square_root_rule() -> None:
    found = batch_schedule(history(14.0, rule="square_root", decoupled=True), 1.5).rows[0]
    assert found.factors.lr == found.factors.weight_decay == math.sqrt(found.gain)


def test_without_steps_there_is_one_row() -> None:
    found = batch_schedule(replace(history(14.0), base_steps=None), 1.5)
    assert [row.batch_size for row in found.rows] == [128]
    assert found.steps_saved == pytest.approx(1 - 22 / (8 * 15), rel=1e-12)


def test_it_prints_and_is_json() -> None:
    found = batch_schedule(history(2.0, 14.0), 1.5)
    assert json.loads(json.dumps(found.to_dict()))["rows"][1]["batch_size"] == 128
    assert "128" in str(found)
    assert "higher price" in str(batch_schedule(history(2.0), 1.01))


@pytest.mark.parametrize("wrong", [1.0, 0.5, math.inf, math.nan])
def test_a_price_of_at_most_one_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="max_price"):
        batch_schedule(history(2.0), wrong)
