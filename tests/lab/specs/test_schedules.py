"""Schedules are functions of the effective step: the paper's, by their values."""

import math

import pytest
from tests.lab.specs.specs import base

from svag.lab.specs.fields import step_of
from svag.lab.specs.schedules import Constant, Cosine, Steps, Triangle


def test_steps_decay_at_their_times_and_not_before() -> None:
    schedule = Steps(at=(0.5, 75), factor=0.1)
    assert [schedule.multiplier(step, 100) for step in (0, 49, 50, 74, 75, 99)] == pytest.approx(
        [1, 1, 0.1, 0.1, 0.01, 0.01], rel=1e-15
    )


def test_a_fraction_is_the_nearest_step() -> None:
    assert step_of(0.29, 100) == 29  # 0.29 × 100 is 28.999999999999996


def test_cosine_goes_from_the_learning_rate_to_the_floor() -> None:
    """fig:app_svag_cosine: .8 → .001."""
    schedule = Cosine(floor=0.001 / 0.8)
    assert 0.8 * schedule.multiplier(0, 62_400) == pytest.approx(0.8, rel=1e-15)
    assert 0.8 * schedule.multiplier(31_200, 62_400) == pytest.approx((0.8 + 0.001) / 2, rel=1e-12)
    assert 0.8 * schedule.multiplier(62_399, 62_400) == pytest.approx(0.001, rel=1e-5)


def test_triangle_has_the_corners_of_the_paper() -> None:
    """fig:app_svag_triangle: .001 → .8 → .001 → .4 → .001 in quarters of 62,400."""
    schedule = Triangle(peaks=(1.0, 0.5), floor=0.00125)
    rates = [0.8 * schedule.multiplier(quarter * 15_600, 62_400) for quarter in range(4)]
    assert rates == pytest.approx([0.001, 0.8, 0.001, 0.4], rel=1e-12)
    assert 0.8 * schedule.multiplier(7_800, 62_400) == pytest.approx((0.001 + 0.8) / 2, rel=1e-12)
    assert 0.8 * schedule.multiplier(62_399, 62_400) == pytest.approx(0.001, rel=0.05)


@pytest.mark.parametrize("schedule", [Constant(warmup=10), Cosine(warmup=0.1), Steps(warmup=10, at=(0.5,))])
def test_warm_up_multiplies_any_schedule(schedule: Constant | Cosine | Steps) -> None:
    bare = schedule.model_copy(update={"warmup": 0})
    for step in range(100):
        expected = min(1.0, (step + 1) / 10) * bare.multiplier(step, 100)
        assert math.isclose(schedule.multiplier(step, 100), expected, rel_tol=1e-15)


def test_a_schedule_is_drawn_without_training() -> None:
    spec = base({"budget": 8, "schedule": {"kind": "steps", "at": [6], "factor": 0.5}})
    assert [spec.learning_rate(step) for step in range(8)] == [0.1] * 6 + [0.05] * 2
