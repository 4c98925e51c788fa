"""Prices with momentum: X from the velocity takes the place of G, and X̂ that of X where X is not resolved."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.prices.streams import settled

from svag import Reading, predict_critical_batch
from svag.prices.critical_batch import CriticalBatch


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
    found = predict_critical_batch(readings)
    assert found.ok, found.status
    assert found.readings == 1999
    assert found.noise_to_signal == pytest.approx(noise / signal, rel=0.05)
    assert found.critical_batch == pytest.approx(64 * (2 + found.noise_to_signal), rel=1e-12)
    assert found.b_simple == pytest.approx(640, rel=0.02)
    assert found.balance == pytest.approx(1.0, abs=0.01)
    assert found.excess == pytest.approx((noise + signal) / noise, rel=0.01)
    assert (found.basis, found.signal, found.price_bound) == ("weight_norm", "X", None)
    assert said(found, "Momentum 0.9: N/X takes the place of N/G, with X = (1−β²)|v|² − N from the velocity")
    # without the velocity the weight norm stands in for it, and nothing is left to test equilibrium with
    norm = predict_critical_batch([replace(r, velocity_sq=None) for r in readings])
    assert norm.noise_to_signal == pytest.approx(noise / signal, rel=0.05)
    assert (norm.basis, norm.ok) == ("momentum", False)
    assert "equilibrium could not be tested" in norm.status


def said(found: CriticalBatch, words: str) -> bool:
    return any(words in sentence for sentence in (found.status, *found.notes))


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
    """X̂ = G(1 − β)/(1 + β) is well resolved because G is; the gradient's own price is never given."""
    found = predict_critical_batch(moving(velocity_sq, scatter))
    assert (found.basis, found.signal, found.resolved, found.ok) == ("momentum", "X̂", True, False)
    assert found.noise_to_signal == pytest.approx(190, rel=0.02)
    assert found.critical_batch == pytest.approx(64 * (2 + found.noise_to_signal), rel=1e-12)
    assert found.b_simple == pytest.approx(640, rel=0.02)
    assert found.status.startswith("X is not resolved. With momentum it takes the place of G")
    assert found.price_bound is not None
    for price, bound in zip(found.prices(), found.price_bound, strict=True):
        assert bound.distortion == bound.high >= bound.low
        assert not bound.refuted
        assert price.batch_size == bound.batch_size
    assert not found.refutes(1e9)


def test_the_bound_is_that_of_x() -> None:
    """N/X ≥ low, so D ≤ (κ + low)/(1 + low)."""
    found = predict_critical_batch(moving(10.001 / 0.19, 0.1))
    assert found.price_bound is not None
    assert found.measured is not None
    low = found.measured[0]
    assert 5 < low < math.inf
    for bound in found.price_bound:
        assert bound.distortion == pytest.approx((bound.kappa + low) / (1 + low), rel=1e-12)
    assert f"the distortion is at most {found.price_bound[0].distortion:.3g} at 128, " in str(found)


def test_a_negative_x_is_not_blamed_on_g() -> None:
    found = predict_critical_batch(moving(40.0, 0.01))
    assert said(found, "The average X = (1−β²)|v|² − N is significantly negative: train longer")
    assert said(found, "do not clip gradients between close_step()")
    assert not said(found, "average G")


def test_a_resolved_x_off_equilibrium_is_an_estimate() -> None:
    """X is what it is; only the theorem about R needs equilibrium."""
    found = predict_critical_batch(moving(20.0 / 0.19, 0.01))
    assert (found.basis, found.signal, found.ok) == ("momentum", "X", False)
    assert found.noise_to_signal == pytest.approx(1.0, rel=0.02)
    assert found.price_bound is None
    assert "Not at equilibrium" in found.status


@pytest.mark.parametrize("kind", ["SGD with Nesterov momentum", "SGD with dampening"])
def test_other_kinds_of_momentum_are_estimated_from_g(kind: str) -> None:
    found = predict_critical_batch([replace(r, optimizer=kind) for r in moving(20.0 / 0.19, 0.01)])
    assert (found.basis, found.signal, found.rule, found.ok) == ("momentum", "X̂", "linear", False)
    assert f"do not cover {kind}" in found.status


def test_a_changing_rate_with_momentum_is_no_theorem() -> None:
    readings = moving(20.0 / 0.19, 0.01)
    found = predict_critical_batch([replace(r, lr=0.1 + 1e-5 * k) for k, r in enumerate(readings)])
    assert (found.basis, found.signal) == ("momentum", "X")
    assert said(found, "with momentum the theorem needs it constant")


def test_the_relaxation_time_is_that_of_the_effective_learning_rate() -> None:
    found = predict_critical_batch(settled(momentum=0.5, velocity_sq=1.0))
    # 1/(4·(0.5/(1 − 0.5))·1e-3)
    assert said(found, "relaxation times 1/(4ηλ) of 250 steps")


def test_momentum_far_from_its_sde_is_said() -> None:
    """2λR/(η_eff N) = 7.5 > C², which is N/X = 1/6.5 < 1/(C² − 1)."""
    found = predict_critical_batch(settled(momentum=0.5, velocity_sq=100.0, param_sq=37500.0))
    assert found.excess == pytest.approx(7.5, rel=0.02)
    assert found.noise_to_signal == pytest.approx(1 / 6.5, rel=0.02)
    assert found.sde_refuted
    assert said(found, "The SDE does not describe this run: N/X ≤ 0.15")
