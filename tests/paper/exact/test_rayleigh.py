"""Formulas against autodiff-free differentiation, chains against the exact conditional law of one step."""

import numpy as np
import pytest

from svag.arrays import FloatArray
from svag.paper.exact.processes import NGD, SGD, EulerMaruyama, Svag
from svag.paper.exact.rayleigh import (
    ChainProcess,
    Momentum,
    RayleighProblem,
    SecondOrderEuler,
    example_weights,
    param_sq,
    simulate,
)

RNG = np.random.default_rng(3)
PROBLEM = RayleighProblem(RNG.standard_normal((4, 3)))
POINT = np.array([[1.0, -2.0, 0.5]])


def example_gradients(x: FloatArray) -> FloatArray:
    return np.array([PROBLEM.weighted_gradient(x, one[None])[0] for one in np.eye(4)])


def test_gradients_by_complex_step() -> None:
    for index, gradient in enumerate(example_gradients(POINT)):
        for axis in range(3):
            z = POINT[0].astype(complex)
            z[axis] += 1e-30j
            loss = (PROBLEM.examples[index] @ z) ** 2 / (z @ z)
            assert gradient[axis] == pytest.approx(loss.imag / 1e-30, rel=1e-12)


def test_hessian_product_by_differences() -> None:
    direction = np.array([[0.3, 0.2, -1.0]])
    step = 1e-5
    difference = (PROBLEM.gradient(POINT + step * direction) - PROBLEM.gradient(POINT - step * direction)) / (2 * step)
    np.testing.assert_allclose(PROBLEM.hessian_product(POINT, direction), difference, rtol=1e-8)


def test_noise_trace_by_enumeration() -> None:
    gradients = example_gradients(POINT)
    batches = np.array([(one + two) / 2 for one in gradients for two in gradients])
    trace = ((batches - batches.mean(axis=0)) ** 2).sum(axis=1).mean()
    assert PROBLEM.noise_trace(POINT, 2)[0] == pytest.approx(trace, rel=1e-12)
    np.testing.assert_allclose(PROBLEM.gradient(POINT)[0], gradients.mean(axis=0), rtol=1e-12)
    assert PROBLEM.losses(POINT).shape == (1, 4)


@pytest.mark.parametrize("process", [SGD, Svag(3), NGD, EulerMaruyama(3), SecondOrderEuler(3), Momentum(0.9)])
def test_the_weights_of_the_examples_have_the_covariance_of_the_process(process: ChainProcess) -> None:
    """E w = 1/n and Cov w = (l/nB)(I − 11ᵀ/n); 200,000 draws, 4 + 16 z-scores at α = 1e-6 each."""
    n, batch_size, chains = 4, 2, 200_000
    weights = example_weights(process, n, batch_size, chains)(np.random.default_rng(11))
    covariance = process.ell / (n * batch_size) * (np.eye(n) - 1 / n)
    products = np.einsum("ci,cj->cij", weights - 1 / n, weights - 1 / n)
    for sample, expected in ((weights, np.full(n, 1 / n)), (products, covariance)):
        z = (sample.mean(axis=0) - expected) / (sample.std(axis=0) / np.sqrt(chains))
        assert np.abs(z).max() < 4.9
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-12)


def test_one_step_is_lr_over_ell_times_the_weighted_gradient() -> None:
    """Two sub-steps of SVAG(2), replayed with the same generator."""
    paths = simulate(
        PROBLEM, Svag(2), lr=0.2, weight_decay=0.1, batch_size=1, steps=1, start=POINT, rng=np.random.default_rng(9)
    )
    draw, rng, x = example_weights(Svag(2), 4, 1, 1), np.random.default_rng(9), POINT
    for _ in range(2):
        x = x - 0.1 * (PROBLEM.weighted_gradient(x, draw(rng)) + 0.1 * x)
    np.testing.assert_allclose(paths.weights, x, rtol=1e-14)
    np.testing.assert_allclose(paths.param_sq[:, 0], [param_sq(POINT)[0], param_sq(x)[0]])


def test_momentum_by_hand() -> None:
    """With identical examples there is no noise: two steps of torch.optim.SGD by hand."""
    problem = RayleighProblem(np.array([[1.0, 0.0], [1.0, 0.0]]))
    start = np.array([[1.0, 1.0]])
    paths = simulate(
        problem, Momentum(0.9), lr=0.1, weight_decay=0.5, batch_size=1, steps=2, start=start,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    x, v = start, np.zeros_like(start)
    for _ in range(2):
        v = 0.9 * v + problem.gradient(x) + 0.5 * x
        x = x - 0.1 * v
    np.testing.assert_allclose(paths.weights, x, rtol=1e-14)
    np.testing.assert_allclose(paths.velocity_sq[-1], param_sq(v), rtol=1e-14)


def test_second_order_drift_by_differences() -> None:
    """Without noise one Euler step follows −∇(L′ + (η/4)|∇L′|²), L′ = L + (λ/2)|x|²."""
    problem = RayleighProblem(np.array([[1.0, 0.5], [1.0, 0.5]]))
    lr, weight_decay, x = 0.3, 0.2, np.array([[0.7, -0.4]])

    def potential(y: FloatArray) -> float:
        decayed = problem.gradient(y) + weight_decay * y
        loss = problem.losses(y).mean() + weight_decay / 2 * param_sq(y)[0]
        return float(loss + lr / 4 * param_sq(decayed)[0])

    step = 1e-6
    drift = [(potential(x - step * axis) - potential(x + step * axis)) / (2 * step) for axis in np.eye(2)[:, None]]
    paths = simulate(
        problem, SecondOrderEuler(1), lr=lr, weight_decay=weight_decay, batch_size=1, steps=1, start=x,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    np.testing.assert_allclose((paths.weights - x)[0], lr * np.array(drift), rtol=1e-7)


def test_split_is_refused() -> None:
    with pytest.raises(ValueError, match="split=1"):
        simulate(
            PROBLEM, Svag(4, 2), lr=0.1, weight_decay=0.1, batch_size=2, steps=1, start=POINT,
            rng=np.random.default_rng(0),
        )  # fmt: skip


def test_the_same_seed_gives_the_same_chains() -> None:
    runs = [
        simulate(
            PROBLEM, Svag(2), lr=0.1, weight_decay=0.1, batch_size=1, steps=3, start=POINT,
            rng=np.random.default_rng(7),
        )
        for _ in range(2)
    ]  # fmt: skip
    np.testing.assert_array_equal(runs[0].weights, runs[1].weights)
