"""What one arm came to, in one metric."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from svag.findings.experiments.arm_name import ArmName
from svag.findings.experiments.runs import plain
from svag.stats.contrast import contrast


@dataclass(frozen=True)
class ArmResult:
    """The seeds of one arm.

    Attributes:
        arm: what it is called.
        kind: of its process.
        refinement: ell of SVAG, parts of the coupled ladder, 1 of the others.
        seeds: runs with a result.
        diverged: how many of them diverged.
        mean: mean final metric of those that finished; NaN if none did.
        std: their standard deviation; NaN with fewer than two.
        low: lower 95% limit of the mean; −∞ with fewer than two.
        high: upper limit.
        finals: final metric by seed, NaN where diverged.
    """

    arm: str
    kind: str
    refinement: int
    seeds: int
    diverged: int
    mean: float
    std: float
    low: float
    high: float
    finals: tuple[tuple[int, float], ...]

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document; unknown numbers are null."""
        finals = [plain({"seed": seed, "value": value}) for seed, value in self.finals]
        return {**plain({**asdict(self), "finals": None}), "finals": finals}

    def __str__(self) -> str:
        spread = f" ± {self.std:.2g}" if math.isfinite(self.std) else ""
        lost = f", {self.diverged} diverged" if self.diverged else ""
        return f"{self.arm} {self.mean:.4g}{spread} ({self.seeds} seed{'' if self.seeds == 1 else 's'}{lost})"


def arm_result(arm: ArmName, finals: Mapping[int, float]) -> ArmResult:
    """Sum up one arm from its final metric by seed.

    >>> print(arm_result(ArmName("svag", 4), {0: 0.5, 1: 0.7, 2: math.nan}))
    SVAG ell=4 0.6 ± 0.14 (3 seeds, 1 diverged)
    """
    values = np.array([value for value in finals.values() if math.isfinite(value)])
    low, high = contrast([values], [1.0]).interval() if values.size > 1 else (-math.inf, math.inf)
    return ArmResult(
        arm=str(arm),
        kind=arm.kind,
        refinement=arm.refinement,
        seeds=len(finals),
        diverged=len(finals) - values.size,
        mean=float(values.mean()) if values.size else math.nan,
        std=float(values.std(ddof=1)) if values.size > 1 else math.nan,
        low=low,
        high=high,
        finals=tuple(sorted(finals.items())),
    )
