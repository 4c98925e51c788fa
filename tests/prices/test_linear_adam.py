"""What a run of Adam says of the square-root rule, and whether its premise holds; and what its price list says."""

import json
import math
from dataclasses import replace

import pytest
from tests.prices.streams import make, settled

from svag import Reading, price_list
from svag.prices.linear import LinearRule
from svag.prices.reasons import Code, Reason
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


def rule_of(**changes: object) -> LinearRule:
    return price_list(adamw(**changes)).linear


def reason(rule: LinearRule, code: Code) -> Reason | None:
    return next((one for one in rule.reasons if one.code == code), None)


def test_the_settings_of_the_square_root_rule() -> None:
    rule = rule_of()
    assert (rule.basis, rule.rule, rule.signal) == ("second_moment", "square_root", "G")
    assert [rule.at(size).settings for size in (128, 256, 1024)] == [
        "lr 0.00141, betas (0.8, 0.998), eps 7.07e-09, weight decay 0.141",
        "lr 0.002, betas (0.6, 0.996), eps 5e-09, weight decay 0.2",
        "lr 0.004, betas (–, 0.984) as 16·(1−β₁) ≥ 1, eps 2.5e-09, weight decay 0.4",
    ]
    assert rule.distortion(256).value == distortion(rule.noise_to_signal.value, 4.0)
    assert rule.limit.value == critical_batch_size(64, rule.noise_to_signal.value)


@pytest.mark.parametrize(
    ("changes", "settings", "ends"),
    [
        ({}, "betas (0.6, 0.996)", 640),
        ({"betas": (0.0, 0.99)}, "betas (0, 0.96)", 6400),
        ({"betas": (0.95, 0.9)}, "betas (0.8, 0.6)", 640),
        ({"betas": None, "eps": None}, "1−betas ×4, eps ÷2", None),
        ({"optimizer": "RMSprop", "betas": (0.0, 0.95), "momentum": 0.0}, "alpha 0.8", 1280),
    ],
)
def test_the_rates_of_the_averages(changes: dict[str, object], settings: str, ends: int | None) -> None:
    rule = rule_of(**changes)
    assert settings in rule.at(256).settings
    end = reason(rule, Code.RULE_ENDS)
    assert (None if end is None else end.values["batch_size"]) == (ends if ends is None else pytest.approx(ends))


def test_settings_that_a_schedule_moves_are_factors() -> None:
    moved = [replace(r, betas=(0.95 - 1e-4 * k, 0.999), lr=1e-3 - 1e-6 * k) for k, r in enumerate(adamw())]
    found = price_list(moved)
    assert found.linear.at(256).settings == "lr ×2, 1−betas ×4, eps 5e-09, weight decay 0.2"
    assert (found.setting.lr, found.setting.betas, found.setting.eps) == (None, None, 1e-8)
    assert found.prices([256])[0].settings.startswith("× ")


def test_an_estimate_rules_nothing_out() -> None:
    rule = rule_of()
    assert (rule.proved, rule.resolved, rule.sde_ruled_out) == (False, True, False)
    assert not rule.ruled_out(1e12)
    assert price_list(settled()).linear.ruled_out(1e12), "a theorem does"


def test_the_price_is_that_of_the_square_root_rule_at_the_gain() -> None:
    found = price_list(adamw())
    [price] = found.prices([256])
    ratio = found.noise_to_signal.value
    gain = 4 * (1 + ratio) / (4 + ratio)
    assert price.gain == pytest.approx(gain, rel=0.02), "the phases scatter"
    assert price.factors.lr == pytest.approx(math.sqrt(price.gain))
    assert price.factors.weight_decay == price.factors.lr
    assert price.factors.eps == pytest.approx(1 / price.factors.lr)
    coupled = price_list(adamw(optimizer="Adam")).prices([256])[0]
    assert coupled.factors.weight_decay == 1.0


@pytest.mark.parametrize("name", ["AdamW8bit", "PagedAdamW8bit", "PagedAdamW", "AdamW32bit"])
def test_the_optimizers_of_bitsandbytes_are_known_by_name(name: str) -> None:
    found, control = price_list(adamw(optimizer=name)), price_list(adamw())
    assert found.linear.rule == "square_root"
    assert found.prices([256])[0].factors == control.prices([256])[0].factors
    assert not any(one.code == Code.UNTESTED_OPTIMIZER for one in found.reasons)


