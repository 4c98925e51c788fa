"""How well a ladder locates the batch size at which it fails: a bootstrap over seeds, inverted as a test."""

import math
from collections.abc import Sequence

import numpy as np

from svag.arrays import FloatArray
from svag.findings.arms import Arm
from svag.stats.resample import mean_deviations

_STEPS = 4  # points per pair of rungs at which the excess is tested; the limits are interpolated between them


def crossing_interval(
    arms: Sequence[Arm], tolerance: float, confidence: float, resamples: int, generator: np.random.Generator
) -> tuple[float, float]:
    r"""Confidence limits for the batch size at which the mean error leaves the tolerance; 0 and ∞ if nothing bounds it.

    $$h(B) = e_B - (1 + \tau)\min_b e_b$$

    is negative where the ladder passes. The lower limit is where h stops being significantly negative, the upper one
    where it first is significantly positive, each at half the error. The lowest of several noisy means is too low, and
    quantiles of resampled crossings repeat this bias (coverage down to .84, measured): here every rung that may be the
    best one is allowed to be.

    A rung with diverged seeds never passes, and surely fails if hardly a resample of its seeds would be without one.
    """
    if any(arm.seeds < 2 for arm in arms) or not any(arm.has_spread for arm in arms):
        return 0.0, math.inf
    half = (1 - confidence) / 2
    means = np.array([math.inf if arm.diverged else float(arm.finite.mean()) for arm in arms])
    whole = np.isfinite(means)
    rungs, weights = _points(whole)
    known = weights.any(axis=1)
    # Where a rung has diverged seeds: it never passes (∞), and fails if that is sure (∞) or not (−∞).
    sure = np.array([(arm.finite.size / arm.seeds) ** arm.seeds < half for arm in arms])
    not_passing = np.full(len(rungs), math.inf)
    failing = np.where(sure[rungs.astype(int)], math.inf, -math.inf)
    if whole.any():
        best = int(means.argmin())
        drawn = np.zeros((resamples, len(arms)))
        for column, arm in enumerate(arms):
            if whole[column]:  # every number is compared with that of the best rung: two spreads are estimated
                freedom = arm.seeds + arms[best].seeds - 2
                drawn[:, column] = mean_deviations(arm.finite, resamples, confidence, freedom, generator)
        distances = np.quantile(np.abs(drawn - drawn[:, [best]]), confidence, axis=0)
        rivals = np.flatnonzero(whole & (means - means[best] <= distances))
        points = weights[known]
        at, bars = points @ np.where(whole, means, 0.0), (1 + tolerance) * means[rivals]
        moved, moved_bars = drawn @ points.T, (1 + tolerance) * drawn[:, rivals]
        # Passing: below the bar that each rival sets (intersection–union). Failing: above one of them (the largest).
        slack = np.quantile(moved_bars[:, :, None] - moved[:, None, :], 1 - half, axis=0)
        not_passing[known] = (at - bars[:, None] + slack).max(axis=0)
        failing[known] = at - bars.min() - np.quantile(moved - moved_bars.min(axis=1, keepdims=True), 1 - half, axis=0)
    sizes = _sizes(arms, rungs)
    return _last_pass(sizes, not_passing), _first_fail(sizes, failing)


def _points(whole: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> tuple[FloatArray, FloatArray]:
    """Positions on the ladder (rung 0, 1, …) and the weights of the rungs at each; none at a rung that diverged."""
    last = len(whole) - 1
    rows = []
    for rung, usable in enumerate(whole):
        steps = _STEPS if usable and rung < last and whole[rung + 1] else 1
        rows += [rung + step / _STEPS for step in range(steps)]
    at = np.array(rows)
    weights = np.maximum(1 - np.abs(at[:, None] - np.arange(last + 1)), 0.0)
    return at, weights * whole


def _sizes(arms: Sequence[Arm], rungs: FloatArray) -> FloatArray:
    """Batch sizes at positions on the ladder, on the logarithmic scale; exact at the rungs themselves."""
    keys = np.array([arm.key for arm in arms], dtype=np.float64)
    below = rungs.astype(int)
    above = np.minimum(below + 1, len(arms) - 1)
    return np.asarray(keys[below] * (keys[above] / keys[below]) ** (rungs - below))


def _last_pass(sizes: FloatArray, not_passing: FloatArray) -> float:
    stop = np.flatnonzero(not_passing >= 0)
    if stop.size == 0:
        return float(sizes[-1])
    return 0.0 if stop[0] == 0 else _zero(sizes, not_passing, int(stop[0]), otherwise=float(sizes[stop[0] - 1]))


def _first_fail(sizes: FloatArray, failing: FloatArray) -> float:
    stop = np.flatnonzero(failing > 0)
    if stop.size == 0:
        return math.inf
    return float(sizes[0]) if stop[0] == 0 else _zero(sizes, failing, int(stop[0]), otherwise=float(sizes[stop[0]]))


def _zero(sizes: FloatArray, values: FloatArray, stop: int, otherwise: float) -> float:
    """Where `values` change sign before `stop`, on the logarithmic scale; `otherwise` next to a diverged rung."""
    (v0, v1), (b0, b1) = values[stop - 1 : stop + 1].tolist(), sizes[stop - 1 : stop + 1].tolist()
    return float(b0 * (b1 / b0) ** (v0 / (v0 - v1))) if math.isfinite(v0) and math.isfinite(v1) else otherwise
