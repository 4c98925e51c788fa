"""What one run says of the linear rule: its basis, its limit B*, what is ruled out, and the codes beside them."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from tests.prices.streams import make, settled

from svag import LinearRule, Reading, price_list
from svag.prices.reasons import Code
from svag.theory import critical_batch_size, distortion, max_kappa


def linear(readings: list[Reading], c2: float = 2.0, confidence: float = 0.95) -> LinearRule:
    return price_list(readings, c2, confidence).linear


def codes(rule: LinearRule) -> list[Code]:
    return [reason.code for reason in rule.reasons]


def test_scale_invariant_weights_at_equilibrium_have_the_theorem() -> None:
    found = price_list(settled())
    rule = found.linear
    assert (rule.basis, rule.rule, rule.proved, rule.resolved, rule.signal) == (
        "weight_norm",
        "linear",
        True,
        True,
        "G",
    )
    assert codes(rule) == [Code.PROVED]
    assert rule.reasons[0].values == {"basis": "weight_norm", "invariance_tested": True}
    # one number, one definition: all readings count
    noise, grad_sq = ([getattr(r, name) for r in settled()] for name in ("noise_trace", "grad_sq"))
    ratio = rule.noise_to_signal
    assert ratio.value == pytest.approx(np.mean(noise) / np.mean(grad_sq), rel=1e-12)
    assert found.noise_to_signal == ratio
    assert rule.limit == ratio.mapped(lambda rho: critical_batch_size(64, rho, lr_wd=5e-4))
    assert rule.limit.low < rule.limit.value < rule.limit.high
    assert rule.balance == pytest.approx(1.0, abs=0.02)
    assert rule.ruled_out(math.ceil(rule.limit.high))
    assert not rule.ruled_out(rule.limit.high)
    assert not rule.ruled_out(64)


def test_a_larger_c2_and_confidence_rule_out_less() -> None:
    base = linear(settled())
    assert linear(settled(), c2=3.0).limit.value > base.limit.value
    assert linear(settled(), confidence=0.99).limit.high > base.limit.high


@pytest.mark.parametrize(
    ("changes", "basis", "code", "values"),
    [
        ({"optimizer": "AdamW"}, "second_moment", Code.ONLY_SGD, {"optimizer": "AdamW"}),
        ({"optimizer": "Adagrad"}, "gradient", Code.UNTESTED_OPTIMIZER, {"optimizer": "Adagrad"}),
        ({"lr": 0.0}, "gradient", Code.ZERO_RATE, {}),
        ({"weight_decay": 0.0}, "gradient", Code.NO_WEIGHT_DECAY, {}),
        ({"ell": 4}, "gradient", Code.SVAG_READINGS, {"ell": 4}),
        ({"param_sq": 100.0}, "gradient", Code.NOT_BALANCED, {"relaxation": 500.0, "rate_varies": False}),
        ({"param_sq": 1e5}, "gradient", Code.NOT_BALANCED, {"invariance_tested": True}),
        ({"param_sq": 100.0, "param_dot_grad": None}, "gradient", Code.NOT_BALANCED, {"invariance_tested": False}),
        ({"momentum": 0.9, "weight_decay": None}, "momentum", Code.MIXED_SETTINGS, {"weight_decay": True, "lr": False}),
        ({"weight_decay": None}, "gradient", Code.MIXED_SETTINGS, {"weight_decay": True, "lr": False}),
        ({"lr": None}, "gradient", Code.MIXED_SETTINGS, {"weight_decay": False, "lr": True}),
        ({"lr": None, "weight_decay": None, "optimizer": None}, "gradient", Code.SETTINGS_UNKNOWN, {}),
    ],
)
def test_without_a_theorem_there_is_an_estimate_and_a_reason(
    changes: dict[str, object], basis: str, code: Code, values: dict[str, object]
) -> None:
    rule = linear(settled(**changes))
    assert (rule.basis, rule.proved, rule.resolved) == (basis, False, True)
    assert not rule.ruled_out(1e9)
    assert rule.reasons[0].code == code
    assert values.items() <= dict(rule.reasons[0].values).items()
    # the estimate is that of the noise scale, without ηλ; with momentum that of X̂
    assert rule.noise_to_signal.value == pytest.approx(190 if basis == "momentum" else 10, rel=0.02)
    assert rule.distortion(256).value == distortion(rule.noise_to_signal.value, 4.0)
    assert rule.limit.value == pytest.approx(critical_batch_size(64, rule.noise_to_signal.value), rel=1e-12)


def test_plain_sgd_without_weight_decay_is_not_told_to_train_longer() -> None:
    """With ⟨x, ∇L⟩ there is a balance of growth and of the loss's own pull, and nothing to wait for."""
    rule = linear(settled(weight_decay=0.0, param_dot_grad=0.1))
    assert rule.balance is not None
    assert abs(rule.balance - 1) > 0.1
    assert codes(rule) == [Code.NO_WEIGHT_DECAY]
    decayed = linear(settled(param_sq=100.0, param_dot_grad=0.1))
    assert Code.NOT_BALANCED in codes(decayed), "with weight decay there is"


