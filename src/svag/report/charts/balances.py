"""The balance of growth and decay of |x|² at equilibrium, one a process (eq:RGN_sgd, eq:RGN_sde, thm:eq_sde_sgd)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import altair as alt
import numpy as np

from svag.exact.processes import SGD, EulerMaruyama, Svag
from svag.exact.rayleigh import ChainAverages
from svag.findings.verify.beds import equilibrium_run
from svag.findings.verify.equilibrium import LR, RATES, WEIGHT_DECAY
from svag.report import look
from svag.theory.equilibrium import Balance, sde_balance, sgd_balance, svag_balance

OWN, OTHER = "its own balance", "another process's balance"


@dataclass(frozen=True)
class Row:
    """Growth over decay, 1 at equilibrium if the balance is the process's own.

    Attributes:
        process: what ran.
        balance: the formula it is held against.
        kind: whether that is the process's own.
        ratio: growth over decay.
        error: standard error over the chains.
    """

    process: str
    balance: str
    kind: str
    ratio: float
    error: float


def table(*, chains: int = 1000, window: int = 200, seed: int = 0) -> list[Row]:
    """SGD, NGD, SVAG(4) and the SDE (Euler–Maruyama at η/32), each against its own balance and another's."""
    rng = np.random.default_rng(seed)

    def run(process: Svag | EulerMaruyama) -> ChainAverages:
        return equilibrium_run(rng, process, **RATES, chains=chains, window=window)

    sgd, ngd, svag, sde = run(SGD), run(EulerMaruyama(1)), run(Svag(4)), run(EulerMaruyama(32))
    formulas: dict[str, Callable[[float, float, float], Balance]] = {
        "SGD": lambda r, g, n: sgd_balance(r, g, n, **RATES),
        "SVAG(4)": lambda r, g, n: svag_balance(r, g, n, **RATES, ell=4),
        "Itô SDE": lambda r, g, n: sde_balance(r, LR * n, weight_decay=WEIGHT_DECAY),
    }
    pairs = [
        ("SGD", sgd, "SGD", OWN), ("SGD", sgd, "Itô SDE", OTHER),
        ("NGD", ngd, "SGD", OWN), ("NGD", ngd, "Itô SDE", OTHER),
        ("SVAG(4)", svag, "SVAG(4)", OWN), ("SVAG(4)", svag, "SGD", OTHER),
        ("Itô SDE", sde, "Itô SDE", OWN), ("Itô SDE", sde, "SGD", OTHER),
    ]  # fmt: skip
    return [Row(name, formula, kind, *_ratio(formulas[formula], found)) for name, found, formula, kind in pairs]


def _ratio(formula: Callable[[float, float, float], Balance], found: ChainAverages) -> tuple[float, float]:
    """Growth over decay of the averages, and its standard error from the residuals of the chains (delta method)."""
    mean = formula(float(found.param_sq.mean()), float(found.grad_sq.mean()), float(found.noise_trace.mean()))
    sides = [formula(*row) for row in zip(found.param_sq, found.grad_sq, found.noise_trace, strict=True)]
    residuals = np.array([one.growth - mean.ratio * one.decay for one in sides])
    return mean.ratio, float(residuals.std(ddof=1)) / math.sqrt(residuals.size) / mean.decay


def chart(rows: Sequence[Row]) -> look.Picture:
    """Ratios with 95% intervals around the line at 1."""
    kinds = [OWN, OTHER]
    values = [
        {
            **asdict(row),
            "held": f"{row.process} in the balance of {row.balance}",
            "low": row.ratio - 1.96 * row.error,
            "high": row.ratio + 1.96 * row.error,
        }
        for row in rows
    ]
    base = alt.Chart(look.data(values)).encode(
        y=alt.Y("held:N", title=None, sort=None, axis=alt.Axis(labelLimit=300)),
        color=look.colour("kind", kinds),
        tooltip=["held:N", "kind:N", alt.Tooltip("ratio:Q", format=".4f"), alt.Tooltip("error:Q", format=".2g")],
    )
    x = alt.X("ratio:Q", title="growth / decay of |x|² (1 at equilibrium)", scale=alt.Scale(zero=False)).axis(
        tickCount=8
    )
    one = alt.Chart(look.data([{"one": 1.0}])).mark_rule(style="guide", strokeDash=[4, 3]).encode(x="one:Q")
    bars = base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q")
    points = base.mark_point(filled=True, size=80).encode(x=x, shape=look.shape("kind", kinds))
    return alt.layer(one, bars, points).properties(width=look.WIDTH, height=240)


def sentence(rows: Sequence[Row]) -> str:
    """The verdict: the own balances hold, the others do not."""
    own = max(abs(row.ratio - 1) for row in rows if row.kind == OWN)
    other = min(abs(row.ratio - 1) for row in rows if row.kind == OTHER)
    return (
        f"Each process keeps its own balance to within {own:.1%}; "
        f"another process's balance is off by {other:.1%} or more."
    )
