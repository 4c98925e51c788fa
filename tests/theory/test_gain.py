"""The gain rule by its definitions: numbers one can check by hand, identities on random draws, brute force."""

import math

import numpy as np
import pytest

import svag
from svag import theory
from svag.arrays import FloatArray
from svag.theory.adaptive import AdamSettings
from svag.theory.bounds import b_simple
from svag.theory.distortion import distortion, spread, step_ratio
from svag.theory.equilibrium import estimated_momentum_signal, momentum_balance, momentum_signal, pull, sgd_balance
from svag.theory.gain import (
    Factors,
    GainScaling,
    balanced_gain,
    gain,
    gain_scaling,
    least_spread,
    norm_ratio,
    rate_excess,
)
from svag.theory.optimizers import Rule, linear_scaling


def draws(columns: int) -> FloatArray:
    """Positive numbers over several orders of magnitude, one row a case."""
    return np.exp(1.5 * np.random.default_rng(14).normal(size=(200, columns)))


@pytest.mark.parametrize(
    ("rho", "kappa", "expected"),
    [
        (8.0, 4.0, 3.0),
        (1.0, 8.0, 16 / 9),
        (70.0, 256.0, 256 * 71 / 326),
        (8.0, 1.0, 1.0),
        (8.0, 0.5, 9 / 17),
        (0.0, 32.0, 1.0),
        (0.0, 0.25, 1.0),
        (math.inf, 32.0, 32.0),
        (math.inf, 0.25, 0.25),
        (1.0, 1e300, 2.0),
    ],
)
def test_gain_by_hand(rho: float, kappa: float, expected: float) -> None:
    assert gain(rho, kappa) == pytest.approx(expected, rel=1e-15)


def test_the_gain_is_kappa_over_the_distortion() -> None:
    for rho, kappa in draws(2):
        assert gain(rho, 1 + kappa) * distortion(rho, 1 + kappa) == pytest.approx(1 + kappa, rel=1e-14)
        # AdaScale's gain, the ratio of second moments: (G + N)/(G + N/κ)
        assert gain(rho, kappa) == pytest.approx((1 + rho) / (1 + rho / kappa), rel=1e-14)
        assert gain(rho, kappa) <= (1 + rho) * (1 + 1e-15)
        assert min(1, kappa) <= gain(rho, kappa) * (1 + 1e-15)
        assert gain(rho, kappa) <= max(1, kappa) * (1 + 1e-15)


def test_the_gain_keeps_drift_and_squared_steps_at_any_point() -> None:
    """With unchanged G and noise of one example: m steps' worth of drift, and E|Δx|² of m steps, up and down."""
    for grad, noise, kappa in draws(3):
        m = gain(noise / grad, kappa)
        assert m * (grad + noise / kappa) == pytest.approx(grad + noise, rel=1e-13)


def test_the_way_back_is_the_inverse() -> None:
    """From κB the noise is N/κ, and the gain at 1/κ of the batch leads back."""
    for rho, kappa in draws(2):
        assert gain(rho, kappa) * gain(rho / kappa, 1 / kappa) == pytest.approx(1, rel=1e-13)


def test_two_gains_in_a_row_are_one() -> None:
    for rho, first, second in draws(3):
        both = gain(rho, first) * gain(rho / first, second)
        assert both == pytest.approx(gain(rho, first * second), rel=1e-13)


def test_the_distortion_in_noise_scales() -> None:
    """κ over the gain is (κB + B_simple)/(B + B_simple), the factor in examples of McCandlish et al."""
    scale = b_simple(32, 7.0)
    assert 8.0 / gain(7.0, 8.0) == pytest.approx((8 * 32 + scale) / (32 + scale), rel=1e-15)