def test_a_balanced_run_without_the_radial_product_says_what_was_not_tested() -> None:
    rule = linear(settled(param_dot_grad=None))
    assert rule.proved
    assert rule.pull_share is None
    assert rule.reasons[0].values["invariance_tested"] is False


@pytest.mark.parametrize(("product", "param_sq", "share"), [(1.4, 1349.5, 1.04), (-0.9, 3650.0, -0.25)])
def test_any_network_with_a_stationary_norm_has_the_theorem_about_the_pull(
    product: float, param_sq: float, share: float
) -> None:
    """(2−ηλ)λR + 2(1−ηλ)⟨x,∇L⟩ = η(G+N) holds for these R and ⟨x,∇L⟩: stationary, not scale invariant."""
    rule = linear(settled(param_dot_grad=product, param_sq=param_sq))
    assert rule.balance == pytest.approx(1.0, abs=0.02)
    assert (rule.basis, rule.proved) == ("pull", True)
    assert codes(rule) == [Code.PROVED, Code.PULL]
    assert rule.reasons[1].values["share"] == pytest.approx(share, abs=0.01)
    limit = critical_batch_size(64, rule.noise_to_signal.value)
    assert rule.limit.value == limit, "ηλ has no part in this theorem"
    assert rule.ruled_out(1024)
    assert not rule.sde_ruled_out


def test_weights_that_nothing_shrinks_have_no_theorem() -> None:
    """T > 0 is a premise: where the loss grows the weights faster than weight decay shrinks them, |x|² only grows."""
    rule = linear(settled(param_dot_grad=-6.0, param_sq=2650.0))
    assert rule.pull_share is not None
    assert rule.pull_share < -1
    assert (rule.basis, rule.proved, rule.balance) == ("gradient", False, None)
    assert rule.reasons[0].code == Code.ONLY_GROWS
    assert not rule.ruled_out(10**6)


def test_nearly_scale_invariant_is_a_remark() -> None:
    rule = linear(settled(param_dot_grad=0.1, param_sq=2648.0))
    assert (rule.basis, rule.proved) == ("weight_norm", True)
    assert codes(rule) == [Code.PROVED, Code.NEARLY_INVARIANT]
    assert rule.reasons[1].values["share"] == pytest.approx(0.04, abs=0.005)


def test_drift_tells_when_the_balance_cannot() -> None:
    unknown = {"lr": None, "weight_decay": None, "optimizer": None}
    assert Code.DRIFTS not in codes(linear(settled(**unknown)))
    drifting = [replace(reading, param_sq=1 + k / 400) for k, reading in enumerate(settled(**unknown))]
    rule = linear(drifting)
    assert not rule.proved
    told = next(reason for reason in rule.reasons if reason.code == Code.DRIFTS)
    assert told.values["what"] == "R"
    assert told.values["change"] == pytest.approx(0.58, abs=0.01)


def test_early_readings_are_tested_for_drift_even_when_they_balance() -> None:
    early = [
        replace(reading, step=k, param_sq=reading.param_sq * (0.85 + 0.3 * k / 400))
        for k, reading in enumerate(settled())
    ]
    rule = linear(early)
    assert rule.balance == pytest.approx(1.0, abs=0.03)
    assert rule.reasons[0].code == Code.DRIFTS
    assert rule.reasons[0].values["change"] == pytest.approx(0.27, abs=0.01)


