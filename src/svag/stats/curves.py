"""Do two groups of curves differ anywhere? Permutation of the labels, with the largest t over time."""

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from svag.arrays import FloatArray

_CHUNK = 1000


@dataclass(frozen=True)
class CurveTest:
    """Result of the max-t permutation test.

    Attributes:
        p_value: share of the relabellings whose largest |t| is at least the one seen; the seen one is among them.
        smallest_p: the smallest p value that these numbers of curves can reach: 0.1 for 3 against 3.
        max_t: the largest |t| over time.
        index: the time at which it is reached.
        relabellings: how many were looked at.
        exact: whether these were all there are.
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
        draws: all relabellings are enumerated if there are at most so many; otherwise so many are drawn.
        generator: for drawing; by default one with a fixed seed.
    """
    first, second = _curves("one", one), _curves("other", other)
    if first.shape[1] != second.shape[1]:
        raise ValueError(f"curves must be read at the same times, got {first.shape[1]} and {second.shape[1]} of them")
    n, total = len(first), len(first) + len(second)
    if total < 3:
        raise ValueError(f"one curve against one cannot be compared: run more seeds (got {n} and {len(second)})")
    everything = np.concatenate([first, second])
    everything = everything - everything.mean(axis=0)
    spread = np.square(everything).sum(axis=0)
    # r² = share of the spread that the labels explain; |t| grows with it, and it is defined where t is 0/0 or infinite
    scale = np.divide(total / (n * (total - n)), spread, out=np.zeros_like(spread), where=spread > 0)
    seen = np.square(everything[:n].sum(axis=0)) * scale
    labels, exact = _relabellings(n, total, draws, generator)
    largest = np.concatenate(
        [
            (np.square(part @ everything) * scale).max(axis=1)
            for part in np.array_split(labels, -(-len(labels) // _CHUNK))
        ]
    )
    r2 = min(float(seen.max()), 1.0)
    hits = int(np.count_nonzero(largest >= r2 * (1 - 1e-10)))
    p_value = hits / len(labels) if exact else (hits + 1) / (len(labels) + 1)
    return CurveTest(
        p_value=p_value,
        smallest_p=max(smallest_p(n, total - n), 0.0 if exact else 1 / (len(labels) + 1)),
        max_t=math.sqrt(r2 * (total - 2) / (1 - r2)) if r2 < 1 - 1e-12 else math.inf,
        index=int(seen.argmax()),
        relabellings=len(labels),
        exact=exact,
    )


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
