"""Why SGD and its SDE end apart: two routes between them, each with two steps (fig:diagram)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from svag.arrays import FloatArray
from svag.as_json import JsonRow
from svag.lab.experiments import wording
from svag.lab.experiments.experiment import Metric
from svag.lab.experiments.finding import finished
from svag.lab.experiments.sde_limit import LimitEstimate, fitted_limit
from svag.stats.means import Contrast, contrast, welch


@dataclass(frozen=True)
class Term(JsonRow):
    """A number with its interval, and its name."""

    name: str
    value: float
    low: float
    high: float

    def said(self, metric: Metric) -> str:
        """The difference with its interval."""
        return f"{self.name} = {wording.estimated(self.value, self.low, self.high, metric)}"


@dataclass(frozen=True)
class Decomposition(JsonRow):
    """A difference as a sum of two terms.

    Attributes:
        route: "gaussian", the paper's (eq:noise_decomposition); "ladder", over the coupled ladder (def:glsr).
        terms: the two steps.
        total: their sum.
        excess: the first step minus the second: it has the sign of the total if the first step is most of it.
        seeds: number of seeds that entered.
        left_out: number of seeds left out because they diverged in an arm.
    """

    route: Literal["gaussian", "ladder"]
    terms: tuple[Term, Term]
    total: Term
    excess: Term
    seeds: int
    left_out: int

    def said(self, metric: Metric) -> str:
        """The total and its two steps."""
        steps = ", ".join(term.said(metric) for term in self.terms)
        lost = f"; {self.left_out} diverged left out" if self.left_out else ""
        total = f"{self.total.name} = {wording.difference(self.total.value, metric)}"
        return f"{total}: {steps} ({wording.count(self.seeds, 'seed')}{lost})"


def gaussian_route(
    sgd: Mapping[int, float], ngd: Mapping[int, float], svag: Mapping[int, Mapping[int, float]]
) -> Decomposition | None:
    """Discretisation (SDE − NGD) plus non-Gaussian noise (NGD − SGD), the SDE fitted to SVAG (eq:noise_decomposition).

    None with fewer than two finished seeds of SGD, of NGD, or of every SVAG.

    Args:
        sgd: final metric of SGD by seed.
        ngd: the same for NGD.
        svag: ell → the same for SVAG.
    """
    ours, gaussian, limit = finished(sgd), finished(ngd), fitted_limit({1: sgd, **svag})
    if ours.size < 2 or gaussian.size < 2 or limit is None:
        return None
    return Decomposition(
        "gaussian",
        (
            _term("discretisation SDE − NGD", limit.minus(gaussian)),
            _term("non-Gaussian noise NGD − SGD", welch(gaussian, ours)),
        ),
        _term("SDE − SGD", limit.minus_sgd()),
        _term("discretisation − non-Gaussian noise", _excess(limit, gaussian)),
        min(ours.size, gaussian.size),
        sum(not math.isfinite(value) for finals in (sgd, ngd, *svag.values()) for value in finals.values()),
    )


def _excess(limit: LimitEstimate, ngd: FloatArray) -> Contrast:
    """(SDE − NGD) − (NGD − SGD), where the SDE's value is itself computed from SGD and SVAG."""
    weights = [weight + (ell == 1) for ell, weight in zip(limit.groups, limit.weights, strict=True)]
    return contrast([*limit.groups.values(), ngd], [*weights, -2.0])


def ladder_route(
    sgd: Mapping[int, float], ladder: Mapping[int, float], svag: Mapping[int, float], parts: int, ell: int
) -> Decomposition | None:
    """[SGD − ladder] + [ladder − SVAG], seed by seed: the ladder takes SGD's own draws, so its bracket is narrow.

    None with fewer than two seeds that finished in all three arms.
    """
    shared = [seed for seed in sgd if seed in ladder and seed in svag]
    rows = [(sgd[seed], ladder[seed], svag[seed]) for seed in shared]
    finite = np.array([row for row in rows if all(map(math.isfinite, row))])
    if len(finite) < 2:
        return None
    ours, rung, refined = finite.T
    return Decomposition(
        "ladder",
        (
            _term(f"SGD − ladder of {parts}", contrast([ours - rung], [1.0])),
            _term(f"ladder of {parts} − SVAG ell={ell}", contrast([rung - refined], [1.0])),
        ),
        _term(f"SGD − SVAG ell={ell}", contrast([ours - refined], [1.0])),
        _term("first − second", contrast([ours - 2 * rung + refined], [1.0])),
        len(finite),
        len(shared) - len(finite),
    )


def _term(name: str, estimate: Contrast) -> Term:
    return Term(name, estimate.value, *estimate.interval())
