"""Closeness, the bounds on κ and the conditions on the SDE, each against the inequalities that define it.

A threshold is right where a linear programme says so: feasible just on one side of it, infeasible just on the other.
"""

import math

import numpy as np
import pytest
from scipy.optimize import linprog

from svag.theory.bounds import (
    Equilibrium,
    critical_batch_size,
    is_lsi,
    large_run_refutes,
    large_run_threshold,
    max_kappa,
    max_lr_of_sde,
    max_lr_of_second_order_sde,
    sde_threshold,
    sgd_refutes_sde,
    smallest_c2,
    smallest_lsi_c2,
)


def test_the_worst_of_three_ratios_decides_in_either_direction() -> None:
    one = Equilibrium(1.0, 1.0, 1.0)
    for other in (Equilibrium(3.0, 1.0, 1.0), Equilibrium(1.0, 1 / 3, 1.0), Equilibrium(1.0, 1.0, 3.0)):
        assert smallest_c2(one, other) == pytest.approx(9.0)
        assert smallest_c2(other, one) == pytest.approx(9.0)


def test_linear_scaling_compares_kappa_times_the_noise() -> None:
    base, scaled = Equilibrium(1.0, 1.0, 8.0), Equilibrium(1.0, 1.0, 1.0)
    assert smallest_lsi_c2(base, scaled, kappa=8) == 1.0
    assert smallest_lsi_c2(base, scaled, kappa=4) == 4.0


def test_invariance_needs_c_below_the_root_of_kappa() -> None:
    one = Equilibrium(1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="C² < κ"):
        is_lsi(one, one, kappa=2.0, c2=2.0)
    assert not is_lsi(one, Equilibrium(2.0, 1.0, 0.25), kappa=4.0, c2=2.0)
    # C² = 2 is a factor √2 in each
    assert is_lsi(one, Equilibrium(1.414, 1.0, 0.25), kappa=4.0, c2=2.0)
    assert not is_lsi(one, Equilibrium(1.415, 1.0, 0.25), kappa=4.0, c2=2.0)


@pytest.mark.parametrize("values", [(-1.0, 1.0, 1.0), (1.0, 0.0, 1.0), (1.0, 1.0, -2.0), (1.0, math.nan, 1.0)])
def test_an_equilibrium_has_positive_values(values: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Equilibrium(*values)


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


def test_without_weight_decay_the_bound_is_linear_in_the_noise() -> None:
    assert max_kappa(18.75) == 2 + 18.75
    assert max_kappa(100, lr_wd=4e-4) == pytest.approx(98.1, abs=0.05)


@pytest.mark.parametrize("rho", np.logspace(-3, 3, 7))
@pytest.mark.parametrize("c2", [1.1, 2.0, 10.0])
def test_weight_decay_only_tightens_the_bound(rho: float, c2: float) -> None:
    assert 1 <= max_kappa(rho, c2, lr_wd=0.1) <= max_kappa(rho, c2)


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
    assert not large_run_refutes(threshold * (1 + 1e-6), kappa, c2)
    assert large_run_refutes(threshold * (1 - 1e-6), kappa, c2)


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
    ],
)
def test_outside_the_domain(arguments: dict[str, float], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        max_kappa(**arguments)


def test_an_equilibrium_knows_its_noise_to_signal() -> None:
    assert Equilibrium(1.0, 2.0, 8.0).noise_to_signal == 4.0


def test_batch_and_kappa_have_domains_too() -> None:
    with pytest.raises(ValueError, match="batch_size"):
        critical_batch_size(0, 1.0)
    with pytest.raises(ValueError, match=r"^kappa\b"):
        large_run_threshold(0.5)


def closeness_possible(rho: float, c2: float) -> bool:
    """Is there an SDE within C of an SGD run with G = 1, N = ρ, 2λR/η = 1 + ρ? Its balance is 2λR̄/η = N̄/η."""
    c = math.sqrt(c2)
    return bool(linprog([0, 0], A_eq=[[1 + rho, -rho]], b_eq=[0], bounds=[(1 / c, c)] * 2).success)


@pytest.mark.parametrize("c2", [1.5, 2.0, 5.0])
def test_condition_ii_is_where_no_sde_can_be_close(c2: float) -> None:
    edge = sde_threshold(c2)
    assert closeness_possible(edge * 1.0001, c2)
    assert not sgd_refutes_sde(edge * 1.0001, c2)
    assert not closeness_possible(edge * 0.9999, c2)
    assert sgd_refutes_sde(edge * 0.9999, c2)


@pytest.mark.parametrize("c2", [1.5, 2.0, 5.0])
def test_condition_i_is_where_no_sgd_can_be_close(c2: float) -> None:
    """SDE with Ḡ = 1, N̄ = n and 2λR̄ = n; SGD ratios r, g, s: r·n = ηg + s·n."""
    n, c = 0.7, math.sqrt(c2)

    def possible(lr: float) -> bool:
        return bool(linprog([0, 0, 0], A_eq=[[n, -lr, -n]], b_eq=[0], bounds=[(1 / c, c)] * 3).success)

    edge = max_lr_of_sde(n, c2)
    assert possible(edge * 0.9999)
    assert not possible(edge * 1.0001)


@pytest.mark.parametrize("lr_wd", [0.0, 0.3])
def test_first_and_second_order(lr_wd: float) -> None:
    """(2 + ηλ)λR′ = ηG′ + N̄′ with ratios r, g, s to an SDE with Ḡ = 1, N̄ = n: (1 + ηλ/2)r·n = ηg + s·n."""
    n, c = 0.7, math.sqrt(2)

    def possible(lr: float) -> bool:
        return bool(
            linprog([0, 0, 0], A_eq=[[(1 + lr_wd / 2) * n, -lr, -n]], b_eq=[0], bounds=[(1 / c, c)] * 3).success
        )

    edge = max_lr_of_second_order_sde(n, 2.0, lr_wd)
    assert possible(edge * 0.9999)
    assert not possible(edge * 1.0001)


def test_domains_of_the_conditions_on_the_sde() -> None:
    with pytest.raises(ValueError, match="c2"):
        sgd_refutes_sde(1.0, c2=1.0)
    with pytest.raises(ValueError, match="noise_to_signal"):
        max_lr_of_sde(-1.0)
    with pytest.raises(ValueError, match="weight_decay"):
        max_lr_of_second_order_sde(1.0, lr_wd=2.5)
