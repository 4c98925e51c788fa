"""The tests behind a verdict on SGD and its SDE: the gap, convergence in ell, and how often the seeds diverge."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from svag.findings.arms import Arm
from svag.stats.contrast import Estimate, welch
from svag.stats.equivalence import Answer
from svag.stats.extrapolation import fit_limit, remaining_bias
from svag.stats.multiple import holm
from svag.stats.rates import compare_rates
from svag.stats.seeds import samples_to_decide

LEVEL = 0.05
Limit = Literal["fit", "largest_ell", "none"]


@dataclass(frozen=True)
class Gap:
    """SGD minus the SDE limit.

    Attributes:
        estimate: the estimate, with infinite error when there are too few numbers.
        limit: where the limit comes from.
        lack_of_fit: p value of the test that E_∞ + c/ell fits; None when two ell leave nothing to test.
        allowance: what the limit itself may still miss: 0 when it is fitted; when it is the largest ell, margin/2 if
            SVAG has converged, and otherwise as much as it moved from the ell before (unknown if that was closer than
            a factor 4).
        seeds: seeds of the smallest arm used.
    """

    estimate: Estimate
    limit: Limit
    lack_of_fit: float | None
    allowance: float
    seeds: int

    def interval(self) -> tuple[float, float]:
        """95% interval, widened by the allowance."""
        low, high = self.estimate.interval()
        return low - self.allowance, high + self.allowance


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything that the answer and the next step are decided on.

    Attributes:
        arms: the outcomes, in increasing ell.
        margin: the largest gap that does not matter.
        gap: SGD minus the SDE limit.
        biases: (ell, what it still misses) for every ell > 1 but the largest, the largest first.
        converged_at: smallest ell that has converged.
        p_gap: p value for a gap, after Holm; 1 when there is no estimate.
        p_rates: Fisher's p value for unequal divergence, before Holm; None when no seed diverged.
        p_divergence: the same after Holm; 1 when no seed diverged.
    """

    arms: Sequence[Arm]
    margin: float
    gap: Gap
    biases: Sequence[tuple[int, Estimate]]
    converged_at: int | None
    p_gap: float
    p_rates: float | None
    p_divergence: float

    @property
    def measured(self) -> bool:
        """Whether there are numbers enough for an estimate of the gap."""
        return self.gap.limit != "none"

    @property
    def unused(self) -> list[int]:
        """The ell of which fewer than two seeds finished: they show no spread and take no part in the estimate."""
        return [arm.key for arm in self.arms if arm.finite.size < 2]

    @property
    def trusted(self) -> bool:
        """Whether the limit stands for the SDE: every ell was used, and the line fits or SVAG has converged in ell."""
        converged = self.gap.limit == "largest_ell" and self.converged_at is not None
        return not self.unused and (self.gap.limit == "fit" or converged)

    @property
    def p_equivalent(self) -> float:
        """P value for a gap inside the margin; 1 when there is no estimate."""
        return self.gap.estimate.p_equivalent(self.margin - self.gap.allowance) if self.measured else 1.0

    @property
    def answer(self) -> Answer:
        """Equivalent only if the limit is trusted and every seed finished; different also by how often they diverge."""
        if self.trusted and self.p_rates is None and self.p_equivalent < LEVEL:
            return "equivalent"
        if self.p_gap < LEVEL or self.p_divergence < LEVEL:
            return "different"
        return "inconclusive"

    def seeds_needed(self) -> int | None:
        """Seeds per ell that would probably decide an inconclusive answer, if more seeds are the remedy."""
        gap = self.gap.estimate
        if self.answer != "inconclusive" or not self.trusted or self.p_rates is not None or gap.error == 0:
            return None
        return samples_to_decide(gap.value, gap.error, gap.freedom, self.gap.seeds, self.margin - self.gap.allowance)


def weigh(arms: Sequence[Arm], margin: float) -> Evidence:
    """Test everything: `arms` in increasing ell, the first of them SGD."""
    biases = _biases(arms)
    converged_at = _converged_at(biases, margin)
    gap = _gap(arms, None if converged_at is None else margin / 2)
    p_rates = None
    if any(arm.diverged for arm in arms):
        p_rates = compare_rates(arms[0].diverged, arms[0].seeds, arms[-1].diverged, arms[-1].seeds).p_value
    p_gap = None if gap.limit == "none" else gap.estimate.p_different(beyond=gap.allowance)
    asked = [p for p in (p_gap, p_rates) if p is not None]
    adjusted = holm(asked) if asked else []
    return Evidence(
        arms=arms,
        margin=margin,
        gap=gap,
        biases=biases,
        converged_at=converged_at,
        p_gap=1.0 if p_gap is None else adjusted[0],
        p_rates=p_rates,
        p_divergence=1.0 if p_rates is None else adjusted[-1],
    )


def _gap(arms: Sequence[Arm], still_missing: float | None) -> Gap:
    """`still_missing` is what the largest ell may still miss, if SVAG has converged."""
    used = [arm for arm in arms if arm.finite.size > 1]
    if len(used) < 2 or used[0].key != 1 or not any(arm.has_spread for arm in used):
        value = arms[0].summary().mean - arms[-1].summary().mean
        return Gap(Estimate(value, math.inf, 1.0), "none", None, 0.0, 1)
    seeds = min(arm.finite.size for arm in used)
    fit = fit_limit([1 / arm.key for arm in used], [arm.finite for arm in used])
    if fit.lack_of_fit is None or fit.lack_of_fit >= LEVEL:
        return Gap(fit.slope, "fit", fit.lack_of_fit, 0.0, seeds)
    if still_missing is None:
        # From l to 4l an error of order 1/l falls to a quarter: what is left is less than that move. A shorter last
        # step in l would leave more than it moved, by an amount that nobody knows while the line does not fit.
        last_move = welch(used[-2].finite, used[-1].finite)
        wide = used[-2].key > 1 and used[-1].key >= 4 * used[-2].key
        still_missing = max(map(abs, last_move.interval())) if wide else math.inf
    return Gap(welch(used[0].finite, used[-1].finite), "largest_ell", fit.lack_of_fit, still_missing, seeds)


def _biases(arms: Sequence[Arm]) -> list[tuple[int, Estimate]]:
    used = [arm for arm in arms if arm.key > 1 and arm.finite.size > 1]
    found = [
        (one.key, remaining_bias(1 / one.key, 1 / other.key, one.finite, other.finite)) for one, other in pairwise(used)
    ]
    return found[::-1]


def _converged_at(biases: Sequence[tuple[int, Estimate]], margin: float) -> int | None:
    """Smallest ell that has converged together with all larger ones: a fixed sequence of tests needs no correction."""
    found = None
    for ell, bias in biases:
        if not (bias.error > 0 and bias.p_equivalent(margin / 2) < LEVEL):
            break
        found = ell
    return found
