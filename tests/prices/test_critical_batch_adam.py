"""What a run of Adam says about larger batches: prices under the square-root rule, and whether their premise holds."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from tests.prices.streams import make, settled

from svag import Reading, predict_critical_batch
from svag.prices.critical_batch import CriticalBatch
from svag.theory import critical_batch_size, distortion
from svag.theory.adaptive import distortion_with_eps, step_shortfall


def adamw(**changes: object) -> list[Reading]:
    """N/G = 10 at batch size 64, and V = G + N to within its scatter; no V in the first reading."""
    first, *others = settled(
        **{
            "optimizer": "AdamW",
            "lr": 1e-3,
            "weight_decay": 0.1,
            "momentum": None,
            "betas": (0.9, 0.999),
            "eps": 1e-8,
            "second_moment": 11.0,
            "dimension": 1000,
        }
        | changes
    )
    return [replace(first, second_moment=None, dimension=None), *others]


def note(found: CriticalBatch, words: str) -> str:
    return next((sentence for sentence in found.notes if words in sentence), "")


def test_the_price_list_has_the_settings_of_the_square_root_rule() -> None:
    found = predict_critical_batch(adamw())
    assert (found.basis, found.rule, found.signal) == ("second_moment", "square_root", "G")
    assert [price.settings for price in found.prices([128, 256, 1024])] == [
        "lr 0.00141, betas (0.8, 0.998), eps 7.07e-09, weight decay 0.141",
        "lr 0.002, betas (0.6, 0.996), eps 5e-09, weight decay 0.2",
        "lr 0.004, betas (–, 0.984) as 16·(1−β₁) ≥ 1, eps 2.5e-09, weight decay 0.4",
    ]
    assert note(found, "The rule ends").startswith("The rule ends below batch size 640, where κ(1 − β₁) reaches 1")
    assert found.distortion(256).value == distortion(found.noise_to_signal, 4.0)
    assert found.critical_batch == critical_batch_size(64, found.noise_to_signal)


@pytest.mark.parametrize(
    ("changes", "settings", "ends"),
    [
        ({"betas": (0.0, 0.99)}, "betas (0, 0.96)", "6400, where κ(1 − β₂)"),
        ({"betas": (0.95, 0.9)}, "betas (0.8, 0.6)", "640, where κ(1 − β₂)"),
        ({"betas": None, "eps": None}, "1−betas ×4, eps ÷2", ""),
        ({"optimizer": "RMSprop", "betas": (0.0, 0.95), "momentum": 0.0}, "alpha 0.8", "1280, where κ(1 − alpha)"),
    ],
)
def test_the_rates_of_the_averages(changes: dict[str, object], settings: str, ends: str) -> None:
    found = predict_critical_batch(adamw(**changes))
    assert settings in found.prices([256])[0].settings
    assert note(found, "The rule ends").startswith(f"The rule ends below batch size {ends}" if ends else "")


def test_settings_that_a_schedule_moves_are_factors() -> None:
    moved = [replace(r, betas=(0.95 - 1e-4 * k, 0.999), lr=1e-3 - 1e-6 * k) for k, r in enumerate(adamw())]
    found = predict_critical_batch(moved)
    assert found.prices([256])[0].settings == "lr ×2, 1−betas ×4, eps 5e-09, weight decay 0.2"
    assert (found.lr, found.betas, found.eps) == (None, None, 1e-8)


def test_an_estimate_refutes_nothing() -> None:
    found = predict_critical_batch(adamw())
    assert (found.ok, found.resolved, found.sde_refuted) == (False, True, False)
    assert not found.refutes(1e12)
    assert not any(price.refuted for price in found.prices())
    assert predict_critical_batch(settled()).refutes(1e12), "a theorem does"


def test_the_sentence_about_the_steps() -> None:
    text = str(predict_critical_batch(adamw()))
    assert (
        "At batch size 256, 4 times this one, the second moment will be 1.27 times what the rule assumes, so "
        "steps are 11% too short."
    ) in text
    assert text.startswith("Scaling by the square-root rule from batch size 64: beyond B* = 7")
    assert (
        "the second moment, the gradient and its noise are estimated to drift apart by more than a factor of 2" in text
    )
    assert "times what the rule assumes" not in str(predict_critical_batch(settled()))
    few = str(predict_critical_batch(adamw(population=200)))
    assert "At batch size 128, 2 times this one" in few, "there are not enough examples for more"


def test_the_sentence_where_g_is_not_resolved() -> None:
    rng = np.random.default_rng(0)
    scattered = [replace(r, grad_sq=float(g)) for r, g in zip(adamw(), rng.normal(0.1, 5.0, 400), strict=True)]
    found = predict_critical_batch(scattered)
    assert found.one_sided
    assert "the second moment will be at most " in str(found)
    assert "so steps are at most " in str(found)


def test_steps_are_short_by_the_root_of_the_distortion() -> None:
    """A step is lr·√κ/√v′ with v′ = D·v/κ: it should be κ times the old one at unchanged gradients, and is κ/√D."""
    kappa, v, cost = 4.0, 7.0, 1.26
    step = math.sqrt(kappa) / math.sqrt(cost * v / kappa)
    assert step * math.sqrt(v) / kappa == pytest.approx(1 - step_shortfall(cost), rel=1e-12)
    assert step_shortfall(1.0) == 0.0
    with pytest.raises(ValueError, match="distortion must be at least 1"):
        step_shortfall(0.9)


@pytest.mark.parametrize(
    ("moment", "changes", "words"),
    [
        (11.0, {}, "V = Σv̂ is 1.00 times G + N, as the prices assume"),
        (9.0, {}, "as the prices assume"),
        (
            22.0,
            {},
            "is 2.00 times G + N, and the prices assume that the two agree. Likely cause: v remembers larger",
        ),
        (22.0, {"optimizer": "Adam"}, "weight decay is a part of the gradient here"),
        (22.0, {"optimizer": "Adam", "weight_decay": 0.0}, "Likely cause: v remembers larger gradients"),
        (
            5.5,
            {},
            "is 0.50 times G + N, and the prices assume that the two agree. Likely cause: gradients are clipped",
        ),
    ],
)
def test_the_premise_is_tested(moment: float, changes: dict[str, object], words: str) -> None:
    found = predict_critical_batch(adamw(second_moment=moment, **changes))
    assert words in note(found, "V = Σv̂")
    assert found.second_moment_ratio == pytest.approx(moment / 11, rel=0.01)
    assert found.distortion(256).value == distortion(found.noise_to_signal, 4.0), (
        "V tests the price and does not set it"
    )


def test_the_ratio_is_one_of_averages_weighted_as_g_and_n() -> None:
    readings = [
        make(1.0, 3.0, second_moment=v, lr=lr, optimizer="Adam") for v, lr in ((6.0, 1.0), (2.0, 3.0), (None, 5.0))
    ]
    # V and G + N of the readings that know V, by η²
    assert predict_critical_batch(readings).second_moment_ratio == pytest.approx((6 * 1 + 2 * 9) / (4 * 1 + 4 * 9))


def test_without_v_the_premise_is_not_tested() -> None:
    found = predict_critical_batch(adamw(second_moment=None, dimension=None))
    assert found.second_moment_ratio is None
    assert note(found, "was not tested").startswith("The second moment was not recorded")
    assert not note(predict_critical_batch(settled()), "second moment"), "of SGD nothing is said"


def test_an_eps_that_is_felt_softens_the_distortion() -> None:
    """√(V/d) = √(11/1000) = 0.105."""
    found = predict_critical_batch(adamw(eps=0.1))
    ratio = 0.1 / math.sqrt(11 / 1000)
    listed = found.distortion(256).value
    softened = distortion_with_eps(listed, ratio)
    words = f"{softened:.3g} instead of {listed:.3g} at batch size 256"
    assert words in note(found, "eps is 0.95 times √(V/d)")
    assert softened < listed
    for eps in (1e-8, 0.01):
        assert not note(predict_critical_batch(adamw(eps=eps)), "√(V/d)")
    assert not note(predict_critical_batch(adamw(eps=0.1, dimension=None)), "√(V/d)"), "d is not known"


def test_distortion_with_eps_is_that_of_the_denominator() -> None:
    """√v′ + eps′ over (√v + eps)/√κ, squared, with v′ = D·v/κ and eps′ = eps/√κ."""
    kappa, v, eps, cost = 9.0, 0.04, 0.05, 1.7
    presumed = (math.sqrt(v) + eps) / math.sqrt(kappa)
    actual = math.sqrt(cost * v / kappa) + eps / math.sqrt(kappa)
    found = distortion_with_eps(cost, eps / math.sqrt(v))
    assert found == pytest.approx((actual / presumed) ** 2, rel=1e-12)
    unscaled = math.sqrt(cost * v / kappa) + eps
    assert found != pytest.approx((unscaled / presumed) ** 2, rel=1e-3), "an eps that is not scaled is another rule"
    assert distortion_with_eps(cost, 1e9) == pytest.approx(1.0)
    for bad in ((0.5, 1.0), (2.0, -1.0), (2.0, math.nan)):
        with pytest.raises(ValueError, match="must"):
            distortion_with_eps(*bad)


def test_the_weight_norm_of_adam_has_no_balance_of_sgd() -> None:
    """A step of Adam is not a multiple of the gradient, so that R says nothing about clipping or equilibrium."""
    found = predict_critical_batch(adamw(param_sq=100.0, param_dot_grad=0.5))
    assert (found.balance, found.pull_share, found.excess) == (None, None, None)
    assert not note(found, "clipped after they are read")
    control = predict_critical_batch(settled(param_sq=100.0, param_dot_grad=0.5))
    assert None not in (control.balance, control.pull_share, control.excess)


def test_json() -> None:
    found = json.loads(json.dumps(predict_critical_batch(adamw()).to_dict()))
    assert found["betas"] == [0.9, 0.999]
    assert found["eps"] == 1e-8
    assert found["second_moment_ratio"] == pytest.approx(1, rel=0.01)
    assert found["prices"][1]["settings"] == "lr 0.002, betas (0.6, 0.996), eps 5e-09, weight decay 0.2"
