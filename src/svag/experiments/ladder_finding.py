"""What a ladder found, panel by panel, as objects that speak (fig:lsr_acc_gnr)."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from svag.experiments.evidence import ExperimentFinding, Limit
from svag.experiments.runs import CurveRow, MissingRun, RunRow, missing_first, plain
from svag.findings.critical_batch import CriticalBatch
from svag.findings.scaling_verdict import ScalingVerdict
from svag.theory.bounds import Form


@dataclass(frozen=True)
class Rung:
    """One batch size of the ladder.

    Attributes:
        batch_size: B.
        lr: η, by the linear rule.
        seeds: runs with a result.
        diverged: how many of them diverged.
        errors: final test error by seed, NaN where diverged.
        error: mean of those that finished; NaN if none did.
        error_low: lower 95% limit of that mean over seeds; −∞ with fewer than two.
        error_high: upper limit.
        signal_to_noise: G/N, what the paper draws; a ratio of averages over all seeds; NaN without readings.
        signal_to_noise_low: lower limit of its interval.
        signal_to_noise_high: upper limit.
        balance: growth over decay of the weights, 1 at equilibrium; None when unknown.
        sde: the test error of the SDE limit, if SVAG was run here.
    """

    batch_size: int
    lr: float
    seeds: int
    diverged: int
    errors: tuple[tuple[int, float], ...]
    error: float
    error_low: float
    error_high: float
    signal_to_noise: float
    signal_to_noise_low: float
    signal_to_noise_high: float
    balance: float | None
    sde: Limit | None

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document; unknown numbers are null."""
        flat = plain({**asdict(self), "errors": None, "sde": None})
        errors = [plain({"seed": seed, "error": error}) for seed, error in self.errors]
        return {**flat, "errors": errors, "sde": None if self.sde is None else self.sde.to_dict()}


@dataclass(frozen=True)
class RungPrediction:
    """What one rung, taken as the baseline, predicts.

    Attributes:
        critical: from the readings of all its seeds.
        by_seed: from those of each seed.
        usable: whether it says anything about where this ladder fails: `critical.ok`, and the rung lies below it.
        status: why not, or that all is well.
        over_observed: predicted over observed B*; None when no failure was observed.
        over_observed_low: lower 95% limit, both uncertainties included.
        over_observed_high: upper limit, `math.inf` where unbounded.
    """

    critical: CriticalBatch
    by_seed: tuple[tuple[int, CriticalBatch], ...]
    usable: bool
    status: str
    over_observed: float | None
    over_observed_low: float | None
    over_observed_high: float | None

    @property
    def batch_size(self) -> int:
        """B of the baseline."""
        return self.critical.batch_size

    def to_dict(self) -> dict[str, object]:
        """Return a row for a JSON document: the prediction, its interval and what to think of it."""
        found = self.critical
        return plain(
            {
                "batch_size": found.batch_size,
                "sharp": found.critical_batch,
                "low": found.low,
                "high": found.high,
                "printed": found.printed,
                "printed_low": found.printed_low,
                "printed_high": found.printed_high,
                "plotted": found.plotted,
                "plotted_low": found.plotted_low,
                "plotted_high": found.plotted_high,
                "noise_to_signal": found.noise_to_signal,
                "noise_to_signal_low": found.noise_to_signal_low,
                "noise_to_signal_high": found.noise_to_signal_high,
                "b_simple": found.b_simple,
                "balance": found.balance,
                "readings": found.readings,
                "ok": found.ok,
                "usable": self.usable,
                "status": self.status,
                "over_observed": self.over_observed,
                "over_observed_low": self.over_observed_low,
                "over_observed_high": self.over_observed_high,
                "by_seed": [{"seed": seed, **one.to_dict()} for seed, one in self.by_seed],
            }
        )


@dataclass(frozen=True)
class Certificate:
    """A theorem that fired: something that the measured N/G rules out.

    Attributes:
        kind: "baseline": linear scaling from `baseline` to `batch_size` (thm:lsr_kappa_bound); "large_run": the same,
            from N/G at `batch_size` alone (thm:lsr_condition); "sde": SGD at `batch_size` is not C-close to its SDE
            (thm:eq_sde_sgd).
        batch_size: the run that is ruled out.
        baseline: the smaller batch size; None for "sde".
        measured: the end of the interval that decided: B* for "baseline", N/G otherwise.
        threshold: what it was compared with.
    """

    kind: Literal["baseline", "large_run", "sde"]
    batch_size: int
    baseline: int | None
    measured: float
    threshold: float

    def __str__(self) -> str:
        match self.kind:
            case "baseline":
                return f"{self.baseline} → {self.batch_size}: beyond B* ≤ {self.measured:.4g} of the baseline"
            case "large_run":
                return f"{self.baseline} → {self.batch_size}: N/G ≤ {self.measured:.3g} < {self.threshold:.3g} there"
        return f"SGD and SDE at {self.batch_size}: N/G ≤ {self.measured:.3g} < {self.threshold:.3g}"


