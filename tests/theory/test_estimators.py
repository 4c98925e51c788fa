"""Unbiasedness by enumerating every way to draw the batches from a tiny data set; no sampling anywhere."""

from collections.abc import Callable
from itertools import combinations, permutations, product

import numpy as np
import pytest

from svag.arrays import FloatArray
from svag.theory.estimators import NoiseEstimate, disjoint_parts, u_statistic, weighted_parts

POPULATION = 6
EXAMPLES: FloatArray = np.random.default_rng(7).normal(size=(POPULATION, 3)) + np.array([1.0, -0.5, 0.25])
G = float(np.sum(EXAMPLES.mean(axis=0) ** 2))


def sums(gradients: FloatArray) -> tuple[float, float, int]:
    return float(np.sum(gradients**2)), float(np.sum(gradients.sum(axis=0) ** 2)), len(gradients)


def trace(batches: list[FloatArray]) -> float:
    """Trace of the covariance of a gradient that is equally likely to be any of `batches`: the definition of N."""
    table = np.stack(batches)
    return float(np.sum((table - table.mean(axis=0)) ** 2) / len(table))


def with_replacement(size: int) -> list[FloatArray]:
    return [EXAMPLES[list(draw)].mean(axis=0) for draw in product(range(POPULATION), repeat=size)]


def without_replacement(size: int) -> list[FloatArray]:
    return [EXAMPLES[list(draw)].mean(axis=0) for draw in combinations(range(POPULATION), size)]


def mean(estimates: list[NoiseEstimate]) -> tuple[float, float]:
    return (
        float(np.mean([estimate.grad_sq for estimate in estimates])),
        float(np.mean([estimate.noise_trace for estimate in estimates])),
    )


@pytest.mark.parametrize("draw", [with_replacement, without_replacement])
@pytest.mark.parametrize(("n", "size"), [(2, 2), (3, 1)])
def test_u_statistic_of_independent_batches_is_unbiased(
    draw: Callable[[int], list[FloatArray]], n: int, size: int
) -> None:
    batches = draw(size)
    estimates = [u_statistic(*sums(np.stack(chosen))) for chosen in product(batches, repeat=n)]
    assert mean(estimates) == pytest.approx((G, trace(batches)), rel=1e-12)


def test_a_pair_is_the_inner_product_and_half_the_squared_distance() -> None:
    first, second = EXAMPLES[0], EXAMPLES[1]
    estimate = u_statistic(*sums(np.stack([first, second])))
    assert estimate.grad_sq == pytest.approx(float(first @ second), rel=1e-12)
    assert estimate.noise_trace == pytest.approx(float(np.sum((first - second) ** 2)) / 2, rel=1e-12)


@pytest.mark.parametrize(("parts", "part_size"), [(2, 1), (2, 2), (3, 1), (4, 1)])
def test_parts_of_one_batch_drawn_without_replacement(parts: int, part_size: int) -> None:
    batch_size = parts * part_size
    estimates = []
    for order in permutations(range(POPULATION), batch_size):
        gradients = EXAMPLES[list(order)].reshape(parts, part_size, 3).mean(axis=1)
        estimates.append(
            disjoint_parts(*sums(gradients), part_size=part_size, batch_size=batch_size, population=POPULATION)
        )
    assert mean(estimates) == pytest.approx((G, trace(without_replacement(batch_size))), rel=1e-12)


@pytest.mark.parametrize(("parts", "part_size"), [(2, 1), (2, 2), (3, 1), (4, 1)])
def test_parts_of_one_batch_drawn_with_replacement(parts: int, part_size: int) -> None:
    batch_size = parts * part_size
    estimates = []
    for order in product(range(POPULATION), repeat=batch_size):
        gradients = EXAMPLES[list(order)].reshape(parts, part_size, 3).mean(axis=1)
        estimates.append(disjoint_parts(*sums(gradients), part_size=part_size, batch_size=batch_size))
    assert mean(estimates) == pytest.approx((G, trace(with_replacement(batch_size))), rel=1e-12)


@pytest.mark.parametrize(("batches", "batch_size"), [(2, 2), (3, 2), (2, 3)])
def test_batches_of_one_shuffled_epoch(batches: int, batch_size: int) -> None:
    estimates, uncorrected = [], []
    for order in permutations(range(POPULATION), batches * batch_size):
        gradients = EXAMPLES[list(order)].reshape(batches, batch_size, 3).mean(axis=1)
        estimates.append(
            disjoint_parts(*sums(gradients), part_size=batch_size, batch_size=batch_size, population=POPULATION)
        )
        uncorrected.append(u_statistic(*sums(gradients)))
    truth = G, trace(without_replacement(batch_size))
    assert mean(estimates) == pytest.approx(truth, rel=1e-12)
    # negative control: without the correction both are off by the finite population
    assert mean(uncorrected)[0] == pytest.approx(G - batch_size / POPULATION * mean(uncorrected)[1], rel=1e-12)
    assert mean(uncorrected)[1] == pytest.approx(truth[1] / (1 - batch_size / POPULATION), rel=1e-12)


