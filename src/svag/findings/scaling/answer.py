"""What a ladder of batch sizes found, as an object that speaks."""

import math
from dataclasses import dataclass
from typing import Literal

from svag.findings.arms import ArmSummary, describe
from svag.stats.samples import json_number


@dataclass(frozen=True)
class ScalingVerdict:
    """Where the linear scaling rule was seen to fail.

    Attributes:
        answer: "fails" inside the ladder, "never fails" inside it, or "fails from the start".
        observed: the batch size at which the error leaves the tolerance; None if it never does. When it fails from the
            start this is the smallest batch size, an upper bound.
        low: lower 95% limit of that batch size; 0 when it is not bounded from below.
        high: upper 95% limit, `math.inf` where unbounded.
        tolerance: the tolerance asked for, as a share of the lowest mean error.
        best_batch: the batch size with the lowest mean error; None if every batch size has diverged seeds.
        threshold: the mean error above which a batch size fails; NaN if there is none.
        status: what to do next.
        arms: seeds, divergences and mean error of each batch size.
    """

    answer: Literal["fails", "never fails", "fails from the start"]
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
        where = {
            "fails": f"at batch size {self.observed:.4g}" if self.observed is not None else "",
            "never fails": f"inside the ladder, which ends at batch size {last}",
            "fails from the start": f"already at batch size {first}",
        }[self.answer]
        high = f"{self.high:.4g}]" if math.isfinite(self.high) else "∞)"
        comma = "," if self.answer == "fails from the start" else ""
        found = f"{self.answer}{comma} {where}; interval [{self.low:.4g}, {high}"
        rule = (
            f"fails above error {self.threshold:.4g} ({self.tolerance:.0%} over the best, batch size {self.best_batch})"
        )
        if self.best_batch is None:
            rule = "no batch size without diverged seeds"
        return f"{found}\n{describe(self.arms, 'batch size')}; {rule}\nNext: {self.status}"

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document; unknown and infinite numbers are null."""
        return {
            "answer": self.answer,
            "observed": self.observed,
            "low": json_number(self.low),
            "high": json_number(self.high),
            "tolerance": self.tolerance,
            "best_batch": self.best_batch,
            "threshold": json_number(self.threshold),
            "status": self.status,
            "arms": [arm.to_dict("batch_size") for arm in self.arms],
        }
