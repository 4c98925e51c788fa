"""The moment matrices against brute enumeration of every path."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

from svag.paper.exact.affine import AffineProblem, reused_batch_moments
from svag.paper.exact.noise import Atoms, CompoundPoisson
from svag.paper.exact.processes import (
    SGD,
    EulerMaruyama,
    ExactLimit,
    ExactProcess,
    Ito,
    Levy,
    SecondOrder,
    SmallerBatches,
    Svag,
)
from svag.theory.weights import svag_weights

ATOMS = Atoms((0.5, 1.5, 1.0), (0.0, -0.5, 1.0), (0.5, 0.2, 0.3))
PROBLEM = AffineProblem(ATOMS, lr=0.3, start=1.2)
DEGREE = 5


def enumerate_steps(problem: AffineProblem, ell: int, steps: int) -> list[tuple[float, float]]:
    """Every end point of `steps` SVAG steps with its probability, one example a batch."""
    assert isinstance(problem.noise, Atoms)
    atoms = list(zip(problem.noise.slopes, problem.noise.intercepts, problem.noise.probabilities, strict=True))
    a, b = svag_weights(ell)
    points = [(problem.start, 1.0)]
    for _ in range(steps):
        points = [
            (x - problem.lr / ell * (a * (s1 * x - b1) + b * (s2 * x - b2)), weight * p1 * p2)
            for x, weight in points
            for (s1, b1, p1), (s2, b2, p2) in product(atoms, repeat=2)
        ]
    return points


@pytest.mark.parametrize("ell", [1, 3])
def test_svag_by_enumerating_every_path(ell: int) -> None:
    points = enumerate_steps(PROBLEM, ell, steps=ell)
    expected = [sum(weight * x**p for x, weight in points) for p in range(DEGREE + 1)]
    np.testing.assert_allclose(PROBLEM.moments(Svag(ell), 1, DEGREE)[-1], expected, rtol=1e-12)


def test_a_batch_of_two_by_enumeration() -> None:
    problem = replace(PROBLEM, batch_size=2)
    atoms = list(zip(ATOMS.slopes, ATOMS.intercepts, ATOMS.probabilities, strict=True))
    expected = np.zeros(DEGREE + 1)
    for (s1, b1, p1), (s2, b2, p2) in product(atoms, repeat=2):
        x = 1.2 - 0.3 * ((s1 + s2) / 2 * 1.2 - (b1 + b2) / 2)
        expected += p1 * p2 * x ** np.arange(DEGREE + 1)
    np.testing.assert_allclose(problem.moments(SGD, 1, DEGREE)[-1], expected, rtol=1e-12)


def test_split_svag_by_enumeration() -> None:
    """B = 2 in two parts of one example each."""
    problem = replace(PROBLEM, batch_size=2)
    a, b = svag_weights(4, 2)
    atoms = list(zip(ATOMS.slopes, ATOMS.intercepts, ATOMS.probabilities, strict=True))
    expected = np.zeros(DEGREE + 1)
    for (s1, b1, p1), (s2, b2, p2) in product(atoms, repeat=2):
        x = 1.2 - 0.3 / 4 * (a * (s1 * 1.2 - b1) + b * (s2 * 1.2 - b2))
        expected += p1 * p2 * x ** np.arange(DEGREE + 1)
    np.testing.assert_allclose(problem.step_matrix(Svag(4, 2), DEGREE) @ 1.2 ** np.arange(6), expected, rtol=1e-12)


def test_ngd_is_gaussian() -> None:
    """One step of NGD from a point is normal: its odd central moments vanish and the fourth is 3σ⁴."""
    moments = PROBLEM.recentred().step_matrix(EulerMaruyama(4), 4)[:, 0]
    mean = moments[1]
    variance = moments[2] - mean**2
    g = ATOMS.cumulants(2)
    assert mean == pytest.approx(-0.3 / 4 * g[1](1.2))
    assert variance == pytest.approx((0.3 / 4) ** 2 * 4 * g[2](1.2))
    assert moments[3] == pytest.approx(mean**3 + 3 * mean * variance)
    assert moments[4] == pytest.approx(mean**4 + 6 * mean**2 * variance + 3 * variance**2)


def test_the_ladder_of_compound_poisson_noise_is_genuine() -> None:
    """Two ladder steps with weights held fixed are one batch: the cumulants of a sum of l parts of 1/l."""
    problem = AffineProblem(CompoundPoisson(Atoms((0.0, 0.0), (1.0, -2.0), (0.5, 0.5))), lr=0.5)
    np.testing.assert_allclose(
        problem.moments(SmallerBatches(8), 1, DEGREE)[-1], problem.moments(SGD, 1, DEGREE)[-1], rtol=1e-12
    )


@pytest.mark.parametrize("limit", [Ito(), SecondOrder(), SecondOrder(corrected=True), Levy()])
def test_limits_solve_their_moment_equation(limit: ExactLimit) -> None:
    """Additive noise ξ: dX = −(aX)dt + √(ηs)dW has E X² = x²e^(−2at) + ηs(1 − e^(−2at))/2a."""
    lr, steps = 0.2, 3
    problem = AffineProblem(Atoms((1.0, 1.0), (1.0, -1.0), (0.5, 0.5)), lr=lr, start=2.0)
    slope = 1 + lr / 2 if isinstance(limit, SecondOrder) else 1.0
    spread = lr * (1 + lr) if limit == SecondOrder(corrected=True) else lr
    decay = np.exp(-2 * slope * lr * steps)
    moments = problem.limit_moments(limit, steps, 2)[-1]
    assert moments[1] == pytest.approx(2 * np.sqrt(decay), rel=1e-12)
    assert moments[2] == pytest.approx(4 * decay + spread * (1 - decay) / (2 * slope), rel=1e-12)


def test_levy_jumps_have_the_sign_of_sgd() -> None:
    """Additive skewed noise without drift: the third central moment of the Lévy SDE is that of SGD, −η³κ₃ a step."""
    problem = AffineProblem(CompoundPoisson(Atoms((0.0,), (-1.0,), (1.0,)), sure=(0.0, 1.0)), lr=0.3)
    sgd, levy = problem.moments(SGD, 4, 3)[-1], problem.limit_moments(Levy(), 4, 3)[-1]
    np.testing.assert_allclose(levy, sgd, rtol=1e-12, atol=1e-15)
    assert levy[3] == pytest.approx(-4 * 0.3**3)
    printed = problem.limit_moments(Levy(printed=True), 4, 3)[-1]
    assert printed[3] == pytest.approx(4 * 0.3**3)


@pytest.mark.parametrize("process", [SGD, Svag(4), EulerMaruyama(2)])
def test_equilibrium_is_where_the_moments_settle(process: ExactProcess) -> None:
    settled = PROBLEM.moments(process, 400, 3)[-1]
    np.testing.assert_allclose(PROBLEM.equilibrium(process, 3), settled, rtol=1e-10)


def test_moments_that_do_not_settle_have_no_equilibrium() -> None:
    additive = AffineProblem(Atoms((1.0, 1.0), (1.0, -1.0), (0.5, 0.5)), lr=3.0)
    with pytest.raises(ValueError, match="settle"):
        additive.equilibrium(SGD, 2)
    noisy = AffineProblem(Atoms((3.0, -1.0), (1.0, -1.0), (0.5, 0.5)), lr=3.0)
    with pytest.raises(ValueError, match="settle"):
        noisy.limit_equilibrium(Ito(), 2)


def test_limit_equilibrium() -> None:
    np.testing.assert_allclose(
        PROBLEM.limit_equilibrium(Ito(), 3), PROBLEM.limit_moments(Ito(), 400, 3)[-1], rtol=1e-10
    )


@pytest.mark.parametrize("noise", [ATOMS, CompoundPoisson(ATOMS, sure=(0.3, 0.1))])
def test_recentring_moves_the_coordinate_only(noise: Atoms | CompoundPoisson) -> None:
    problem = replace(PROBLEM, noise=noise)
    mean = problem.moments(SGD, 3, 1)[-1, 1]
    assert problem.recentred().moments(SGD, 3, 1)[-1, 1] == pytest.approx(mean - problem.start, rel=1e-12)


def test_reuse_by_enumerating_every_path() -> None:
    """Three steps with ell = 2: γ₀ … γ₃, step k uses γ_{k+1} first and γ_k second."""
    a, b = svag_weights(2)
    atoms = list(zip(ATOMS.slopes, ATOMS.intercepts, ATOMS.probabilities, strict=True))
    expected = np.zeros(4)
    for path in product(atoms, repeat=3):
        x, weight = 1.2, np.prod([p for *_, p in path])
        for (s_old, b_old, _), (s_new, b_new, _) in pairwise(path):
            x -= 0.15 * (a * (s_new * x - b_new) + b * (s_old * x - b_old))
        expected += weight * x ** np.arange(4)
    np.testing.assert_allclose(reused_batch_moments(PROBLEM, ell=2, steps=1, degree=3)[-1], expected, rtol=1e-12)


def test_reuse_needs_single_examples() -> None:
    with pytest.raises(ValueError, match="example"):
        reused_batch_moments(replace(PROBLEM, batch_size=2), 2, 1, 2)
