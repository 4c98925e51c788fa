"""The square-root rule and the sub-steps of SVAG for the optimizers that divide by a second moment."""

import math
from typing import Any

import pytest
import torch

from svag.theory.adaptive import AdamSettings, RMSpropSettings, SquareRootFactors, square_root_scaling, step_shortfall


def test_square_root_scaling_keeps_the_noise_of_adam() -> None:
    scaled = square_root_scaling(9, lr=1e-3, betas=(0.9, 0.999), eps=3e-8, weight_decay=0.1)
    assert scaled.kappa == 9
    assert scaled.lr == pytest.approx(3e-3)
    assert scaled.betas == pytest.approx((0.1, 0.991))
    assert scaled.eps == pytest.approx(1e-8)
    assert scaled.weight_decay == pytest.approx(0.3)


def test_square_root_scaling_refuses_a_momentum_that_would_be_negative() -> None:
    with pytest.raises(ValueError, match=r"^kappa\b.*betas\[0\]"):
        square_root_scaling(10, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    with pytest.raises(ValueError, match=r"^betas\[1\] .*got 1"):
        square_root_scaling(2, lr=1e-3, betas=(0.9, 1.0), eps=1e-8, weight_decay=0.0)


def test_a_gradient_that_is_not_averaged_stays_so() -> None:
    assert square_root_scaling(9, lr=1e-3, betas=(0.0, 0.99), eps=1e-8, weight_decay=0.0).betas[0] == 0
    assert AdamSettings(lr=1e-3, betas=(0.0, 0.99)).refined(4).betas[0] == 0


@pytest.mark.parametrize("betas", [(), (0.9,), (0.9, 0.99, 0.999), 0.9])
def test_betas_are_two_numbers(betas: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match=r"^betas\b"):
        square_root_scaling(2, lr=1e-3, betas=betas, eps=1e-8, weight_decay=0.0)


@pytest.mark.parametrize("decoupled", [True, False])
@pytest.mark.parametrize("beta", [0.9, 0.95, 0.999, 1 / 3])
def test_one_sub_step_is_the_step_itself_to_the_last_bit(beta: float, decoupled: bool) -> None:
    adam = AdamSettings(lr=0.3, betas=(beta, beta), eps=1e-8, weight_decay=0.1, decoupled=decoupled)
    assert adam.refined(1) == adam.scaled(1) == adam
    rmsprop = RMSpropSettings(lr=0.3, alpha=beta, eps=1e-8, weight_decay=0.1)
    assert rmsprop.refined(1) == rmsprop.scaled(1) == rmsprop


def test_the_rule_keeps_the_step_the_memory_and_the_decay_per_example() -> None:
    # √v is √κ times smaller where noise dominates: lr/√v per step grows by κ, as do forgetting and decay per step.
    kappa, adamw = 4.0, AdamSettings(lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1, decoupled=True)
    large, root = adamw.scaled(kappa), math.sqrt(kappa)
    assert large.lr * root == pytest.approx(kappa * adamw.lr)
    assert large.lr / large.eps == pytest.approx(kappa * adamw.lr / adamw.eps)
    assert large.lr * large.weight_decay == pytest.approx(kappa * adamw.lr * adamw.weight_decay)
    for beta, scaled in zip(adamw.betas, large.betas, strict=True):
        assert 1 - scaled == pytest.approx(kappa * (1 - beta))


def test_only_decoupled_decay_is_scaled() -> None:
    assert AdamSettings(lr=0.01, weight_decay=0.1).scaled(4).weight_decay == 0.1
    assert AdamSettings(lr=0.01, weight_decay=0.1, decoupled=True).scaled(4).weight_decay == 0.2
    assert RMSpropSettings(lr=0.01, weight_decay=0.1).scaled(4).weight_decay == 0.1


def test_a_sub_step_is_the_rule_at_a_fraction_of_the_batch() -> None:
    adamw = AdamSettings(lr=0.01, betas=(0.9, 0.99), weight_decay=0.1, decoupled=True)
    fine = adamw.refined(8)
    assert fine == adamw.scaled(1 / 8)
    assert fine.lr == pytest.approx(0.01 / math.sqrt(8))
    assert fine.eps == pytest.approx(1e-8 * math.sqrt(8))
    assert fine.weight_decay == pytest.approx(0.1 / math.sqrt(8))
    assert fine.betas == pytest.approx((1 - 0.1 / 8, 1 - 0.01 / 8))
    back = fine.scaled(8)
    assert back.betas == pytest.approx(adamw.betas)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (AdamSettings(lr=0.1, amsgrad=True), "amsgrad=True"),
        (RMSpropSettings(lr=0.1, momentum=0.5), "momentum=0.5"),
        (RMSpropSettings(lr=0.1, centered=True), "centered=True"),
    ],
)
def test_what_has_no_limit_is_refused_with_the_way_out(settings: AdamSettings | RMSpropSettings, word: str) -> None:
    with pytest.raises(ValueError, match=rf"^{word} .*torch\.optim\.Adam\b"):
        settings.refined(2)


@pytest.mark.parametrize("kappa", [0, -1, math.nan, math.inf])
def test_the_factors_refuse_what_is_no_factor(kappa: float) -> None:
    with pytest.raises(ValueError, match="kappa"):
        SquareRootFactors.at(kappa)


@pytest.mark.parametrize("betas", [torch.ones(2, 2), "x" * 10**6, ["x"] * 10**5, (0.9,)])
def test_betas_that_are_no_two_numbers_are_one_short_sentence(betas: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="betas") as error:
        square_root_scaling(2, lr=0.1, betas=betas, eps=1e-8, weight_decay=0.0)
    assert len(str(error.value)) < 160


def test_steps_come_out_too_short_by_the_root_of_the_distortion() -> None:
    assert [step_shortfall(distortion) for distortion in (1.0, 4.0, 25.0)] == pytest.approx([0.0, 0.5, 0.8])
    with pytest.raises(ValueError, match="distortion"):
        step_shortfall(0.9)
