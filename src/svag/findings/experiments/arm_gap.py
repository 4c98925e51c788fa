"""Do two arms end together? Three answers from the final metric of a few seeds each."""

import math
from collections.abc import Mapping

import numpy as np

from svag.findings.experiments.ngd_finding import ArmGap
from svag.stats.contrast import welch
from svag.stats.equivalence import Answer, three_way
from svag.stats.multiple import holm
from svag.stats.rates import compare_rates
from svag.stats.seeds import samples_to_decide

_LEVEL = 0.05


def arm_gap(name: str, one: Mapping[int, float], other: Mapping[int, float], margin: float) -> ArmGap | None:
    """Compare two arms, final metrics by seed; a diverged seed (NaN) is an outcome. None if an arm has no result.

    Nothing is equivalent on the survivors' word: with diverged seeds the answer is "different" or "inconclusive".

    >>> print(arm_gap("SGD − GD", {0: 0.89, 1: 0.90}, {0: 0.75, 1: 0.76}, margin=0.01))
    different: SGD − GD = +0.14 [+0.1096, +0.1704]
    """
    if not one or not other:
        return None
    rows = [np.array(list(finals.values()), dtype=np.float64) for finals in (one, other)]
    finite = [row[np.isfinite(row)] for row in rows]
    lost = [row.size - kept.size for row, kept in zip(rows, finite, strict=True)]
    value = float(finite[0].mean() - finite[1].mean()) if all(row.size for row in finite) else math.nan
    p_rates = compare_rates(lost[0], rows[0].size, lost[1], rows[1].size).p_value if any(lost) else None
    measured = all(row.size > 1 for row in finite) and any(np.ptp(row) > 0 for row in finite)
    if not measured:
        different = p_rates is not None and p_rates < _LEVEL
        answer: Answer = "different" if different else "inconclusive"
        p_value = 1.0 if p_rates is None else p_rates
        return ArmGap(name, answer, value, -math.inf, math.inf, 1.0, p_value, p_rates, None)
    estimate = welch(finite[0], finite[1])
    low, high = estimate.interval()
    p_different = min(holm([estimate.p_different(), *([] if p_rates is None else [p_rates])]))
    if p_rates is None:
        answer = three_way(estimate, margin, _LEVEL)
    else:
        answer = "different" if p_different < _LEVEL else "inconclusive"
    needed = None
    if answer == "inconclusive" and p_rates is None:
        smallest = min(row.size for row in finite)
        needed = samples_to_decide(estimate.value, estimate.error, estimate.freedom, smallest, margin)
    p_equivalent = estimate.p_equivalent(margin)
    return ArmGap(name, answer, value, low, high, p_equivalent, p_different, p_rates, needed)