def test_a_short_run_rules_nothing_out() -> None:
    rule = linear(settled(30))
    assert (rule.basis, rule.proved, rule.window_only, rule.ruled_out(10**6)) == ("weight_norm", False, True, False)
    assert Code.PROVED not in codes(rule)


def test_an_unresolved_g_leaves_the_bound_that_the_decay_alone_sets() -> None:
    """Balanced at G = 1, N = 10 for lr = 0.5, weight_decay = 0.1: 11·0.5 = (2 − 0.05)·0.1·R."""
    rng = np.random.default_rng(2)
    sample = [
        make(float(g), 10.0, lr=0.5, weight_decay=0.1, param_sq=5.5 / 0.195)
        for g in 1.0 + 20 * rng.standard_normal(400)
    ]
    rule = linear(sample)
    assert (rule.proved, rule.basis, rule.one_sided) == (False, "weight_norm", True)
    assert rule.noise_to_signal.high == math.inf
    most = 64 * max_kappa(math.inf, lr_wd=0.05)
    assert rule.limit.high == pytest.approx(most, rel=1e-12)
    assert rule.reasons[0].code == Code.SIGNAL_UNRESOLVED
    assert rule.reasons[0].values["high"] == pytest.approx(most, rel=1e-12)


def test_a_slow_start_is_left_out_of_a_constant_rate() -> None:
    """Ten relaxation times of 1/(4ηλ) = 500 steps, R from ten times its equilibrium: all readings would not balance."""
    fixed = settled(1)[0].param_sq
    readings = [
        replace(r, step=10 * k, param_sq=fixed * (1 + 9 * math.exp(-k / 25))) for k, r in enumerate(settled(500))
    ]
    found = price_list(readings)
    assert found.linear.proved, found.details()
    assert 100 <= 500 - found.readings <= 200
    assert not price_list(readings, window=(0, 1)).linear.proved


def test_the_interval_of_the_distortion_is_that_of_the_ratio() -> None:
    rule = linear(settled())
    at, ratio = rule.distortion(512), rule.noise_to_signal
    expected = tuple(distortion(rho, 8.0, lr_wd=5e-4) for rho in (ratio.value, ratio.high, ratio.low))
    assert (at.value, at.low, at.high) == expected
    assert at.low < at.value < at.high
    assert rule.distortion(rule.limit.value).value == pytest.approx(2.0, rel=1e-12)
    with pytest.raises(ValueError, match=r"^kappa\b"):
        rule.distortion(32)


def test_a_rate_at_which_weight_decay_diverges_is_said() -> None:
    readings = settled(lr=0.5, weight_decay=0.5, param_sq=0.5 * 11 / ((2 - 0.25) * 0.5))
    row = linear(readings).at(512)
    assert row.distortion is not None
    assert (row.settings, row.distortion.value, row.ruled_out) == ("lr 4 (weight decay diverges)", math.inf, True)


def test_below_the_batch_of_the_run_nothing_is_ruled_out() -> None:
    row = linear(settled()).at(32)
    assert (row.rate, row.distortion, row.ruled_out) == ("0.25", None, False)


def test_a_run_that_its_sde_does_not_describe_says_so() -> None:
    """N/G = 0.5 < 1/(C² − 1) at equilibrium rules out the SDE; at N/G = 10, and without a theorem, nothing is said."""
    low_noise = [replace(r, noise_trace=r.noise_trace / 20) for r in settled(param_sq=0.5 * 1.5 / (1.9995 * 1e-3))]
    rule = linear(low_noise)
    assert rule.sde_ruled_out
    told = next(reason for reason in rule.reasons if reason.code == Code.SDE_RULED_OUT)
    assert told.values == {"signal": "G", "high": rule.noise_to_signal.high, "c2": 2.0}
    assert not linear(settled()).sde_ruled_out
    assert not linear([replace(r, param_sq=1.0) for r in low_noise]).sde_ruled_out


def test_json_holds_everything_and_no_infinity() -> None:
    found = json.loads(json.dumps(linear(settled()).to_dict(), allow_nan=False))
    assert found["proved"] is True
    assert {"limit", "basis", "rule", "resolved", "sde_ruled_out", "reasons", "balance"} <= set(found)
    assert found["reasons"][0]["code"] == "proved"
