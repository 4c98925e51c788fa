"""The balances of R, G and N at equilibrium, one a process, and the certificates of failure, on the Rayleigh quotient.

The balances (eq:RGN_sgd, thm:eq_sde_sgd) are z-scores over independent chains. The certificates are tried on runs of
SGD along linear scaling that really fail: each must fire only where failure is seen.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TypedDict

import numpy as np

from svag.arrays import FloatArray
from svag.paper.bounds import printed_max_kappa
from svag.paper.exact.processes import SGD, EulerMaruyama, Svag
from svag.paper.exact.rayleigh import Momentum, SecondOrderEuler
from svag.paper.verify.beds import equilibrium_run
from svag.paper.verify.check import Z_LIMIT, Check, claims, z_score
from svag.theory.bounds import (
    Equilibrium,
    large_run_refutes,
    max_kappa,
    max_lr_of_sde,
    max_lr_of_second_order_sde,
    sde_threshold,
    sgd_refutes_sde,
    smallest_c2,
    smallest_lsi_c2,
)
from svag.theory.distortion import distortion, spread
from svag.theory.equilibrium import (
    Balance,
    momentum_balance,
    sde_balance,
    second_order_sde_balance,
    sgd_balance,
    svag_balance,
)

BALANCE_LR, BALANCE_DECAY = 0.1, 0.2


class Rates(TypedDict):
    """What every run and balance here shares."""

    lr: float
    weight_decay: float


RATES = Rates(lr=BALANCE_LR, weight_decay=BALANCE_DECAY)


def balances(rng: np.random.Generator) -> Iterator[Check]:
    """thm:eq_sde_sgd rests on the balance of each process; exact ones as a z-score over 1,000 independent chains."""
    claim, control = claims("thm:eq_sde_sgd")
    sgd = equilibrium_run(rng, SGD, **RATES, chains=1000)
    ngd = equilibrium_run(rng, EulerMaruyama(1), **RATES, chains=1000)
    svag = equilibrium_run(rng, Svag(4), **RATES, chains=1000)
    for name, run in (("SGD", sgd), ("NGD", ngd)):
        gap = _z(lambda r, g, n: sgd_balance(r, g, n, **RATES), run.param_sq, run.grad_sq, run.noise_trace)
        yield claim.at_most(f"{name}: (2 − ηλ)λR = η(G + N), 1,000 chains (|z|)", gap, Z_LIMIT)
    gap = _z(lambda r, g, n: svag_balance(r, g, n, **RATES, ell=4), svag.param_sq, svag.grad_sq, svag.noise_trace)
    yield claim.at_most("SVAG(4): (2 − hλ)λR = hG + ηN, h = η/4 (|z|)", gap, Z_LIMIT)
    gap = _z(lambda r, g, n: sgd_balance(r, g, n, **RATES), svag.param_sq, svag.grad_sq, svag.noise_trace)
    yield control.at_least("SVAG(4): SGD's balance (|z|)", gap, Z_LIMIT)
    gap = _z(lambda r, n: sde_balance(r, BALANCE_LR * n, weight_decay=BALANCE_DECAY), sgd.param_sq, sgd.noise_trace)
    yield control.at_least("SGD: the SDE's balance (|z|)", gap, Z_LIMIT)

    heavy = equilibrium_run(rng, Momentum(0.5), **RATES, chains=1000)
    gap = _z(lambda r, v: momentum_balance(r, v, **RATES, momentum=0.5), heavy.param_sq, heavy.velocity_sq)
    yield claim.at_most("SGD, momentum ½: 2λR = (1 + β)ηE|v|² (|z|)", gap, Z_LIMIT)
    gap = _z(lambda r, v: momentum_balance(r, v, **RATES, momentum=0.0), heavy.param_sq, heavy.velocity_sq)
    yield control.at_least("the same without the factor 1 + β (|z|)", gap, Z_LIMIT)

    # Euler–Maruyama at η/32 leaves a bias of G/(32N), about 1%; 400 chains leave a standard error of 0.6%.
    fine = equilibrium_run(rng, EulerMaruyama(32), **RATES, chains=400)
    r, n = fine.param_sq.mean(), BALANCE_LR * fine.noise_trace.mean()
    yield claim.near("Itô SDE: N̄ over 2λR̄", sde_balance(r, n, weight_decay=BALANCE_DECAY).ratio, 1, 0.05)
    second = equilibrium_run(rng, SecondOrderEuler(32), **RATES, chains=400)
    r, g, n = second.param_sq.mean(), second.grad_sq.mean(), BALANCE_LR * second.noise_trace.mean()
    ratio = second_order_sde_balance(r, g, n, **RATES).ratio
    yield claim.near("2nd-order SDE: ηG′ + N̄′ over (2 + ηλ)λR′", ratio, 1, 0.05)
    yield control.at_most("2nd-order SDE: N̄′ over 2λR′", sde_balance(r, n, weight_decay=BALANCE_DECAY).ratio, 0.92)


def _z(balance: Callable[..., Balance], *columns: FloatArray) -> float:
    """|z| of the residual of a balance, evaluated for every chain on its own averages (it is linear in them)."""
    return abs(z_score(np.array([balance(*row).residual for row in zip(*columns, strict=True)])))


C2 = 2.0
LR, WEIGHT_DECAY = 0.1, 0.01
KAPPAS = (2, 4, 6, 8, 12, 16, 24, 32)
SECOND_ORDER_KAPPAS = (1, 9, 12, 24)  # the bound lies just below 9


@dataclass(frozen=True)
class ScaledRuns:
    """SGD at κ times the batch and the learning rate, κ = 1 first, and the one SDE that all these runs share."""

    runs: dict[int, Equilibrium]
    sde: Equilibrium

    def sde_at(self, kappa: int) -> Equilibrium:
        """The SDE seen from a run at κ: Tr(ηΣ) is the same for all, so N is divided by κ."""
        return Equilibrium(self.sde.param_sq, self.sde.grad_sq, self.sde.noise_trace / kappa)

    def c2_to_sde(self, kappa: int) -> float:
        """Smallest C² for which the run at κ is C-close to the SDE."""
        return smallest_c2(self.runs[kappa], self.sde_at(kappa))

    def lsi_c2(self, kappa: int) -> float:
        """Smallest C² for which the run at κ is the linear scaling of the baseline."""
        return smallest_lsi_c2(self.runs[1], self.runs[kappa], kappa)

    @property
    def sde_noise_to_signal(self) -> float:
        """N̄/Ḡ, with N̄ = Tr(ηΣ)."""
        return LR * self.sde.noise_to_signal


def certificates(rng: np.random.Generator) -> Iterator[Check]:
    """thm:eq_sde_sgd, thm:lsr_condition, thm:lsr_kappa_bound, thm:app_1st_2nd_sde on one simulated ladder."""
    runs = {kappa: _sgd(rng, kappa) for kappa in (1, *KAPPAS)}
    sde = equilibrium_run(rng, EulerMaruyama(4), lr=LR, weight_decay=WEIGHT_DECAY, chains=200)
    ladder = ScaledRuns(runs, sde.equilibrium())
    yield from _eq_sde_sgd(ladder)
    yield from _lsr_condition(ladder)
    yield from _lsr_kappa_bound(ladder)
    yield from _first_second_order(ladder, rng)


def _eq_sde_sgd(ladder: ScaledRuns) -> Iterator[Check]:
    claim, control = claims("thm:eq_sde_sgd")
    max_lr = max_lr_of_sde(ladder.sde_noise_to_signal, C2)
    too_fast = [kappa for kappa in KAPPAS if kappa * LR > max_lr]
    yield claim.at_least("(i) η > (C² − 1)N̄/Ḡ: smallest C² to the SDE", min(map(ladder.c2_to_sde, too_fast)), C2)
    too_quiet = [kappa for kappa in KAPPAS if sgd_refutes_sde(ladder.runs[kappa].noise_to_signal, C2)]
    yield claim.at_least("(ii) N/G < 1/(C² − 1): smallest C² to the SDE", min(map(ladder.c2_to_sde, too_quiet)), C2)
    yield control.at_most("the baseline is close to the SDE: C²", ladder.c2_to_sde(1), C2)
    yield control.at_most("and (i) is silent there: η over (C² − 1)N̄/Ḡ", LR / max_lr, 1)
    yield control.at_least("and (ii) too: (C² − 1)N/G", ladder.runs[1].noise_to_signal / sde_threshold(C2), 1)


def _lsr_condition(ladder: ScaledRuns) -> Iterator[Check]:
    claim, control = claims("thm:lsr_condition")
    fired = _fired(ladder)
    yield claim.at_least(
        "N/G of the large run rules it out: smallest C² to the baseline", min(map(ladder.lsi_c2, fired)), C2
    )
    close = [kappa for kappa in KAPPAS if ladder.lsi_c2(kappa) <= C2]
    yield control.at_least("runs that are linear scalings of the baseline, of 8", len(close), 1)
    yield control.at_most("that the certificate rules out", len(set(close) & set(fired)), 0)


def _lsr_kappa_bound(ladder: ScaledRuns) -> Iterator[Check]:
    claim, control = claims("thm:lsr_kappa_bound")
    rho = ladder.runs[1].noise_to_signal
    sharp, printed = max_kappa(rho, C2, lr_wd=LR * WEIGHT_DECAY), printed_max_kappa(rho, C2)
    beyond = [kappa for kappa in KAPPAS if kappa > sharp]
    yield claim.at_least("beyond the sharp κ: smallest C² to the baseline", min(map(ladder.lsi_c2, beyond)), C2)
    lost = min(kappa for kappa in KAPPAS if ladder.lsi_c2(kappa) > C2)
    yield claim.at_most("κ where linear scaling is lost, over the sharp κ", lost / sharp, 1)
    yield claim.at_least(
        "R, G and κN of every pair of runs: spread over the distortion", min(_over_distortion(ladder)), 0.95
    )
    yield control.at_least("the printed κ is looser than the sharp one, by", printed / sharp, 1.5)
    only_sharp = [kappa for kappa in beyond if kappa <= printed]
    yield control.at_least("runs that fail and only the sharp κ rules out, of 8", len(only_sharp), 1)


def _over_distortion(ladder: ScaledRuns) -> Iterator[float]:
    """Observed spread over D, at least 1 up to the standard error of about 1%."""
    for small, large in combinations(ladder.runs, 2):
        base, scaled, kappa = ladder.runs[small], ladder.runs[large], large / small
        noise = kappa * scaled.noise_trace / base.noise_trace
        apart = spread(scaled.param_sq / base.param_sq, scaled.grad_sq / base.grad_sq, noise)
        yield apart / distortion(base.noise_to_signal, kappa, small * LR * WEIGHT_DECAY)


def _first_second_order(ladder: ScaledRuns, rng: np.random.Generator) -> Iterator[Check]:
    claim, control = claims("thm:app_1st_2nd_sde")
    apart, over = {}, {}
    for kappa in SECOND_ORDER_KAPPAS:
        max_lr = max_lr_of_second_order_sde(ladder.sde_noise_to_signal, C2, lr_wd=kappa * LR * WEIGHT_DECAY)
        over[kappa] = kappa * LR / max_lr
        apart[kappa] = smallest_c2(ladder.sde_at(kappa), _second_order(rng, kappa))
    fired = [kappa for kappa in SECOND_ORDER_KAPPAS if over[kappa] > 1]
    yield claim.at_least(
        "where η exceeds the bound: smallest C² between the two SDEs", min(apart[k] for k in fired), C2
    )
    yield claim.at_most("η at the smallest such κ, over the bound", min(over[k] for k in fired), 1.5)
    yield control.at_most("the SDEs at the baseline's η: C², over that at the largest κ", apart[1] / apart[24], 0.25)
    yield control.at_most("and the condition is silent there: η over the bound", over[1], 1)


def _fired(ladder: ScaledRuns) -> list[int]:
    return [kappa for kappa in KAPPAS if large_run_refutes(ladder.runs[kappa].noise_to_signal, kappa, C2)]


def _sgd(rng: np.random.Generator, kappa: int) -> Equilibrium:
    run = equilibrium_run(rng, SGD, lr=kappa * LR, weight_decay=WEIGHT_DECAY, batch_size=kappa, chains=300)
    return run.equilibrium()


def _second_order(rng: np.random.Generator, kappa: int) -> Equilibrium:
    process = SecondOrderEuler(4 * kappa)
    run = equilibrium_run(
        rng,
        process,
        lr=kappa * LR,
        weight_decay=WEIGHT_DECAY,
        batch_size=kappa,
        chains=80,
        window=max(20, 300 // kappa),  # as long in time at every κ
    )
    return run.equilibrium()
