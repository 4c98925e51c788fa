import math

import numpy as np
import pytest
from scipy.optimize import linprog

from svag.theory.bounds import critical_batch_size, large_run_refutes, large_run_threshold, max_kappa


def feasible(kappa: float, rho: float, c2: float, lr_wd: float) -> bool:
    """Whether R, G, N at κ exist that obey both balances and (C,κ)-invariance: linear in (R_κ, G_κ, κN_κ).

    The baseline is G = 1, N = ρ, λR/η = (1 + ρ)/(2 − ηλ); unknowns are ratios to it, all in [1/C, C].
    """
    c = math.sqrt(c2)
    base = (1 + rho) / (2 - lr_wd)
    balance = [[(2 - kappa * lr_wd) * base, -kappa, -rho]]  # (2 − κηλ)λR_κ/η = κG_κ + κN_κ
    return bool(linprog([0, 0, 0], A_eq=balance, b_eq=[0], bounds=[(1 / c, c)] * 3).success)


@pytest.mark.parametrize("rho", [0.5, 3.0, 18.75, 100.0])
@pytest.mark.parametrize("c2", [1.2, 2.0, 4.0])
@pytest.mark.parametrize("lr_wd", [0.0, 4e-4, 0.01])
def test_sharp_bound_is_exactly_where_the_inequalities_stop_having_a_solution(
    rho: float, c2: float, lr_wd: float
) -> None:
    kappa = max_kappa(rho, c2, lr_wd=lr_wd)
    assert feasible(kappa * (1 - 1e-6), rho, c2, lr_wd)
    assert not feasible(kappa * (1 + 1e-6), rho, c2, lr_wd)


def test_the_three_forms() -> None:
    assert max_kappa(18.75) == 2 + 18.75
    assert max_kappa(18.75, form="printed") == 2 * 19.75
    assert max_kappa(18.75, form="plotted") == 2 * 18.75
    assert max_kappa(100, lr_wd=4e-4) == pytest.approx(98.1, abs=0.05)


@pytest.mark.parametrize("rho", np.logspace(-3, 3, 7))
@pytest.mark.parametrize("c2", [1.1, 2.0, 10.0])
def test_sharp_is_never_looser_than_printed(rho: float, c2: float) -> None:
    assert 1 <= max_kappa(rho, c2, lr_wd=0.1) <= max_kappa(rho, c2) <= max_kappa(rho, c2, form="printed")


def test_no_signal_means_no_bound_unless_weight_decay_gives_one() -> None:
    assert max_kappa(math.inf) == math.inf
    assert max_kappa(math.inf, lr_wd=0.01) == pytest.approx(max_kappa(1e12, lr_wd=0.01), rel=1e-9)


def test_bridge_to_the_gradient_noise_scale() -> None:
    batch_size, rho, c2 = 128, 7.0, 3.0
    assert critical_batch_size(batch_size, rho, c2) == c2 * batch_size + (c2 - 1) * batch_size * rho


@pytest.mark.parametrize("kappa", [3.0, 14.0, 100.0])
@pytest.mark.parametrize("c2", [1.5, 2.0])
def test_large_run_threshold_is_where_the_inequalities_stop_having_a_solution(kappa: float, c2: float) -> None:
    """With G_κ = 1 and N_κ = ρ: is there a baseline within C that balances at ηλ → 0?"""
    c = math.sqrt(c2)

    def baseline_exists(rho: float) -> bool:
        r_kappa = kappa * (1 + rho) / 2
        balance = [[2 * r_kappa, -1, -kappa * rho]]  # 2λR/η = G + N, ratios to R_κ, G_κ, κN_κ
        return bool(linprog([0, 0, 0], A_eq=balance, b_eq=[0], bounds=[(1 / c, c)] * 3).success)

    threshold = large_run_threshold(kappa, c2)
    assert baseline_exists(threshold * (1 + 1e-6))
    assert not baseline_exists(threshold * (1 - 1e-6))


def test_large_run_certificate_is_silent_up_to_c2() -> None:
    assert not large_run_refutes(0.0, kappa=2.0)
    assert large_run_refutes(0.0, kappa=2.1)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"noise_to_signal": -0.1}, "noise_to_signal"),
        ({"noise_to_signal": math.nan}, "noise_to_signal"),
        ({"noise_to_signal": 1.0, "c2": 1.0}, "c2"),
        ({"noise_to_signal": 1.0, "c2": math.nan}, "c2"),
        ({"noise_to_signal": 1.0, "lr_wd": 2.0}, "weight_decay"),
        ({"noise_to_signal": 1.0, "lr_wd": -0.1}, "weight_decay"),
        ({"noise_to_signal": 1.0, "form": "sharpest"}, "form"),
    ],
)
def test_outside_the_domain(arguments: dict[str, float], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        max_kappa(**arguments)  # type: ignore[arg-type]


def test_batch_and_kappa_have_domains_too() -> None:
    with pytest.raises(ValueError, match="batch_size"):
        critical_batch_size(0, 1.0)
    with pytest.raises(ValueError, match="kappa must be at least 1"):
        large_run_threshold(0.5)
