import math

import numpy as np
import pytest

from svag.findings.scaling_verdict import crossing

RUNGS = np.array([16.0, 32.0, 128.0, 1024.0])


def test_the_crossing_is_linear_in_the_logarithm() -> None:
    errors = np.array([0.11, 0.10, 0.11, 0.17])  # threshold .12, a sixth of the way from 128 to 1024
    found, same = crossing(RUNGS, errors, 0.2)
    assert found == same == pytest.approx(128 * 8 ** (1 / 6), rel=1e-10)


def test_the_answers_at_the_ends_of_the_ladder() -> None:
    assert crossing(RUNGS, np.array([0.1, 0.1, 0.11, 0.12]), 0.25) == (1024.0, math.inf)
    assert crossing(RUNGS, np.array([0.2, 0.1, 0.1, 0.1]), 0.2) == (0.0, 16.0)


def test_diverged_rungs_fail_without_a_place_to_interpolate_to() -> None:
    inf = math.inf
    assert crossing(RUNGS, np.array([0.1, 0.1, inf, inf]), 0.2) == (32.0, 128.0)
    assert crossing(RUNGS, np.array([inf, 0.1, 0.1, 0.1]), 0.2) == (0.0, 16.0)
    assert crossing(RUNGS, np.full(4, inf), 0.2) == (0.0, 16.0)


def test_exactly_on_the_tolerance_still_passes() -> None:
    assert crossing(RUNGS, np.array([0.5, 0.5, 0.5, 0.75]), 0.5) == (1024.0, math.inf)
