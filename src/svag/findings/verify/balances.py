"""The balances of R, G and N at equilibrium, one a process, on the Rayleigh quotient (eq:RGN_sgd, thm:eq_sde_sgd)."""

from collections.abc import Callable, Iterator
from typing import TypedDict

import numpy as np

from svag.arrays import FloatArray
from svag.exact.chains import Momentum, SecondOrderEuler
from svag.exact.processes import SGD, NoisyGD, Svag
from svag.findings.verify.beds import equilibrium_run
from svag.findings.verify.check import Z_LIMIT, Check, claims, z_score
from svag.theory.equilibrium import (
    Balance,
    momentum_balance,
    sde_balance,
    second_order_sde_balance,
    sgd_balance,
    svag_balance,
)

LR, WEIGHT_DECAY = 0.1, 0.2


class Rates(TypedDict):
    """What every run and balance here shares."""

    lr: float
    weight_decay: float


RATES = Rates(lr=LR, weight_decay=WEIGHT_DECAY)


def balances(rng: np.random.Generator) -> Iterator[Check]:
    """thm:eq_sde_sgd rests on the balance of each process; exact ones as a z-score over 1,000 independent chains."""
    claim, control = claims("thm:eq_sde_sgd")
    sgd = equilibrium_run(rng, SGD, **RATES, chains=1000)
    ngd = equilibrium_run(rng, NoisyGD(1), **RATES, chains=1000)
    svag = equilibrium_run(rng, Svag(4), **RATES, chains=1000)
    for name, run in (("SGD", sgd), ("NGD", ngd)):
        gap = _z(lambda r, g, n: sgd_balance(r, g, n, **RATES), run.param_sq, run.grad_sq, run.noise_trace)
        yield claim.at_most(f"{name}: (2 − ηλ)λR = η(G + N), 1,000 chains (|z|)", gap, Z_LIMIT)
    gap = _z(lambda r, g, n: svag_balance(r, g, n, **RATES, ell=4), svag.param_sq, svag.grad_sq, svag.noise_trace)
    yield claim.at_most("SVAG(4): (2 − hλ)λR = hG + ηN, h = η/4 (|z|)", gap, Z_LIMIT)
    gap = _z(lambda r, g, n: sgd_balance(r, g, n, **RATES), svag.param_sq, svag.grad_sq, svag.noise_trace)
    yield control.at_least("SVAG(4): SGD's balance (|z|)", gap, Z_LIMIT)
    gap = _z(lambda r, n: sde_balance(r, LR * n, weight_decay=WEIGHT_DECAY), sgd.param_sq, sgd.noise_trace)
    yield control.at_least("SGD: the SDE's balance (|z|)", gap, Z_LIMIT)

    heavy = equilibrium_run(rng, Momentum(0.5), **RATES, chains=1000)
    gap = _z(lambda r, v: momentum_balance(r, v, **RATES, momentum=0.5), heavy.param_sq, heavy.velocity_sq)
    yield claim.at_most("SGD, momentum ½: 2λR = (1 + β)ηE|v|² (|z|)", gap, Z_LIMIT)
    gap = _z(lambda r, v: momentum_balance(r, v, **RATES, momentum=0.0), heavy.param_sq, heavy.velocity_sq)
    yield control.at_least("the same without the factor 1 + β (|z|)", gap, Z_LIMIT)

    # Euler–Maruyama at η/32 leaves a bias of G/(32N), about 1%; 400 chains leave a standard error of 0.6%.
    fine = equilibrium_run(rng, NoisyGD(32), **RATES, chains=400)
    r, n = fine.param_sq.mean(), LR * fine.noise_trace.mean()
    yield claim.near("Itô SDE: N̄ over 2λR̄", sde_balance(r, n, weight_decay=WEIGHT_DECAY).ratio, 1, 0.05)
    second = equilibrium_run(rng, SecondOrderEuler(32), **RATES, chains=400)
    r, g, n = second.param_sq.mean(), second.grad_sq.mean(), LR * second.noise_trace.mean()
    ratio = second_order_sde_balance(r, g, n, **RATES).ratio
    yield claim.near("2nd-order SDE: ηG′ + N̄′ over (2 + ηλ)λR′", ratio, 1, 0.05)
    yield control.at_most("2nd-order SDE: N̄′ over 2λR′", sde_balance(r, n, weight_decay=WEIGHT_DECAY).ratio, 0.92)


def _z(balance: Callable[..., Balance], *columns: FloatArray) -> float:
    """|z| of the residual of a balance, evaluated for every chain on its own averages (it is linear in them)."""
    return abs(z_score(np.array([balance(*row).residual for row in zip(*columns, strict=True)])))
