"""The second-order SDE: better at a finite time, worse at a noise-dominated equilibrium (thm:2nd_order_sde)."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from svag.exact.affine import AffineProblem
from svag.exact.noise import Atoms
from svag.exact.processes import SGD, Ito, Limit, SecondOrder
from svag.exact.weak_order import WeakOrder, measure_weak_order
from svag.findings.verify.beds import SKEWED
from svag.findings.verify.check import Check, claims
from svag.findings.verify.weak_orders import DEGREES, SLOPE, furthest

# Additive noise: x′ = x − η(x + ξ), an Ornstein–Uhlenbeck process in the limit.
ADDITIVE = AffineProblem(Atoms((1.0, 1.0), (1.0, -1.0), (0.5, 0.5)), lr=0.1)


def second_order_sde(rng: np.random.Generator) -> Iterator[Check]:
    """thm:2nd_order_sde: weak order 2 in η, and the warning for the equilibrium."""
    claim, control = claims("thm:2nd_order_sde")
    yield claim.near(
        "2nd-order SDE: slope in 1/η, degrees 1–4", furthest(_order(SecondOrder()).slopes[-1], -2), -2, 2 * SLOPE
    )
    yield control.near("Itô SDE: slope in 1/η, degrees 1–4", furthest(_order(Ito()).slopes[-1], -1), -1, SLOPE)
    variance = ADDITIVE.equilibrium(SGD, 2)[2]
    error: dict[Limit, float] = {
        limit: ADDITIVE.limit_equilibrium(limit, 2)[2] / variance - 1
        for limit in (Ito(), SecondOrder(), SecondOrder(corrected=True))
    }
    y = ADDITIVE.lr  # ηa, with a = 1
    expected: dict[Limit, float] = {
        Ito(): -y / 2,
        SecondOrder(): -y / (1 + y / 2),
        SecondOrder(corrected=True): (1 + y) * (1 - y / 2) / (1 + y / 2) - 1,
    }
    apart = max(abs(error[limit] - expected[limit]) for limit in expected)
    yield claim.at_most("equilibrium variance of three SDEs: relative errors against closed form", apart, 1e-12)
    worse = error[SecondOrder()] / error[Ito()]
    yield claim.at_least("the 2nd-order SDE is worse there than the Itô SDE, by", worse, 1.9)
    mended = abs(error[SecondOrder(corrected=True)] / error[Ito()])
    yield claim.at_most("with the diffusion corrected: error over the Itô SDE's", mended, 0.1)


def _order(limit: Limit) -> WeakOrder:
    """Order in 1/η of SGD against an SDE over a fixed time of 2.4."""

    def bed(rate: int) -> AffineProblem:
        return replace(SKEWED, lr=1 / rate)

    def steps(rate: int) -> int:
        return 12 * rate // 5

    return measure_weak_order(
        (40, 160, 640),
        lambda rate: bed(rate).moments(SGD, steps(rate), DEGREES)[:, 1:],
        lambda rate: bed(rate).limit_moments(limit, steps(rate), DEGREES)[:, 1:],
    )
