import numpy as np
import pytest

from svag.stats.series import independent_blocks, plan_blocks


def test_the_oldest_readings_that_fill_no_block_are_left_out() -> None:
    plan = plan_blocks(207, iact=1.0)
    assert (plan.blocks, plan.length) == (20, 10)
    assert plan.means(np.arange(207.0))[0] == np.arange(7.0, 17.0).mean()
    assert plan.means(np.arange(207.0))[-1] == np.arange(197.0, 207.0).mean()


def test_blocks_never_get_shorter_than_ten_autocorrelation_times() -> None:
    assert plan_blocks(199, iact=1.0).blocks == 19
    assert plan_blocks(1000, iact=7.01).length == 71
    assert not plan_blocks(1000, iact=7.01).enough
    assert plan_blocks(5, iact=1.0).blocks == 0


def test_a_plan_is_for_one_length() -> None:
    with pytest.raises(ValueError, match="the plan is for 40 readings, got 41"):
        independent_blocks(40).means(np.zeros(41))
    assert np.array_equal(independent_blocks(3).means([3.0, 1.0, 2.0]), [3.0, 1.0, 2.0])
