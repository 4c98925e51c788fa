"""The balances against a scale-invariant toy that can be enumerated; the simulated equilibria are in tests/paper."""

import math

import numpy as np
import pytest

from svag.arrays import FloatArray
from svag.paper.exact.rayleigh import RayleighProblem
from svag.theory.equilibrium import (
    Balance,
    e_folds_to_balance,
    estimated_momentum_signal,
    momentum_balance,
    momentum_signal,
    pull,
    pull_share,
    relaxed_param_sq,
    sde_balance,
    sde_param_sq_rate,
    second_order_sde_balance,
    second_order_sde_param_sq_rate,
    sgd_balance,
    sgd_next_param_sq,
    steps_to_equilibrium,
    svag_balance,
    window_balance,
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


def relaxed(start: float, e_folds: float, lr_wd: float) -> float:
    """R/R* by the recursion R′ = (1−ηλ)²R + η²c/R, scaled so that R* = 1."""
    constant = 1 - (1 - lr_wd) ** 2
    r = start
    for _ in range(round(e_folds / (4 * lr_wd))):
        r = sgd_next_param_sq(r, constant / r, 0.0, lr=1.0, weight_decay=lr_wd)
    return r


@pytest.mark.parametrize("start", [0.2, 1.0, 5.0])
def test_the_squared_norm_relaxes_from_any_start(start: float) -> None:
    """The recursion and the formula differ by O(ηλ): a tenth of the rate leaves a tenth of the gap."""
    gaps = [relaxed(start, 2.0, lr_wd) - relaxed_param_sq(start, 1.0, 2.0) for lr_wd in (1e-3, 1e-4)]
    assert gaps[1] == pytest.approx(gaps[0] / 10, rel=0.02, abs=1e-12)
    assert abs(gaps[1]) < 1e-3


@pytest.mark.parametrize(("start", "balance"), [(0.2, 1.1), (0.9, 1.1), (1.2, 0.9), (2.0, 0.9), (5.0, 0.9)])
def test_the_e_folds_to_balance_end_at_that_balance(start: float, balance: float) -> None:
    r = relaxed_param_sq(start, 1.0, e_folds_to_balance(start))
    assert 1 / r**2 == pytest.approx(balance, rel=1e-12)


def test_weights_within_the_balance_wait_for_nothing() -> None:
    assert [e_folds_to_balance(start) for start in (0.96, 1.0, 1.05)] == [0, 0, 0]
    assert e_folds_to_balance(5.0) > 5 > 3.5 > e_folds_to_balance(2.0) > 3


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


def path(scale_invariant: bool, lr: FloatArray, weight_decay: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """R_k (one more than steps), ⟨x_k, ĝ_k⟩ and |ĝ_k|² along one path of SGD on a bed."""
    rng = np.random.default_rng(2)
    problem = RayleighProblem(rng.standard_normal((6, 4)))
    x = rng.standard_normal((1, 4))
    radii, products, squares = [float((x**2).sum())], [], []
    for eta in lr:
        draw = np.eye(6)[rng.integers(6)][None]
        gradient = problem.weighted_gradient(x, draw) if scale_invariant else x + rng.standard_normal((1, 4))
        products.append(float((x * gradient).sum()))
        squares.append(float((gradient**2).sum()))
        x = x - eta * (gradient + weight_decay * x)
        radii.append(float((x**2).sum()))
    return np.array(radii), np.array(products), np.array(squares)


@pytest.mark.parametrize("scale_invariant", [True, False])
@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
def test_the_balance_of_a_window_is_exact_step_by_step(scale_invariant: bool, weight_decay: float) -> None:
    """With a changing learning rate and drift, on a scale-invariant loss and on a quadratic."""
    lr = 0.2 * (1 + np.cos(np.arange(300) / 100))
    radii, products, squares = path(scale_invariant, lr, weight_decay)
    for start, stop in ((0, 300), (17, 18), (100, 250)):
        window = slice(start, stop)
        found = window_balance(
            radii[window], products[window], squares[window], lr=lr[window], weight_decay=weight_decay
        )
        assert found.residual == pytest.approx(radii[stop] - radii[start], abs=1e-12 * radii.max())
    if scale_invariant:
        np.testing.assert_allclose(products, 0, atol=1e-13)


def test_the_weights_of_a_window_are_those_of_the_schedule() -> None:
    """Negative control: with G + N averaged without the weights η² the balance of a decayed run is off."""
    lr = np.repeat([0.4, 0.04], 2000)
    radii, products, squares = path(False, lr, 0.1)
    right = window_balance(radii[:-1], products, squares, lr=lr, weight_decay=0.1)
    assert right.ratio == pytest.approx(1, abs=0.01)
    unweighted = Balance(decay=right.decay, growth=float((lr**2).sum() * squares.mean()))
    assert abs(unweighted.ratio - 1) > 0.05


def test_the_pull_is_where_the_norm_of_a_quadratic_stands_still() -> None:
    """|x|²/2 with additive noise of trace N: E|x|² = ηN/(2 − η) at λ = 0, and G = ⟨x, ∇L⟩ = R."""
    lr, noise = 0.3, 5.0
    radius = lr * noise / (2 - lr)
    assert pull(radius, radius, lr=lr, weight_decay=0.0) == pytest.approx(lr * (radius + noise), rel=1e-14)
    decay = 0.2
    radius = lr * noise / (2 * (1 + decay) - lr * (1 + decay) ** 2)
    assert pull(radius, radius, lr=lr, weight_decay=decay) == pytest.approx(lr * (radius + noise), rel=1e-14)
    share = pull_share(radius, radius, lr=lr, weight_decay=decay)
    balance = sgd_balance(radius, radius, noise, lr=lr, weight_decay=decay)
    assert balance.ratio == pytest.approx(1 + share, rel=1e-14)


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("curvature", [0.3, 1.0])
def test_with_momentum_the_estimate_of_x_is_exact_on_a_stationary_quadratic(beta: float, curvature: float) -> None:
    """E of xx, xv, vv of v ← βv + ax + ξ, x ← x − ηv from its linear recursion; X = (1 − β²)E|v|² − N."""
    lr, noise = 0.4, 3.0
    step = np.array([[1 - lr * curvature, -lr * beta], [curvature, beta]])
    kick = np.array([-lr, 1.0])
    covariance = np.linalg.solve(np.eye(4) - np.kron(step, step), noise * np.outer(kick, kick).ravel()).reshape(2, 2)
    grad_sq = curvature**2 * covariance[0, 0]
    signal = momentum_signal(covariance[1, 1], noise, beta)
    assert signal == pytest.approx(estimated_momentum_signal(grad_sq, beta), rel=1e-10)
    if beta == 0:
        assert signal == pytest.approx(grad_sq, rel=1e-12)