@pytest.mark.parametrize(
    ("made", "rule", "decoupled", "expected"),
    [
        (4.0, "linear", False, Factors(4.0, 1.0, 1.0)),
        (4.0, "linear", True, Factors(4.0, 1.0, 1.0)),
        (4.0, "square_root", False, Factors(2.0, 1.0, 0.5)),
        (4.0, "square_root", True, Factors(2.0, 2.0, 0.5)),
        (0.25, "square_root", True, Factors(0.5, 0.5, 2.0)),
        (1.0, "square_root", True, Factors(1.0, 1.0, 1.0)),
    ],
)
def test_factors_by_hand(made: float, rule: Rule, decoupled: bool, expected: Factors) -> None:
    assert Factors.at(made, rule, decoupled) == expected
    assert svag.Factors is Factors


def test_factors_print_what_is_multiplied() -> None:
    assert str(Factors(2.5)) == "lr × 2.5"
    assert str(Factors(2.0, 2.0, 0.5)) == "lr × 2, weight decay × 2, eps × 0.5"
    assert "lr × 2.5" in Factors(2.5)._repr_html_()


def test_the_settings_of_sgd() -> None:
    made = gain_scaling(8.0, 4, lr=0.125, batch_size=128, weight_decay=5e-4)
    assert made == GainScaling(
        kappa=4.0,
        gain=3.0,
        examples=4 / 3,
        steps=1 / 3,
        lr=0.375,
        batch_size=512,
        weight_decay=5e-4,
        eps=None,
    )
    assert made.examples == pytest.approx(distortion(8.0, 4.0), rel=1e-15)
    assert str(made) == "Batch 512: lr 0.375, weight decay 0.0005; 1.33× the examples in 0.333× the steps."
    assert theory.gain_scaling is gain_scaling
    assert theory.gain is gain


def test_the_settings_of_adam_are_the_square_root_rule_at_the_gain() -> None:
    for decoupled in (False, True):
        made = gain_scaling(
            8.0,
            4,
            lr=0.5,
            batch_size=8,
            weight_decay=0.25,
            eps=1e-8,
            rule="square_root",
            decoupled=decoupled,
        )
        rule = AdamSettings(0.5, (0.9, 0.99), 1e-8, 0.25, decoupled).scaled(3.0)
        assert (made.lr, made.eps, made.weight_decay) == (rule.lr, rule.eps, rule.weight_decay)
    assert "eps 5.77e-09" in str(made)


def test_without_signal_it_is_the_linear_rule_and_it_scales_down() -> None:
    linear = linear_scaling(4, lr=0.125, batch_size=128, weight_decay=5e-4)
    made = gain_scaling(math.inf, 4, lr=0.125, batch_size=128, weight_decay=5e-4)
    assert (made.lr, made.batch_size, made.weight_decay) == (linear.lr, linear.batch_size, linear.weight_decay)
    down = gain_scaling(8.0, 0.5, lr=0.17, batch_size=128)
    assert down.batch_size == 64
    assert down.lr == pytest.approx(0.17 * 9 / 17)
    assert down.examples == pytest.approx(17 / 18)


def test_theorem_by_the_balances_of_two_runs() -> None:
    """R from the balance of each run, for any G, N and rates: R′/R is μA, and R, G, κN are apart by max(μ, 1/μ)."""
    for grad, noise, grad_large, noise_large, kappa, m, scale in draws(7):
        lr_wd = 0.9 * scale / (1 + scale)  # between 0 and 0.9
        if m * lr_wd >= 2:
            assert rate_excess(noise / grad, kappa, m, lr_wd) == least_spread(noise / grad, kappa, m, lr_wd) == math.inf
            continue
        norms = []
        for factor, g_squared, trace in ((1.0, grad, noise), (m, grad_large, noise_large)):
            lr = factor * lr_wd  # λ = 1
            unit = sgd_balance(1.0, g_squared, trace, lr=lr, weight_decay=1.0)
            norms.append(unit.growth / unit.decay)
        r, g, n = norms[1] / norms[0], grad_large / grad, kappa * noise_large / noise
        found = norm_ratio(noise / grad, kappa, m, grad_ratio=g, noise_ratio=n, lr_wd=lr_wd)
        assert found == pytest.approx(r, rel=1e-12)
        assert spread(r, g, n) >= least_spread(noise / grad, kappa, m, lr_wd) * (1 - 1e-12)


