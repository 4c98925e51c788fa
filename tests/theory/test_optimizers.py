"""The classes of optimizers: how their settings scale with the batch, and how they are refined for SVAG."""

import dataclasses
import math

import numpy as np
import pytest

from svag.theory.adaptive import AdamSettings
from svag.theory.bounds import b_simple
from svag.theory.equilibrium import effective_lr, effective_noise_to_signal, momentum_excess
from svag.theory.optimizers import SGDSettings, linear_scaling, optimizer_kind, refined_average, settings_from


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
        (1e308, {"lr": 0.1, "batch_size": 8}, "^kappa × batch_size "),
        (1e300, {"lr": 1e100, "batch_size": 8}, "^kappa × lr "),
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


def test_b_simple_does_not_depend_on_the_batch_it_was_measured_at() -> None:
    per_example, grad_sq, n = 40.0, 0.5, 1000
    for batch_size in (1, 10, 100):
        with_replacement = per_example / batch_size
        without = with_replacement * (1 - batch_size / n)
        assert b_simple(batch_size, with_replacement / grad_sq) == pytest.approx(80)
        assert b_simple(batch_size, without / grad_sq, population=n) == pytest.approx(80)
    with pytest.raises(ValueError, match="population"):
        b_simple(100, 1.0, population=100)


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
    with pytest.raises(ValueError, match=r"^E = "):
        effective_noise_to_signal(1.0)


