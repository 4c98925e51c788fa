"""The rows on a grid against torch's own optimizers on every path of the noise, and against SDEs in closed form."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from svag.arrays import FloatArray
from svag.paper.exact.adaptive import (
    AdaptiveProblem,
    AdaptiveSettings,
    CircleNodes,
    GridState,
    IntervalNodes,
    watched,
)
from svag.paper.exact.noise import TwoValues
from svag.theory.adaptive import AdamSettings, RMSpropSettings

BED = AdaptiveProblem(second=IntervalNodes(0.7, 2.6, 20))
YOUNG = replace(BED, start=(0.8, 0.2, 0.6), age=3.0, second=IntervalNodes(0.3, 1.3, 16))
RMSPROP = RMSpropSettings(lr=0.25, alpha=0.9, eps=0.2)
ADAM = AdamSettings(lr=0.25, betas=(0.5, 0.9), eps=0.2)


@pytest.mark.parametrize(
    ("axis", "inside"),
    [(CircleNodes(9), True), (IntervalNodes(0.5, 2.0, 5), True), (IntervalNodes(0.5, 2.0, 5), False)],
)
def test_interpolation_is_exact_for_its_functions(axis: CircleNodes | IntervalNodes, inside: bool) -> None:
    def f(x: FloatArray) -> FloatArray:
        return np.cos(4 * x) - np.sin(x) if isinstance(axis, CircleNodes) else x**4 - 2 * x + 1

    def slope(x: FloatArray) -> FloatArray:
        return -4 * np.sin(4 * x) - np.cos(x) if isinstance(axis, CircleNodes) else 4 * x**3 - 2

    x = np.array([0.6, 1.1, 1.9]) if inside else np.array([0.1, 3.0])
    np.testing.assert_allclose(axis.weights(x) @ f(axis.points), f(x), atol=1e-11)
    np.testing.assert_allclose(axis.derivative() @ f(axis.points), slope(axis.points), atol=1e-11)


def torch_optimizer(
    settings: AdaptiveSettings, bed: AdaptiveProblem, ell: int
) -> tuple[torch.Tensor, torch.optim.Optimizer]:
    """torch's own, in the state in which the bed starts."""
    theta, m, w = bed.start
    x = torch.tensor([theta], dtype=torch.float64, requires_grad=True)
    moments = {"exp_avg": m, "exp_avg_sq": ell * w, "step": bed.age * ell}
    optimizer: torch.optim.Optimizer
    if isinstance(settings, RMSpropSettings):
        optimizer, moments = (
            torch.optim.RMSprop([x], settings.lr, settings.alpha, settings.eps),
            {"square_avg": ell * w, "step": 1.0},
        )
    else:
        optimizer = torch.optim.Adam([x], settings.lr, settings.betas, settings.eps)
    optimizer.state[x] = {
        name: torch.full([] if name == "step" else [1], value, dtype=torch.float64) for name, value in moments.items()
    }
    return x, optimizer


def by_all_paths(settings: AdaptiveSettings, bed: AdaptiveProblem, ell: int, steps: int) -> FloatArray:
    """E of the watched functions after some sub-steps of torch's optimizer, over every sequence of noise values."""
    total: FloatArray = np.zeros(0)
    for path in product(bed.noise.svag(ell), repeat=steps):
        x, optimizer = torch_optimizer(settings, bed, ell)
        for _, z in path:
            theta = x.detach().numpy()
            x.grad = torch.from_numpy(bed.slope(theta) + bed.spread(theta) * z)
            optimizer.step()
        state = optimizer.state[x]
        second = state["square_avg" if isinstance(settings, RMSpropSettings) else "exp_avg_sq"].numpy() / ell
        momentum = isinstance(settings, AdamSettings) and settings.betas[0] > 0
        values = watched((x.detach().numpy(), *([state["exp_avg"].numpy()] if momentum else []), second))[0]
        total = math.prod(p for p, _ in path) * values + (total if total.size else 0)
    return total


@pytest.mark.parametrize(
    ("settings", "bed"),
    [
        pytest.param(RMSPROP, BED, id="rmsprop"),
        pytest.param(ADAM, YOUNG, id="adam"),
        pytest.param(replace(ADAM, betas=(0.0, 0.9)), YOUNG, id="adam without momentum"),
    ],
)
def test_three_sub_steps_are_those_of_torch(settings: AdaptiveSettings, bed: AdaptiveProblem) -> None:
    ell, steps = 4, 3
    fine = settings.refined(ell)
    path = bed.path(bed.svag(fine, ell), steps)
    np.testing.assert_allclose(path[-1], by_all_paths(fine, bed, ell, steps), atol=1e-9)
    assert len(path) == steps + 1
    assert path[0][0] == pytest.approx(math.cos(bed.start[0]), abs=1e-12)