def test_theorem_for_the_pull_of_any_stationary_loss() -> None:
    """T = η(G + N) at stationarity, whatever the loss: T′/T is μA without ηλ."""
    for grad, noise, grad_large, noise_large, kappa, m in draws(6):
        lr, weight_decay, param_sq = 0.01, 0.1, 2.0
        pulls = []
        for factor, step_sq in ((1.0, grad + noise), (m, grad_large + noise_large)):
            eta = factor * lr
            own = (eta * step_sq - (2 - eta * weight_decay) * weight_decay * param_sq) / (2 * (1 - eta * weight_decay))
            pulls.append(pull(param_sq, own, lr=eta, weight_decay=weight_decay))
        g, n = grad_large / grad, kappa * noise_large / noise
        found = norm_ratio(noise / grad, kappa, m, grad_ratio=g, noise_ratio=n)
        assert found == pytest.approx(pulls[1] / pulls[0], rel=1e-9)


def test_theorem_with_momentum() -> None:
    """R from the balance with momentum, X for G: the same identity at N/X without ηλ."""
    beta, lr, weight_decay = 0.9, 0.05, 0.1
    for signal, noise, signal_large, noise_large, kappa, size in draws(6):
        m = 4 * size / (1 + size)
        norms, signals = [], []
        for factor, x_squared, trace in ((1.0, signal, noise), (m, signal_large, noise_large)):
            velocity_sq = (x_squared + trace) / (1 - beta**2)
            unit = momentum_balance(1.0, velocity_sq, lr=factor * lr, weight_decay=weight_decay, momentum=beta)
            norms.append(unit.growth / unit.decay)
            signals.append(momentum_signal(velocity_sq, trace, beta))
        x, n = signals[1] / signals[0], kappa * noise_large / noise
        rho = noise / signals[0]
        r = norms[1] / norms[0]
        assert norm_ratio(rho, kappa, m, grad_ratio=x, noise_ratio=n) == pytest.approx(r, rel=1e-9)
        assert spread(r, x, n) >= least_spread(rho, kappa, m) * (1 - 1e-9)


def test_with_momentum_the_gain_of_the_plain_ratio_has_a_bound_of_its_own() -> None:
    """κ/D forces a spread of D/D_X; κ/D_X none."""
    rho = 8.0
    of_x = rho / estimated_momentum_signal(1.0, 0.9)
    for kappa in (2.0, 16.0):
        expected = distortion(rho, kappa) / distortion(of_x, kappa)
        assert expected > 1.05
        assert least_spread(of_x, kappa, gain(rho, kappa)) == pytest.approx(expected, rel=1e-13)
        assert least_spread(of_x, kappa, gain(of_x, kappa)) == pytest.approx(1.0, abs=1e-13)


def test_no_smaller_spread_exists_and_this_one_does() -> None:
    """Brute force over a grid of (g, n): the least spread of (μA, g, n) is max(μ, 1/μ), where g = n."""
    ratios = np.exp(np.linspace(-1.5, 1.5, 61))
    g, n = (one.ravel() for one in np.meshgrid(ratios, ratios))
    for rho in (0.5, 8.0):
        for kappa in (0.25, 4.0, 32.0):
            for lr_wd in (0.0, 0.1):
                for m in (kappa, balanced_gain(rho, kappa, lr_wd), 0.7 * gain(rho, kappa)):
                    if m * lr_wd >= 2:
                        continue
                    # the balances of both runs, written out
                    r = m * (2 - lr_wd) / (2 - m * lr_wd) * (g + rho * n / kappa) / (1 + rho)
                    apart = np.maximum(np.maximum(g, n), r) / np.minimum(np.minimum(g, n), r)
                    bound = least_spread(rho, kappa, m, lr_wd)
                    assert apart.min() == pytest.approx(bound, rel=1e-12)
                    if bound > 1 + 1e-9:
                        assert g[apart.argmin()] == n[apart.argmin()]