@pytest.mark.parametrize("momentum", [0.1, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("limit", ["underdamped", "overdamped"])
def test_one_step_refines_nothing_bit_for_bit(momentum: float, limit: str) -> None:
    one = SGDSettings(lr=0.1, momentum=momentum).refined(1, limit)  # type: ignore[arg-type]
    assert one == SGDSettings(lr=0.1, momentum=momentum)


@pytest.mark.parametrize("ell", [2, 3, 10])
def test_underdamped_is_the_textbook_rescaling_of_the_buffer(ell: int) -> None:
    """v = V l: v ← (1 − (1 − β)/l)v + g, x ← x − (η/l²)v."""
    refined = SGDSettings(lr=0.4, momentum=0.7).refined(ell, "underdamped")
    assert refined.momentum == pytest.approx(1 - 0.3 / ell, rel=1e-14)
    assert refined.lr * (1 - refined.dampening) == pytest.approx(0.4 / ell**2, rel=1e-14)


def test_momentum_without_a_limit_and_unknown_limits_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^momentum=0\.9 .*momentum_limit"):
        SGDSettings(lr=0.1, momentum=0.9).refined(2)
    with pytest.raises(ValueError, match=r"^momentum_limit\b.*got 'naive'"):
        SGDSettings(lr=0.1, momentum=0.9).refined(2, "naive")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^momentum_limit\b"):
        SGDSettings(lr=0.1, momentum=0.9).refined(4, np.ones(3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^momentum\b.*got 1"):
        SGDSettings(lr=0.1, momentum=1.0).refined(2)


@pytest.mark.parametrize("rate", [0.0, 1e-12, 0.1, 0.999, 1.0])
@pytest.mark.parametrize("updates", [1, 2, 7, 100])
def test_an_average_forgets_as_much_in_the_same_time(rate: float, updates: int) -> None:
    assert (1 - refined_average(rate, updates)) ** updates == pytest.approx(1 - rate, rel=1e-12)
    if 0 < rate < 1e-6:  # where the obvious formula loses all digits
        assert refined_average(rate, updates) == pytest.approx(rate / updates, rel=1e-9)


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
def test_an_average_without_meaning_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=r"^rate\b"):
        refined_average(rate, 2)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (SGDSettings(lr=0.1, momentum=0.9, nesterov=True), "nesterov=True"),
        (SGDSettings(lr=0.1, momentum=0.9, dampening=0.5), "dampening=0.5"),
    ],
)
def test_settings_without_a_limit_say_so_and_name_the_way_out(settings: SGDSettings, problem: str) -> None:
    assert settings.without_limit == problem
    with pytest.raises(ValueError, match=rf"^{problem} .*torch\.optim\.SGD\b"):
        settings.refined(2, "overdamped")
    assert SGDSettings(lr=0.1, momentum=0.9).without_limit == ""


def test_settings_survive_being_written_down() -> None:
    settings = SGDSettings(lr=0.1, weight_decay=1e-3, momentum=0.9)
    assert settings_from(dataclasses.asdict(settings)) == settings


def test_scaling_and_refining_by_the_same_number_undo_each_other() -> None:
    """The linear rule is SVAG's refinement read backwards: κ = l gives η back."""
    settings = SGDSettings(lr=0.5, weight_decay=1e-3)
    assert settings.refined(8).scaled(8) == settings
    assert optimizer_kind("SGD").rule == "linear"


@pytest.mark.parametrize(
    ("name", "family", "rule", "covered"),
    [
        (None, "sgd", "linear", True),
        ("SGD", "sgd", "linear", True),
        ("SGD with Nesterov momentum", "sgd", "linear", False),
        ("SGD with dampening", "sgd", "linear", False),
        ("Adam", "second_moment", "square_root", False),
        ("RMSprop", "second_moment", "square_root", False),
        ("LBFGS", "unknown", None, False),
    ],
)
def test_what_is_known_of_an_optimizer_by_its_name(name: str | None, family: str, rule: str, covered: bool) -> None:
    kind = optimizer_kind(name)
    assert (kind.family, kind.rule, kind.covered) == (family, rule, covered)


@pytest.mark.parametrize(
    ("name", "lr", "weight_decay", "said"),
    [
        ("SGD", None, 0.1, "lr ×4"),
        ("SGD", 0.5, 1.0, "lr 2 (weight decay diverges)"),
        ("LBFGS", 0.1, 0.0, "no known rule"),
        ("RMSprop", 0.1, 0.1, "lr 0.2, 1−alpha ×4, eps ÷2"),
        ("Adam", 0.1, 0.1, "lr 0.2, 1−betas ×4, eps ÷2"),
        ("AdamW", 0.1, 0.0, "lr 0.2, 1−betas ×4, eps ÷2"),
        ("AdamW", 0.1, None, "lr 0.2, 1−betas ×4, eps ÷2, weight decay ×2"),
    ],
)
def test_settings_at_a_larger_batch_in_words(
    name: str, lr: float | None, weight_decay: float | None, said: str
) -> None:
    assert optimizer_kind(name).settings_at(4, lr=lr, weight_decay=weight_decay) == said


@pytest.mark.parametrize(
    ("name", "kappa", "betas", "said"),
    [
        ("AdamW", 4, (0.9, 0.999), "lr 0.2, betas (0.6, 0.996), eps 5e-09, weight decay 0.2"),
        ("Adam", 4, (0.9, 0.999), "lr 0.2, betas (0.6, 0.996), eps 5e-09"),  # coupled: a part of the gradient
        ("AdamW", 4, (0.0, 0.999), "lr 0.2, betas (0, 0.996), eps 5e-09, weight decay 0.2"),
        ("AdamW", 16, (0.9, 0.99), "lr 0.4, betas (–, 0.84) as 16·(1−β₁) ≥ 1, eps 2.5e-09, weight decay 0.4"),
        ("AdamW", 10, (0.9, 0.99), "lr 0.316, betas (–, 0.9) as 10·(1−β₁) ≥ 1, eps 3.16e-09, weight decay 0.316"),
        (
            "AdamW",
            100,
            (0.9, 0.98),
            "lr 1, betas (–, –) as 100·(1−β₁) and 100·(1−β₂) ≥ 1, eps 1e-09, weight decay 1",
        ),
        ("AdamW", 100, (0.0, 0.98), "lr 1, betas (0, –) as 100·(1−β₂) ≥ 1, eps 1e-09, weight decay 1"),
        ("RMSprop", 4, (0.0, 0.99), "lr 0.2, alpha 0.96, eps 5e-09"),
        ("RMSprop", 100, (0.0, 0.99), "lr 1, alpha – as 100·(1−alpha) ≥ 1, eps 1e-09"),
    ],
)
def test_settings_of_adam_at_a_larger_batch_in_words(
    name: str, kappa: float, betas: tuple[float, float], said: str
) -> None:
    assert optimizer_kind(name).settings_at(kappa, lr=0.1, weight_decay=0.1, betas=betas, eps=1e-8) == said


def test_words_and_settings_of_adam_are_one_rule() -> None:
    adam = AdamSettings(lr=0.003, betas=(0.95, 0.995), eps=1e-6, weight_decay=0.1, decoupled=True).scaled(3)
    said = f"lr {adam.lr:.3g}, betas ({adam.betas[0]:.6g}, {adam.betas[1]:.6g}), eps {adam.eps:.3g}, weight decay "
    found = optimizer_kind("AdamW").settings_at(3, lr=0.003, weight_decay=0.1, betas=(0.95, 0.995), eps=1e-6)
    assert found == f"{said}{adam.weight_decay:.3g}"