def test_the_previous_second_moment_makes_another_step() -> None:
    """By hand: θ moves with the v before, which is l·w."""
    process = BED.svag(RMSPROP.refined(4), 4, "previous")
    theta, _, w = BED.start
    fine = RMSPROP.refined(4)
    at = np.array(theta)
    moved = [
        (p, theta - fine.lr * float(BED.slope(at) + BED.spread(at) * z) / (math.sqrt(4 * w) + fine.eps))
        for p, z in process.noise
    ]
    expected = sum(p * math.cos(x) for p, x in moved)
    assert BED.path(process, 1)[1, 0] == pytest.approx(expected, abs=1e-9)
    assert abs(BED.path(replace(process, order="torch"), 1)[1, 0] - expected) > 1e-4


@pytest.mark.parametrize("decoupled", [False, True])
def test_weight_decay_acts_on_the_sine(decoupled: bool) -> None:
    """One step by hand: coupled decay is part of the gradient and of both averages, a decoupled one of neither."""
    adam = AdamSettings(lr=0.1, betas=(0.5, 0.9), eps=0.2, weight_decay=0.3, decoupled=decoupled)
    (theta, m, w), expected = BED.start, np.zeros(7)
    for p, z in BED.noise.batch():
        decay = 0.3 * math.sin(theta)
        g = float(BED.slope(np.array(theta)) + BED.spread(np.array(theta)) * z) + (0 if decoupled else decay)
        m_next, v = 0.5 * m + 0.5 * g, 0.9 * w + 0.1 * g**2
        x = theta - 0.1 * m_next / (math.sqrt(v) + 0.2) - (0.1 * decay if decoupled else 0)
        expected += p * watched((np.array([x]), np.array([m_next]), np.array([v])))[0]
    np.testing.assert_allclose(BED.path(BED.svag(adam, 1), 1)[1], expected, atol=1e-9)


def test_more_nodes_do_not_matter() -> None:
    fine = replace(BED, theta=CircleNodes(45), second=IntervalNodes(0.6, 2.8, 24))
    process = BED.svag(RMSPROP.refined(8), 8)
    np.testing.assert_allclose(BED.path(process, 48), fine.path(process, 48), atol=1e-9)
    np.testing.assert_allclose(BED.limit_path(RMSPROP, 6), fine.limit_path(RMSPROP, 6), atol=1e-9)
    finer = replace(
        YOUNG, theta=CircleNodes(37), first=IntervalNodes(-2.2, 2.2, 12), second=IntervalNodes(0.3, 1.4, 18)
    )
    np.testing.assert_allclose(YOUNG.limit_path(ADAM, 2), finer.limit_path(ADAM, 2), atol=1e-9)


def test_the_sde_of_rmsprop_without_gradient_is_gaussian() -> None:
    """Constant noise: w relaxes to s, and θ is normal with the variance ∫ lr² s/(√w + eps)² dt."""
    flat = replace(BED, amplitude=0.0, modulation=0.0, deviation=1.1)

    def w(t: float) -> float:
        return 1.21 + (1.4 - 1.21) * math.exp(-0.1 * t)

    variance = quad(lambda t: 0.25**2 * 1.21 / (math.sqrt(w(t)) + 0.2) ** 2, 0, 4)[0]
    found = flat.limit_path(RMSPROP, 4)[-1]
    expected = [math.cos(0.8) * math.exp(-variance / 2), math.sin(0.8) * math.exp(-variance / 2), w(4)]
    np.testing.assert_allclose(found[:3], expected, atol=1e-9)
    assert found[4] == pytest.approx(math.cos(1.6) * math.exp(-2 * variance), abs=1e-9)


