"""Every threshold that the software prints, from both sides.

The theorems say that some inequalities have no solution beyond a threshold. Written in the ratios of R, G and N of two
equilibria, each between 1/C and C, the balances are linear, so a linear programme decides whether there is a solution:
there must be one just on this side of the threshold and none just on the other.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import product

import numpy as np
from scipy.optimize import linprog

from svag.paper.bounds import plotted_max_kappa, printed_max_kappa
from svag.paper.verify.check import Check, claims
from svag.theory.bounds import (
    critical_batch_size,
    large_run_refutes,
    large_run_threshold,
    max_kappa,
    max_lr_of_sde,
    max_lr_of_second_order_sde,
    sde_threshold,
    sgd_refutes_sde,
)
from svag.theory.distortion import distortion
from svag.theory.equilibrium import effective_noise_to_signal, momentum_excess

STEP = 1e-5  # how far to either side; the solver's own tolerance is 1e-7
RHOS, C2S, LR_WDS = (0.5, 3.0, 100.0), (1.2, 2.0, 4.0), (0.0, 4e-4, 0.05)


def both_sides(rng: np.random.Generator) -> Iterator[Check]:
    """thm:lsr_kappa_bound, thm:lsr_condition, thm:eq_sde_sgd and thm:app_1st_2nd_sde by linear programmes."""
    yield from _kappa_bounds()
    yield from _large_run()
    yield from _sde()
    yield from _second_order()


def _kappa_bounds() -> Iterator[Check]:
    claim, control = claims("thm:lsr_kappa_bound")
    cases, pairs = list(product(RHOS, C2S, LR_WDS)), list(product(RHOS, C2S))

    def wrong(edge: Callable[[float, float, float], float]) -> int:
        return sum(wrong_answers(edge(r, c, x), partial(scalable, rho=r, c2=c, lr_wd=x)) for r, c, x in cases)

    both = f"wrong answers at (1 ± {STEP:g}) times it, of {2 * len(cases)}"
    yield claim.at_most(f"sharp κ, exact in ηλ: {both}", wrong(lambda r, c, x: max_kappa(r, c, lr_wd=x)), 0)
    yield claim.at_most(f"B* over B: {both}", wrong(lambda r, c, x: critical_batch_size(32, r, c, lr_wd=x) / 32), 0)
    yield control.at_least(
        f"10% more than the sharp κ: {both}", wrong(lambda r, c, x: 1.1 * max_kappa(r, c, lr_wd=x)), 1
    )
    least = sum(
        wrong_answers(distortion(r, k, x), partial(_apart, kappa=k, rho=r, lr_wd=x))
        for k, r, x in product((2.0, 16.0), RHOS, LR_WDS)
    )
    yield claim.at_most("distortion: the least C² for which κ is possible, wrong answers of 36", least, 0)
    loose = sum(
        wrong_answers(printed_max_kappa(r, c), partial(scalable, rho=r, c2=c, any_noise=True)) for r, c in pairs
    )
    yield claim.at_most("as printed: the same without a lower limit on N at κ, wrong answers of 18", loose, 0)
    drawn = sum(
        wrong_answers(plotted_max_kappa(r, c), partial(scalable, rho=r, c2=c, any_noise=True, signal=False))
        for r, c in pairs
    )
    yield claim.at_most("as plotted: and without G in the baseline, wrong answers of 18", drawn, 0)
    moving = sum(
        wrong_answers(max_kappa(effective_noise_to_signal(_excess(r)), c), partial(scalable, rho=r, c2=c))
        for r, c in product((0.5, 3.0, 20.0), C2S)
    )
    yield claim.at_most("momentum, N/X = 1/(E − 1): wrong answers of 18", moving, 0)


def _apart(c2: float, kappa: float, rho: float, lr_wd: float) -> bool:
    return not scalable(kappa, rho, c2, lr_wd)


def scalable(
    kappa: float, rho: float, c2: float, lr_wd: float = 0.0, *, any_noise: bool = False, signal: bool = True
) -> bool:
    """Whether R, G and κN at κ can be within C of a baseline with N/G = ρ, all balances kept.

    The baseline is G = 1, N = ρ, λR/η = (1 + ρ)/(2 − ηλ). With momentum X takes the place of G.
    """
    base = (signal + rho) / (2 - lr_wd)
    least_noise = 0.0 if any_noise else 1 / math.sqrt(c2)
    # (2 − κηλ)λR_κ/η = κG_κ + κN_κ
    return solvable(((2 - kappa * lr_wd) * base, -kappa, -rho), c2, least=(1 / math.sqrt(c2),) * 2 + (least_noise,))


def _large_run() -> Iterator[Check]:
    claim, _ = claims("thm:lsr_condition")
    cases = list(product((3.0, 14.0, 100.0), C2S))
    wrong = 0
    for kappa, c2 in ((kappa, c2) for kappa, c2 in cases if kappa > c2):
        edge = large_run_threshold(kappa, c2)
        wrong += wrong_answers(edge, partial(_no_baseline, kappa=kappa, c2=c2))
        wrong += wrong_answers(edge, partial(large_run_refutes, kappa=kappa, c2=c2))
    silent = sum(large_run_refutes(0.0, kappa, c2) for kappa, c2 in cases if kappa <= c2)
    yield claim.at_most("N/G at κ: a baseline exists just above the threshold and not below (wrong answers)", wrong, 0)
    yield claim.at_most("and for κ ≤ C² nothing is ruled out (ruled out)", silent, 0)


def _no_baseline(rho: float, kappa: float, c2: float) -> bool:
    """With G_κ = 1, N_κ = ρ and 2λR_κ = κη(1 + ρ): 2λR = η(G + N) in ratios to R_κ, G_κ, κN_κ has no solution."""
    return not solvable((kappa * (1 + rho), -1.0, -kappa * rho), c2)


def _sde() -> Iterator[Check]:
    claim, control = claims("thm:eq_sde_sgd")
    wrong = sum(wrong_answers(sde_threshold(c2), partial(_no_sde, c2=c2)) for c2 in C2S)
    fires = sum(wrong_answers(sde_threshold(c2), partial(sgd_refutes_sde, c2=c2)) for c2 in C2S)
    high = sum(wrong_answers(1.2 * sde_threshold(c2), partial(_no_sde, c2=c2)) for c2 in C2S)
    yield claim.at_most(
        "(ii) N/G of SGD: an SDE exists just above the threshold and not below (wrong answers)", wrong, 0
    )
    yield claim.at_most("(ii) and that is where the condition fires (wrong answers)", fires, 0)
    yield control.at_least("(ii) a threshold 20% higher (wrong answers)", high, 1)
    wrong = sum(
        wrong_answers(max_lr_of_sde(n, c2), partial(_sgd_exists, n=n, c2=c2)) for n, c2 in product((0.2, 0.7), C2S)
    )
    yield claim.at_most("(i) η: an SGD exists just below the threshold and not above (wrong answers of 12)", wrong, 0)
    wrong = sum(wrong_answers(c2, partial(_moving_sde, c2=c2)) for c2 in C2S)
    yield claim.at_most("momentum: E = 2λR/(η_eff N), close below C² and not above (wrong answers of 6)", wrong, 0)


def _no_sde(rho: float, c2: float) -> bool:
    """No SDE within C of SGD with G = 1, N = ρ, 2λR/η = 1 + ρ: its balance is 2λR̄ = N̄."""
    return not solvable((1 + rho, -rho), c2)


def _sgd_exists(lr: float, n: float, c2: float) -> bool:
    """SGD within C of an SDE with Ḡ = 1, N̄ = n, 2λR̄ = n: 2λR = η(G + N) is r·n = ηg + s·n in ratios."""
    return solvable((n, -lr, -n), c2)


def _moving_sde(excess: float, c2: float) -> bool:
    """With momentum: 2λR = E·η_eff·N and 2λR̄ = η_eff·N̄ is E·r = s in ratios; E by way of its own R."""
    return solvable((_excess(1 / (excess - 1)), -1.0), c2)


def _second_order() -> Iterator[Check]:
    claim, _ = claims("thm:app_1st_2nd_sde")
    for which, wrong in (("1st", _from_first), ("2nd", _from_second)):
        total = sum(wrong(n, c2, x) for n, c2, x in product((0.2, 0.7), C2S, (0.0, 0.3)))
        yield claim.at_most(
            f"η from N̄/Ḡ of the {which}-order SDE: the other exists just below the threshold and not above (wrong "
            "answers of 24)",
            total,
            0,
        )


def _from_first(n: float, c2: float, lr_wd: float) -> int:
    """(1 + ηλ/2)r·n = ηg + s·n: the 2nd-order SDE in ratios to a 1st-order one with Ḡ = 1, N̄ = n."""

    def exists(lr: float) -> bool:
        return solvable(((1 + lr_wd / 2) * n, -lr, -n), c2)

    return wrong_answers(max_lr_of_second_order_sde(n, c2, lr_wd), exists)


def _from_second(n: float, c2: float, lr_wd: float) -> int:
    """r(η + n)/(1 + ηλ/2) = s·n: the 1st-order SDE in ratios to a 2nd-order one with G′ = 1, N̄′ = n."""

    def exists(lr: float) -> bool:
        return solvable(((lr + n) / (1 + lr_wd / 2), -n), c2)

    return wrong_answers(max_lr_of_second_order_sde(n, c2, lr_wd), exists)


def _excess(rho: float) -> float:
    """E of a run with momentum 0.9, η = 0.1, λ = 0.01, N = 3 and N/X = ρ, from its R at equilibrium."""
    lr, decay, beta, noise = 0.1, 0.01, 0.9, 3.0
    velocity_sq = noise * (1 + 1 / rho) / (1 - beta**2)  # X = (1 − β²)|v|² − N
    param_sq = (1 + beta) * lr * velocity_sq / (2 * decay)  # 2λR = (1 + β)η|v|²
    return momentum_excess(param_sq, noise, lr=lr, weight_decay=decay, momentum=beta)


def wrong_answers(edge: float, possible: Callable[[float], bool]) -> int:
    """Wrong answers about the two sides of a threshold: possible below it, impossible above."""
    return int(not possible(edge * (1 - STEP))) + int(possible(edge * (1 + STEP)))


def solvable(balance: Sequence[float], c2: float, least: Iterable[float] | None = None) -> bool:
    """Whether ratios between 1/C and C, or from `least` on, make the balance Σ a_i·ratio_i vanish."""
    c = math.sqrt(c2)
    floors = [1 / c] * len(balance) if least is None else list(least)
    bounds = [(floor, c) for floor in floors]
    return bool(linprog([0.0] * len(balance), A_eq=[list(balance)], b_eq=[0.0], bounds=bounds).success)
