"""Where did linear scaling fail? The verdict from the final test errors of a ladder of batch sizes (fig:lsr_acc_gnr).

`scaling_verdict` returns a `ScalingVerdict`: the batch size at which the mean error exceeds the best one by more than a
tolerance (`crossing`), with limits from a bootstrap over seeds that is inverted as a test (`crossing_interval`). If the
error first improves with the batch, that is a separate answer.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from svag.arrays import FloatArray
from svag.as_json import json_fields
from svag.printed import Printed
from svag.stats.means import mean_deviations
from svag.theory import domain
from svag.verdicts.arms import Arm, ArmSummary, describe, read_arms

_CONFIDENCE = 0.95
_GOOD_RATIO = 1.5  # largest ratio of the limits of a failure that needs no further batch sizes
_STEPS = 4  # points per pair of rungs at which the excess is tested; the limits are interpolated between them
ScalingAnswer = Literal["fails", "never fails", "fails from the start", "improves", "not decided"]


@dataclass(frozen=True, repr=False)
class ScalingVerdict(Printed):
    """Where the linear scaling rule was seen to fail.

    >>> found = scaling_verdict({32: [0.1, 0.101, 0.099], 256: [0.14, 0.15, 0.148]})
    >>> found.answer, found.best_batch
    ('fails', 32)

    Attributes:
        answer: "fails" inside the ladder, "never fails" inside it, "fails from the start" (the smallest batch size has
            diverged seeds), "improves" (the smallest batch size is worse than the best one by more than the tolerance),
            or "not decided" (the errors are so close to guessing that none could exceed the best by the tolerance).
        observed: the batch size at which the error leaves the tolerance; None if it never does. When it fails from the
            start this is the smallest batch size, an upper bound; when it improves, only batch sizes above the best
            one count.
        low: lower 95% limit of that batch size; 0 when it is not bounded from below.
        high: upper 95% limit, `math.inf` where unbounded.
        tolerance: the tolerance asked for, as a share of the lowest mean error.
        best_batch: the batch size with the lowest mean error; None if every batch size has diverged seeds.
        threshold: the mean error above which a batch size fails; NaN if there is none.
        status: what to do next.
        arms: seeds, divergences and mean error of each batch size.
    """

    answer: ScalingAnswer
    observed: float | None
    low: float
    high: float
    tolerance: float
    best_batch: int | None
    threshold: float
    status: str
    arms: tuple[ArmSummary, ...]

    def __str__(self) -> str:
        first, last = self.arms[0].key, self.arms[-1].key
        at = "" if self.observed is None else f"at batch size {self.observed:.4g}"
        inside = f"inside the ladder, which ends at batch size {last}"
        high = f"{self.high:.4g}]" if math.isfinite(self.high) else "∞)"
        where = {
            "fails": f"fails {at}",
            "never fails": f"never fails {inside}",
            "fails from the start": f"fails from the start, already at batch size {first}",
            "improves": f"improves up to batch size {self.best_batch}, {f'then fails {at}' if at else 'never fails'}",
            "not decided": "not decided",
        }[self.answer]
        found = f"{where}; interval [{self.low:.4g}, {high}"
        rule = (
            f"fails above error {self.threshold:.4g} ({self.tolerance:.0%} over the best, batch size {self.best_batch})"
        )
        if self.best_batch is None:
            rule = "no batch size without diverged seeds"
        return f"{found}\n{describe(self.arms, 'batch size')}; {rule}\nNext: {self.status}"

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document; unknown and infinite numbers are null."""
        return {**json_fields(vars(self)), "arms": [arm.to_dict("batch_size") for arm in self.arms]}