@pytest.mark.parametrize("age", [3.0, math.inf])
def test_the_sde_of_adam_without_gradient_is_gaussian(age: float) -> None:
    """θ is an integral of the Ornstein–Uhlenbeck process m; bias corrections are functions of time."""
    flat = replace(YOUNG, amplitude=0.0, modulation=0.0, age=age)
    forget, time = 0.5, 3

    def rate(t: float) -> float:
        w = 1 + (0.6 - 1) * math.exp(-0.1 * t)
        corrected = w / (1 - math.exp(-0.1 * (age + t)))
        return 0.25 / (math.sqrt(corrected) + 0.2) / (1 - math.exp(-forget * (age + t)))

    def pull(start: float) -> float:
        """∫ rate(t) e^{−forget (t − start)} dt: how much θ feels what enters m at the start."""
        return float(quad(lambda t: rate(t) * math.exp(-forget * (t - start)), start, time)[0])

    mean = 0.8 - 0.2 * pull(0)
    variance = quad(lambda s: (forget * pull(s)) ** 2, 0, time)[0]
    found = flat.limit_path(ADAM, time)[-1]
    assert found[0] == pytest.approx(math.cos(mean) * math.exp(-variance / 2), abs=1e-9)
    assert found[1] == pytest.approx(math.sin(mean) * math.exp(-variance / 2), abs=1e-9)
    assert found[5] == pytest.approx(0.2 * math.exp(-forget * time), abs=1e-9)
    square = 0.04 * math.exp(-2 * forget * time) + forget / 2 * (1 - math.exp(-2 * forget * time))
    assert found[6] == pytest.approx(square, abs=1e-9)


@pytest.mark.parametrize("decoupled", [False, True])
def test_the_sde_without_noise_decays(decoupled: bool) -> None:
    """dθ = −c sin θ dt moves tan(θ/2) like e^{−ct}; coupled decay is divided by √w + eps, a decoupled one is not."""
    quiet = replace(BED, amplitude=0.0, deviation=0.0, second=IntervalNodes(0.7, 1.5, 14))
    adam = AdamSettings(lr=0.1, betas=(0.0, 0.9), eps=0.2, weight_decay=0.5, decoupled=decoupled)
    divided = quad(lambda t: 1 / (math.sqrt(1.4 * math.exp(-0.1 * t)) + 0.2), 0, 4)[0]
    end = 2 * math.atan(math.tan(0.4) * math.exp(-0.05 * (4 if decoupled else divided)))
    assert quiet.limit_path(adam, 4)[-1, 0] == pytest.approx(math.cos(end), abs=1e-9)


def test_a_limit_at_every_sub_step_contains_that_at_every_step() -> None:
    np.testing.assert_allclose(BED.limit_path(RMSPROP, 2, 3)[::3], BED.limit_path(RMSPROP, 2), atol=1e-9)


def test_an_average_that_forgets_everything_settles_at_the_last_gradient() -> None:
    """β₂ = 0: v is g² of the same step, so that the step is g/(|g| + eps), by hand."""
    kappa, theta = 2, 1.3
    settings = RMSpropSettings(lr=0.25, alpha=0.0, eps=0.2)
    found = BED.settled_step(BED.at_batch(settings, kappa), theta)
    at = np.array(theta)
    gradients = [(p, float(BED.slope(at) + BED.spread(at) * z)) for p, z in BED.noise.batch(kappa)]
    moves = [(p, -0.25 * g / (abs(g) + 0.2)) for p, g in gradients]
    mean = sum(p * move for p, move in moves)
    assert found.second_moment == pytest.approx(sum(p * g**2 for p, g in gradients), abs=1e-10)
    assert found.drift == pytest.approx(mean / kappa, abs=1e-10)
    assert found.diffusion == pytest.approx((sum(p * move**2 for p, move in moves) - mean**2) / kappa, abs=1e-10)


def test_the_stationary_law_is_where_paths_go() -> None:
    bed = replace(BED, amplitude=0.8, second=IntervalNodes(0.3, 3.0, 12), theta=CircleNodes(21))
    process = bed.at_batch(RMSpropSettings(lr=0.4, alpha=0.9, eps=0.2), 1)

    def functions(state: GridState) -> FloatArray:
        return np.stack([np.cos(state[0]), state[1]], axis=1)

    np.testing.assert_allclose(bed.path(process, 600, functions)[-1], bed.stationary(process, functions), atol=1e-9)


@pytest.mark.parametrize("chance", [0.3, 0.5, 0.9])
@pytest.mark.parametrize(("law", "variance"), [("svag", 7.0), ("batch", 1 / 7)])
def test_noise_has_mean_0_and_the_variance_of_its_batch(chance: float, law: str, variance: float) -> None:
    p, z = np.array(getattr(TwoValues(chance), law)(7)).T
    assert p.sum() == pytest.approx(1)
    assert p @ z == pytest.approx(0, abs=1e-12)
    assert p @ z**2 == pytest.approx(variance)
