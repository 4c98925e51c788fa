"""SVAG around Adam, AdamW and RMSprop against their SDEs, exactly: all pairs, and all paths of an effective step."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer, RMSprop

import svag
from svag.arrays import FloatArray
from svag.dynamics import refined_step
from svag.noise.optimizer import SubstepState
from svag.theory.adaptive import AdamSettings, RMSpropSettings

if TYPE_CHECKING:
    from tests.dynamics.conftest import Problem

LR, BETA1, BETA2, EPS, DECAY, STEPS = 0.5, 0.5, 0.7, 0.25, 0.4, 3.0
KINDS: dict[str, Callable[[list[nn.Parameter]], Optimizer]] = {
    "adam": lambda x: Adam(x, lr=LR, betas=(BETA1, BETA2), eps=EPS, weight_decay=DECAY),
    "adamw": lambda x: AdamW(x, lr=LR, betas=(BETA1, BETA2), eps=EPS, weight_decay=DECAY),
    "without momentum": lambda x: Adam(x, lr=LR, betas=(0.0, BETA2), eps=EPS, weight_decay=DECAY),
    "rmsprop": lambda x: RMSprop(x, lr=LR, alpha=BETA2, eps=EPS, weight_decay=DECAY),
}


def second_moment(optimizer: Optimizer, parameter: nn.Parameter) -> Tensor:
    found: Tensor = optimizer.state[parameter]["square_avg" if isinstance(optimizer, RMSprop) else "exp_avg_sq"]
    return found


def warm(optimizer: Optimizer, parameter: nn.Parameter, m: Tensor, w: Tensor) -> None:
    """A state in the optimizer's own units, after STEPS steps."""
    name = "square_avg" if isinstance(optimizer, RMSprop) else "exp_avg_sq"
    optimizer.state[parameter] = {"step": torch.tensor(STEPS), "exp_avg": m.clone(), name: w.clone()}


# --- one sub-step, all pairs of batches ---------------------------------------------------------------------------


class OneSubstep:
    """A sub-step from a given x, m and w for every pair of examples."""

    def __init__(self, problem: "Problem", kind: str, ell: int) -> None:
        generator = torch.Generator().manual_seed(4)
        self.x, count = problem.get(), len(problem.get())
        self.m = torch.randn(count, generator=generator, dtype=torch.float64).numpy()
        self.w = (0.3 + torch.rand(count, generator=generator, dtype=torch.float64)).numpy()
        self.gradients = np.array([problem.gradient([i]) for i in range(3)])
        parameters = list(problem.model.parameters())
        optimizer = KINDS[kind](parameters)
        moved, first, second = [], [], []
        with svag.SVAG(problem.model, optimizer, ell=ell) as sim:
            for i, j in product(range(3), repeat=2):
                problem.set(self.x)
                at = 0
                for p in parameters:
                    m, w = (torch.from_numpy(v[at : at + p.numel()]).view_as(p) for v in (self.m, self.w))
                    warm(optimizer, p, m, w)
                    at += p.numel()
                sim.substep(problem.loss, problem.batch([i]), tuple(t.clone() for t in problem.batch([j])))
                moved.append(problem.get() - self.x)
                first.append(np.concatenate([optimizer.state[p]["exp_avg"].flatten() for p in parameters]))
                second.append(np.concatenate([second_moment(optimizer, p).flatten() for p in parameters]))
        problem.set(self.x)
        self.moved, self.first, self.second = np.array(moved), np.array(first), np.array(second)


def pair_gradients(gradients: FloatArray, ell: int) -> FloatArray:
    a, b = (1 + math.sqrt(2 * ell - 1)) / 2, (1 - math.sqrt(2 * ell - 1)) / 2
    return np.array([a * gradients[i] + b * gradients[j] for i, j in product(range(3), repeat=2)])


