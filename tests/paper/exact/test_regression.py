"""Affine gradients in d dimensions against brute enumeration of every path, and against one dimension."""

import math
from itertools import product

import numpy as np
import pytest

from svag.paper.exact.affine import AffineProblem
from svag.paper.exact.noise import Atoms
from svag.paper.exact.processes import Ito, Svag
from svag.paper.exact.regression import RegressionProblem, stable_lr
from svag.theory.weights import svag_weights

RNG = np.random.default_rng(5)
INPUTS, OUTPUTS = RNG.standard_normal((3, 2)), RNG.standard_normal(3)
HESSIANS = np.einsum("ni,nj->nij", INPUTS, INPUTS)
TARGETS = OUTPUTS[:, None] * INPUTS


def problem(lr: float = 0.1, batch_size: int = 1) -> RegressionProblem:
    return RegressionProblem(HESSIANS, TARGETS, lr, batch_size, np.array([1.0, -2.0]))


@pytest.mark.parametrize("ell", [1, 2])
def test_second_moments_by_enumerating_every_path(ell: int) -> None:
    a, b = svag_weights(ell)
    points = [(np.array([1.0, -2.0]), 1.0)]
    for _ in range(ell):
        points = [
            (x - 0.1 / ell * (a * (HESSIANS[i] @ x - TARGETS[i]) + b * (HESSIANS[j] @ x - TARGETS[j])), weight / 9)
            for x, weight in points
            for i, j in product(range(3), repeat=2)
        ]
    expected = sum(weight * np.outer(np.append(1, x), np.append(1, x)) for x, weight in points)
    moments = problem().moments(1, ell)
    np.testing.assert_allclose(moments[-1], expected, rtol=1e-12, atol=1e-15)
    losses = [
        weight * np.mean([0.5 * (INPUTS[i] @ x - OUTPUTS[i]) ** 2 - 0.5 * OUTPUTS[i] ** 2 for i in range(3)])
        for x, weight in points
    ]
    assert problem().loss(moments)[-1] == pytest.approx(sum(losses), rel=1e-12)


def test_one_dimension_agrees_with_the_moment_matrices() -> None:
    atoms = Atoms((0.5, 1.5), (1.0, -0.5), (0.5, 0.5))
    line = AffineProblem(atoms, lr=0.3, batch_size=2, start=1.0)
    plane = RegressionProblem(np.array([[[0.5]], [[1.5]]]), np.array([[1.0], [-0.5]]), 0.3, 2, np.array([1.0]))
    for ours, theirs in (
        (plane.moments(5, 4), line.moments(Svag(4), 5, 2)),
        (plane.sde_moments(5, 4), line.limit_moments(Ito(), 5, 2, 4)),
    ):
        np.testing.assert_allclose(ours[:, 0, 1], theirs[:, 1], rtol=1e-12)
        np.testing.assert_allclose(ours[:, 1, 1], theirs[:, 2], rtol=1e-12)


def test_no_noise_is_gradient_descent() -> None:
    x = np.array([1.0, -2.0])
    for _ in range(4):
        x = x - 0.1 * (HESSIANS.mean(axis=0) @ x - TARGETS.mean(axis=0))
    moments = problem().moments(4, noise=0.0)[-1]
    np.testing.assert_allclose(moments[1:, 1:], np.outer(x, x), rtol=1e-12)


@pytest.mark.parametrize("ell", [1, 4])
def test_the_threshold_separates_decay_from_growth(ell: int) -> None:
    limit = stable_lr(HESSIANS, 1, ell)
    for factor, grows in ((0.98, False), (1.02, True)):
        size = np.trace(problem(limit * factor).moments(4000, ell), axis1=1, axis2=2)
        assert (size[-1] > 10 * size[len(size) // 2]) == grows


def test_the_threshold_of_the_sde() -> None:
    limit = stable_lr(HESSIANS, 1, math.inf)
    for factor, grows in ((0.98, False), (1.02, True)):
        size = np.trace(problem(limit * factor).sde_moments(4000), axis1=1, axis2=2)
        assert (size[-1] > 10 * size[2000]) == grows


def test_the_thresholds_differ_and_add_up() -> None:
    sgd, sde = stable_lr(HESSIANS, 1), stable_lr(HESSIANS, 1, math.inf)
    gd = 2 / np.linalg.eigvalsh(HESSIANS.mean(axis=0)).max()
    assert sgd < min(sde, gd)
    assert 1 / sgd <= 1 / sde + 1 / gd
    assert stable_lr(HESSIANS, 8, math.inf) == pytest.approx(8 * sde, rel=1e-9), "the SDE knows only lr/B"


def test_the_stationary_law_is_where_a_long_run_ends() -> None:
    bed = problem(lr=0.1)
    np.testing.assert_allclose(bed.equilibrium(), bed.moments(2000)[-1], rtol=1e-9)
    with pytest.raises(ValueError, match="lr=3"):
        problem(lr=3.0).equilibrium()