def test_only_the_balanced_gain_has_no_bound() -> None:
    for rho, kappa, scale in draws(3):
        lr_wd = 1.9 * scale / (1 + scale)
        best = balanced_gain(rho, kappa, lr_wd)
        assert best * lr_wd < 2
        assert rate_excess(rho, kappa, best, lr_wd) == pytest.approx(1, rel=1e-9)
        assert rate_excess(rho, kappa, 0.99 * best, lr_wd) < 0.991
        assert least_spread(rho, kappa, 0.99 * best, lr_wd) > 1.009
        assert balanced_gain(rho, kappa) == pytest.approx(gain(rho, kappa), rel=1e-14)


def test_at_the_balanced_gain_what_is_left_is_the_change_of_the_noise_scale() -> None:
    for rho, kappa, g, n in draws(4):
        r = norm_ratio(rho, kappa, gain(rho, kappa), grad_ratio=g, noise_ratio=n)
        assert spread(r, g, n) == pytest.approx(spread(g, n), rel=1e-13)


@pytest.mark.parametrize("lr_wd", [0.0, 4e-4, 0.05])
def test_the_linear_rule_is_a_special_case(lr_wd: float) -> None:
    for rho, extra, g, n in draws(4):
        kappa = 1 + extra
        expected = distortion(rho, kappa, lr_wd)
        assert least_spread(rho, kappa, kappa, lr_wd) == pytest.approx(expected, rel=1e-13)
        linear = norm_ratio(rho, kappa, kappa, grad_ratio=g, noise_ratio=n)
        assert linear == pytest.approx(step_ratio(rho, kappa, g, n), rel=1e-13)


def test_nothing_but_noise_and_no_noise() -> None:
    assert norm_ratio(math.inf, 4.0, 2.0, grad_ratio=9.0, noise_ratio=3.0) == 1.5  # 2/4·n
    assert norm_ratio(0.0, 4.0, 2.0, grad_ratio=3.0, noise_ratio=9.0) == 6.0  # 2·g
    assert balanced_gain(math.inf, 4.0, 0.5) == 8 / (1.5 + 2)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: gain(-1.0, 2.0), "noise_to_signal"),
        (lambda: gain(math.nan, 2.0), "noise_to_signal"),
        (lambda: gain(1.0, 0.0), r"^kappa\b"),
        (lambda: gain(1.0, math.inf), "kappa"),
        (lambda: Factors.at(0.0, "linear"), r"^gain\b"),
        (lambda: Factors.at(2.0, "cubic"), r"^rule\b.*square_root"),  # type: ignore[arg-type]
        (lambda: gain_scaling(8.0, 1.5, lr=0.1, batch_size=3), r"^kappa\b"),
        (lambda: gain_scaling(8.0, 4, lr=0.0, batch_size=3), r"^lr\b"),
        (lambda: gain_scaling(8.0, 4, lr=0.1, batch_size=3, weight_decay=-1.0), "weight_decay"),
        (lambda: gain_scaling(8.0, 4, lr=0.1, batch_size=3, eps=-1.0), "eps"),
        (lambda: gain_scaling(8.0, 4, lr=1.0, batch_size=3, weight_decay=0.7), "diverge"),
        (
            lambda: gain_scaling(8.0, 4, lr=1.0, batch_size=3, weight_decay=0.7, rule="square_root", decoupled=True),
            "diverge",
        ),
        (lambda: rate_excess(8.0, 4.0, 0.0), "rate_factor"),
        (lambda: rate_excess(8.0, 4.0, 1.0, lr_wd=2.0), "weight_decay"),
        (lambda: balanced_gain(8.0, 4.0, lr_wd=-1.0), "weight_decay"),
        (lambda: norm_ratio(8.0, 4.0, 1.0, grad_ratio=0.0, noise_ratio=1.0), "grad_ratio"),
        (lambda: norm_ratio(8.0, 4.0, 1.0, grad_ratio=1.0, noise_ratio=-1.0), "noise_ratio"),
    ],
)
def test_domains(call: object, word: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=word):
        call()


def test_coupled_decay_of_adam_is_not_limited() -> None:
    """It is divided by √v with the gradient, so that ηλ ≥ 2 need not diverge."""
    assert gain_scaling(8.0, 4, lr=1.0, batch_size=3, weight_decay=5.0, rule="square_root").weight_decay == 5.0
