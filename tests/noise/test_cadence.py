"""`every="auto"`: k is what two kinds of step cost, by a clock that the tests set."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.noise.nets import data, loss_of, net, sgd

from svag import NoiseProbe
from svag.noise.cadence import Cadence, chosen


class Clock:
    """A clock that the test moves on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr("svag.noise.cadence.perf_counter", found)
    return found


def steps_measured(cadence: Cadence, clock: Clock, steps: int, cost: Callable[[int, bool], float]) -> list[int]:
    found = []
    for step in range(steps):
        due = cadence.next(step)
        clock.now += cost(step, due)
        if due:
            found.append(step)
    return found


@pytest.mark.parametrize(
    ("plain", "ratio", "k", "share"),
    [
        (1.0, 1.0, 1, 0.028),
        (1.0, 1.027, 1, 0.028),
        (1.0, 1.029, 2, 0.028),
        (1.0, 1.2, 8, 0.028),
        (1.0, 2.9, 68, 0.028),
        (1.0, 0.5, 1, 0.028),
        (1e-3, 1.2, 25, 0.008),  # calls in the steps that are not measured take 20 µs of each
        (3e-4, 1.2, 40, 0.005),
    ],
)
def test_k_is_the_smallest_that_costs_its_share(plain: float, ratio: float, k: int, share: float, clock: Clock) -> None:
    cadence = Cadence("auto")
    found = steps_measured(cadence, clock, 2000, lambda _, due: plain * (ratio if due else 1.0))
    assert cadence.every == k == chosen(plain, plain * ratio)
    assert found[:10] == list(range(0, 50, 5))
    assert found[10] == max(50, 10 * k)
    assert {after - before for before, after in itertools.pairwise(found[10:])} == {k}
    assert cadence.readings(2000) == len(found)
    for steps in range(max(50, 10 * k), 2000, 7):  # from where the timed steps are paid back, at any moment
        assert sum(step < steps for step in found) * (ratio - 1) <= share * (steps + k) + 1e-9
    if k > 1:  # the negative control: one step less apart is too dear
        assert (ratio - 1) / (k - 1) > 0.999 * share


def test_the_first_steps_and_rare_long_ones_do_not_count(clock: Clock) -> None:
    """Compiling, the check of the loss, evaluations and checkpoints."""
    cadence = Cadence("auto")

    def cost(step: int, due: bool) -> float:
        if step < 5 or step % 17 == 0:
            return 100.0
        return 1.2 if due else 1.0

    steps_measured(cadence, clock, 60, cost)
    assert cadence.every == 8


def test_a_number_is_that_number_and_no_clock_is_read() -> None:
    cadence = Cadence(3, wait=lambda: pytest.fail("nothing is timed"))
    assert [step for step in range(10) if cadence.next(step)] == [0, 3, 6, 9]
    assert cadence.readings(10) == 4
    cadence.load_state_dict({"every": 7, "first": 50})
    assert cadence.every == 3
    for wrong in (0, 2.5, "often"):
        with pytest.raises((TypeError, ValueError), match="every"):
            Cadence(wrong)  # type: ignore[arg-type]


def test_what_was_chosen_is_part_of_a_checkpoint(clock: Clock) -> None:
    first, again = Cadence("auto"), Cadence("auto")
    found = steps_measured(first, clock, 300, lambda _, due: 1.2 if due else 1.0)
    again.load_state_dict(first.state_dict())
    assert [step for step in range(80, 300) if again.next(step)] == [step for step in found if step >= 80]
    # from before the choice, the steps that follow are timed
    early, later = Cadence("auto"), Cadence("auto")
    steps_measured(early, clock, 20, lambda _, due: 1.0)
    later.load_state_dict(early.state_dict())
    for step in range(20, 90):
        clock.now += 1.4 if later.next(step) else 1.0
    assert later.every == 15


def trained(clock: Clock, probe: NoiseProbe, model: torch.nn.Module, sizes: list[int], steps: int) -> None:
    """A step in parts takes 1.4 seconds, a whole one 1."""

    def loss_fn(batch: Any) -> torch.Tensor:
        sizes.append(len(batch[1]))
        clock.now += 1.0 if len(batch[1]) == 16 else 0.35
        return loss_of(model)(batch)

    for _ in range(steps):
        model.zero_grad()
        probe.backward(loss_fn, data(16))


def test_a_probe_takes_the_other_steps_whole_and_resumes_with_its_choice(clock: Clock) -> None:
    model, sizes = net(), list[int]()
    probe = NoiseProbe(model, sgd(model), batch_size=16, every="auto", check_loss=False)
    assert "timed" in str(probe)
    trained(clock, probe, model, sizes, 240)
    assert [reading.step for reading in probe.readings] == [*range(0, 50, 5), *range(150, 240, 15)]
    assert (sizes.count(16), sizes.count(4)) == (240 - 16, 16 * 4)
    assert "15 steps" in str(probe)
    state = probe.state_dict()
    probe.close()
    again = NoiseProbe(model, sgd(model), batch_size=16, every="auto")
    again.load_state_dict(state)
    trained(clock, again, model, sizes, 30)
    assert [reading.step for reading in again.readings][-2:] == [240, 255]


def test_the_device_is_waited_for_while_steps_are_timed_and_never_after(clock: Clock) -> None:
    waits = []
    cadence = Cadence("auto", wait=lambda: waits.append(clock.now))
    steps_measured(cadence, clock, 100, lambda _, due: 1.0)
    assert len(waits) == 51


def test_ranks_take_the_choice_of_the_first(two: list[Any]) -> None:
    """Their clocks run differently."""
    for rank in two:
        for found in rank["auto"]:
            assert found["chosen"] == 15
            assert found["steps"] == [*range(0, 50, 5), *range(150, 210, 15)]
    assert two[0]["own"] != two[1]["own"]