@dataclass(frozen=True)
class PredictionRange:
    """The smallest and the largest prediction of the usable baselines, as the paper's figures show them."""

    form: Form
    smallest: float
    smallest_from: int
    largest: float
    largest_from: int


@dataclass(frozen=True)
class LadderPanelFinding:
    """What one ladder found.

    Attributes:
        name: of the panel.
        rungs: one per batch size, increasing.
        scaling: where linear scaling was seen to fail; None when fewer than two batch sizes have results.
        predictions: one per rung with readings, increasing in batch size.
        ranges: smallest and largest usable prediction, for each form; empty without usable baselines.
        certificates: what the measured N/G rule out.
        c2: C² of the predictions.
        runs: all results.
        curves: all evaluations.
        missing: runs without a result.
        status: what to do next.
    """

    name: str
    rungs: tuple[Rung, ...]
    scaling: ScalingVerdict | None
    predictions: tuple[RungPrediction, ...]
    ranges: tuple[PredictionRange, ...]
    certificates: tuple[Certificate, ...]
    c2: float
    runs: tuple[RunRow, ...]
    curves: tuple[CurveRow, ...]
    missing: tuple[MissingRun, ...]
    status: str

    @property
    def observed(self) -> float | None:
        """The batch size at which the ladder was seen to fail."""
        return None if self.scaling is None else self.scaling.observed

    def to_dict(self) -> dict[str, object]:
        """Return the panel for a JSON document, without the curves."""
        found = self.scaling
        limits = (math.nan, math.nan) if found is None else (found.low, found.high)
        return {
            "name": self.name,
            **plain({"observed": self.observed, "observed_low": limits[0], "observed_high": limits[1]}),
            "predictions": [one.to_dict() for one in self.predictions],
            "rungs": [rung.to_dict() for rung in self.rungs],
            "ranges": [plain(asdict(one)) for one in self.ranges],
            "certificates": [plain(asdict(one)) for one in self.certificates],
            "scaling": None if found is None else found.to_dict(),
            "c2": self.c2,
            "runs": [row.to_dict() for row in self.runs],
            "missing": [asdict(run) for run in self.missing],
            "status": self.status,
        }

    def __str__(self) -> str:
        lines = [*missing_first(self.missing, len(self.runs)), f"{self.name}:"]
        if self.scaling is not None:
            lines.append("observed: " + "; ".join(str(self.scaling).split("\n")[:2]))
        lines += [_prediction_line(one) for one in self.predictions]
        for one in self.ranges:
            if one.form == "sharp":
                lines.append(
                    f"usable predictions from {one.smallest:.4g} (B={one.smallest_from}) to {one.largest:.4g} "
                    f"(B={one.largest_from})"
                )
        lines += [f"ruled out at B={size}: {what}" for size, what in ruled_out(self.certificates).items()]
        return "\n".join([*lines, f"Next: {self.status}"])


class LadderFinding(ExperimentFinding[LadderPanelFinding]):
    """What an experiment `ladder` found; it prints itself.

    >>> LadderFinding("mine", panels=()).to_dict()
    {'kind': 'ladder', 'title': 'mine', 'panels': [], 'strangers': []}
    """

    kind = "ladder"


def _prediction_line(one: RungPrediction) -> str:
    found = one.critical
    high = f"{found.high:.4g}" if math.isfinite(found.high) else "∞"
    text = f"from B={found.batch_size}: B* = {found.critical_batch:.4g} [{found.low:.4g}, {high}]"
    if one.over_observed is not None:
        text += f", {one.over_observed:.2g} × observed"
    return f"{text} (N/G = {found.noise_to_signal:.3g})" + ("" if one.usable else f"; not usable: {one.status}")


def ruled_out(fired: Sequence[Certificate]) -> dict[int, str]:
    """What the measured N/G rules out at each batch size, naming the baselines from which it does."""
    said = {}
    for size in sorted({one.batch_size for one in fired}):
        of_size = [one for one in fired if one.batch_size == size]
        baselines = sorted({one.baseline for one in of_size if one.baseline is not None})
        claims = [f"linear scaling from {', '.join(map(str, baselines))}"] if baselines else []
        claims += ["C-closeness of SGD and its SDE"] if any(one.kind == "sde" for one in of_size) else []
        said[size] = " and ".join(claims)
    return said
