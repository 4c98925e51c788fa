"""Ctrl-C at random bytecodes of a step, with a seed that changes every day: what is left is the end of some step."""

import datetime as dt
from collections.abc import Callable

import pytest
from tests.dynamics.interrupting import RUNS, interrupted

INTERRUPTS = 1000


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_thousand_interrupts_leave_whole_steps(
    name: str, say: Callable[[str], None], seeded: Callable[[int], int]
) -> None:
    seed = seeded(dt.datetime.now(dt.UTC).date().toordinal())
    wrong, right = interrupted(*RUNS[name], INTERRUPTS, seed)
    say(f"{INTERRUPTS} interrupts of {name} (seed {seed}): {len(wrong)} wrong, after {right} whole steps")
    assert wrong == []
    whole = RUNS[name][1]
    assert all(right[:1] if whole else right)  # few interrupts come between the last sub-step and the end of the step
