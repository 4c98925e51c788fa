"""The two drawings of the paper that hold no data, with numbers: the diagram of limits, and the idea of the proof.

- fig:diagram: SGD and noisy gradient descent as η/l → 0 along SVAG and along the linear scaling rule, with the order at
  which each arrives at its limit.
- fig:app_proof_overview: SVAG for j steps, then the SDE. Neighbours among these hybrids differ by one step.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import expm

from svag.paper.exact.affine import AffineProblem, orbit
from svag.paper.exact.processes import EulerMaruyama, ExactLimit, ExactProcess, Ito, Levy, SmallerBatches, Svag
from svag.paper.verify.beds import SKEWED
from svag.paper.verify.svag_limit import affine_order

PLACES = {"NGD": (0.0, 1.0), "Itô SDE": (1.0, 1.0), "SGD": (0.0, 0.0), "Lévy SDE": (1.0, 0.0)}
"""Position of a process or a limit in the diagram."""

_LIMITS: tuple[tuple[str, str, str, Callable[[int], ExactProcess], ExactLimit], ...] = (
    ("SGD", "Itô SDE", "SVAG", Svag, Ito()),
    ("SGD", "Lévy SDE", "LSR", SmallerBatches, Levy()),
    ("NGD", "Itô SDE", "SVAG", EulerMaruyama, Ito()),
    ("NGD", "Itô SDE", "LSR", EulerMaruyama, Ito()),
)


@dataclass(frozen=True)
class Arrow:
    """A process tends to a limit.

    Attributes:
        start: the process.
        end: the limit.
        along: how its steps are refined.
        order: in 1/l, of the weak error in the slowest of four degrees.
    """

    start: str
    end: str
    along: str
    order: float


@dataclass(frozen=True)
class Diagram:
    """Which process tends to which SDE.

    Attributes:
        arrows: those of the diagram.
        apart: order at which SGD along the linear scaling rule would approach the Itô SDE; 0 if it does not, and then
            the two SDEs are different.
    """

    arrows: tuple[Arrow, ...]
    apart: float

    def __str__(self) -> str:
        orders = "; ".join(
            f"{arrow.start} → {arrow.end} along {arrow.along}: {arrow.order:.2f}" for arrow in self.arrows
        )
        return f"Orders in 1/ell. {orders}. The two SDEs differ: towards the Itô SDE the ladder has {self.apart:.2f}."


def diagram(problem: AffineProblem = SKEWED, ells: tuple[int, int] = (64, 256)) -> Diagram:
    """Measure every arrow of fig:diagram on a problem with exact moments.

    Gaussian noise of a batch of B/l has l times the covariance, as SVAG's has: NGD is Euler–Maruyama along both.

    >>> [round(one.order, 2) for one in diagram().arrows], round(diagram().apart, 1)
    ([1.0, 1.0, 1.0, 1.0], 0.0)
    """
    arrows = tuple(
        Arrow(start, end, along, float(affine_order(problem, process, limit, ells).order.min()))
        for start, end, along, process, limit in _LIMITS
    )
    return Diagram(arrows, float(affine_order(problem, SmallerBatches, Ito(), ells).order.min()))


SVAG = "SVAG"
_STEPS, _ELL, _FINE = 6, 2, 10


@dataclass(frozen=True)
class HybridPoint:
    """E x of SVAG, or of the hybrid that follows the SDE after `switch` steps of SVAG."""

    process: str
    switch: int
    step: float
    mean: float


@dataclass(frozen=True)
class Hybrids:
    """The hybrids between SVAG and its SDE.

    Attributes:
        rows: SVAG at its steps, and each hybrid from where it leaves SVAG to the end.
        ends: E x of every hybrid at the end: the SDE alone first, SVAG alone last.
    """

    rows: tuple[HybridPoint, ...]
    ends: tuple[float, ...]

    @property
    def errors(self) -> tuple[float, ...]:
        """What one step more of SVAG changes at the end."""
        return tuple(np.diff(self.ends).tolist())

    def __str__(self) -> str:
        largest = max(map(abs, self.errors))
        return (
            f"One step more of SVAG before the SDE changes E x at the end by at most {largest:.4f}; the "
            f"{len(self.errors)} changes add up to the whole error of SVAG, {abs(self.ends[-1] - self.ends[0]):.4f}."
        )


def hybrids(problem: AffineProblem = SKEWED, steps: int = _STEPS, ell: int = _ELL) -> Hybrids:
    """E x along the hybrid trajectories of the proof (fig:app_proof_overview), exactly.

    The learning rate is large and ell small, so that single steps can be told apart.

    >>> found = hybrids()
    >>> len(found.errors), round(sum(found.errors) - (found.ends[-1] - found.ends[0]), 12)
    (6, 0.0)
    """
    problem = replace(problem, lr=0.8)
    svag = orbit(problem.step_matrix(Svag(ell), 1), np.array([1.0, problem.start]), steps)
    flow = np.asarray(expm(problem.lr / ell / _FINE * problem.generator(Ito(), 1)), dtype=np.float64)
    rows = [HybridPoint(SVAG, step, float(step), float(moments[1])) for step, moments in enumerate(svag)]
    ends = []
    for switch, moments in enumerate(svag):
        path = orbit(flow, moments, (steps - switch) * _FINE)[:, 1]
        ends.append(float(path[-1]))
        if switch < steps:
            name = f"SDE from step {switch}"
            rows += [HybridPoint(name, switch, switch + i / _FINE, float(x)) for i, x in enumerate(path)]
    return Hybrids(tuple(rows), tuple(ends))
