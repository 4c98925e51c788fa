"""What a comparison of SGD and SVAG found, panel by panel, as objects that speak (fig:svag_accs)."""

from dataclasses import asdict, dataclass

from svag.findings.experiments.arm_result import ArmResult
from svag.findings.experiments.closeness import Closeness
from svag.findings.experiments.curve_gap import CurveGap
from svag.findings.experiments.decomposition import Decomposition
from svag.findings.experiments.finding import ExperimentFinding
from svag.findings.experiments.limit import Limit
from svag.findings.experiments.runs import CurveRow, MissingRun, RunRow
from svag.findings.experiments.wording import missing_first
from svag.findings.sde.answer import SDEVerdict
from svag.records.experiment import Metric


@dataclass(frozen=True)
class ComparePanelFinding:
    """Whether SGD ends where its SDE ends, in one setting.

    Attributes:
        name: of the panel.
        batch_size: B.
        metric: what is compared.
        verdict: on the final metric; None when SGD or all of SVAG have no result.
        arms: what each arm came to, SGD first.
        limit: the SDE's value, fitted to all ell; None without two arms of two seeds.
        richardson: the same from the two largest ell alone.
        curve: SGD against the largest ell over the whole of training; None without enough curves.
        closeness: R, G and N of SGD over those of the largest ell at equilibrium; None without readings of both.
        decompositions: why SGD and the SDE end apart, by each route that the runs allow.
        runs: all results.
        curves: all evaluations.
        missing: runs without a result.
        status: what to do next.
    """

    name: str
    batch_size: int
    metric: Metric
    verdict: SDEVerdict | None
    arms: tuple[ArmResult, ...]
    limit: Limit | None
    richardson: Limit | None
    curve: CurveGap | None
    closeness: Closeness | None
    decompositions: tuple[Decomposition, ...]
    runs: tuple[RunRow, ...]
    curves: tuple[CurveRow, ...]
    missing: tuple[MissingRun, ...]
    status: str

    def to_dict(self) -> dict[str, object]:
        """Return the panel for a JSON document: the fields of the verdict, then the rest; without the curves."""
        verdict = {} if self.verdict is None else self.verdict.to_dict()
        return {
            "answer": None,
            "gap": None,
            "low": None,
            "high": None,
            **verdict,
            "name": self.name,
            "batch_size": self.batch_size,
            "metric": self.metric,
            "results": [arm.to_dict() for arm in self.arms],
            "limit_value": None if self.limit is None else self.limit.to_dict(),
            "richardson": None if self.richardson is None else self.richardson.to_dict(),
            "curve": None if self.curve is None else self.curve.to_dict(),
            "closeness": None if self.closeness is None else self.closeness.to_dict(),
            "decompositions": [one.to_dict() for one in self.decompositions],
            "runs": [row.to_dict() for row in self.runs],
            "missing": [asdict(run) for run in self.missing],
            "status": self.status,
        }

    def __str__(self) -> str:
        lines = [*missing_first(self.missing, len(self.runs)), f"{self.name} ({self.metric}):"]
        lines.append(", ".join(str(arm) for arm in self.arms))
        if self.verdict is not None:
            lines += str(self.verdict).split("\n")[:2]
        if self.richardson is not None:
            lines.append(str(self.richardson))
        lines += [str(one) for one in (self.curve, self.closeness) if one is not None]
        lines += [str(one) for one in self.decompositions]
        return "\n".join([*lines, f"Next: {self.status}"])


class CompareFinding(ExperimentFinding[ComparePanelFinding]):
    """What an experiment `compare` found."""

    kind = "compare"
