"""lem:D through the public API: every pair of batches of a tiny data set, so that nothing is sampled."""

import math
from collections import Counter
from collections.abc import Callable
from itertools import combinations, combinations_with_replacement, product
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import svag
from svag.arrays import FloatArray
from svag.theory.weights import outer, svag_step_moments, symmetrise

if TYPE_CHECKING:
    from tests.dynamics.conftest import Law, Problem

LR = 0.3
BATCH = 4
COMBINATIONS = [(ell, split) for ell in (1, 2, 3, 8) for split in (1, 2, 4) if split <= 2 * ell]
MakeProblem = Callable[[int], "Problem"]
MakeLaw = Callable[[list[FloatArray], list[float]], "Law"]


def with_replacement(n: int, size: int) -> dict[tuple[int, ...], float]:
    """Every multiset of `size` of n examples and its probability."""
    return {
        batch: math.factorial(size) / math.prod(math.factorial(k) for k in Counter(batch).values()) / n**size
        for batch in combinations_with_replacement(range(n), size)
    }


def without_replacement(n: int, size: int) -> dict[tuple[int, ...], float]:
    batches = list(combinations(range(n), size))
    return dict.fromkeys(batches, 1 / len(batches))


def increments(
    problem: "Problem", batches: dict[tuple[int, ...], float], ell: int, split: int, population: int | None = None
) -> tuple[FloatArray, FloatArray]:
    """The increment of one sub-step for every pair of batches, and the probability of the pair."""
    start, found, probabilities = problem.get(), [], []
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=LR)
    with svag.SVAG(problem.model, optimizer, ell=ell, split=split, population=population) as sim:
        for first, second in product(batches, batches):
            problem.set(start)
            sim.substep(problem.loss, problem.batch(first), problem.batch(second))
            found.append(problem.get() - start)
            probabilities.append(batches[first] * batches[second])
    problem.set(start)
    return np.array(found), np.array(probabilities)


@pytest.mark.parametrize(("ell", "split"), COMBINATIONS)
def test_three_moments_of_one_substep(problem: MakeProblem, law: MakeLaw, ell: int, split: int) -> None:
    tiny = problem(3)
    whole = with_replacement(3, BATCH)
    batch_gradient = law([tiny.gradient(batch) for batch in whole], list(whole.values()))
    expected = svag_step_moments(
        batch_gradient.mean, batch_gradient.covariance, batch_gradient.skewness, lr=LR, ell=ell, split=split
    )
    steps, p = increments(tiny, with_replacement(3, BATCH // split), ell, split)

    np.testing.assert_allclose(p @ steps, expected.first, rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.einsum("k,ki,kj->ij", p, steps, steps), expected.second, rtol=0, atol=1e-12)
    third = np.einsum("k,ki,kj,kl->ijl", p, steps, steps, steps)
    np.testing.assert_allclose(third, expected.third, rtol=0, atol=1e-12)
    if split == 1:
        printed = (LR / ell) ** 3 * (
            (3 * ell - 1) / 2 * batch_gradient.skewness
            + 3 * symmetrise(outer(batch_gradient.mean, batch_gradient.covariance))
            + outer(batch_gradient.mean, outer(batch_gradient.mean, batch_gradient.mean))
        )
        assert np.abs(third - printed).max() > 0.1 * np.abs(third).max()


@pytest.mark.parametrize("split", [1, 2, 4])
def test_population_makes_the_covariance_exact_without_replacement(
    problem: MakeProblem, law: MakeLaw, split: int
) -> None:
    tiny, n, ell = problem(6), 6, 8
    whole = without_replacement(n, BATCH)
    batch_gradient = law([tiny.gradient(batch) for batch in whole], list(whole.values()))
    wanted = LR**2 / ell * batch_gradient.covariance

    def covariance(population: int | None) -> FloatArray:
        steps, p = increments(tiny, without_replacement(n, BATCH // split), ell, split, population)
        centred = steps - p @ steps
        np.testing.assert_allclose(p @ steps, -LR / ell * batch_gradient.mean, rtol=0, atol=1e-12)
        return np.asarray(np.einsum("k,ki,kj->ij", p, centred, centred), dtype=np.float64)

    np.testing.assert_allclose(covariance(n), wanted, rtol=0, atol=1e-12)
    if split > 1:  # not told, the small batches carry (n − B/m)/(n − B) too much
        excess = (n - BATCH / split) / (n - BATCH)
        np.testing.assert_allclose(covariance(None), excess * wanted, rtol=0, atol=1e-12)


def test_dependent_batches_have_another_covariance(problem: MakeProblem, law: MakeLaw) -> None:
    """Negative control: halves of one shuffled batch, which the detector above must not mistake for a pair."""
    tiny, ell = problem(6), 4
    halves = without_replacement(6, 2)
    batch_gradient = law([tiny.gradient(batch) for batch in halves], list(halves.values()))
    steps, p = increments(tiny, halves, ell, 1)
    disjoint = np.array([not set(one) & set(two) for one, two in product(halves, halves)])
    q = p * disjoint / (p * disjoint).sum()
    centred = steps - q @ steps
    covariance = np.einsum("k,ki,kj->ij", q, centred, centred)
    wanted = LR**2 / ell * batch_gradient.covariance
    assert np.abs(covariance - wanted).max() > 0.1 * np.abs(wanted).max()
