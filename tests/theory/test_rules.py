import dataclasses
import math

import pytest

from svag.theory.bounds import adascale_gain, b_simple
from svag.theory.equilibrium import effective_lr, effective_noise_to_signal, momentum_excess
from svag.theory.optimizers import linear_scaling, square_root_scaling


def test_linear_scaling() -> None:
    scaled = linear_scaling(8, lr=0.8, batch_size=128, weight_decay=5e-4)
    assert (scaled.kappa, scaled.lr, scaled.batch_size, scaled.weight_decay) == (8, 6.4, 1024, 5e-4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        scaled.lr = 1.0  # type: ignore[misc]


def test_linear_scaling_goes_down_too() -> None:
    assert linear_scaling(1 / 3, lr=0.3, batch_size=96).batch_size == 32


@pytest.mark.parametrize(
    ("kappa", "rest", "word"),
    [
        (0, {"lr": 0.1, "batch_size": 8}, "kappa"),
        (math.nan, {"lr": 0.1, "batch_size": 8}, "kappa"),
        (1.3, {"lr": 0.1, "batch_size": 8}, "whole"),
        (0.01, {"lr": 0.1, "batch_size": 8}, "whole"),
        (2, {"lr": 0.1, "batch_size": 8.5}, "batch_size"),
        (2, {"lr": -0.1, "batch_size": 8}, "lr"),
        (4, {"lr": 1.0, "batch_size": 8, "weight_decay": 0.5}, "below 2"),
        (4, {"lr": 1.0, "batch_size": 8, "weight_decay": -0.5}, "weight_decay"),
    ],
)
def test_linear_scaling_refuses(kappa: float, rest: dict[str, float], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        linear_scaling(kappa, **rest)  # type: ignore[arg-type]


def test_square_root_scaling_keeps_the_noise_of_adam() -> None:
    scaled = square_root_scaling(9, lr=1e-3, betas=(0.9, 0.999), eps=3e-8, weight_decay=0.1)
    assert scaled.kappa == 9
    assert scaled.lr == pytest.approx(3e-3)
    assert scaled.betas == pytest.approx((0.1, 0.991))
    assert scaled.eps == pytest.approx(1e-8)
    assert scaled.weight_decay == pytest.approx(0.3)


def test_square_root_scaling_refuses_a_momentum_that_would_be_negative() -> None:
    with pytest.raises(ValueError, match=r"betas\[0\].*scale by less"):
        square_root_scaling(10, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    with pytest.raises(ValueError, match=r"betas\[1\] must lie in \[0, 1\)"):
        square_root_scaling(2, lr=1e-3, betas=(0.9, 1.0), eps=1e-8, weight_decay=0.0)


def test_b_simple_does_not_depend_on_the_batch_it_was_measured_at() -> None:
    per_example, grad_sq, n = 40.0, 0.5, 1000
    for batch_size in (1, 10, 100):
        with_replacement = per_example / batch_size
        without = with_replacement * (1 - batch_size / n)
        assert b_simple(batch_size, with_replacement / grad_sq) == pytest.approx(80)
        assert b_simple(batch_size, without / grad_sq, population=n) == pytest.approx(80)
    with pytest.raises(ValueError, match="population"):
        b_simple(100, 1.0, population=100)


def test_adascale_gain_is_the_ratio_of_second_moments() -> None:
    grad_sq, noise_trace = 2.0, 14.0
    assert adascale_gain(7.0, scale=4) == (grad_sq + noise_trace) / (grad_sq + noise_trace / 4)
    assert adascale_gain(7.0) == 8.0
    assert adascale_gain(math.inf, scale=4) == 4
    with pytest.raises(ValueError, match="scale"):
        adascale_gain(1.0, scale=0.5)


def test_momentum_certificate_from_the_balance() -> None:
    """2λR = (1+β)η|v|² makes D = (1−β²)|v|²/N, so that 1/(D−1) = N/X with X = (1−β²)|v|² − N."""
    lr, weight_decay, beta, velocity_sq, noise_trace = 0.1, 0.05, 0.9, 30.0, 4.0
    param_sq = (1 + beta) * lr * velocity_sq / (2 * weight_decay)
    excess = momentum_excess(param_sq, noise_trace, lr=lr, weight_decay=weight_decay, momentum=beta)
    signal = (1 - beta**2) * velocity_sq - noise_trace
    assert effective_noise_to_signal(excess) == pytest.approx(noise_trace / signal)
    assert effective_lr(lr, beta) == pytest.approx(1.0)


@pytest.mark.parametrize("beta", [-0.1, 1.0, math.nan])
def test_momentum_has_a_domain(beta: float) -> None:
    with pytest.raises(ValueError, match="momentum"):
        effective_lr(0.1, beta)


def test_no_bound_without_signal() -> None:
    with pytest.raises(ValueError, match="must exceed 1"):
        effective_noise_to_signal(1.0)
