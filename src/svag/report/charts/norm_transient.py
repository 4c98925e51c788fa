"""E|x|² on its way to equilibrium, simulated and by the paper's recursions (eq:norm_sgd_wd, eq:norm_sde_wd)."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

import altair as alt
import numpy as np

from svag.exact.processes import SGD, EulerMaruyama
from svag.exact.rayleigh import Paths, simulate
from svag.findings.verify.beds import rayleigh, sphere
from svag.report import look
from svag.theory.equilibrium import sde_param_sq_rate, sgd_next_param_sq

LR, WEIGHT_DECAY = 0.1, 0.2
REFINED = 32


@dataclass(frozen=True)
class Row:
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


def table(*, chains: int = 400, steps: int = 60, seed: int = 0) -> list[Row]:
    """SGD, and Euler–Maruyama at η/32 for the SDE, from one law of starts on the Rayleigh quotient."""
    rows = []
    for name, process in (("SGD", SGD), ("Itô SDE", EulerMaruyama(REFINED))):
        rng = np.random.default_rng(seed)
        paths = simulate(
            rayleigh(),
            process,
            lr=LR,
            weight_decay=WEIGHT_DECAY,
            batch_size=1,
            steps=steps,
            start=2 * sphere(rng, chains),
            rng=rng,
        )
        predicted = _sgd(paths) if name == "SGD" else _sde(paths)
        for step, (r, value) in enumerate(zip(paths.param_sq, predicted, strict=True)):
            rows.append(Row(name, step, float(r.mean()), float(r.std(ddof=1)) / math.sqrt(chains), value))
    return rows


def _sgd(paths: Paths) -> list[float]:
    """R_{k+1} = (1 − ηλ)²R_k + η²(G_k + N_k)."""
    r = [float(paths.param_sq[0].mean())]
    for g, n in zip(paths.grad_sq[:-1].mean(axis=1), paths.noise_trace[:-1].mean(axis=1), strict=True):
        r.append(sgd_next_param_sq(r[-1], float(g), float(n), lr=LR, weight_decay=WEIGHT_DECAY))
    return r


def _sde(paths: Paths) -> list[float]:
    """dR̄/dt = −2λR̄ + N̄ over steps of η, N̄ = ηN between its values at both ends (Heun's rule)."""
    r, noise = [float(paths.param_sq[0].mean())], LR * paths.noise_trace.mean(axis=1)
    for now, then in pairwise(noise):
        first = sde_param_sq_rate(r[-1], float(now), weight_decay=WEIGHT_DECAY)
        second = sde_param_sq_rate(r[-1] + LR * first, float(then), weight_decay=WEIGHT_DECAY)
        r.append(r[-1] + LR * (first + second) / 2)
    return r


def chart(rows: Sequence[Row]) -> look.Picture:
    """Lines by the recursions, points from the simulation with two standard errors."""
    processes = list(dict.fromkeys(row.process for row in rows))
    values = [
        {**asdict(row), "low": row.simulated - 2 * row.error, "high": row.simulated + 2 * row.error} for row in rows
    ]
    base = alt.Chart(look.data(values)).encode(
        x=alt.X("effective_step:Q", title="effective steps"),
        color=look.colour("process", processes),
        tooltip=[
            "process:N",
            "effective_step:Q",
            alt.Tooltip("simulated:Q", format=".4f"),
            alt.Tooltip("predicted:Q", format=".4f"),
        ],
    )
    y = alt.Y("predicted:Q", title="E|x|²  (line: recursion, points: simulation)", scale=alt.Scale(zero=False))
    lines = base.mark_line().encode(y=y, strokeDash=look.dash("process", processes, quiet=True))
    bars = base.mark_rule().encode(y="low:Q", y2="high:Q")
    points = base.mark_point(filled=True, size=28).encode(y="simulated:Q", shape=look.shape("process", processes))
    return alt.layer(lines, bars, points).add_params(look.zoom()).properties(width=look.WIDTH, height=look.HEIGHT)


def sentence(rows: Sequence[Row]) -> str:
    """The verdict: how far simulation and recursion are apart, in standard errors."""
    worst = max(abs(row.simulated - row.predicted) / row.error for row in rows if row.error > 0)
    return f"Simulation and recursion differ by at most {worst:.1f} standard errors over the whole transient."
