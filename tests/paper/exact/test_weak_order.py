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
    assert richardson(np.array([7 + 3 / 8]), np.array([7 + 3 / 32]), ratio=4) == pytest.approx(7)
    second = richardson(richardson(value(8), value(16)), richardson(value(16), value(32)), order=2)
    assert second == pytest.approx(7, abs=1e-12)
    with pytest.raises(ValueError, match=r"^ratio\b"):
        richardson(value(1), value(1), ratio=1)


@pytest.mark.parametrize("refinements", [(4,), (8, 4), (4, 4)])
def test_refinements_must_increase(refinements: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="increasing"):
        measure_weak_order(refinements, lambda ell: np.zeros((1, 1)), lambda ell: np.zeros((1, 1)))


@pytest.mark.parametrize("process", [Svag, EulerMaruyama, SmallerBatches])
@pytest.mark.parametrize("ell", [0, 1.5, -2])
def test_ell_is_a_whole_number(process: type[Svag | EulerMaruyama | SmallerBatches], ell: float) -> None:
    with pytest.raises(ValueError, match="ell"):
        process(ell)  # type: ignore[arg-type]


def test_processes_keep_the_mean_and_amplify_the_covariance() -> None:
    for process in (Svag(8), Svag(8, 4), EulerMaruyama(8), SmallerBatches(8)):
        assert process.cumulant_factor(1) == 1
        assert process.cumulant_factor(2) == pytest.approx(8)
    third = [process(8).cumulant_factor(3) for process in (Svag, EulerMaruyama, SmallerBatches)]
    assert third == [11.5, 0, 64]
