"""Settings of SGD for one of l steps."""

import math

import pytest

from svag.theory.optimizers import refined_average, refined_sgd


@pytest.mark.parametrize("momentum", [0.1, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("limit", ["underdamped", "overdamped"])
def test_one_step_refines_nothing_bit_for_bit(momentum: float, limit: str) -> None:
    one = refined_sgd(1, lr=0.1, momentum=momentum, momentum_limit=limit)  # type: ignore[arg-type]
    assert (one.lr, one.momentum, one.dampening) == (0.1, momentum, 0.0)


@pytest.mark.parametrize("ell", [2, 3, 10])
def test_underdamped_is_the_textbook_rescaling_of_the_buffer(ell: int) -> None:
    """v = V l: v ← (1 − (1 − β)/l)v + g, x ← x − (η/l²)v."""
    refined = refined_sgd(ell, lr=0.4, momentum=0.7, momentum_limit="underdamped")
    assert refined.momentum == pytest.approx(1 - 0.3 / ell, rel=1e-14)
    assert refined.lr * (1 - refined.dampening) == pytest.approx(0.4 / ell**2, rel=1e-14)


def test_momentum_without_a_limit_and_unknown_limits_are_refused() -> None:
    with pytest.raises(ValueError, match=r"momentum=0\.9 has two limits"):
        refined_sgd(2, lr=0.1, momentum=0.9)
    with pytest.raises(ValueError, match="must be one of underdamped, overdamped, got 'naive'"):
        refined_sgd(2, lr=0.1, momentum=0.9, momentum_limit="naive")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"momentum must lie in \[0, 1\)"):
        refined_sgd(2, lr=0.1, momentum=1.0)


@pytest.mark.parametrize("rate", [0.0, 1e-12, 0.1, 0.999, 1.0])
@pytest.mark.parametrize("updates", [1, 2, 7, 100])
def test_an_average_forgets_as_much_in_the_same_time(rate: float, updates: int) -> None:
    assert (1 - refined_average(rate, updates)) ** updates == pytest.approx(1 - rate, rel=1e-12)
    if 0 < rate < 1e-6:  # where the obvious formula loses all digits
        assert refined_average(rate, updates) == pytest.approx(rate / updates, rel=1e-9)


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
def test_an_average_without_meaning_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="rate must"):
        refined_average(rate, 2)
