"""The tail-index estimator: right on i.i.d. stable values, wrong on correlated Gaussians (thm:test)."""

from collections.abc import Iterator

import numpy as np
from scipy.stats import levy_stable

from svag.arrays import FloatArray
from svag.findings.verify.check import Z_LIMIT, Check, claims, z_score
from svag.theory.tail_index import (
    expected_inverse_tail_index,
    inverse_tail_index,
    inverse_tail_index_per_coordinate,
)

BLOCK = 10
REPEATS = 400  # enough that a z-score is normal far out


def stable_values(rng: np.random.Generator) -> Iterator[Check]:
    """thm:test: the estimator converges to 1/α on i.i.d. symmetric α-stable values."""
    claim, control = claims("thm:test")
    for alpha in (1.0, 1.5, 2.0):
        estimates = np.array([inverse_tail_index(_stable(rng, alpha, 1000), BLOCK) for _ in range(REPEATS)])
        yield claim.at_most(
            f"1/α for α = {alpha:g}, 400 × 1,000 values (|z|)", abs(z_score(estimates - 1 / alpha)), Z_LIMIT
        )
    centred = _stable(rng, 2.0, 1000 * REPEATS).reshape(REPEATS, 1000)
    lagged = centred[:, 1:] + centred[:, :-1]  # neighbours share a value: no longer independent
    estimates = np.array([inverse_tail_index(row[:990], BLOCK) for row in lagged])
    yield control.at_least(
        "values that depend on their neighbours: 1/α is not ½ (|z|)", abs(z_score(estimates - 0.5)), 10 * Z_LIMIT
    )


def gaussian_values(rng: np.random.Generator) -> Iterator[Check]:
    """thm:test_on_gaussian: what the estimator reads on N(0, Σ), and that one coordinate at a time reads ½."""
    claim, control = claims("thm:test_on_gaussian")
    dimension = 20
    ends = [expected_inverse_tail_index(_equicorrelated(dimension, beta)) for beta in (0.0, 1.0)]
    yield claim.near("equal correlations, β = 0: expected 1/α", ends[0], 0.5, 1e-12)
    yield claim.near("equal correlations, β = 1: expected 1/α", ends[1], 1.0, 1e-12)
    covariance = _equicorrelated(dimension, 0.3)
    draws = rng.multivariate_normal(np.zeros(dimension), covariance, size=(REPEATS, 200))
    naive = np.array([inverse_tail_index(one.ravel(), dimension) for one in draws])
    expected = expected_inverse_tail_index(covariance)
    yield claim.at_most(
        "end-to-end reading on N(0, Σ) against its expectation (|z|)", abs(z_score(naive - expected)), Z_LIMIT
    )
    yield control.at_least("and it is far from ½, though α = 2 (|z|)", abs(z_score(naive - 0.5)), 10 * Z_LIMIT)
    single = np.array([inverse_tail_index_per_coordinate(one, dimension).mean() for one in draws])
    yield claim.at_most("coordinate by coordinate it reads ½ (|z|)", abs(z_score(single - 0.5)), Z_LIMIT)


def _stable(rng: np.random.Generator, alpha: float, size: int) -> FloatArray:
    return np.asarray(levy_stable.rvs(alpha, 0.0, size=size, random_state=rng), dtype=np.float64)


def _equicorrelated(dimension: int, beta: float) -> FloatArray:
    return beta * np.ones((dimension, dimension)) + (1 - beta) * np.eye(dimension)
