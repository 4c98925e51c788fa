"""Does the SDE describe my SGD? The verdict from one final metric per seed and ell (thm:sde_svag)."""

import math
from collections.abc import Mapping

from numpy.typing import ArrayLike

from svag.findings.arms import read_arms
from svag.findings.sde.answer import SDEVerdict
from svag.findings.sde.evidence import weigh
from svag.findings.sde.next_step import next_step
from svag.theory import domain


def sde_verdict(finals: Mapping[int, ArrayLike], margin: float | None = None) -> SDEVerdict:
    r"""Decide whether SGD ends where its SDE ends, from the final metric of a few seeds of SVAG at several ell.

    $$E_l = E_\infty + c/l,\qquad \text{gap} = E_1 - E_\infty = c$$

    where E_l are the metrics of `finals[l]`; l = 1 is SGD and E_∞ the SDE (thm:sde_svag: the error of SVAG is of order
    1/l). "equivalent": the two one-sided tests at 5% place the gap inside ±`margin`. "different": otherwise, and the
    95% interval leaves out 0. The gap is SGD *minus* the SDE limit.

    >>> print(sde_verdict({1: [61.0, 61.5, 61.2], 4: [61.1, 60.8, 61.3], 16: [61.0, 61.4, 61.0]}, margin=1.0))
    equivalent: SGD − SDE = +0.1397 [-0.4322, +0.7116], margin ±1
    3, 3, 3 seeds at ell = 1, 4, 16; limit from E_∞ + c/ell (lack of fit p = 0.65); convergence in ell not shown
    Next: more seeds may show that SVAG has converged in ell: to within this margin, SGD ends where its SDE ends.

    Converged at l: the remaining bias (r/(r − 1))(E_l − E_rl), r the ratio to the next ell, is inside ±margin/2 by the
    same two tests, for this and every larger ell but the last. If the line does not fit (5%), the limit is the largest
    ell, and the interval is widened by what that may still miss: margin/2 if converged, otherwise as much as the last
    move in ell, in which case nothing can be equivalent.

    A diverged seed (NaN) is an outcome: rates of divergence of SGD and of the largest ell are compared by Fisher's
    test (with Holm's correction beside the gap of the survivors), and nothing is equivalent on the survivors' word.

    Args:
        finals: ell → one final metric per seed; all at one `split`, and with the seeds of SGD under ell = 1.
        margin: the largest gap that would not matter to you, in the metric's units. Required.
    """
    if margin is None:
        raise ValueError(
            "margin is required: the largest gap between SGD and the SDE that would not matter to you, "
            "in the metric's units, as in margin=0.5"
        )
    domain.positive("margin", margin)
    arms = read_arms("finals", finals, "ell")
    if arms[0].key != 1:
        raise ValueError(f"finals lack ell=1, which is SGD itself; got ell = {[arm.key for arm in arms]}")
    if len(arms) == 1:
        raise ValueError("finals hold only ell=1, which is SGD: run SVAG too, best at ell=4 and ell=16")
    evidence = weigh(arms, float(margin))
    low, high = evidence.gap.interval() if evidence.measured else (-math.inf, math.inf)
    needed = evidence.seeds_needed()
    return SDEVerdict(
        answer=evidence.answer,
        gap=evidence.gap.estimate.value,
        low=low,
        high=high,
        margin=evidence.margin,
        converged=evidence.converged_at is not None,
        converged_at=evidence.converged_at,
        status=next_step(evidence, needed),
        limit=evidence.gap.limit,
        lack_of_fit=evidence.gap.lack_of_fit,
        p_different=evidence.p_gap,
        p_equivalent=evidence.p_equivalent,
        p_divergence=evidence.p_rates,
        seeds_needed=needed,
        arms=tuple(arm.summary() for arm in arms),
    )
