"""The weight norm, simulated and by the paper's formulas: its balance at equilibrium, and its way there.

Both tables come from chains on the Rayleigh quotient, a scale-invariant loss whose G, N and R are known at every weight
(eq:RGN_sgd, eq:RGN_sde, eq:norm_sgd_wd, eq:norm_sde_wd). `svag reproduce LABEL` draws them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

import numpy as np

from svag.paper.exact.processes import NGD, SGD, EulerMaruyama, Svag
from svag.paper.exact.rayleigh import Paths, simulate
from svag.paper.illustrations.curves import Illustration
from svag.paper.verify.beds import equilibrium_run, rayleigh, sphere
from svag.theory.equilibrium import (
    Balance,
    sde_balance,
    sde_param_sq_rate,
    sgd_balance,
    sgd_next_param_sq,
    svag_balance,
)

OWN, OTHER = "its own balance", "another process's balance"
_LR, _WEIGHT_DECAY = 0.1, 0.2
_SDE = EulerMaruyama(32)  # a bias of G/(32N), about 1%


Z95 = NormalDist().inv_cdf(0.975)
"""Half-width of a 95% interval in standard errors; there are hundreds of chains, so a normal one."""


@dataclass(frozen=True)
class BalanceRatio:
    """Growth over decay of |x|², which is 1 at equilibrium if the balance is the process's own.

    Attributes:
        process: what ran.
        balance: the process whose balance it is compared with.
        kind: whether that is its own.
        ratio: growth over decay.
        error: standard error over the chains.
    """

    process: str
    balance: str
    kind: str
    ratio: float
    error: float

    @property
    def low(self) -> float:
        """Lower 95% limit of the ratio."""
        return self.ratio - Z95 * self.error

    @property
    def high(self) -> float:
        """Upper 95% limit of the ratio."""
        return self.ratio + Z95 * self.error


def norm_balances(*, chains: int = 1000, window: int = 200, seed: int = 0) -> Illustration[BalanceRatio]:
    """SGD, NGD, SVAG(4) and the SDE (Euler–Maruyama at η/32) at equilibrium (thm:eq_sde_sgd).

    >>> [(row.process, row.balance) for row in norm_balances(chains=2, window=2).rows[:2]]
    [('SGD', 'SGD'), ('SGD', 'Itô SDE')]

    Args:
        chains: independent runs of each process.
        window: effective steps to average over, after the start is forgotten.
        seed: of the simulation.
    """
    rng = np.random.default_rng(seed)

    def run(process: Svag | EulerMaruyama) -> Paths:
        return equilibrium_run(rng, process, lr=_LR, weight_decay=_WEIGHT_DECAY, chains=chains, window=window)

    runs = {"SGD": run(SGD), "NGD": run(NGD), "SVAG(4)": run(Svag(4)), "Itô SDE": run(_SDE)}
    balances: dict[str, Callable[[float, float, float], Balance]] = {
        "SGD": lambda r, g, n: sgd_balance(r, g, n, lr=_LR, weight_decay=_WEIGHT_DECAY),
        "SVAG(4)": lambda r, g, n: svag_balance(r, g, n, lr=_LR, weight_decay=_WEIGHT_DECAY, ell=4),
        "Itô SDE": lambda r, g, n: sde_balance(r, _LR * n, weight_decay=_WEIGHT_DECAY),
    }
    own = {"SGD": "SGD", "NGD": "SGD", "SVAG(4)": "SVAG(4)", "Itô SDE": "Itô SDE"}
    other = {"SGD": "Itô SDE", "NGD": "Itô SDE", "SVAG(4)": "SGD", "Itô SDE": "SGD"}
    rows = tuple(
        BalanceRatio(name, formula[name], kind, *_ratio(balances[formula[name]], averages))
        for name, averages in runs.items()
        for kind, formula in ((OWN, own), (OTHER, other))
    )
    kept = max(abs(row.ratio - 1) for row in rows if row.kind == OWN)
    off = min(abs(row.ratio - 1) for row in rows if row.kind == OTHER)
    said = (
        f"Each process keeps its own balance to within {kept:.1%}; "
        f"another process's balance is off by {off:.1%} or more."
    )
    return Illustration(rows, said)


def _ratio(balance: Callable[[float, float, float], Balance], found: Paths) -> tuple[float, float]:
    """Growth over decay of the averages, and its standard error from the residuals of the chains (delta method)."""
    mean = balance(float(found.param_sq.mean()), float(found.grad_sq.mean()), float(found.noise_trace.mean()))
    sides = [balance(*row) for row in zip(found.param_sq, found.grad_sq, found.noise_trace, strict=True)]
    residuals = np.array([side.growth - mean.ratio * side.decay for side in sides])
    return mean.ratio, float(residuals.std(ddof=1)) / math.sqrt(residuals.size) / mean.decay


@dataclass(frozen=True)
class NormPoint:
    """E|x|² after some effective steps.

    Attributes:
        process: SGD or the SDE.
        effective_step: when.
        simulated: mean over the chains.
        error: its standard error.
        predicted: by the recursion, from the start and from G and N along the path.
    """

    process: str
    effective_step: int
    simulated: float
    error: float
    predicted: float

    @property
    def low(self) -> float:
        """Two standard errors below the simulated mean."""
        return self.simulated - 2 * self.error

    @property
    def high(self) -> float:
        """Two standard errors above the simulated mean."""
        return self.simulated + 2 * self.error


@dataclass(frozen=True)
class NormTransient:
    """E|x|² on its way to equilibrium, step by step."""

    rows: tuple[NormPoint, ...]

    @property
    def worst(self) -> float:
        """The largest difference between simulation and recursion, in standard errors."""
        return max(abs(row.simulated - row.predicted) / row.error for row in self.rows if row.error > 0)

    def __str__(self) -> str:
        return f"Simulation and recursion differ by at most {self.worst:.1f} standard errors over the whole transient."


def norm_transient(*, chains: int = 400, steps: int = 60, seed: int = 0) -> NormTransient:
    """E|x|² of SGD and of the SDE (Euler–Maruyama at η/32) from one law of starts (eq:norm_sgd_wd, eq:norm_sde_wd).

    >>> len(norm_transient(chains=2, steps=3).rows)  # two processes, four times
    8

    Args:
        chains: independent runs of each process.
        steps: effective steps.
        seed: of the starts and of the simulation, the same for both processes.
    """
    rows = []
    for name, process, recursion in (("SGD", SGD, _sgd_recursion), ("Itô SDE", _SDE, _sde_recursion)):
        rng = np.random.default_rng(seed)
        paths = simulate(
            rayleigh(),
            process,
            lr=_LR,
            weight_decay=_WEIGHT_DECAY,
            batch_size=1,
            steps=steps,
            start=2 * sphere(rng, chains),
            rng=rng,
        )
        for step, (r, predicted) in enumerate(zip(paths.param_sq, recursion(paths), strict=True)):
            rows.append(NormPoint(name, step, float(r.mean()), float(r.std(ddof=1)) / math.sqrt(chains), predicted))
    return NormTransient(tuple(rows))


def _sgd_recursion(paths: Paths) -> list[float]:
    """R_{k+1} = (1 − ηλ)²R_k + η²(G_k + N_k)."""
    r = [float(paths.param_sq[0].mean())]
    for g, n in zip(paths.grad_sq[:-1].mean(axis=1), paths.noise_trace[:-1].mean(axis=1), strict=True):
        r.append(sgd_next_param_sq(r[-1], float(g), float(n), lr=_LR, weight_decay=_WEIGHT_DECAY))
    return r


def _sde_recursion(paths: Paths) -> list[float]:
    """dR̄/dt = −2λR̄ + N̄ over steps of η, N̄ = ηN between its values at both ends (Heun's rule)."""
    r, noise = [float(paths.param_sq[0].mean())], _LR * paths.noise_trace.mean(axis=1)
    for now, then in pairwise(noise):
        first = sde_param_sq_rate(r[-1], float(now), weight_decay=_WEIGHT_DECAY)
        second = sde_param_sq_rate(r[-1] + _LR * first, float(then), weight_decay=_WEIGHT_DECAY)
        r.append(r[-1] + _LR * (first + second) / 2)
    return r
