"""Interval for a ratio of averages over a correlated series: average first, divide last."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from svag.arrays import FloatArray
from svag.stats.autocorrelation import integrated_autocorrelation_time
from svag.stats.blocks import BlockPlan, independent_blocks, plan_blocks
from svag.stats.ratio_limits import PairMoments, fieller, log_delta, pair_moments
from svag.stats.samples import finite_row, json_number, probability

Method = Literal["auto", "log_delta", "fieller"]

# Below this half-width/mean of both averages the two methods agree to within a few per cent of the width.
_WELL_RESOLVED = 0.3


@dataclass(frozen=True)
class RatioInterval:
    """A ratio of two positive averages with its confidence interval; no number in it is ever negative.

    Attributes:
        value: the ratio of the averages; `math.inf` when the average of the denominator is not positive; NaN when
            `kind` is "empty".
        low: lower confidence limit; 0 when nothing is known.
        high: upper confidence limit, `math.inf` where unbounded.
        kind: "bounded"; "unbounded" (high is infinite: the denominator is not resolved from 0); "empty" (an average
            is significantly negative although both should be positive: low and high are NaN).
        method: "log_delta", "fieller", or "none" when the series has fewer than two blocks.
        confidence: the confidence level.
        blocks: number of blocks.
        block_length: readings per block.
        iact: integrated autocorrelation time, in readings.
        enough: whether the series was long enough for the promised coverage (20 blocks).
        status: one sentence: what was found and what to do next.
    """

    value: float
    low: float
    high: float
    kind: Literal["bounded", "unbounded", "empty"]
    method: Literal["log_delta", "fieller", "none"]
    confidence: float
    blocks: int
    block_length: int
    iact: float
    enough: bool
    status: str

    def __str__(self) -> str:
        shown = {
            "bounded": f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]",
            "unbounded": f"at least {self.low:.4g}, unbounded above",
            "empty": "no positive ratio fits",
        }[self.kind]
        return f"{shown} ({self.confidence:.0%}, {self.method}): {self.status}"

    def to_dict(self) -> dict[str, float | int | str | bool | None]:
        """Return the fields for a JSON document; infinite and empty limits are null."""
        return {
            "value": json_number(self.value),
            "low": json_number(self.low),
            "high": json_number(self.high),
            "kind": self.kind,
            "method": self.method,
            "confidence": self.confidence,
            "blocks": self.blocks,
            "block_length": self.block_length,
            "iact": self.iact,
            "enough": self.enough,
            "status": self.status,
        }


def ratio_interval(
    numerator: ArrayLike,
    denominator: ArrayLike,
    *,
    confidence: float = 0.95,
    method: Method = "auto",
    independent: bool = False,
) -> RatioInterval:
    """Ratio of the average of `numerator` to that of `denominator`, both positive quantities, with its interval.

    The series, read in pairs, may be correlated in time and single readings may be negative. It is cut into 20 blocks
    of at least 10 integrated autocorrelation times (the largest of the numerator's, the denominator's and that of
    num − ratio·den, whose mean is what is uncertain); a shorter series is cut into fewer blocks and says so.

    >>> rng = np.random.default_rng(0)
    >>> found = ratio_interval(2 + rng.normal(size=4000), 1 + rng.normal(size=4000))
    >>> found.kind, found.method, found.blocks, found.low < 2 < found.high
    ('bounded', 'log_delta', 20, True)

    Args:
        numerator: one reading per time.
        denominator: the readings at the same times.
        confidence: level of the two-sided interval.
        method: "log_delta"; "fieller"; "auto", log-delta when both averages are well away from 0, Fieller otherwise.
        independent: readings are known to be independent: each is its own block.
    """
    probability("confidence", confidence)
    num, den = finite_row("numerator", numerator), finite_row("denominator", denominator)
    if num.size != den.size:
        raise ValueError(f"numerator and denominator must be read together, got {num.size} and {den.size} readings")
    plan = independent_blocks(num.size) if independent else _plan(num, den)
    if plan.blocks < 2:
        value = _positive_ratio(float(num.mean()), float(den.mean()))
        return _result(value, 0.0, math.inf, "none", confidence, plan, "the spread is unknown")
    pairs = pair_moments(plan.means(num), plan.means(den))
    used = _choose(method, pairs, confidence)
    limits = log_delta(pairs, confidence) if used == "log_delta" else fieller(pairs, confidence)
    if limits is None:
        which = "denominator" if pairs.den < 0 else "numerator"
        finding = f"the average {which} is significantly negative: check how the readings were estimated"
        return _result(math.nan, math.nan, math.nan, used, confidence, plan, finding)
    finding = (
        "resolved" if math.isfinite(limits[1]) else "the denominator is not resolved from 0: average more readings"
    )
    return _result(_positive_ratio(pairs.num, pairs.den), *limits, used, confidence, plan, finding)


def _plan(num: FloatArray, den: FloatArray) -> BlockPlan:
    if num.size < 2:
        return plan_blocks(num.size, 1.0)
    scale = float(np.mean(den))
    residual = num - (float(np.mean(num)) / scale) * den if scale > 0 else num
    return plan_blocks(num.size, max(integrated_autocorrelation_time(row) for row in (num, den, residual)))


def _choose(method: Method, pairs: PairMoments, confidence: float) -> Literal["log_delta", "fieller"]:
    if method == "auto":
        return "log_delta" if max(pairs.relative_halfwidths(confidence)) < _WELL_RESOLVED else "fieller"
    if method not in ("log_delta", "fieller"):
        raise ValueError(f"method must be 'auto', 'log_delta' or 'fieller', got {method!r}")
    return method


def _positive_ratio(num: float, den: float) -> float:
    return max(num, 0.0) / den if den > 0 else math.inf


def _result(
    value: float,
    low: float,
    high: float,
    method: Literal["log_delta", "fieller", "none"],
    confidence: float,
    plan: BlockPlan,
    finding: str,
) -> RatioInterval:
    kind: Literal["bounded", "unbounded", "empty"] = "bounded" if math.isfinite(high) else "unbounded"
    return RatioInterval(
        value=value,
        low=low,
        high=high,
        kind="empty" if math.isnan(low) else kind,
        method=method,
        confidence=confidence,
        blocks=plan.blocks,
        block_length=plan.length,
        iact=plan.iact,
        enough=plan.enough,
        status=f"{finding}; {plan.status}",
    )
