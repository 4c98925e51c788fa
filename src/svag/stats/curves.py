"""Do two groups of curves differ anywhere? Permutation of the labels, with the largest t over time."""

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from svag.arrays import FloatArray

_CHUNK = 1000  # number of relabellings evaluated together, which bounds the memory


@dataclass(frozen=True)
class CurveTest:
    """Result of the max-t permutation test.

    Attributes:
        p_value: share of the relabellings whose largest |t| is at least the one seen; the seen one is among them.
        smallest_p: the smallest p value that these numbers of curves can reach: 0.1 for 3 against 3.
        max_t: the largest |t| over time.
        index: the time at which it is reached.
        relabellings: how many were evaluated.
        exact: whether these were all possible ones.
    """

    p_value: float
    smallest_p: float
    max_t: float
    index: int
    relabellings: int
    exact: bool


def compare_curves(
    one: ArrayLike, other: ArrayLike, *, draws: int = 10_000, generator: np.random.Generator | None = None
) -> CurveTest:
    """Test that two groups of curves (curves × times, at the same times) are exchangeable, at all times at once.

    Because the largest |t| over time is compared with its own permutation distribution, the answer needs no correction
    for the number of times and holds for curves however correlated in time.

    >>> rng = np.random.default_rng(0)
    >>> noise = rng.normal(size=(2, 5, 50))
    >>> compare_curves(noise[0] + np.linspace(0, 6, 50), noise[1]).p_value  # 2 of C(10, 5) = 252
    0.007936507936507936

    Args:
        one: first group, one row per curve.
        other: second group, at the same times.
        draws: enumerate all relabellings if there are at most this many; otherwise draw this many.
        generator: for drawing; by default one with a fixed seed.
    """
    first, second = _groups(one, other)
    n, total = len(first), len(first) + len(second)
    everything = np.concatenate([first, second])
    everything = everything - everything.mean(axis=0)
    seen = _explained(np.repeat([1.0, 0.0], [n, total - n]), everything)
    labels, exact = _relabellings(n, total, draws, generator)
    largest = _largest(labels, everything)
    r2 = min(float(seen.max()), 1.0)
    hits = int(np.count_nonzero(largest >= r2 * (1 - 1e-10)))
    p_value = hits / len(labels) if exact else (hits + 1) / (len(labels) + 1)
    return CurveTest(
        p_value=p_value,
        smallest_p=max(smallest_p(n, total - n), 0.0 if exact else 1 / (len(labels) + 1)),
        max_t=_t(r2, total),
        index=int(seen.argmax()),
        relabellings=len(labels),
        exact=exact,
    )


@dataclass(frozen=True, eq=False)
class CurveBand:
    """The gap between the means of two groups of curves, with limits that hold at all times at once.

    Attributes:
        gap: first minus second, at each time.
        low: lower limits; minus infinity where so few curves allow none.
        high: upper limits.
        confidence: that the true gaps lie within the limits at every time.
    """

    gap: FloatArray
    low: FloatArray
    high: FloatArray
    confidence: float


def gap_band(
    one: ArrayLike,
    other: ArrayLike,
    *,
    confidence: float = 0.95,
    draws: int = 10_000,
    generator: np.random.Generator | None = None,
) -> CurveBand:
    r"""Simultaneous limits for the gap between two groups of curves (curves × times, at the same times).

    $$\bar x_s - \bar y_s \pm q\, S_s \sqrt{1/n + 1/m}$$

    where S_s is the pooled standard deviation at time s, and q is the quantile of the largest |t| over time when the
    labels of the residuals (each curve minus the mean of its group) are permuted. The observed labelling has |t| = 0 by
    construction and counts as infinite: 3 against 3 have no limits at 95%, just as their p value cannot be below 0.1.
    The two groups may differ by any curve, but not in their spread; q is approximate rather than exact, since the
    residuals depend on the two means.

    >>> rng = np.random.default_rng(0)
    >>> noise = rng.normal(size=(2, 5, 50))
    >>> band = gap_band(noise[0] + 9.0, noise[1])
    >>> bool(np.all((band.low < 9.0) & (9.0 < band.high)))
    True

    Args:
        one: first group, one row per curve.
        other: second group, at the same times.
        confidence: of all limits together.
        draws: as for `compare_curves`.
        generator: as for `compare_curves`.
    """
    first, second = _groups(one, other)
    n, total = len(first), len(first) + len(second)
    residuals = np.concatenate([first - first.mean(axis=0), second - second.mean(axis=0)])
    labels, exact = _relabellings(n, total, draws, generator)
    largest = _largest(labels, residuals)
    seen = np.repeat([1.0, 0.0], [n, total - n])
    largest[(labels == seen).all(axis=1) | (labels == 1 - seen).all(axis=1)] = math.inf
    ordered = np.sort(largest if exact else np.append(largest, math.inf))
    quantile = _t(float(ordered[math.ceil(confidence * len(ordered) - 1e-9) - 1]), total)
    gap = first.mean(axis=0) - second.mean(axis=0)
    pooled = np.square(residuals).sum(axis=0) / (total - 2)
    error = np.sqrt(pooled * (1 / n + 1 / (total - n)))
    reach = quantile * error if math.isfinite(quantile) else np.full_like(gap, math.inf)
    return CurveBand(gap, gap - reach, gap + reach, confidence)


