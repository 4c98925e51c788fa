"""Slopes of errors that are known, Richardson's trick, and what each process does to the cumulants."""

import numpy as np
import pytest

from svag.paper.exact.processes import EulerMaruyama, SmallerBatches, Svag, WeakOrder, measure_weak_order, richardson


def test_slopes_and_order_of_a_known_error() -> None:
    ells = (16.0, 64.0, 256.0)
    order = WeakOrder(ells, np.array([[3 / ell, 5 / ell**2] for ell in ells]))
    np.testing.assert_allclose(order.slopes, [[-1, -2], [-1, -2]])
    np.testing.assert_allclose(order.order, [1, 2])


def test_the_maximum_is_over_all_steps() -> None:
    order = measure_weak_order(
        (2, 4), lambda ell: np.array([[0.0], [8 / ell], [1 / ell]]), lambda ell: np.zeros((3, 1))
    )
    np.testing.assert_allclose(order.errors, [[4.0], [2.0]])


def test_richardson_cancels_what_it_should() -> None:
    def value(ell: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return np.array([7 + 3 / ell + 2 / ell**2])

    first = [richardson(value(ell), value(2 * ell)) - 7 for ell in (8, 16)]
    assert first[0] / first[1] == pytest.approx(4)


def test_processes_keep_the_mean_and_amplify_the_covariance() -> None:
    for process in (Svag(8), Svag(8, 4), EulerMaruyama(8), SmallerBatches(8)):
        assert process.cumulant_factor(1) == 1
        assert process.cumulant_factor(2) == pytest.approx(8)
    third = [process(8).cumulant_factor(3) for process in (Svag, EulerMaruyama, SmallerBatches)]
    assert third == [11.5, 0, 64]
