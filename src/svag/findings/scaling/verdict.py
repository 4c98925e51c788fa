"""Where did linear scaling fail? The verdict from the final test errors of a ladder (fig:lsr_acc_gnr)."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from svag.arrays import FloatArray
from svag.findings.arms import Arm, read_arms
from svag.findings.scaling.answer import ScalingVerdict
from svag.findings.scaling.crossing import crossing
from svag.findings.scaling.interval import crossing_interval
from svag.theory import domain

_CONFIDENCE = 0.95
_GOOD_RATIO = 1.5


def scaling_verdict(
    errors: Mapping[int, ArrayLike],
    tolerance: float = 0.2,
    *,
    resamples: int = 1000,
    generator: np.random.Generator | None = None,
) -> ScalingVerdict:
    """Find the batch size at which linear scaling fails: the mean test error leaves the best one by `tolerance`.

    A batch size fails when its mean error exceeds the lowest mean error of the ladder by more than `tolerance` times
    that lowest one: 20% in the paper (fig:lsr_acc_gnr). The crossing is interpolated on a logarithmic scale. Its 95%
    interval is a bootstrap over the seeds that allows for their small number (`crossing_interval`).

    >>> print(scaling_verdict({32: [0.1, 0.101, 0.099], 64: [0.1, 0.1, 0.102], 256: [0.14, 0.15, 0.148]}))
    fails at batch size 115.6; interval [103.2, 132.5]
    3, 3, 3 seeds at batch size = 32, 64, 256; fails above error 0.12 (20% over the best, batch size 32)
    Next: add batch sizes between 64 and 256 to locate the failure more closely.

    A diverged seed (NaN) is a failure: it makes the mean error of its batch size infinite, and the crossing is then
    known only to lie between this batch size and the one before.

    Args:
        errors: batch size → one final test error per seed.
        tolerance: the share of the lowest mean error by which an error may exceed it.
        resamples: bootstrap samples.
        generator: randomness of the bootstrap; by default one with a fixed seed.
    """
    domain.positive("tolerance", tolerance)
    domain.whole("resamples", resamples, at_least=100)
    arms = read_arms("errors", errors, "batch_size")
    if len(arms) == 1:
        raise ValueError(f"errors hold only batch size {arms[0].key}: a ladder needs at least two")
    for arm in arms:
        if np.any(arm.finite < 0):
            raise ValueError(f"errors[{arm.key}] holds {arm.finite.min()}: test errors are not negative")
    sizes = np.array([arm.key for arm in arms], dtype=np.float64)
    means = np.array([math.inf if arm.diverged else arm.finite.mean() for arm in arms])
    best = float(means.min())
    if best == 0:
        raise ValueError(
            "the lowest mean error is 0, so a share of it is no tolerance: give losses, or harder test data"
        )
    low, high = crossing(sizes, means, tolerance)
    answer: Literal["fails", "never fails", "fails from the start"] = "fails"
    observed: float | None = math.sqrt(low * high)
    if math.isinf(high):
        answer, observed = "never fails", None
    elif low == 0:
        answer, observed = "fails from the start", high
    rng = np.random.default_rng(0) if generator is None else generator
    limits = crossing_interval(arms, tolerance, _CONFIDENCE, resamples, rng)
    return ScalingVerdict(
        answer=answer,
        observed=observed,
        low=limits[0],
        high=limits[1],
        tolerance=float(tolerance),
        best_batch=arms[int(means.argmin())].key if math.isfinite(best) else None,
        threshold=best + tolerance * best if math.isfinite(best) else math.nan,
        status=_next(answer, arms, means, low, high, limits),
        arms=tuple(arm.summary() for arm in arms),
    )


def _next(
    answer: str, arms: Sequence[Arm], means: FloatArray, low: float, high: float, limits: tuple[float, float]
) -> str:
    lonely = ", ".join(str(arm.key) for arm in arms if arm.seeds < 2)
    if lonely:
        return f"run more seeds, 3 or more, at batch size {lonely}: one seed shows no spread, so there is no interval."
    if not any(arm.has_spread or arm.diverged for arm in arms):
        return "check that the seed reaches the runs: all seeds agree to the last digit, so there is no interval."
    if not np.isfinite(means).any():
        return "lower the learning rate: every batch size has seeds that diverged."
    if answer == "never fails" and limits[0] < arms[-1].key:
        return "add seeds: at this spread, batch sizes of the ladder may still fail."
    if answer == "never fails":
        return f"add batch sizes above {arms[-1].key}, or take it that this ladder shows no failure."
    if answer == "fails from the start":
        best = arms[int(means.argmin())].key
        return f"start the ladder lower, or from the best batch size, {best}, with its own learning rate."
    keys = [arm.key for arm in arms]
    before = max(key for key in keys if key <= low)
    after = min(key for key in keys if key >= high)
    if limits[0] < before or limits[1] > after:
        return f"add seeds at batch sizes {before} and {after}: the interval reaches beyond them."
    if limits[1] > _GOOD_RATIO * limits[0] or after > 2 * before:
        return f"add batch sizes between {before} and {after} to locate the failure more closely."
    return "nothing more to run: the failure is located to within the spacing of the ladder."
