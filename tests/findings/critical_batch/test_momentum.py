"""Predictions with momentum: X from the velocity takes the place of G."""

from dataclasses import replace

import numpy as np
import pytest
from tests.findings.critical_batch.streams import settled

from svag import Reading, predict_critical_batch


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
    assert "Momentum 0.9" in found.status
    # without the velocity the weight norm stands in for it
    norm = predict_critical_batch([replace(r, velocity_sq=None) for r in readings])
    assert norm.noise_to_signal == pytest.approx(noise / signal, rel=0.05)
    assert "from the weight norm" in norm.status
    assert "Resolved; equilibrium judged by drift alone. " in norm.status


def moving(velocity_sq: float, scatter: float) -> list[Reading]:
    """Momentum 0.9 with N = 10 and X = 0.19|v|² − 10."""
    rng = np.random.default_rng(4)
    return [
        replace(r, noise_trace=10.0, velocity_sq=velocity_sq * (1 + scatter * float(rng.standard_normal())))
        for r in settled(momentum=0.9, lr=0.1)
    ]


def test_a_negative_x_is_not_blamed_on_g() -> None:
    found = predict_critical_batch(moving(40.0, 0.01))
    assert not found.ok
    assert "The average X = (1−β²)|v|² − N is significantly negative: train longer" in found.status
    assert "do not clip gradients between close_step()" in found.status
    assert "average G" not in found.status


def test_an_unresolved_x_is_not_blamed_on_g() -> None:
    found = predict_critical_batch(moving(10.001 / 0.19, 0.1))
    assert not found.ok
    assert "X is not resolved: B* ≥ " in found.status
    assert "G is not" not in found.status


def test_the_relaxation_time_is_that_of_the_effective_learning_rate() -> None:
    found = predict_critical_batch(settled(momentum=0.5, velocity_sq=1.0))
    # 1/(4·(0.5/(1 − 0.5))·1e-3)
    assert "relaxation times 1/(4ηλ) of 250 steps had passed" in found.status


def test_momentum_far_from_its_sde_is_said() -> None:
    found = predict_critical_batch(settled(momentum=0.5, velocity_sq=100.0, param_sq=37500.0))
    assert found.excess == pytest.approx(7.5, rel=0.02)
    assert "is not C-close to its SDE" in found.status
