"""The Fourier matrices against sums over the Poisson number of arrivals, and against the definition of the limits."""

import math
from dataclasses import replace

import numpy as np
import pytest

from svag.arrays import FloatArray
from svag.paper.exact.circle import CircleProblem
from svag.paper.exact.processes import (
    SGD,
    CharacteristicProcess,
    EulerMaruyama,
    Ito,
    Levy,
    SmallerBatches,
    Svag,
)
from svag.theory.weights import svag_weights

PROBLEM = CircleProblem((0.3, -0.2), (0.6, 1.0), (0.0, 0.5), (0.7, 0.3), lr=0.5)
X = PROBLEM.grid


def showers(rate: float, start: float, most: int = 18) -> list[tuple[float, float]]:
    """The gradient at one point for every number of arrivals of each curve, with its probability."""
    shapes = zip(PROBLEM.offsets, PROBLEM.amplitudes, PROBLEM.phases, strict=True)
    curves = [c + a * math.sin(start + f) for c, a, f in shapes]
    means = [rate * p for p in PROBLEM.probabilities]
    pmf = [[math.exp(-m) * m**k / math.factorial(k) for k in range(most)] for m in means]
    return [(i * curves[0] + j * curves[1], pmf[0][i] * pmf[1][j]) for i in range(most) for j in range(most)]


@pytest.mark.parametrize("node", [0, 7, 30])
def test_one_step_of_sgd_by_counting_arrivals(node: int) -> None:
    values = np.cos(2 * X) + np.sin(X)
    expected = sum(p * (math.cos(2 * y) + math.sin(y)) for g, p in showers(1, X[node]) for y in [X[node] - 0.5 * g])
    assert (PROBLEM.step_matrix(SGD) @ values)[node] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("node", [0, 7])
def test_one_step_of_svag_by_counting_arrivals(node: int) -> None:
    a, b = svag_weights(4)
    one = showers(1, X[node], most=13)
    expected = sum(p * q * math.cos(X[node] - 0.125 * (a * g + b * f)) for g, p in one for f, q in one)
    assert (PROBLEM.step_matrix(Svag(4)) @ np.cos(X))[node] == pytest.approx(expected, abs=1e-9)


def test_one_step_of_the_ladder_by_counting_arrivals() -> None:
    expected = sum(p * math.cos(X[7] - 0.5 * g) for g, p in showers(0.25, X[7]))
    assert (PROBLEM.step_matrix(SmallerBatches(4)) @ np.cos(X))[7] == pytest.approx(expected, abs=1e-12)


def test_one_step_of_ngd_is_a_gaussian_average() -> None:
    curves = PROBLEM.curves()[7]
    mean, variance = curves @ PROBLEM.probabilities, curves**2 @ PROBLEM.probabilities
    expected = math.cos(X[7] - 0.125 * mean) * math.exp(-(0.125**2) * 4 * variance / 2)
    assert (PROBLEM.step_matrix(EulerMaruyama(4)) @ np.cos(X))[7] == pytest.approx(expected, abs=1e-13)


def drift_and_variance() -> tuple[FloatArray, FloatArray]:
    curves = PROBLEM.curves()
    return curves @ PROBLEM.probabilities, curves**2 @ PROBLEM.probabilities


def test_the_generator_of_the_sde_is_a_differential_operator() -> None:
    drift, variance = drift_and_variance()
    first, second = np.cos(X), -np.sin(X)  # derivatives of sin
    expected = -drift * first + 0.25 * variance * second
    np.testing.assert_allclose(PROBLEM.generator(Ito()) @ np.sin(X), expected, atol=1e-12)


def test_one_step_of_split_svag_by_counting_arrivals() -> None:
    """Parts of half a batch: half as many arrivals, each counting twice."""
    a, b = svag_weights(4, 2)
    half = showers(0.5, X[7], most=11)
    expected = sum(p * q * math.cos(X[7] - 0.125 * 2 * (a * g + b * f)) for g, p in half for f, q in half)
    assert (PROBLEM.step_matrix(Svag(4, 2)) @ np.cos(X))[7] == pytest.approx(expected, abs=1e-9)


def test_the_levy_generator_is_a_jump_operator() -> None:
    jumps = [np.sin(X - 0.5 * curve) - np.sin(X) for curve in PROBLEM.curves().T]
    expected = np.tensordot(PROBLEM.probabilities, jumps, 1) / 0.5
    np.testing.assert_allclose(PROBLEM.generator(Levy()) @ np.sin(X), expected, atol=1e-12)


@pytest.mark.parametrize("process", [Svag(8), Svag(8, 2), EulerMaruyama(2), SmallerBatches(4)])
def test_constants_stay_and_more_nodes_do_not_matter(process: CharacteristicProcess) -> None:
    fine = replace(PROBLEM, nodes=2 * PROBLEM.nodes)
    np.testing.assert_allclose(PROBLEM.step_matrix(process).sum(axis=1), 1, atol=1e-11)
    after = [np.linalg.matrix_power(bed.step_matrix(process), 8) @ np.cos(bed.grid) for bed in (PROBLEM, fine)]
    np.testing.assert_allclose(after[0], after[1][::2], atol=1e-10)
