"""What a comparison of SGD with its SDE found, as an object that speaks."""

import math
from dataclasses import dataclass
from typing import Literal

from svag.findings.arms import ArmSummary, describe
from svag.stats.equivalence import Answer
from svag.stats.samples import json_number


@dataclass(frozen=True)
class SDEVerdict:
    """Whether the SDE describes this SGD run, in one metric.

    Attributes:
        answer: "equivalent" (the gap is smaller than the margin), "different" (there is a gap) or "inconclusive".
        gap: SGD minus the SDE limit, in the metric's units: positive when SGD's metric is the larger one. NaN when an
            arm it needs has no seed that finished.
        low: lower 95% limit of the gap, −∞ when the spread is unknown.
        high: upper 95% limit, ∞ when the spread is unknown.
        margin: the margin asked for.
        converged: whether SVAG is shown to have converged in ell, to within half the margin.
        converged_at: the smallest ell > 1 of which that is shown.
        status: what to do next.
        limit: where the SDE limit comes from: "fit", E_∞ of E_ell = E_∞ + c/ell; "largest_ell", because that line does
            not fit; "none", because there are too few numbers.
        lack_of_fit: p value of the test that the line fits; None when two ell leave nothing to test.
        p_different: p value for a gap, corrected by Holm if divergence rates were compared too.
        p_equivalent: p value for "smaller than the margin".
        p_divergence: p value of Fisher's test that SGD and the largest ell diverge equally often; None if no seed did.
        seeds_needed: seeds per ell that would probably decide an inconclusive answer; None if that is not the remedy.
        arms: seeds, divergences and mean of each ell.
    """

    answer: Answer
    gap: float
    low: float
    high: float
    margin: float
    converged: bool
    converged_at: int | None
    status: str
    limit: Literal["fit", "largest_ell", "none"]
    lack_of_fit: float | None
    p_different: float
    p_equivalent: float
    p_divergence: float | None
    seeds_needed: int | None
    arms: tuple[ArmSummary, ...]

    def __str__(self) -> str:
        gap = "unknown" if math.isnan(self.gap) else f"{self.gap:+.4g}"
        if math.isfinite(self.low):
            gap += f" [{self.low:+.4g}, {self.high:+.4g}]"
        found = f"{self.answer}: SGD − SDE = {gap}, margin ±{self.margin:g}"
        tested = "untested" if self.lack_of_fit is None else f"lack of fit p = {self.lack_of_fit:.2g}"
        fit = {
            "fit": f"limit from E_∞ + c/ell ({tested})",
            "largest_ell": f"limit is the largest ell, because E_∞ + c/ell does not fit ({tested})",
            "none": "spread unknown",
        }[self.limit]
        converged = (
            f"converged in ell from {self.converged_at} on" if self.converged else "convergence in ell not shown"
        )
        return f"{found}\n{describe(self.arms, 'ell')}; {fit}; {converged}\nNext: {self.status}"

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document; unknown and infinite numbers are null."""
        return {
            "answer": self.answer,
            "gap": json_number(self.gap),
            "low": json_number(self.low),
            "high": json_number(self.high),
            "margin": self.margin,
            "converged": self.converged,
            "converged_at": self.converged_at,
            "status": self.status,
            "limit": self.limit,
            "lack_of_fit": self.lack_of_fit,
            "p_different": json_number(self.p_different),
            "p_equivalent": json_number(self.p_equivalent),
            "p_divergence": self.p_divergence,
            "seeds_needed": self.seeds_needed,
            "arms": [arm.to_dict("ell") for arm in self.arms],
        }
