"""Paths of the SDE, SVAG and SGD over the density of the SDE, an Ornstein–Uhlenbeck process (fig:proof_concept)."""

from dataclasses import asdict, dataclass

import altair as alt
import numpy as np

from svag.arrays import FloatArray
from svag.exact.processes import SGD, EulerMaruyama, Svag
from svag.exact.rayleigh import example_weights
from svag.exact.regression import RegressionProblem
from svag.findings.verify.beds import ornstein_uhlenbeck
from svag.report import look

LR, STEPS, ELL, FINE = 0.5, 12, 16, 64
LEVELS = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class PathRow:
    """A point of a sample path."""

    process: str
    path: int
    order: int
    x: float
    y: float


@dataclass(frozen=True)
class LevelRow:
    """A point of the ellipse that holds the last weight of the SDE with this probability."""

    level: float
    order: int
    x: float
    y: float


@dataclass(frozen=True)
class Table:
    """Sample paths, and the density they end in.

    Attributes:
        paths: of every process.
        levels: ellipses of the SDE's exact law at the end.
        inside: process → share of many last points inside the 90% ellipse.
    """

    paths: list[PathRow]
    levels: list[LevelRow]
    inside: dict[str, float]


def table(*, paths: int = 2, chains: int = 2000, seed: int = 0) -> Table:
    """Simulate `chains` paths, keep `paths` of each process, and take the density from the exact moments."""
    bed = ornstein_uhlenbeck(LR)
    moments = bed.sde_moments(STEPS)[-1]
    mean = moments[0, 1:]
    root = np.linalg.cholesky(moments[1:, 1:] - np.outer(mean, mean))
    levels = [
        LevelRow(level, i, *map(float, mean + np.sqrt(-2 * np.log(1 - level)) * root @ (np.cos(angle), np.sin(angle))))
        for level in LEVELS
        for i, angle in enumerate(np.linspace(0, 2 * np.pi, 61))
    ]
    rows, inside = [], {}
    for name, process in (
        (f"SDE (Euler–Maruyama at η/{FINE})", EulerMaruyama(FINE)),
        (f"SVAG, ell = {ELL}", Svag(ELL)),
        ("SGD", SGD),
    ):
        found = _simulate(bed, process, chains, np.random.default_rng(seed))
        for path in range(paths):
            rows += [PathRow(name, path, k, float(x), float(y)) for k, (x, y) in enumerate(found[:, path])]
        away = np.linalg.solve(root, (found[-1] - mean).T)
        inside[name] = float(((away**2).sum(axis=0) <= -2 * np.log(1 - 0.9)).mean())
    return Table(rows, levels, inside)


def _simulate(
    bed: RegressionProblem, process: Svag | EulerMaruyama, chains: int, rng: np.random.Generator
) -> FloatArray:
    """All weights, one row a step of η/ell: the Hessian is the same for every example, the targets are the noise."""
    h, hessian = bed.lr / process.ell, bed.hessians[0]
    draw = example_weights(process, len(bed.targets), bed.batch_size, chains)
    x = np.broadcast_to(bed.start, (chains, bed.start.size))
    found = [x]
    for _ in range(STEPS * process.ell):
        x = x - h * (x @ hessian - draw(rng) @ bed.targets)
        found.append(x)
    return np.array(found)


def chart(found: Table) -> look.Picture:
    """One panel a process, the same ellipses under all of them."""
    processes = list(dict.fromkeys(row.process for row in found.paths))
    paths = look.data([{**asdict(row), "one": f"path {row.path + 1}"} for row in found.paths])
    levels = look.data([asdict(row) for row in found.levels])
    names = list(dict.fromkeys(f"path {row.path + 1}" for row in found.paths))
    x, y = (alt.X("x:Q", title="first weight"), alt.Y("y:Q", title="second weight"))

    def panel(process: str) -> look.Picture:
        ellipses = (
            alt.Chart(levels)
            .mark_line(style="backdrop")
            .encode(x=x, y=y, order="order:Q", detail="level:N", tooltip=[alt.Tooltip("level:Q", format=".0%")])
        )
        lines = (
            alt.Chart(paths)
            .mark_line(strokeWidth=1.2, point=alt.OverlayMarkDef(size=20) if process == "SGD" else False)
            .encode(x=x, y=y, order="order:Q", color=look.colour("one", names).legend(None))
            .transform_filter(alt.datum.process == process)
        )
        return alt.layer(ellipses, lines, title=process).properties(width=250, height=250)

    drawn: alt.HConcatChart = alt.hconcat(*map(panel, processes)).resolve_scale(x="shared", y="shared")
    return drawn


def sentence(found: Table) -> str:
    """The verdict: how often each process ends where the SDE ends with probability 90%."""
    shares = "; ".join(f"{name}: {share:.1%}" for name, share in found.inside.items())
    return f"Last points inside the 90% region of the SDE. {shares}."
