"""Where a rising error leaves a tolerance, on the logarithmic scale of batch sizes."""

import math

import numpy as np

from svag.arrays import FloatArray


def crossing(batch_sizes: FloatArray, errors: FloatArray, tolerance: float) -> tuple[float, float]:
    r"""Bounds on the batch size at which the error exceeds its lowest value by more than `tolerance` times that value.

    Walking up the ladder, the first failing rung B₁ follows a rung B₀ that passes, and the crossing is

    $$\log B = \log B_0 + \frac{\theta - e_0}{e_1 - e_0}(\log B_1 - \log B_0),\qquad \theta = (1 + \tau)\min_B e_B$$

    where e are the `errors` and τ is `tolerance`. Both bounds are that number. An infinite error (diverged runs) says
    only B₀ < B ≤ B₁; a ladder that never fails B > its last rung; one that fails from the start B ≤ its first rung.

    >>> rungs = np.array([32.0, 128.0])
    >>> crossing(rungs, np.array([0.1, 0.14]), tolerance=0.2)  # halfway on the logarithmic scale
    (64.0, 64.0)
    >>> crossing(rungs, np.array([0.1, 0.11]), tolerance=0.2), crossing(rungs, np.array([0.1, np.inf]), tolerance=0.2)
    ((128.0, inf), (32.0, 128.0))
    """
    best = float(errors.min())
    threshold = best + tolerance * best
    failing = np.flatnonzero((errors > threshold) | np.isinf(errors))
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
