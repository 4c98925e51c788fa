"""Why SGD and its SDE end apart: two routes from one to the other, each in two steps (fig:diagram)."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from svag.findings.experiments.limit import fitted_limit
from svag.findings.experiments.runs import plain
from svag.stats.contrast import Estimate, contrast, welch


@dataclass(frozen=True)
class Term:
    """One step of a route, with its 95% interval."""

    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Decomposition:
    """A difference as the sum of two.

    Attributes:
        route: "gaussian", the paper's (eq:noise_decomposition); "ladder", over the coupled ladder (def:glsr).
        terms: the two steps.
        total: what they add up to.
        seeds: how many entered.
        left_out: seeds that diverged in an arm and are not in it.
    """

    route: Literal["gaussian", "ladder"]
    terms: tuple[Term, Term]
    total: Term
    seeds: int
    left_out: int

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document; unknown limits are null."""
        terms = [plain(asdict(term)) for term in self.terms]
        return {**plain(asdict(self)), "terms": terms, "total": plain(asdict(self.total))}

    def __str__(self) -> str:
        one, other = (f"{term.name} = {_shown(term)}" for term in self.terms)
        lost = f"; {self.left_out} diverged seeds left out" if self.left_out else ""
        return f"{self.total.name} = {self.total.value:+.4g}: {one}, {other} ({self.seeds} seeds{lost})"


def gaussian_route(
    sgd: Mapping[int, float], ngd: Mapping[int, float], svag: Mapping[int, Mapping[int, float]]
) -> Decomposition | None:
    """Discretisation (SDE − NGD) plus non-Gaussian noise (NGD − SGD), the SDE fitted to SVAG (eq:noise_decomposition).

    None with fewer than two finished seeds of SGD, of NGD, or of every SVAG.

    Args:
        sgd: final metric by seed.
        ngd: the same of NGD.
        svag: ell → the same of SVAG.
    """
    ours, gaussian = _finite(sgd), _finite(ngd)
    limit = fitted_limit({1: ours, **{ell: _finite(finals) for ell, finals in svag.items()}})
    if ours.size < 2 or gaussian.size < 2 or limit is None:
        return None
    return Decomposition(
        "gaussian",
        (
            _term("discretisation SDE − NGD", limit.minus(gaussian)),
            _term("non-Gaussian noise NGD − SGD", welch(gaussian, ours)),
        ),
        _term("SDE − SGD", limit.minus_arm(1)),
        min(ours.size, gaussian.size),
        sum(not math.isfinite(value) for finals in (sgd, ngd, *svag.values()) for value in finals.values()),
    )


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
        len(finite),
        len(shared) - len(finite),
    )


def _finite(finals: Mapping[int, float]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.array([value for value in finals.values() if math.isfinite(value)])


def _term(name: str, estimate: Estimate) -> Term:
    return Term(name, estimate.value, *estimate.interval())


def _shown(term: Term) -> str:
    return f"{term.value:+.4g} [{term.low:+.4g}, {term.high:+.4g}]"
