"""Momentum: in the linear rule X from the velocity takes the place of G; prices stay those of the plain N/G."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.prices.streams import settled

from svag import LinearRule, Reading, price_list
from svag.prices.reasons import Code


def codes(rule: LinearRule) -> list[Code]:
    return [reason.code for reason in rule.reasons]


def test_momentum_uses_the_velocity() -> None:
    beta, noise, signal = 0.9, 10.0, 0.5
    velocity = (noise + signal) / (1 - beta**2)
    lr, decay = 0.1, 1e-3
    param_sq = (1 + beta) * lr * velocity / (2 * decay)
    common = {"momentum": beta, "lr": lr, "weight_decay": decay, "param_sq": param_sq}
    rng = np.random.default_rng(3)
    readings = [
        replace(reading, velocity_sq=velocity * (1 + 0.002 * float(rng.standard_normal())))
        for reading in settled(2000, **common)
    ]
    readings = [replace(r, noise_trace=10 + 0.1 * (r.noise_trace - 10)) for r in readings]
    readings[0] = replace(readings[0], velocity_sq=None)  # before the first step there is none
    found = price_list(readings)
    rule = found.linear
    assert rule.proved, str(rule)
    assert found.readings == 1999
    assert rule.noise_to_signal.value == pytest.approx(noise / signal, rel=0.05)
    assert rule.limit.value == pytest.approx(64 * (2 + rule.noise_to_signal.value), rel=1e-12)
    assert rule.balance == pytest.approx(1.0, abs=0.01)
    assert rule.excess == pytest.approx((noise + signal) / noise, rel=0.01)
    assert (rule.basis, rule.signal, rule.measured) == ("weight_norm", "X", None)
    told = next(reason for reason in rule.reasons if reason.code == Code.X_MEASURED)
    assert told.values == {"momentum": 0.9, "source": "velocity"}
    # the price is that of the plain N/G = 10
    assert found.noise_to_signal.value == pytest.approx(10, rel=0.02)
    assert found.noise_scale.value == pytest.approx(640, rel=0.02)
    # without the velocity the weight norm stands in for it, and nothing is left to test equilibrium with
    norm = price_list([replace(r, velocity_sq=None) for r in readings]).linear
    assert norm.noise_to_signal.value == pytest.approx(noise / signal, rel=0.05)
    assert (norm.basis, norm.proved) == ("momentum", False)
    assert norm.reasons[0].code == Code.VELOCITY_MISSING


def moving(velocity_sq: float, scatter: float) -> list[Reading]:
    """Momentum 0.9 with N = 10 and X = 0.19|v|² − 10."""
    rng = np.random.default_rng(4)
    return [
        replace(r, noise_trace=10.0, velocity_sq=velocity_sq * (1 + scatter * float(rng.standard_normal())))
        for r in settled(momentum=0.9, lr=0.1)
    ]


@pytest.mark.parametrize(
    ("velocity_sq", "scatter"), [(40.0, 0.01), (10.001 / 0.19, 0.1)], ids=["X is negative", "X drowns"]
)
def test_an_unresolved_x_gives_the_estimate_and_the_bound_beside_it(velocity_sq: float, scatter: float) -> None:
    """X̂ = G(1 − β)/(1 + β) is well resolved because G is."""
    found = price_list(moving(velocity_sq, scatter))
    rule = found.linear
    assert (rule.basis, rule.signal, rule.resolved, rule.proved) == ("momentum", "X̂", True, False)
    assert rule.noise_to_signal.value == pytest.approx(190, rel=0.02)
    assert rule.limit.value == pytest.approx(64 * (2 + rule.noise_to_signal.value), rel=1e-12)
    assert rule.reasons[0].code == Code.X_UNRESOLVED
    assert rule.measured is not None
    assert not rule.ruled_out(1e9)


def test_the_price_is_that_of_the_plain_noise_to_signal() -> None:
    """D of X̂ is 1.02 at four times the batch; that of N/G = 10 is 14/11, and so is the price."""
    found = price_list(moving(40.0, 0.01))
    [price] = found.prices([256])
    assert found.linear.distortion(256).value == pytest.approx(194 / 191, rel=0.01)
    assert price.distortion.value == pytest.approx(14 / 11, rel=0.01)
    assert price.examples.value == pytest.approx(14 / 11, rel=0.02)
    assert found.critical_batch.value == pytest.approx(64 * 12, rel=0.02)


def test_the_bound_is_that_of_x() -> None:
    rule = price_list(moving(10.001 / 0.19, 0.1)).linear
    assert rule.measured is not None
    assert 5 < rule.measured.low < math.inf


def test_a_negative_x_is_not_blamed_on_g() -> None:
    found = price_list(moving(40.0, 0.01))
    assert Code.X_NEGATIVE in codes(found.linear)
    assert Code.NEGATIVE_SIGNAL not in {*codes(found.linear), *(reason.code for reason in found.reasons)}


def test_a_resolved_x_off_equilibrium_is_an_estimate() -> None:
    """X is what it is; only the theorem about R needs equilibrium."""
    rule = price_list(moving(20.0 / 0.19, 0.01)).linear
    assert (rule.basis, rule.signal, rule.proved, rule.measured) == ("momentum", "X", False, None)
    assert rule.noise_to_signal.value == pytest.approx(1.0, rel=0.02)
    assert rule.reasons[0].code == Code.NOT_BALANCED


@pytest.mark.parametrize("kind", ["SGD with Nesterov momentum", "SGD with dampening"])
def test_other_kinds_of_momentum_are_estimated_from_g(kind: str) -> None:
    rule = price_list([replace(r, optimizer=kind) for r in moving(20.0 / 0.19, 0.01)]).linear
    assert (rule.basis, rule.signal, rule.rule, rule.proved) == ("momentum", "X̂", "linear", False)
    assert (rule.reasons[0].code, rule.reasons[0].values) == (Code.NOT_COVERED, {"optimizer": kind})


def test_a_changing_rate_with_momentum_is_no_theorem() -> None:
    readings = moving(20.0 / 0.19, 0.01)
    rule = price_list([replace(r, lr=0.1 + 1e-5 * k) for k, r in enumerate(readings)]).linear
    assert (rule.basis, rule.signal) == ("momentum", "X")
    assert Code.RATE_VARIES in codes(rule)


def test_the_relaxation_time_is_that_of_the_effective_learning_rate() -> None:
    rule = price_list(settled(momentum=0.5, velocity_sq=1.0)).linear
    told = next(reason for reason in rule.reasons if "relaxation" in reason.values)
    assert told.values["relaxation"] == pytest.approx(250)  # 1/(4·(0.5/(1 − 0.5))·1e-3)


def test_momentum_far_from_its_sde_is_said() -> None:
    """2λR/(η_eff N) = 7.5 > C², which is N/X = 1/6.5 < 1/(C² − 1)."""
    rule = price_list(settled(momentum=0.5, velocity_sq=100.0, param_sq=37500.0)).linear
    assert rule.excess == pytest.approx(7.5, rel=0.02)
    assert rule.noise_to_signal.value == pytest.approx(1 / 6.5, rel=0.02)
    assert rule.sde_ruled_out
    assert Code.SDE_RULED_OUT in codes(rule)
