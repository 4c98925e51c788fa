"""The distortion against its definitions, against runs at equilibrium, and where it must not be believed."""

import math
from itertools import combinations, pairwise

import numpy as np
import pytest

from svag.paper.exact.processes import SGD
from svag.paper.verify.beds import equilibrium_run
from svag.theory.bounds import Equilibrium, b_simple, critical_batch_size, max_kappa
from svag.theory.distortion import distortion, spread, step_ratio
from svag.theory.gain import gain

LR, WEIGHT_DECAY = 0.1, 0.04


@pytest.mark.parametrize("rho", [0.0, 0.5, 3.0, 100.0])
@pytest.mark.parametrize("c2", [1.2, 2.0, 4.0])
@pytest.mark.parametrize("lr_wd", [0.0, 4e-4, 0.1])
def test_the_bound_is_where_the_curve_reaches_c2(rho: float, c2: float, lr_wd: float) -> None:
    assert distortion(rho, max_kappa(rho, c2, lr_wd=lr_wd), lr_wd) == pytest.approx(c2, rel=1e-12)
    edge = critical_batch_size(32, rho, c2, lr_wd=lr_wd) / 32
    assert distortion(rho, edge * 0.999, lr_wd) < c2 < distortion(rho, edge * 1.001, lr_wd)


def test_it_starts_at_1_grows_with_kappa_and_falls_with_the_noise() -> None:
    for lr_wd in (0.0, 0.05):
        curve = [distortion(5.0, kappa, lr_wd) for kappa in (1.0, 2.0, 4.0, 8.0)]
        assert curve[0] == 1.0
        assert all(one < other for one, other in pairwise(curve))
        by_noise = [distortion(rho, 4.0, lr_wd) for rho in (0.0, 1.0, 10.0, 1e9, math.inf)]
        assert all(one > other for one, other in pairwise(by_noise[:-1]))
        assert by_noise[-1] == pytest.approx(by_noise[-2], rel=1e-8)
    assert distortion(math.inf, 4.0) == 1.0


def test_weight_decay_that_diverges_is_infinitely_distorted() -> None:
    assert distortion(1.0, 4.0, lr_wd=0.5) == math.inf
    assert math.isfinite(distortion(1.0, 3.9, lr_wd=0.5))


@pytest.mark.parametrize("kappa", [1.0, 4.0, 100.0])
def test_bridges_to_adascale_and_to_mccandlish(kappa: float) -> None:
    batch_size, rho = 32, 7.0
    scale = b_simple(batch_size, rho)
    assert distortion(rho, kappa) == pytest.approx(kappa / gain(rho, kappa), rel=1e-14)
    assert distortion(rho, kappa) == pytest.approx((kappa * batch_size + scale) / (batch_size + scale), rel=1e-14)


def test_the_algebra_by_its_definition() -> None:
    """q = κ(G′+N′)/(G+N) from bare numbers, and max(q,g,n)/min(q,g,n) ≥ D with equality where g = n."""
    rng = np.random.default_rng(0)
    for grad, noise, grad_large, noise_large in np.exp(rng.normal(size=(200, 4))):
        kappa = 1 + 20 * rng.random()
        g, n = grad_large / grad, kappa * noise_large / noise
        q = step_ratio(noise / grad, kappa, g, n)
        assert q == pytest.approx(kappa * (grad_large + noise_large) / (grad + noise), rel=1e-12)
        assert spread(q, g, n) >= distortion(noise / grad, kappa) * (1 - 1e-12)
    assert spread(step_ratio(2.0, 9.0, 1.5, 1.5), 1.5, 1.5) == pytest.approx(distortion(2.0, 9.0), rel=1e-12)


@pytest.fixture(scope="module")
def ladder() -> dict[int, Equilibrium]:
    """SGD on the Rayleigh quotient along the linear rule, each run at equilibrium: 500 chains × 400 steps."""
    rng, found = np.random.default_rng(5), {}
    for kappa in (1, 2, 4, 8, 16, 32):
        run = equilibrium_run(
            rng, SGD, lr=kappa * LR, weight_decay=WEIGHT_DECAY, batch_size=kappa, chains=500, window=400
        )
        found[kappa] = Equilibrium(*(float(v.mean()) for v in (run.param_sq, run.grad_sq, run.noise_trace)))
    return found


def test_the_inequality_on_every_pair_at_equilibrium(ladder: dict[int, Equilibrium]) -> None:
    """Theorem (i): spread(r, g, n) ≥ D·(2 − ηλ)/(2 − κηλ), and q is r(2 − κηλ)/(2 − ηλ).

    The standard errors over 500 chains are at most 0.6% each, that of q over r(…) about 1%: 5% are five of them.
    """
    for small, large in combinations(ladder, 2):
        base, scaled, kappa = ladder[small], ladder[large], large / small
        r, g = scaled.param_sq / base.param_sq, scaled.grad_sq / base.grad_sq
        n, rho, lr_wd = kappa * scaled.noise_trace / base.noise_trace, base.noise_to_signal, small * LR * WEIGHT_DECAY
        q = step_ratio(rho, kappa, g, n)
        assert q == pytest.approx(r * (2 - kappa * lr_wd) / (2 - lr_wd), rel=0.05)
        assert spread(q, g, n) >= distortion(rho, kappa)
        assert spread(r, g, n) >= 0.95 * distortion(rho, kappa, lr_wd)


def test_it_says_nothing_far_from_stationarity() -> None:
    """Negative control: on a quadratic far from its minimum D is 15 while R, G and κN hardly move.

    Gradient x − ξ with Var ξ = 1 in 20 dimensions, B = 1, from |x|² = 20·400, over 1% of a relaxation time: E x² of SGD
    follows a linear recursion, so nothing is sampled.
    """
    dimension, kappa, lr, steps = 20, 16, 1e-4, 96

    def averages(scale: int) -> tuple[float, float, float]:
        eta, mean_sq, path = lr * scale, 400.0, []
        for _ in range(steps // scale):
            path.append(mean_sq)
            mean_sq = (1 - eta) ** 2 * mean_sq + eta**2 / scale
        r = dimension * float(np.mean(path))
        return r, r, dimension / scale  # R, G = R, N

    (r, g, n), (r_large, g_large, n_large) = averages(1), averages(kappa)
    assert distortion(n / g, kappa) > 15
    assert spread(r_large / r, g_large / g, kappa * n_large / n) < 1.02


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: distortion(1.0, 0.5), r"^kappa\b"),
        (lambda: distortion(-1.0, 2.0), "noise_to_signal"),
        (lambda: distortion(1.0, 2.0, lr_wd=2.0), "weight_decay"),
        (lambda: step_ratio(1.0, 2.0, 0.0, 1.0), "grad_ratio"),
        (lambda: step_ratio(1.0, 2.0, 1.0, -1.0), "noise_ratio"),
        (lambda: spread(1.0, 0.0), "ratio must be positive"),
    ],
)
def test_domains(call: object, word: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=word):
        call()