def scaling_verdict(
    errors_by_batch: Mapping[int, ArrayLike],
    tolerance: float = 0.2,
    *,
    chance: float | None = None,
    resamples: int = 1000,
    generator: np.random.Generator | None = None,
) -> ScalingVerdict:
    """Find the batch size at which linear scaling fails: the mean test error exceeds the best by `tolerance`.

    A batch size fails when its mean error exceeds the lowest mean error of the ladder by more than `tolerance` times
    that lowest one: 20% in the paper (fig:lsr_acc_gnr). The crossing is interpolated on a logarithmic scale. Its 95%
    interval is a bootstrap over the seeds that allows for their small number (`crossing_interval`).

    >>> print(scaling_verdict({32: [0.1, 0.101, 0.099], 64: [0.1, 0.1, 0.102], 256: [0.14, 0.15, 0.148]}))
    fails at batch size 115.6; interval [103.2, 132.5]
    3, 3, 3 seeds at batch size = 32, 64, 256; fails above error 0.12 (20% over the best, batch size 32)
    Next: add batch sizes between 64 and 256 to locate the failure more closely.

    Errors may also fall as the batch grows, with label noise for example. The answer is then "improves", and a failure
    is looked for above the best batch size only:

    >>> noisy = {16: [0.2, 0.21], 64: [0.15, 0.16], 256: [0.12, 0.121], 512: [0.2, 0.21]}
    >>> print(str(scaling_verdict(noisy)).partition(";")[0])
    improves up to batch size 256, then fails at batch size 312

    A diverged seed (NaN) is a failure: it makes the mean error of its batch size infinite, and the crossing is then
    known only to lie between this batch size and the one before.

    Args:
        errors_by_batch: batch size → one final test error per seed.
        tolerance: the share of the lowest mean error by which an error may exceed it.
        chance: the error of guessing. If even the threshold is that high, nothing was learned, and the answer is "not
            decided". By default 1; unknown if an error exceeds 1, as losses may.
        resamples: bootstrap samples.
        generator: randomness of the bootstrap; by default one with a fixed seed.
    """
    domain.positive("tolerance", tolerance)
    if chance is not None:
        domain.positive("chance", chance)
    resamples = domain.whole("resamples", resamples, at_least=100)
    if resamples > domain.MOST:
        raise ValueError(f"resamples must be at most {domain.MOST}, got {resamples:.4g}: 1000 are enough")
    arms = read_arms("errors_by_batch", errors_by_batch, "batch_size")
    if len(arms) == 1:
        raise ValueError(f"errors_by_batch holds only batch size {arms[0].key}: a ladder needs at least two")
    for arm in arms:
        if np.any(arm.finite < 0):
            raise ValueError(f"errors_by_batch[{arm.key}] holds {arm.finite.min()}: test errors are not negative")
    sizes = np.array([arm.key for arm in arms], dtype=np.float64)
    means = np.array([math.inf if arm.diverged else arm.finite.mean() for arm in arms])
    best = float(means.min())
    if best == 0:
        raise ValueError(
            "the lowest mean error is 0, so a share of it cannot be a tolerance: give losses, or harder test data"
        )
    threshold = best + tolerance * best
    improves = math.isfinite(means[0]) and means[0] > threshold
    start = int(means.argmin()) if improves else 0
    low, high = crossing(sizes, means, tolerance, start)
    answer: ScalingAnswer = "improves" if improves else "fails"
    observed: float | None = math.sqrt(low * high)
    if math.isinf(high):
        answer, observed = "improves" if improves else "never fails", None
    elif low == 0:
        answer, observed = "fails from the start", high
    rng = np.random.default_rng(0) if generator is None else generator
    limits = crossing_interval(arms, tolerance, resamples, rng, start)
    guessing = math.inf if any(np.any(arm.finite > 1) for arm in arms) else 1.0
    if answer == "never fails" and threshold >= (guessing if chance is None else chance):
        answer, limits = "not decided", (0.0, math.inf)
    return ScalingVerdict(
        answer=answer,
        observed=observed,
        low=limits[0],
        high=limits[1],
        tolerance=float(tolerance),
        best_batch=arms[int(means.argmin())].key if math.isfinite(best) else None,
        threshold=threshold if math.isfinite(best) else math.nan,
        status=_next(answer, arms, means, low, high, limits),
        arms=tuple(arm.summary() for arm in arms),
    )


def _next(
    answer: ScalingAnswer, arms: Sequence[Arm], means: FloatArray, low: float, high: float, limits: tuple[float, float]
) -> str:
    if answer == "not decided":
        return "train longer, or change the learning rate: no batch size learned enough for a failure to be seen."
    lonely = ", ".join(str(arm.key) for arm in arms if arm.seeds < 2)
    if lonely:
        return f"run more seeds, 3 or more, at batch size {lonely}: one seed shows no spread, so there is no interval."
    if not any(arm.has_spread or arm.diverged for arm in arms):
        return "check that the seed reaches the runs: all seeds agree to the last digit, so there is no interval."
    if not np.isfinite(means).any():
        return "lower the learning rate: every batch size has seeds that diverged."
    best = arms[int(means.argmin())].key
    if answer == "fails from the start":
        return f"start the ladder lower, or from the best batch size, {best}, with its own learning rate."
    if math.isinf(high) and limits[0] < arms[-1].key:
        return "add seeds: at this spread, batch sizes of the ladder may still fail."
    if math.isinf(high):
        return f"add batch sizes above {arms[-1].key}, or accept that this ladder shows no failure."
    keys = [arm.key for arm in arms]
    before = max(key for key in keys if key <= low)
    after = min(key for key in keys if key >= high)
    if limits[0] < before or limits[1] > after:
        return f"add seeds at batch sizes {before} and {after}: the interval reaches beyond them."
    if limits[1] > _GOOD_RATIO * limits[0] or after > 2 * before:
        return f"add batch sizes between {before} and {after} to locate the failure more closely."
    return "nothing more to run: the failure is located to within the spacing of the ladder."