@pytest.mark.parametrize("ell", [2, 3, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_a_sub_step_is_that_of_the_equations_in_the_optimizers_own_units(
    problem: "Callable[[int], Problem]", kind: str, ell: int
) -> None:
    """w = v/l: the step is η/l times m̂/(√ŵ + ε), whatever l."""
    found = OneSubstep(problem(3), kind, ell)
    x, coupled = found.x, 0.0 if kind == "adamw" else DECAY
    g = pair_gradients(found.gradients, ell) + coupled * x
    w = found.w + (1 - BETA2) / ell * (g**2 / ell - found.w)
    forget = 1 if kind in ("rmsprop", "without momentum") else (1 - BETA1) / ell
    m = g if kind == "rmsprop" else found.m + forget * (g - found.m)
    done = STEPS * ell + 1
    bias1, bias2 = 1 - (1 - forget) ** done, 1 - (1 - (1 - BETA2) / ell) ** done
    if kind == "rmsprop":
        bias1 = bias2 = 1.0
    moved = -LR / ell * (m / bias1 / (np.sqrt(w / bias2) + EPS) + (DECAY * x if kind == "adamw" else 0))
    np.testing.assert_allclose(found.second, w, rtol=1e-12)
    np.testing.assert_allclose(found.moved, moved, rtol=1e-10, atol=1e-14)
    if kind != "rmsprop":
        np.testing.assert_allclose(found.first, m, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("ell", [2, 3, 8])
def test_moments_of_the_two_averages(problem: "Callable[[int], Problem]", ell: int) -> None:
    """E m' and E w' relax to ∇L and to diag Σ + (∇L)²/l at rates (1 − β)/l; Cov m' = (1 − β₁)²Σ/l."""
    found = OneSubstep(problem(3), "adam", ell)
    each = found.gradients + DECAY * found.x
    mean, sigma = each.mean(0), np.cov(each.T, bias=True)
    expected = found.w + (1 - BETA2) / ell * (np.diag(sigma) + mean**2 / ell - found.w)
    np.testing.assert_allclose(found.second.mean(0), expected, rtol=1e-12)
    np.testing.assert_allclose(found.first.mean(0), found.m + (1 - BETA1) / ell * (mean - found.m), rtol=1e-12)
    np.testing.assert_allclose(np.cov(found.first.T, bias=True), (1 - BETA1) ** 2 / ell * sigma, rtol=0, atol=1e-12)


def test_drift_and_diffusion_of_rmsprop(problem: "Callable[[int], Problem]") -> None:
    """l·EΔ → −η∇L/(√w + ε) and l·EΔΔᵀ → η²PΣP with P = 1/(√w + ε), both with an error of order 1/l."""
    errors = []
    for ell in (256, 512):
        found = OneSubstep(problem(3), "rmsprop", ell)
        each = found.gradients + DECAY * found.x
        scale = LR / (np.sqrt(found.w) + EPS)
        drift = ell * found.moved.mean(0) + scale * each.mean(0)
        squares = ell * np.einsum("ki,kj->ij", found.moved, found.moved) / 9
        diffusion = squares - np.outer(scale, scale) * np.cov(each.T, bias=True)
        errors.append((np.abs(drift).max(), np.abs(diffusion).max()))
    assert errors[1] == pytest.approx(np.array(errors[0]) / 2, rel=0.1)
    assert max(errors[1]) < 0.02


# --- a whole effective step, all paths ----------------------------------------------------------------------------
# Adam works on each coordinate alone, so a parameter with one coordinate for each of the 4^l sequences of pairs takes
# all paths at once. The loss is cx²/2 + sζx with two-point noise ζ: w of the SDE is then deterministic, and the first
# two moments of x (and of m) satisfy linear equations.

CURVATURE, NOISE, X0, M0, W0 = 1.3, 0.8, 0.8, 0.2, 1.3
SKEWED, SYMMETRIC = 0.3, 0.5


def after_one_effective_step(kind: str, ell: int, odds: float, cold: bool) -> FloatArray:
    """E x, E x² and E w after `ell` sub-steps of the library."""
    zeta = torch.tensor([math.sqrt((1 - odds) / odds), -math.sqrt(odds / (1 - odds))], dtype=torch.float64)
    chance = torch.tensor([odds, 1 - odds], dtype=torch.float64)
    paths = torch.arange(4**ell)
    x = nn.Parameter(torch.full((4**ell,), X0, dtype=torch.float64))
    optimizer, probability = KINDS[kind]([x]), torch.ones(4**ell, dtype=torch.float64)
    if not cold:
        warm(optimizer, x, torch.full_like(x, M0).detach(), torch.full_like(x, W0).detach())

    def pairs() -> Iterator[tuple[Tensor, Tensor]]:
        for k in range(ell):
            drawn = paths // 4**k % 4
            probability.mul_(chance[drawn // 2] * chance[drawn % 2])
            yield zeta[drawn // 2], zeta[drawn % 2]

    with svag.SVAG(nn.ParameterList([x]), optimizer, ell=ell) as sim:
        sim.step(lambda z: (CURVATURE * x.square() / 2 + NOISE * z * x).sum(), pairs())
    end = x.detach()
    return np.array([float(probability @ value) for value in (end, end**2, second_moment(optimizer, x))])


def sde(kind: str, cold: bool) -> FloatArray:
    """The same of the SDE at time 1, by its moment equations."""
    m0, w0, before = (0.0, 0.0, 0.0) if cold else (M0, W0, STEPS)
    decoupled = LR * DECAY if kind == "adamw" else 0.0
    curvature = CURVATURE + (0.0 if kind == "adamw" else DECAY)
    forget = 1 - BETA1

    def w(t: float) -> float:
        return float(NOISE**2 + (w0 - NOISE**2) * math.exp(-(1 - BETA2) * t))

    def bias(rate: float, t: float) -> float:
        return 1.0 if kind == "rmsprop" else -math.expm1(-rate * (before + t))

    def scale(t: float) -> float:
        return LR / (math.sqrt(w(t) / bias(1 - BETA2, t)) + EPS)

    def position(t: float, y: FloatArray) -> list[float]:
        x, xx = y
        return [-scale(t) * curvature * x, -2 * scale(t) * curvature * xx + (scale(t) * NOISE) ** 2]

    def with_average(t: float, y: FloatArray) -> list[float]:
        x, xx, m, xm, mm = y
        pull = scale(t) / bias(forget, t)
        return [
            -pull * m - decoupled * x,
            -2 * pull * xm - 2 * decoupled * xx,
            forget * (curvature * x - m),
            -pull * mm - decoupled * xm + forget * (curvature * xx - xm),
            2 * forget * (curvature * xm - mm) + (forget * NOISE) ** 2,
        ]

    start, moments = [X0, X0**2], position
    if kind in ("adam", "adamw"):
        start, moments = [X0, X0**2, m0, X0 * m0, m0**2], with_average
    span = (1e-9 if cold else 0.0, 1.0)  # the bias corrections are 0/0 at the very beginning
    end = solve_ivp(moments, span, start, method="DOP853", rtol=1e-11, atol=1e-13).y[:, -1]
    return np.array([end[0], end[1], w(1.0)])


def error_ratio(kind: str, *, odds: float = SKEWED, cold: bool = False) -> FloatArray:
    """Error at l = 4 over error at l = 8: 2 where the order is 1."""
    limit = sde(kind, cold)
    coarse, fine = (after_one_effective_step(kind, ell, odds, cold) - limit for ell in (4, 8))
    return np.asarray(coarse / fine, dtype=np.float64)


def order_one(ratios: FloatArray) -> bool:
    """They are 1.97 to 2.31."""
    return bool(np.abs(ratios - 2).max() < 0.35)


@pytest.mark.parametrize("kind", KINDS)
def test_weak_order_one(kind: str) -> None:
    assert order_one(error_ratio(kind))


@pytest.mark.parametrize("kind", ["adam", "adamw", "without momentum"])
def test_a_cold_start_converges_too(kind: str) -> None:
    """The mean of x and w, under symmetric noise; l = 8 is too small to see x² or the ln l/l of skewed noise."""
    mean, _, second = error_ratio(kind, odds=SYMMETRIC, cold=True)
    assert 1.6 < mean < 2.4
    assert 1.6 < second < 2.4


Wrong = Callable[[Any, Any, int], dict[str, Any]]  # (settings, their refinement, ell) -> what is wrong in it
WRONG: dict[str, tuple[tuple[str, ...], Wrong]] = {
    "lr/l": (tuple(KINDS), lambda own, _, ell: {"lr": own.lr / ell}),
    "eps unscaled": (tuple(KINDS), lambda own, _, ell: {"eps": own.eps}),
    "alpha unscaled": (("rmsprop",), lambda own, _, ell: {"alpha": own.alpha}),
    "beta2 unscaled": (
        ("adam", "adamw", "without momentum"),
        lambda own, refined, ell: {"betas": (refined.betas[0], own.betas[1])},
    ),
    "beta1 unscaled": (("adam",), lambda own, refined, ell: {"betas": (own.betas[0], refined.betas[1])}),
    "beta1 = 0 scaled": (
        ("without momentum",),
        lambda own, refined, ell: {"betas": (1 - 1 / ell, refined.betas[1])},
    ),
    "decoupled decay unscaled": (("adamw",), lambda own, _, ell: {"weight_decay": own.weight_decay}),
    "coupled decay scaled": (
        ("adam", "without momentum"),
        lambda own, _, ell: {"weight_decay": own.weight_decay / math.sqrt(ell)},
    ),
}


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, (kinds, _) in WRONG.items() for kind in kinds])
def test_a_wrong_refinement_does_not_converge(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative controls."""
    for settings in (AdamSettings, RMSpropSettings):
        right = settings.refined

        def refined(self: Any, ell: int, right: Any = right) -> Any:
            return replace(right(self, ell), **WRONG[name][1](self, right(self, ell), ell))

        monkeypatch.setattr(settings, "refined", refined)
    assert not order_one(error_ratio(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_left_in_the_units_of_the_optimizer_does_not_converge(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refined_step, "SubstepState", lambda one, settings, _: SubstepState(one, settings, 1))
    assert not order_one(error_ratio(kind))
