"""What SGD, NGD and GD found side by side, as objects that speak (fig:ngd_sgd_accs)."""

import math
from dataclasses import asdict, dataclass

from svag.findings.experiments.arm_result import ArmResult
from svag.findings.experiments.finding import ExperimentFinding
from svag.findings.experiments.runs import CurveRow, MissingRun, RunRow, plain
from svag.findings.experiments.wording import missing_first
from svag.records.experiment import Metric
from svag.stats.equivalence import Answer


@dataclass(frozen=True)
class ArmGap:
    """The difference of two arms in the final metric.

    Attributes:
        name: which minus which.
        answer: "equivalent" within the margin, "different" or "inconclusive".
        gap: the difference of the means; NaN when an arm has no finished seed.
        low: lower 95% limit, −∞ when the spread is unknown.
        high: upper limit.
        p_equivalent: p value for "smaller than the margin"; 1 when the spread is unknown.
        p_different: p value for a gap, or for unequal rates of divergence; corrected by Holm if both were tested.
        p_divergence: Fisher's p value for unequal rates of divergence; None if no seed diverged.
        seeds_needed: seeds per arm that would probably decide; None if that is not the remedy.
    """

    name: str
    answer: Answer
    gap: float
    low: float
    high: float
    p_equivalent: float
    p_different: float
    p_divergence: float | None
    seeds_needed: int | None

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document; unknown numbers are null."""
        return plain(asdict(self))

    def __str__(self) -> str:
        gap = "unknown" if math.isnan(self.gap) else f"{self.gap:+.4g}"
        if math.isfinite(self.low):
            gap += f" [{self.low:+.4g}, {self.high:+.4g}]"
        return f"{self.answer}: {self.name} = {gap}"


@dataclass(frozen=True)
class NgdPanelFinding:
    """Whether Gaussian noise of the same covariance does what SGD's noise does.

    Attributes:
        name: of the panel.
        batch_size: B.
        metric: what is compared.
        margin: the gap that would not matter.
        arms: what SGD, NGD and GD came to.
        best: mean over seeds of the best metric along the run, by arm, as the paper prints it; NaN without results.
        sgd_ngd: SGD − NGD; None while either has no result.
        sgd_gd: SGD − GD; None while either has no result.
        verdict: one sentence.
        runs: all results.
        curves: all evaluations.
        missing: runs without a result.
        status: what to do next.
    """

    name: str
    batch_size: int
    metric: Metric
    margin: float
    arms: tuple[ArmResult, ...]
    best: tuple[tuple[str, float], ...]
    sgd_ngd: ArmGap | None
    sgd_gd: ArmGap | None
    verdict: str
    runs: tuple[RunRow, ...]
    curves: tuple[CurveRow, ...]
    missing: tuple[MissingRun, ...]
    status: str

    def to_dict(self) -> dict[str, object]:
        """Return the panel for a JSON document, without the curves."""
        return {
            "name": self.name,
            "batch_size": self.batch_size,
            "metric": self.metric,
            "margin": self.margin,
            "verdict": self.verdict,
            "sgd_ngd": None if self.sgd_ngd is None else self.sgd_ngd.to_dict(),
            "sgd_gd": None if self.sgd_gd is None else self.sgd_gd.to_dict(),
            "arms": [arm.to_dict() for arm in self.arms],
            "best": plain(dict(self.best)),
            "runs": [row.to_dict() for row in self.runs],
            "missing": [asdict(run) for run in self.missing],
            "status": self.status,
        }

    def __str__(self) -> str:
        lines = [*missing_first(self.missing, len(self.runs)), f"{self.name} ({self.metric}): {self.verdict}"]
        lines.append(", ".join(str(arm) for arm in self.arms))
        gaps = [str(gap) for gap in (self.sgd_ngd, self.sgd_gd) if gap is not None]
        lines += [f"{'; '.join(gaps)}; margin ±{self.margin:g}"] if gaps else []
        return "\n".join([*lines, f"Next: {self.status}"])


class NgdFinding(ExperimentFinding[NgdPanelFinding]):
    """What an experiment `ngd` found."""

    kind = "ngd"
