"""The order of a weak approximation, from errors at several refinements (def:weak_approx), and Richardson's trick."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from svag.arrays import FloatArray


@dataclass(frozen=True)
class WeakOrder:
    """How fast a process approaches a limit, per test function.

    Attributes:
        refinements: the values of l (or of 1/η), increasing.
        errors: the weak error, one row a refinement, one column a test function.
    """

    refinements: tuple[float, ...]
    errors: FloatArray

    @property
    def slopes(self) -> FloatArray:
        """Local slopes d log error / d log refinement between neighbouring refinements, one row a pair."""
        rise: FloatArray = np.diff(np.log(self.errors), axis=0)
        run: FloatArray = np.diff(np.log(self.refinements))
        return rise / run[:, None]

    @property
    def order(self) -> FloatArray:
        """The order per test function: minus the slope between the two finest refinements."""
        finest: FloatArray = self.slopes[-1]
        return -finest

    @property
    def limit_constant(self) -> FloatArray:
        """l × error at the finest refinement: the C of an error C/l."""
        finest: FloatArray = self.errors[-1]
        return self.refinements[-1] * finest


def measure_weak_order(
    refinements: Sequence[int], path: Callable[[int], FloatArray], limit: Callable[[int], FloatArray]
) -> WeakOrder:
    """Weak error, *maximum over k* as in thm:sde_svag, of `path(l)` against `limit(l)` for each refinement l.

    Both return expectations with one row a step and one column a test function.
    """
    if len(refinements) < 2 or list(refinements) != sorted(set(refinements)):
        raise ValueError(f"at least two increasing refinements are needed, got {list(refinements)}")
    errors = [np.abs(path(ell) - limit(ell)).max(axis=0) for ell in refinements]
    return WeakOrder(tuple(float(ell) for ell in refinements), np.array(errors))


def richardson(coarse: FloatArray, fine: FloatArray, ratio: float = 2.0, order: int = 1) -> FloatArray:
    """Cancel the leading error c/l^order of two values whose refinements differ by `ratio`.

    `(ratio^order · fine − coarse) / (ratio^order − 1)`: 2E_{2l} − E_l for neighbours of order 1.

    >>> richardson(np.array([1 + 1 / 4]), np.array([1 + 1 / 8]))
    array([1.])
    """
    factor = ratio**order
    if factor <= 1:
        raise ValueError(f"ratio and order must make a factor above 1, got {ratio}^{order}")
    return (factor * fine - coarse) / (factor - 1)
