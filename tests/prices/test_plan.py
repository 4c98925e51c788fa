"""The plan: its arithmetic by hand, in exact fractions and against brute force."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from svag import GainPlan
from svag.theory.gain import Factors

TWO = GainPlan(16, 128, ((0, 4.0), (10, 8.0)), base_steps=20)


def random_plan(seed: int) -> GainPlan:
    """Gains are quarters and phases begin at quarters of a step, so that time is exact in floating point."""
    rng = np.random.default_rng(seed)
    starts = np.sort(rng.choice(np.arange(1, 160), size=4, replace=False)) / 4
    gains = rng.integers(4, 33, size=5) / 4
    return GainPlan(16, 128, tuple(zip([0.0, *starts], gains, strict=True)), base_steps=int(rng.integers(30, 60)))


def walked(plan: GainPlan) -> list[tuple[Fraction, Fraction]]:
    """Baseline time before and after each step, from the definition, in fractions."""
    time, length, found = Fraction(0), plan.base_steps or 0, []
    while time < length:
        gain = [Fraction(gain) for start, gain in plan.phases if start <= time][-1]
        ends = [Fraction(start) for start, _ in plan.phases if start > time]
        after = min([time + gain, Fraction(length), *ends])
        found.append((time, after))
        time = after
    return found


def cosine(step: int) -> float:
    return 0.5 * (1 + math.cos(math.pi * step / 60))


def test_the_gain_is_held_from_its_first_step_on_and_the_last_phase_has_no_end() -> None:
    assert [TWO.gain_at(step) for step in (0, 9.99, 10, 10_000)] == [4, 4, 8, 8]
    assert TWO.kappa == 8


def test_factors_follow_the_rule_of_the_optimizer() -> None:
    assert TWO.factors_at(3) == Factors(lr=4.0)
    adamw = GainPlan(16, 128, TWO.phases, rule="square_root", decoupled=True)
    assert adamw.factors_at(3) == Factors(lr=2.0, weight_decay=2.0, eps=0.5)


@pytest.mark.parametrize("seed", range(20))
def test_steps_are_those_that_the_definition_takes(seed: int) -> None:
    plan = random_plan(seed)
    time, steps = 0.0, []
    while time < (plan.base_steps or 0):
        gain, after = plan.next_step(time)
        steps.append((time, after))
        assert after - time == gain
        time = after
    assert steps == [(float(one), float(other)) for one, other in walked(plan)]
    assert plan.steps() == len(steps)


@pytest.mark.parametrize("gain", [1.1, math.pi, 7.3, 0.3 + 0.6 + 2.1])
def test_rounding_makes_no_extra_step(gain: float) -> None:
    """The time after n steps of a gain is only nearly n times the gain; the remainder is not a step of its own."""
    count = 5000
    plan = GainPlan(16, 128, ((0, gain), (count * gain, 2.0)))
    time = 0.0
    for _ in range(count):
        _, time = plan.next_step(time)
    assert time == count * gain
    length = math.ceil(count * gain) + 10
    assert plan.steps(length) == count + math.ceil((length - count * gain) / 2)


def test_a_phase_of_whole_steps_has_no_more_than_these() -> None:
    """21/1.4 is above 15 in floating point."""
    for tenths in range(11, 80):
        plan = GainPlan(16, 128, ((0, tenths / 10),))
        for length in range(1, 200):
            assert plan.steps(length) == -(-length * 10 // tenths)  # ⌈length/gain⌉ in whole numbers


def test_the_price_is_the_mean_of_one_over_the_gain() -> None:
    assert TWO.price() == 8 * (10 / 4 + 10 / 8) / 20
    assert TWO.price(40) == 8 * (10 / 4 + 30 / 8) / 40
    assert TWO.price(5) == 2.0, "phases beyond the end do not count"
    for seed in range(20):
        plan = random_plan(seed)
        with_cuts = plan.kappa * plan.steps() / (plan.base_steps or 0)
        assert plan.price() <= with_cuts + 1e-12
        assert with_cuts < plan.price() + plan.kappa * len(plan.phases) / (plan.base_steps or 0)


@pytest.mark.parametrize("seed", range(10))
def test_the_schedule_is_the_mean_over_each_step_by_brute_force(seed: int) -> None:
    plan = random_plan(seed)
    schedule = np.random.default_rng(seed + 100).random(plan.base_steps)
    found = plan.lr_lambda(lambda step: float(schedule[step]))
    for number, (time, after) in enumerate(walked(plan)):
        middles = np.arange(float(time) + 1 / 16, float(after), 1 / 8)  # no eighth contains a whole step's end
        expected = float(after - time) * schedule[middles.astype(int)].mean()
        assert found(number) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_the_sum_of_learning_rates_is_that_of_the_baseline(seed: int) -> None:
    plan = random_plan(seed)
    found = plan.lr_lambda(cosine)
    total = math.fsum(cosine(step) for step in range(plan.base_steps or 0))
    assert math.fsum(found(step) for step in range(plan.steps())) == pytest.approx(total, rel=1e-12)
    left_ends = [float(after - time) * cosine(int(time)) for time, after in walked(plan)]
    assert abs(math.fsum(left_ends) / total - 1) > 1e-3, "the schedule at the left end does not keep it"


def test_adam_takes_the_root_of_the_gain_and_the_same_mean() -> None:
    adam = GainPlan(16, 64, ((0, 4.0),), rule="square_root").lr_lambda(lambda step: step, base_steps=8)
    assert [adam(0), adam(1)] == [2 * 1.5, 2 * 5.5]


def test_the_same_batch_is_the_same_schedule_bit_for_bit() -> None:
    schedule = np.random.default_rng(0).random(200)
    found = GainPlan(16, 16, ((0, 1.0),)).lr_lambda(lambda step: float(schedule[step]), base_steps=200)
    assert [found(step) for step in range(200)] == schedule.tolist()
    assert found(200) == schedule[-1], "LambdaLR asks once more after the last step"


def test_torch_takes_the_schedule_as_it_is() -> None:
    plan = GainPlan(16, 64, ((0, 2.0), (4, 4.0)), base_steps=12)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, plan.lr_lambda(lambda step: 1.0 if step < 6 else 0.5))
    rates = []
    for _ in range(plan.steps()):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates == pytest.approx([0.2, 0.2, 0.3, 0.2], rel=1e-12)


def test_a_smaller_batch_takes_several_steps_for_one() -> None:
    plan = GainPlan(16, 8, ((0, 0.5),), base_steps=3)
    assert plan.steps() == 6
    assert plan.price() == 1.0
    assert [plan.lr_lambda(lambda step: step)(k) for k in range(6)] == [0, 0, 0.5, 0.5, 1, 1]


@pytest.mark.parametrize("plan", [TWO, random_plan(3), GainPlan(8, 4, ((0, 0.7),), rule="square_root", decoupled=True)])
def test_a_plan_survives_json(plan: GainPlan) -> None:
    assert GainPlan.from_json(plan.to_json()) == plan
    assert GainPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


def test_rows_say_where_phases_end_and_what_they_cost() -> None:
    first, last = TWO.rows()
    assert (first["start"], first["end"], first["gain"], first["price"], first["lr"]) == (0, 10, 4, 2, 4)
    assert last["end"] == 20
    assert GainPlan(16, 128, TWO.phases).rows()[1]["end"] is None


def test_a_plan_prints_within_a_terminal() -> None:
    assert "2.5" in str(GainPlan(16, 128, ((0, 2.5),)))
    assert max(len(line) for line in str(TWO).splitlines()) <= 80


@pytest.mark.parametrize(
    "wrong",
    [
        {"phases": ()},
        {"phases": "0 4"},
        {"phases": ((0, 4.0, 1.0),)},
        {"phases": ((1, 4.0),)},
        {"phases": ((0, 4.0), (10, 2.0), (10, 3.0))},
        {"phases": ((0, 0.9),)},
        {"phases": ((0, 8.1),)},
        {"phases": ((0, math.nan),)},
        {"batch_size": 0},
        {"base_steps": 0},
        {"rule": "quadratic"},
    ],
)
def test_what_is_no_plan_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must"):
        GainPlan.from_dict({**TWO.to_dict(), **wrong})


def test_unknown_and_missing_fields_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="kappa"):
        GainPlan.from_dict({**TWO.to_dict(), "kappa": 8})
    with pytest.raises(ValueError, match="batch_size"):
        GainPlan.from_dict({"base_batch_size": 16, "phases": [[0, 1.0]]})
    for text in ("[]", "{", "null"):
        with pytest.raises(ValueError, match="to_json"):
            GainPlan.from_json(text)


def test_a_length_is_asked_for_where_none_is_known() -> None:
    unknown = GainPlan(16, 128, TWO.phases)
    for call in (unknown.steps, unknown.price, lambda: unknown.lr_lambda(float)):
        with pytest.raises(ValueError, match="base_steps"):
            call()
    assert unknown.next_step(1000) == (8.0, 1008.0)
    with pytest.raises(ValueError, match=r"\bstep 20\b"):
        TWO.next_step(20)
