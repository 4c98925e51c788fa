"""Deciding from few samples: equivalent, different or inconclusive.

`three_way` turns one estimated gap into an answer. `holm` corrects for asking several questions at once,
`compare_rates` asks whether two groups of runs fail equally often, and `samples_to_decide` says how many samples would
probably turn "inconclusive" into an answer.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from scipy import special, stats

from svag.arrays import FloatArray
from svag.stats.means import Contrast
from svag.stats.samples import finite_row, positive, probability

Decision: TypeAlias = Literal["equivalent", "different", "inconclusive"]


def three_way(gap: Contrast, margin: float, alpha: float = 0.05) -> Decision:
    """Decide whether a gap does not matter, exists, or is undecided.

    "equivalent": TOST rejects, at level `alpha`, that the gap is `margin` or more. "different": otherwise, and the
    two-sided interval of level 1 − alpha leaves out 0. A gap that is real but significantly smaller than the margin is
    therefore "equivalent", as the margin is meant.

    >>> three_way(Contrast(0.1, 0.02, 10), margin=0.5), three_way(Contrast(0.9, 0.2, 10), margin=0.5)
    ('equivalent', 'different')
    >>> three_way(Contrast(0.1, 0.4, 10), margin=0.5)
    'inconclusive'

    P(equivalent) ≤ alpha when the gap is at least the margin; P(different) ≤ alpha when there is none.
    """
    positive("margin", margin)
    probability("alpha", alpha)
    if gap.p_equivalent(margin) < alpha:
        return "equivalent"
    return "different" if gap.p_different() < alpha else "inconclusive"


def holm(p_values: Sequence[float]) -> list[float]:
    """P values adjusted so that rejecting those below α makes any false rejection with probability at most α.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = finite_row("p_values", p_values)
    if np.any((p < 0) | (p > 1)):
        raise ValueError(f"p values must lie in [0, 1], got {p.tolist()}")
    order = np.argsort(p)
    adjusted = np.minimum(np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1)), 1.0)
    result = np.empty_like(p)
    result[order] = adjusted
    return [float(value) for value in result]


def compare_rates(failed_one: int, of_one: int, failed_other: int, of_other: int) -> float:
    """Two-sided p value of Fisher's exact test of `failed_one` failures in `of_one` runs against another group.

    >>> round(compare_rates(3, 3, 0, 3), 12)  # three against three can never reach 5%
    0.1
    """
    for failed, of in ((failed_one, of_one), (failed_other, of_other)):
        if not 0 <= failed <= of or of < 1:
            raise ValueError(f"failures must be counted among at least one run, got {failed} of {of}")
    table = np.array([[failed_one, of_one - failed_one], [failed_other, of_other - failed_other]])
    return float(stats.fisher_exact(table).pvalue)


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


# What `samples_to_decide` aims at, and where it gives up.
_POWER, _MOST_SAMPLES = 0.8, 200


def samples_to_decide(
    gap: float,
    error: float,
    freedom: float,
    samples: int,
    margin: float,
) -> int | None:
    """Smallest number of samples per group above `samples` that answers with probability .8; None if above 200.

    The guess is that the truth is what `samples` samples per group have shown: the gap `gap`, with standard error
    `error` at `freedom` degrees of freedom, which shrinks like 1/√samples.

    >>> samples_to_decide(0.1, 0.3, freedom=8.0, samples=5, margin=0.5)
    16
    """
    n = np.arange(samples + 1, max(_MOST_SAMPLES, samples + 1) + 1)
    errors, freedoms = error * np.sqrt(samples / n), freedom * (n - 1) / (samples - 1)
    equivalent, different = chance_to_decide(gap, errors, freedoms, margin)
    good = np.flatnonzero(equivalent + different >= _POWER)
    return int(n[good[0]]) if good.size else None
