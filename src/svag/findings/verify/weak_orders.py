"""Weak orders on the beds: which slopes a family of processes shows in l."""

from collections.abc import Callable, Sequence

import numpy as np

from svag.arrays import FloatArray
from svag.exact.affine import AffineProblem
from svag.exact.orbit import orbit
from svag.exact.processes import CharacteristicProcess, Ito, Limit, Process
from svag.exact.weak_order import WeakOrder, measure_weak_order, richardson
from svag.findings.verify.beds import CIRCLE, EFFECTIVE_STEPS

ELLS = (16, 64, 256)
ONE_STEP_ELLS = (256, 1024, 4096)  # a single step is cheap, and its error has a longer way to its asymptote
DEGREES = 4
SLOPE = 0.01
RICHARDSON_SLOPE = 0.03


def affine_order(
    bed: AffineProblem, process: Callable[[int], Process], limit: Limit, ells: Sequence[int] = ELLS
) -> WeakOrder:
    """Order in l of x, x², x³, x⁴ with affine gradients, maximum over all steps."""
    return measure_weak_order(
        ells,
        lambda ell: bed.moments(process(ell), EFFECTIVE_STEPS, DEGREES)[:, 1:],
        lambda ell: bed.limit_moments(limit, EFFECTIVE_STEPS, DEGREES, ell)[:, 1:],
    )


def circle_order(process: Callable[[int], CharacteristicProcess], limit: Limit) -> WeakOrder:
    """Order in l of cos x, sin x, cos 2x, sin 2x on the circle, maximum over all steps."""
    return measure_weak_order(ELLS, lambda ell: _circle_path(process(ell)), lambda ell: _circle_limit(limit, ell))


def affine_richardson_order(bed: AffineProblem, process: Callable[[int], Process]) -> WeakOrder:
    """Order in l of 2E(2l) − E(l) with affine gradients, maximum over effective steps."""
    return _richardson_order(
        lambda ell: bed.moments(process(ell), EFFECTIVE_STEPS, DEGREES)[::ell, 1:],
        bed.limit_moments(Ito(), EFFECTIVE_STEPS, DEGREES)[:, 1:],
    )


def circle_richardson_order(process: Callable[[int], CharacteristicProcess]) -> WeakOrder:
    """Order in l of 2E(2l) − E(l) on the circle, maximum over effective steps."""
    return _richardson_order(lambda ell: _circle_path(process(ell))[::ell], _circle_limit(Ito(), 1))


def one_step_order(bed: AffineProblem, process: Callable[[int], Process]) -> WeakOrder:
    """Order in l of E Δ, E Δ², E Δ³ of one step of η/l against the SDE's over the same time (lem:D, lem:Dtil)."""
    origin = bed.recentred()
    return measure_weak_order(
        ONE_STEP_ELLS,
        lambda ell: origin.step_matrix(process(ell), 3)[None, 1:, 0],
        lambda ell: origin.limit_moments(Ito(), 1, 3, ell)[1:2, 1:],
    )


def furthest(values: FloatArray, target: float) -> float:
    """The value furthest from its target: the one that decides."""
    return float(values.flat[np.argmax(np.abs(values - target))])


def _richardson_order(path: Callable[[int], FloatArray], limit: FloatArray) -> WeakOrder:
    return measure_weak_order((32, 64, 128), lambda ell: richardson(path(ell), path(2 * ell)), lambda ell: limit)


def _circle_path(process: CharacteristicProcess) -> FloatArray:
    return _circle_orbit(CIRCLE.step_matrix(process), EFFECTIVE_STEPS * process.ell)


def _circle_limit(limit: Limit, ell: int) -> FloatArray:
    return _circle_orbit(CIRCLE.flow(limit, CIRCLE.lr / ell), EFFECTIVE_STEPS * ell)


def _circle_orbit(step: FloatArray, steps: int) -> FloatArray:
    """E f at one start after each step, for the four test functions."""
    x, start = CIRCLE.grid, 5
    functions = np.stack([np.cos(x), np.sin(x), np.cos(2 * x), np.sin(2 * x)], axis=1)
    at_start: FloatArray = orbit(step, functions, steps)[:, start]
    return at_start