def weighted_sums(gradients: FloatArray, weights: FloatArray) -> tuple[float, float, float]:
    counted = weights[:, None] * gradients
    return float(np.sum(counted**2)), float(np.sum(counted.sum(axis=0) ** 2)), float(np.sum(weights**2))


def of_sizes(sizes: tuple[int, ...], order: tuple[int, ...]) -> FloatArray:
    """Mean gradients of consecutive parts of these sizes."""
    ends = np.cumsum(sizes)
    return np.stack(
        [EXAMPLES[list(order[end - size : end])].mean(axis=0) for size, end in zip(sizes, ends, strict=True)]
    )


@pytest.mark.parametrize("sizes", [(1, 2), (1, 3), (1, 1, 2), (2, 2)])
def test_unequal_parts_of_one_batch(sizes: tuple[int, ...]) -> None:
    size, weights = sum(sizes), np.array(sizes) / sum(sizes)
    independent = [
        weighted_parts(*weighted_sums(of_sizes(sizes, order), weights))
        for order in product(range(POPULATION), repeat=size)
    ]
    assert mean(independent) == pytest.approx((G, trace(with_replacement(size))), rel=1e-12)
    disjoint = [
        weighted_parts(*weighted_sums(of_sizes(sizes, order), weights), batch_size=size, population=POPULATION)
        for order in permutations(range(POPULATION), size)
    ]
    assert mean(disjoint) == pytest.approx((G, trace(without_replacement(size))), rel=1e-12)


def test_weights_need_not_be_the_sizes_of_the_parts() -> None:
    sizes, weights = (1, 3), np.array([0.6, 0.4])
    gradients = [of_sizes(sizes, order) for order in product(range(POPULATION), repeat=4)]
    estimates = [weighted_parts(*weighted_sums(one, weights)) for one in gradients]
    steps = [weights @ one for one in gradients]
    assert mean(estimates) == pytest.approx((G, trace(steps)), rel=1e-12)


def test_equal_weights_are_the_u_statistic() -> None:
    gradients = EXAMPLES[:4]
    equal = disjoint_parts(*sums(gradients), part_size=2, batch_size=8, population=20)
    found = weighted_parts(*weighted_sums(gradients, np.full(4, 0.25)), batch_size=8, population=20)
    assert (found.grad_sq, found.noise_trace) == pytest.approx((equal.grad_sq, equal.noise_trace), rel=1e-12)


def test_the_formula_for_equal_parts_misreads_parts_of_3_20_9_and_40_tokens() -> None:
    tokens = np.array([3, 20, 9, 40])
    weights_sq = float(np.sum((tokens / tokens.sum()) ** 2))
    signal, noise = 12.45, 4.56
    # expectations of |Σc|² and Σ|c|² for parts that share one mean, whatever their variances
    sq_sum, sum_sq = signal + noise, weights_sq * signal + noise
    found = weighted_parts(sum_sq, sq_sum, weights_sq)
    assert (found.grad_sq, found.noise_trace) == pytest.approx((signal, noise), rel=1e-12)
    # negative control: every c_i taken for a quarter of the step
    wrong = disjoint_parts(16 * sum_sq, 16 * sq_sum, 4, part_size=18, batch_size=72)
    assert (wrong.grad_sq, wrong.noise_trace) == pytest.approx((9.91, 7.11), abs=0.01)


def test_noise_of_unequal_parts_may_be_negative() -> None:
    assert weighted_parts(sum_sq=2.0, sq_sum=4.0, weights_sq=0.82).noise_trace < 0


def test_equal_gradients_have_no_noise_not_a_negative_one() -> None:
    third = 1 / 3
    assert u_statistic(3 * third**2, (3 * third) ** 2 * (1 + 1e-15), 3).noise_trace == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: u_statistic(1.0, 1.0, 1), r"^n\b.*got 1"),
        (lambda: u_statistic(float("nan"), 1.0, 2), r"^sum_sq\b"),
        (lambda: disjoint_parts(1.0, 1.0, 2, part_size=4, batch_size=8, population=8), r"^population\b"),
        (
            lambda: disjoint_parts(1.0, 1.0, 3, part_size=4, batch_size=4, population=10),
            r"^3 parts of 4 .*\b10\b.*population",
        ),
        (lambda: weighted_parts(1.0, 1.0, 1.0), "must add up to a number between 0 and 1, got 1"),
        (lambda: weighted_parts(1.0, 1.0, 0.5, population=9), r"^population\b.*batch_size"),
        (lambda: weighted_parts(1.0, 1.0, 0.5, batch_size=9, population=9), r"^population\b"),
        (lambda: disjoint_parts(1.0, 1.0, 2, part_size=0, batch_size=4), r"^part_size\b"),
    ],
)
def test_refusals(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=message):
        call()