def crossing(batch_sizes: FloatArray, errors: FloatArray, tolerance: float, start: int = 0) -> tuple[float, float]:
    r"""Bounds on the batch size at which the error exceeds its lowest value by more than `tolerance` times that value.

    Walking up the ladder, the first failing rung B₁ follows a rung B₀ that passes, and the crossing is

    $$\log B = \log B_0 + \frac{\theta - e_0}{e_1 - e_0}(\log B_1 - \log B_0),\qquad \theta = (1 + \tau)\min_B e_B$$

    where e are the `errors` and τ is `tolerance`; the walk begins at rung `start`, counted from 0. Both bounds are that
    number. With an infinite error (diverged runs) only B₀ < B ≤ B₁ is known; for a ladder that never fails, B > its
    last rung; for one that fails from the start, B ≤ its first rung.

    >>> rungs = np.array([32.0, 128.0])
    >>> crossing(rungs, np.array([0.1, 0.14]), tolerance=0.2)  # halfway on the logarithmic scale
    (64.0, 64.0)
    >>> crossing(rungs, np.array([0.1, 0.11]), tolerance=0.2), crossing(rungs, np.array([0.1, np.inf]), tolerance=0.2)
    ((128.0, inf), (32.0, 128.0))
    """
    best = float(errors.min())
    threshold = best + tolerance * best
    failing = np.flatnonzero((errors > threshold) | np.isinf(errors))
    failing = failing[failing >= start]
    if failing.size == 0:
        return float(batch_sizes[-1]), math.inf
    first = int(failing[0])
    if first == 0:
        return 0.0, float(batch_sizes[0])
    (b0, b1), (e0, e1) = batch_sizes[first - 1 : first + 1].tolist(), errors[first - 1 : first + 1].tolist()
    if math.isinf(e1):
        return b0, b1
    found = b0 * (b1 / b0) ** ((threshold - e0) / (e1 - e0))
    return found, found


def crossing_interval(
    arms: Sequence[Arm], tolerance: float, resamples: int, generator: np.random.Generator, start: int
) -> tuple[float, float]:
    r"""95% limits for the batch size at which the mean error leaves the tolerance; 0 and ∞ if nothing bounds it.

    $$h(B) = e_B - (1 + \tau)\min_b e_b$$

    is negative where the ladder passes. The lower limit is where h stops being significantly negative, the upper one
    where it first is significantly positive, each at half the error. The lowest of several noisy means is too low, and
    quantiles of resampled crossings repeat this bias (coverage down to .84, measured): here every rung that may be the
    best one is allowed to be.

    Only rungs from `start` on, counted from 0, are considered; any of them may be the best one.

    A rung with diverged seeds never passes, and certainly fails if almost every resample of its seeds contains a
    diverged one.
    """
    if any(arm.seeds < 2 for arm in arms) or not any(arm.has_spread for arm in arms):
        return 0.0, math.inf
    half = (1 - _CONFIDENCE) / 2
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
                drawn[:, column] = mean_deviations(arm.finite, resamples, _CONFIDENCE, freedom, generator)
        distances = np.quantile(np.abs(drawn - drawn[:, [best]]), _CONFIDENCE, axis=0)
        rivals = np.flatnonzero(whole & (means - means[best] <= distances))
        points = weights[known]
        at, bars = points @ np.where(whole, means, 0.0), (1 + tolerance) * means[rivals]
        moved, moved_bars = drawn @ points.T, (1 + tolerance) * drawn[:, rivals]
        # Passing: below the bar that each rival sets (intersection–union). Failing: above one of them (the largest).
        slack = np.quantile(moved_bars[:, :, None] - moved[:, None, :], 1 - half, axis=0)
        not_passing[known] = (at - bars[:, None] + slack).max(axis=0)
        failing[known] = at - bars.min() - np.quantile(moved - moved_bars.min(axis=1, keepdims=True), 1 - half, axis=0)
    sizes, counted = _sizes(arms, rungs), rungs >= start
    return _last_pass(sizes[counted], not_passing[counted]), _first_fail(sizes[counted], failing[counted])


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
