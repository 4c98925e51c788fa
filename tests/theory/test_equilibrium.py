"""The balances against a scale-invariant toy that can be enumerated; the simulated equilibria are in tests/paper."""

import math

import numpy as np
import pytest

from svag.theory.equilibrium import (
    momentum_balance,
    sde_balance,
    sde_param_sq_rate,
    second_order_sde_balance,
    second_order_sde_param_sq_rate,
    sgd_balance,
    sgd_next_param_sq,
    steps_to_equilibrium,
    svag_balance,
)
from svag.theory.weights import svag_weights

RATES = {"lr": 0.3, "weight_decay": 0.7}


@pytest.mark.parametrize("ell", [1, 2, 7])
def test_next_norm_by_enumerating_pairs_of_orthogonal_gradients(ell: int) -> None:
    x = np.array([2.0, 0.0, 0.0])
    gradients = np.array([[0.0, 1.0, 0.0], [0.0, -2.0, 1.0], [0.0, 0.5, 3.0]])
    mean = gradients.mean(axis=0)
    noise_trace = ((gradients - mean) ** 2).sum(axis=1).mean()
    a, b = svag_weights(ell)
    h = RATES["lr"] / ell
    after = [x - h * (a * one + b * two + RATES["weight_decay"] * x) for one in gradients for two in gradients]
    enumerated = np.mean([(y**2).sum() for y in after])
    assert sgd_next_param_sq(4.0, mean @ mean, noise_trace, **RATES, ell=ell) == pytest.approx(enumerated, rel=1e-12)


@pytest.mark.parametrize("ell", [1, 3])
def test_balance_is_where_the_norm_stands_still(ell: int) -> None:
    grad_sq, noise_trace, h = 2.0, 5.0, RATES["lr"] / ell
    growth = svag_balance(1.0, grad_sq, noise_trace, **RATES, ell=ell).growth
    param_sq = growth / ((2 - h * RATES["weight_decay"]) * RATES["weight_decay"])
    assert svag_balance(param_sq, grad_sq, noise_trace, **RATES, ell=ell).ratio == pytest.approx(1)
    assert sgd_next_param_sq(param_sq, grad_sq, noise_trace, **RATES, ell=ell) == pytest.approx(param_sq)


def test_ell_1_is_sgd_and_ell_infinite_is_the_sde() -> None:
    assert svag_balance(3.0, 2.0, 5.0, **RATES) == sgd_balance(3.0, 2.0, 5.0, **RATES)
    fine = svag_balance(3.0, 2.0, 5.0, **RATES, ell=1e9)
    sde = sde_balance(3.0, RATES["lr"] * 5.0, weight_decay=RATES["weight_decay"])
    assert fine.decay == pytest.approx(sde.decay)
    assert fine.growth == pytest.approx(sde.growth)


def test_rates_are_residuals() -> None:
    assert sde_param_sq_rate(3.0, 5.0, weight_decay=0.5) == 5.0 - 2 * 0.5 * 3.0
    balance = second_order_sde_balance(3.0, 2.0, 5.0, **RATES)
    assert second_order_sde_param_sq_rate(3.0, 2.0, 5.0, **RATES) == balance.growth - balance.decay
    assert balance.decay == pytest.approx((2 + 0.21) * 0.7 * 3.0)
    assert balance.growth == pytest.approx(0.3 * 2.0 + 5.0)


def test_momentum_balance_without_momentum_is_sgd_with_the_decayed_gradient() -> None:
    """β = 0: |v|² = G + N + λ²R, and 2λR = η|v|² is (2 − ηλ)λR = η(G + N)."""
    lr, weight_decay = RATES["lr"], RATES["weight_decay"]
    grad_sq, noise_trace = 2.0, 5.0
    param_sq = lr * (grad_sq + noise_trace) / ((2 - lr * weight_decay) * weight_decay)
    velocity_sq = grad_sq + noise_trace + weight_decay**2 * param_sq
    assert momentum_balance(param_sq, velocity_sq, **RATES, momentum=0.0).ratio == pytest.approx(1)


def test_one_e_fold_is_one_e_fold() -> None:
    """With G + N = const/R the squared norm obeys R′ = (1−ηλ)²R + η²c/R: its deviation decays by e in 1/(4ηλ) steps."""
    lr, weight_decay, constant = 0.1, 0.01, 3.0
    fixed = math.sqrt(lr**2 * constant / (1 - (1 - lr * weight_decay) ** 2))
    r = fixed * 1.001
    for _ in range(round(steps_to_equilibrium(lr, weight_decay))):
        r = sgd_next_param_sq(r, constant / r, 0.0, lr=lr, weight_decay=weight_decay)
    assert (r - fixed) / (0.001 * fixed) == pytest.approx(math.exp(-1), rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [((0.0, 1.0, 1.0), "param_sq"), ((1.0, 1.0, -1.0), "noise_trace"), ((1.0, 1.0, math.nan), "noise_trace")],
)
def test_domains(arguments: tuple[float, float, float], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        sgd_balance(*arguments, **RATES)


def test_each_process_has_its_own_bound_on_weight_decay() -> None:
    assert sde_balance(10.0, 1.0, weight_decay=5.0).decay == 100.0
    assert second_order_sde_balance(1.0, 1.0, 1.0, lr=3.0, weight_decay=1.0).decay == 5.0
    assert momentum_balance(1.0, 1.0, lr=3.0, weight_decay=1.0, momentum=0.9).decay == 2.0
    assert svag_balance(1.0, 1.0, 1.0, lr=3.0, weight_decay=1.0, ell=4).decay == 1.25
    with pytest.raises(ValueError, match="diverges"):
        svag_balance(1.0, 1.0, 1.0, lr=1.5, weight_decay=1.0, ell=0.5)
    with pytest.raises(ValueError, match="diverges"):
        momentum_balance(1.0, 1.0, lr=3.9, weight_decay=1.0, momentum=0.9)
    with pytest.raises(ValueError, match="grad_sq"):
        sgd_balance(1.0, math.nan, 1.0, **RATES)
    with pytest.raises(ValueError, match="sde_noise_trace"):
        sde_balance(1.0, -1.0, weight_decay=1.0)


def test_weight_decay_that_diverges_is_refused() -> None:
    with pytest.raises(ValueError, match="diverges"):
        sgd_balance(1.0, 1.0, 1.0, lr=2.0, weight_decay=1.0)
