"""The tail-index estimator of Mohammadi et al. and what it reads on Gaussians (thm:test, thm:test_on_gaussian)."""

import math

import numpy as np

from svag.arrays import FloatArray
from svag.theory import domain


def inverse_tail_index(values: FloatArray, block: int) -> float:
    r"""Estimate 1/α from i.i.d. symmetric α-stable values (thm:test).

    $$\widehat{1/\alpha} = \frac{1}{\log K_1}\Bigl(\overline{\log|Y|} - \overline{\log|X|}\Bigr)$$

    where K₁ is the argument `block`, X are the `values` and Y the sums of consecutive blocks of K₁ of them. On values
    that are correlated or of unequal scale it reads something else: see `expected_inverse_tail_index`.

    >>> inverse_tail_index(np.array([1.0, 1.0, 1.0, 1.0]), block=2)  # fully dependent values look like α = 1
    1.0
    """
    domain.whole("block", block, at_least=2)
    if values.ndim != 1 or values.size == 0 or values.size % block:
        raise ValueError(f"values must be one row of a multiple of block={block} numbers, got shape {values.shape}")
    if not np.all(np.isfinite(values)):
        raise ValueError("values must be finite numbers")
    if np.any(values == 0):
        raise ValueError(
            "values must not contain 0: its logarithm is infinite; leave out parameters that get no gradient"
        )
    blocks = values.reshape(-1, block)
    sums = np.abs(blocks.sum(axis=1))
    if np.any(sums == 0) or np.median(sums / np.abs(blocks).sum(axis=1)) < 1e-12:
        raise ValueError("blocks must not sum to 0: subtract the mean of all values if you must, never that of a block")
    return float((np.log(sums).mean() - np.log(np.abs(values)).mean()) / math.log(block))


def inverse_tail_index_per_coordinate(samples: FloatArray, block: int) -> FloatArray:
    """Estimate 1/α of each column of `samples` (draws × coordinates) on its own.

    Along one coordinate the draws are i.i.d., as thm:test asks; on Gaussian gradients of any covariance it reads ½.
    """
    if samples.ndim != 2:
        raise ValueError(f"samples must be a table of draws × coordinates, got shape {samples.shape}")
    return np.array([inverse_tail_index(column, block) for column in samples.T])


def expected_inverse_tail_index(covariance: FloatArray, repeats: int = 1) -> float:
    r"""Expectation of the estimator over blocks of `repeats` draws of N(0, Σ) laid end to end (thm:test_on_gaussian).

    $$\frac12\,\frac{\log m + \log 1^\top\Sigma1 - \frac1d\sum_i\log\Sigma_{ii}}{\log m + \log d}$$

    where Σ is the argument `covariance`, d its size and m is `repeats`. It is ½ for independent coordinates of one
    scale, and can be anything for others, although α = 2 for all of them.

    >>> expected_inverse_tail_index(np.eye(4)), expected_inverse_tail_index(np.ones((4, 4)))
    (0.5, 1.0)
    """
    if covariance.ndim != 2 or covariance.shape[0] != covariance.shape[1]:
        raise ValueError(f"covariance must be a square matrix, got shape {covariance.shape}")
    return inverse_tail_index_of_gaussians(np.diag(covariance), float(covariance.sum()), repeats)


def inverse_tail_index_of_gaussians(variances: FloatArray, total: float, repeats: int = 1) -> float:
    """Return `expected_inverse_tail_index` from all that it takes: the variances Σ_ii, and 1ᵀΣ1, that of the sum.

    A large network has no room for its whole covariance.

    >>> inverse_tail_index_of_gaussians(np.ones(4), 16.0)
    1.0
    """
    d, m = variances.size, domain.whole("repeats", repeats)
    if d * m < 2:
        raise ValueError("a block must hold at least two values: give more repeats or coordinates")
    if np.any(variances <= 0) or not total > 0:
        raise ValueError("every coordinate, and their sum, must have a positive variance")
    numerator = math.log(m) + math.log(total) - float(np.log(variances).mean())
    return 0.5 * numerator / (math.log(m) + math.log(d))
