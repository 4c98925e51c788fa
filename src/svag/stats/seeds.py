"""How many samples would decide? The chance of an answer, and the smallest sample that has a good one."""

import numpy as np
from scipy import special

from svag.arrays import FloatArray

# Midpoints of 32 equal slices of probability: averaging over them is averaging over the spread that will be measured.
_SLICES = (np.arange(32) + 0.5) / 32
_NORMAL = special.ndtri(_SLICES)


def chance_to_decide(
    gap: float, errors: FloatArray, freedoms: FloatArray, margin: float, alpha: float = 0.05
) -> tuple[FloatArray, FloatArray]:
    """Probabilities of "equivalent" and of "different" if the true gap is `gap`.

    `errors` are true standard errors and `freedoms` the degrees of freedom with which each will be estimated.

    >>> n = np.array([5, 6])  # against as many, with a spread of half the margin; 6.7 and 8.6 are Welch's freedoms
    >>> equivalent, _ = chance_to_decide(0.0, 0.5 * np.sqrt(2 / n), np.array([6.7, 8.6]), margin=1.0)
    >>> np.round(equivalent, 2)
    array([0.76, 0.88])

    An approximation (a chi-squared spread, cut in 32 slices), good to .01 from 5 samples per group on; .34 instead of
    .31 for 3.
    """
    nu = freedoms[:, None]
    measured = errors[:, None] * np.maximum(1 - 2 / (9 * nu) + _NORMAL * np.sqrt(2 / (9 * nu)), 0.0) ** 1.5
    inner = np.maximum(margin - special.stdtrit(nu, 1 - alpha) * measured, 0.0)  # |estimate| below it: equivalent
    outer = np.maximum(special.stdtrit(nu, 1 - alpha / 2) * measured, inner)  # above it: different

    def within(bound: FloatArray) -> FloatArray:
        inside = special.ndtr((bound - gap) / errors[:, None]) - special.ndtr((-bound - gap) / errors[:, None])
        return np.asarray(inside.mean(axis=1))

    return within(inner), 1 - within(outer)


def samples_to_decide(
    gap: float,
    error: float,
    freedom: float,
    samples: int,
    margin: float,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
    at_most: int = 200,
) -> int | None:
    """Smallest number of samples per group above `samples` that answers with probability `power`; None if too many.

    The guess is that the truth is what `samples` samples per group have shown: the gap `gap`, with standard error
    `error` at `freedom` degrees of freedom, which shrinks like 1/√samples. Beyond `at_most` the answer is None.

    >>> samples_to_decide(0.1, 0.3, freedom=8.0, samples=5, margin=0.5)
    16
    """
    n = np.arange(samples + 1, max(at_most, samples + 1) + 1)
    errors, freedoms = error * np.sqrt(samples / n), freedom * (n - 1) / (samples - 1)
    equivalent, different = chance_to_decide(gap, errors, freedoms, margin, alpha)
    good = np.flatnonzero(equivalent + different >= power)
    return int(n[good[0]]) if good.size else None