def test_steps_are_short_by_the_root_of_the_distortion() -> None:
    """A step is lr·√κ/√v′ with v′ = D·v/κ: it should be κ times the old one at unchanged gradients, and is κ/√D."""
    kappa, v, cost = 4.0, 7.0, 1.26
    step = math.sqrt(kappa) / math.sqrt(cost * v / kappa)
    assert step * math.sqrt(v) / kappa == pytest.approx(1 - step_shortfall(cost), rel=1e-12)
    assert step_shortfall(1.0) == 0.0
    with pytest.raises(ValueError, match=r"^distortion\b"):
        step_shortfall(0.9)


@pytest.mark.parametrize(
    ("moment", "changes", "code", "coupled"),
    [
        (11.0, {}, Code.SECOND_MOMENT_SETTLED, None),
        (9.0, {}, Code.SECOND_MOMENT_SETTLED, None),
        (22.0, {}, Code.SECOND_MOMENT_OFF, False),
        (22.0, {"optimizer": "Adam"}, Code.SECOND_MOMENT_OFF, True),
        (22.0, {"optimizer": "Adam", "weight_decay": 0.0}, Code.SECOND_MOMENT_OFF, False),
        (5.5, {}, Code.SECOND_MOMENT_OFF, False),
    ],
)
def test_the_premise_is_tested(moment: float, changes: dict[str, object], code: Code, coupled: bool | None) -> None:
    rule = rule_of(second_moment=moment, **changes)
    told = reason(rule, code)
    assert told is not None
    assert told.values["ratio"] == pytest.approx(moment / 11, rel=0.01)
    assert told.values.get("coupled_decay") == coupled
    assert rule.second_moment_ratio == told.values["ratio"]
    expected = distortion(rule.noise_to_signal.value, 4.0)
    assert rule.distortion(256).value == expected, "V tests the distortion and does not set it"


def test_the_ratio_is_one_of_averages_weighted_as_g_and_n() -> None:
    readings = [
        make(1.0, 3.0, second_moment=v, lr=lr, optimizer="Adam") for v, lr in ((6.0, 1.0), (2.0, 3.0), (None, 5.0))
    ]
    # V and G + N of the readings that know V, by η²
    assert price_list(readings).linear.second_moment_ratio == pytest.approx((6 * 1 + 2 * 9) / (4 * 1 + 4 * 9))


def test_without_v_the_premise_is_not_tested() -> None:
    rule = rule_of(second_moment=None, dimension=None)
    assert rule.second_moment_ratio is None
    assert reason(rule, Code.SECOND_MOMENT_UNKNOWN) is not None
    assert reason(price_list(settled()).linear, Code.SECOND_MOMENT_UNKNOWN) is None, "of SGD nothing is said"


def test_an_eps_that_is_felt_softens_the_distortion() -> None:
    """√(V/d) = √(11/1000) = 0.105."""
    rule = rule_of(eps=0.1)
    ratio, listed = 0.1 / math.sqrt(11 / 1000), rule.distortion(256).value
    told = reason(rule, Code.EPS_FELT)
    assert told is not None
    assert told.values["eps"] == pytest.approx(ratio)
    assert told.values["distortion"] == listed
    assert told.values["with_eps"] == pytest.approx(distortion_with_eps(listed, ratio))
    for changes in ({"eps": 1e-8}, {"eps": 0.01}, {"eps": 0.1, "dimension": None}):
        assert reason(rule_of(**changes), Code.EPS_FELT) is None


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
    found = price_list(adamw(param_sq=100.0, param_dot_grad=0.5))
    rule = found.linear
    assert (rule.balance, rule.pull_share, rule.excess) == (None, None, None)
    assert Code.STEPS_TOO_SHORT not in [one.code for one in found.reasons]
    control = price_list(settled(param_sq=100.0, param_dot_grad=0.5)).linear
    assert None not in (control.balance, control.pull_share, control.excess)


def test_json() -> None:
    found = json.loads(json.dumps(price_list(adamw()).to_dict()))
    assert found["betas"] == [0.9, 0.999]
    assert found["eps"] == 1e-8
    assert found["linear"]["second_moment_ratio"] == pytest.approx(1, rel=0.01)
    settings = found["prices"][1]["linear"]["settings"]
    assert settings == "lr 0.002, betas (0.6, 0.996), eps 5e-09, weight decay 0.2"