def running_means(curves: ArrayLike, width: int) -> FloatArray:
    """Means of `width` times in a row of each curve (curves × times), or of all of them if there are fewer.

    >>> running_means([[1.0, 3.0, 5.0]], 2).tolist()
    [[2.0, 4.0]]
    """
    rows = _curves("curves", curves)
    windows = np.lib.stride_tricks.sliding_window_view(rows, min(width, rows.shape[1]), axis=1)
    return np.asarray(windows.mean(axis=2))


def _groups(one: ArrayLike, other: ArrayLike) -> tuple[FloatArray, FloatArray]:
    first, second = _curves("one", one), _curves("other", other)
    if first.shape[1] != second.shape[1]:
        raise ValueError(f"curves must be read at the same times, got {first.shape[1]} and {second.shape[1]} of them")
    if len(first) + len(second) < 3:
        raise ValueError(
            f"one curve against one cannot be compared: run more seeds (got {len(first)} and {len(second)})"
        )
    return first, second


def _explained(labels: FloatArray, centred: FloatArray) -> FloatArray:
    """The share r² of the variance that labels explain: |t| grows with it, but unlike t it is always defined."""
    total, n = len(centred), labels.sum(axis=-1, keepdims=True)
    spread = np.square(centred).sum(axis=0)
    inverse = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
    return np.asarray(np.square(labels @ centred) * total / (n * (total - n)) * inverse)


def _largest(labels: FloatArray, centred: FloatArray) -> FloatArray:
    """The largest share over time, for each labelling."""
    parts = np.array_split(labels, -(-len(labels) // _CHUNK))
    return np.concatenate([_explained(part, centred).max(axis=1) for part in parts])


def _t(r2: float, total: int) -> float:
    return math.sqrt(r2 * (total - 2) / (1 - r2)) if r2 < 1 - 1e-12 else math.inf


def smallest_p(n_one: int, n_other: int) -> float:
    """Smallest p value that a two-sided permutation test can reach.

    >>> smallest_p(3, 3), round(smallest_p(5, 5), 4)
    (0.1, 0.0079)
    """
    return (2 if n_one == n_other else 1) / math.comb(n_one + n_other, n_one)


def _curves(name: str, values: ArrayLike) -> FloatArray:
    curves = np.asarray(values, dtype=np.float64)
    if curves.ndim != 2 or curves.size == 0:
        raise ValueError(f"{name} must be a table of curves × times, got shape {curves.shape}")
    if not np.all(np.isfinite(curves)):
        row = int(np.argwhere(~np.isfinite(curves))[0, 0])
        raise ValueError(
            f"curve {row} of {name} is not finite: give the times before the first divergence, "
            "and compare how often the two groups diverge with compare_rates"
        )
    return curves


def _relabellings(n: int, total: int, draws: int, generator: np.random.Generator | None) -> tuple[FloatArray, bool]:
    """Rows of 0 and 1 that say which curves carry the first label; and whether these are all such rows."""
    exact = math.comb(total, n) <= draws
    if exact:
        chosen = np.array(list(combinations(range(total), n)))
    else:
        rng = np.random.default_rng(0) if generator is None else generator
        chosen = rng.random((draws, total)).argsort(axis=1)[:, :n]
    labels = np.zeros((len(chosen), total))
    np.put_along_axis(labels, chosen, 1.0, axis=1)
    return labels, exact
