"""The three-way answer: equivalent, different or inconclusive."""

from typing import Literal, TypeAlias

from svag.stats.contrast import Estimate
from svag.stats.samples import positive, probability

Answer: TypeAlias = Literal["equivalent", "different", "inconclusive"]


def three_way(estimate: Estimate, margin: float, alpha: float = 0.05) -> Answer:
    """Decide between a gap that does not matter, one that is there, and not knowing.

    "equivalent": TOST rejects, at level `alpha`, that the gap is `margin` or more. "different": otherwise, and the
    two-sided interval of level 1 − alpha leaves out 0. A gap that is real but surely smaller than the margin is
    therefore "equivalent": that is what the margin means.

    >>> three_way(Estimate(0.1, 0.02, 10), margin=0.5), three_way(Estimate(0.9, 0.2, 10), margin=0.5)
    ('equivalent', 'different')
    >>> three_way(Estimate(0.1, 0.4, 10), margin=0.5)
    'inconclusive'

    P(equivalent) ≤ alpha when the gap is at least the margin; P(different) ≤ alpha when there is none.
    """
    positive("margin", margin)
    probability("alpha", alpha)
    if estimate.p_equivalent(margin) < alpha:
        return "equivalent"
    return "different" if estimate.p_different() < alpha else "inconclusive"
