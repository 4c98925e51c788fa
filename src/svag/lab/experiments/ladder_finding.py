"""What a ladder found: what the price list of each rung said, and what the ladder measured (fig:lsr_acc_gnr)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from svag.lab.experiments import gain_answer, ladder_answer
from svag.lab.experiments.base import SGD, Metric, own_metric
from svag.lab.experiments.data_price import DataPrice
from svag.lab.experiments.drift import Crossing, Drift
from svag.lab.experiments.evidence import Finding
from svag.lab.experiments.gain_finding import GainFinding, find_gains
from svag.lab.experiments.ladder import Ladder, LadderPanel
from svag.lab.experiments.ladder_drift import Fractions, data_of, drift_of, shared_window, shortfalls, steps_at
from svag.lab.experiments.ladder_evidence import (
    PREDICTS_FROM,
    Certificate,
    PredictionRange,
    Rung,
    RungPrediction,
    certificates,
    final_errors,
    pooled,
    predicted_range,
    prediction_of,
    rung_of,
    signal_slope,
)
from svag.lab.experiments.runs import CurveRow, MissingRun, PanelRuns, RunRow, gather
from svag.lab.experiments.wording import Answer
from svag.lab.records.record import RunRecord
from svag.prices.basis import BALANCED
from svag.prices.estimate import Estimate
from svag.stats.samples import json_fields
from svag.theory.optimizers import Rule
from svag.verdicts.scaling import ScalingVerdict, scaling_verdict

# From this N/G on a ladder sees invariance hold over several rungs before it is lost: B* is then at least 10 times B.
_INVARIANT_FROM = 8.0
# Invariance counts as seen where it still holds at this multiple of the smallest batch.
_HELD = 4


@dataclass(frozen=True)
class LadderPanelFinding:
    """What one ladder found.

    Attributes:
        name: of the panel.
        rungs: one per batch size, increasing.
        predictions: one per rung with readings, increasing in batch size.
        drift: how far the rungs really drifted apart, pair by pair; None when fewer than two can be compared.
        data: the measured factor in examples to the same training loss, pair by pair.
        window: fractions of the budget over which all rungs were averaged; None without readings.
        shortfalls: pairs whose spread lies below D although a theorem applies, each a sentence with the likely cause.
        scaling: where test error was seen to fail; None when fewer than two batch sizes have results.
        predicted: the smallest and the largest B* of the baselines that predict; None without any.
        slope: of log G/N against log B, 1 while B_simple does not depend on the batch; None with fewer than two rungs.
        certificates: what the measured N/G rule out.
        c2: C² of the predictions.
        runs: all results.
        curves: all evaluations.
        missing: runs without a result.
        status: what to do next.
        metric: what scaling is seen to fail by: test accuracy, as test error, or bits per character of a text.
        rule: along which the batch sizes lie: "linear" or "square_root"; that of the optimizer with the gain rule.
        gain: what the runs by the gain rule came to; None along the other rules. Then only the smallest batch size
            predicts, and `drift`, `shortfalls` and `certificates`, which are about those rules, are empty.
    """

    name: str
    rungs: tuple[Rung, ...]
    predictions: tuple[RungPrediction, ...]
    drift: Drift | None
    data: tuple[DataPrice, ...]
    window: Fractions | None
    shortfalls: tuple[str, ...]
    scaling: ScalingVerdict | None
    predicted: PredictionRange | None
    slope: Estimate | None
    certificates: tuple[Certificate, ...]
    c2: float
    runs: tuple[RunRow, ...]
    curves: tuple[CurveRow, ...]
    missing: tuple[MissingRun, ...]
    status: str
    metric: Metric
    rule: Rule
    gain: GainFinding | None = None

    @property
    def adaptive(self) -> bool:
        """Whether this is about Adam or its kin: all that is predicted is then an estimate, and there is no theorem."""
        return self.rule == "square_root"

    @property
    def unbalanced(self) -> tuple[tuple[int, float | None], ...]:
        """Batch sizes whose weights were not measured at equilibrium: growth over decay is unknown or off by 10%."""
        rungs = ((rung.batch_size, rung.balance) for rung in self.rungs)
        return tuple((size, found) for size, found in rungs if found is None or abs(found - 1) > BALANCED)

    @property
    def observed(self) -> float | None:
        """The batch size at which test error was seen to fail."""
        return None if self.scaling is None else self.scaling.observed

    @property
    def checked(self) -> tuple[tuple[RungPrediction, Crossing], ...]:
        """The baselines that predict, each with where the ladder crossed C² above it."""
        crossings = {} if self.drift is None else {one.baseline: one for one in self.drift.crossings}
        pairs = ((one, crossings.get(one.batch_size)) for one in self.predictions if one.usable)
        return tuple((one, crossing) for one, crossing in pairs if crossing is not None)

    def to_dict(self) -> dict[str, object]:
        """Return the panel for a JSON document, without the curves."""
        found, drift = self.scaling, self.drift
        limits = (math.nan, math.nan) if found is None else (found.low, found.high)
        nothing = Estimate(math.nan, math.nan, math.nan)
        crossed = nothing if drift is None else drift.crossings[0].observed
        return {
            "name": self.name,
            **json_fields({"observed": self.observed, "observed_low": limits[0], "observed_high": limits[1]}),
            **json_fields(
                {
                    "observed_dynamics": crossed.value,
                    "observed_dynamics_low": crossed.low,
                    "observed_dynamics_high": crossed.high,
                }
            ),
            "predictions": [one.to_dict() for one in self.predictions],
            "compared": None if drift is None else drift.compared,
            "window": None if self.window is None else list(self.window),
            "pairs": [] if drift is None else [one.to_dict() for one in drift.pairs],
            "crossings": [] if drift is None else [one.to_dict() for one in drift.crossings],
            "shortfalls": list(self.shortfalls),
            "data_prices": [one.to_dict() for one in self.data],
            "rungs": [rung.to_dict() for rung in self.rungs],
            "predicted": None if self.predicted is None else json_fields(asdict(self.predicted)),
            "slope": None if self.slope is None else self.slope.to_dict(),
            "certificates": [json_fields(asdict(one)) for one in self.certificates],
            "scaling": None if found is None else found.to_dict(),
            "c2": self.c2,
            "metric": self.metric,
            "runs": [row.to_dict() for row in self.runs],
            "missing": [asdict(run) for run in self.missing],
            "status": self.status,
            **({} if self.gain is None else {"gain": self.gain.to_dict()}),
        }

    def answer(self) -> Answer:
        """What the price list said and what the ladder measured; test error after it, as a criterion of its own."""
        return ladder_answer.answer(self) if self.gain is None else gain_answer.answer(self, self.gain)

    def __str__(self) -> str:
        return str(self.answer())


class LadderFinding(Finding[LadderPanelFinding]):
    """What an experiment `ladder` found.

    >>> from svag.lab.specs.spec import RunSpec
    >>> base = RunSpec.from_yaml(
    ...     "{data: {name: svhn}, model: {arch: mlp, norm: none}, batch_size: 8, lr: 1, budget: {epochs: 9}}")
    >>> found = Ladder.of(base, batch_sizes=[8, 16], seeds=1).find([])
    >>> len(found.missing), found.to_dict()["observed"]
    (2, None)
    >>> print(found.panels[0])
    mlp none on svhn: Fewer than two batch sizes have results.
    Next: start the same command again: it continues with the runs that have no result.
    """

    kind = "ladder"


def find_ladder(experiment: Ladder, records: Sequence[RunRecord]) -> LadderFinding:
    """Find what the rungs of each ladder predicted, how far they drifted apart, and where test error failed."""
    found, strangers = gather(experiment, records, "test_accuracy")
    panels = tuple(_panel(experiment, panel, runs) for panel, runs in zip(experiment.panels, found, strict=True))
    return LadderFinding(experiment.title, panels, strangers)


def _panel(experiment: Ladder, panel: LadderPanel, runs: PanelRuns) -> LadderPanelFinding:
    sizes = panel.sizes
    # by the gain rule the smallest batch size alone predicts: the others do not train as it would have them
    baselines = sizes[:1] if panel.gained else sizes
    errors = {size: found for size in sizes if (found := final_errors(panel, runs, SGD, size))}
    scaling, unscaled = _scaling(errors, experiment.tolerance)
    window = experiment.window or shared_window(runs, baselines)
    # what larger batches cost is said of the same part of training in which it is then measured
    windows = {} if window is None else {size: steps_at(runs, size, window) for size in errors}
    measured, unread = pooled(runs, baselines, experiment.c2, windows)
    predictions = tuple(prediction_of(*one, sizes, scaling) for one in measured)
    rules = [one.linear for one in predictions]
    drift = None if panel.gained else drift_of(runs, predictions, window, experiment.c2)
    data = data_of(runs, sizes)
    rungs = tuple(rung_of(panel, runs, size, errors.get(size, {}), rules) for size in sizes)
    gains = find_gains(panel, runs, data, window) if panel.gained else None
    if gains is not None:
        rates = gains.rates(panel.baseline)
        rungs = tuple(replace(one, lr=rates.get(one.batch_size, one.lr)) for one in rungs)
    return LadderPanelFinding(
        name=panel.name,
        rungs=rungs,
        predictions=predictions,
        drift=drift,
        data=data,
        window=window if predictions else None,
        shortfalls=() if drift is None else shortfalls(drift, predictions),
        scaling=scaling,
        predicted=predicted_range(predictions),
        slope=signal_slope(rungs),
        certificates=() if panel.gained else certificates(rules, sizes),
        c2=experiment.c2,
        runs=runs.rows(),
        curves=runs.curves(),
        missing=runs.missing,
        status=_after_gains(panel, runs)
        if panel.gained
        else _next(runs, predictions, drift, scaling, unscaled, unread),
        metric=own_metric([panel]),
        rule=panel.base.optimizer.rule,
        gain=gains,
    )


def _scaling(errors: Mapping[int, Mapping[int, float]], tolerance: float) -> tuple[ScalingVerdict | None, str]:
    if len(errors) < 2:
        return None, "run at least two batch sizes: a ladder of one rung shows no failure."
    try:
        return scaling_verdict({size: list(found.values()) for size, found in errors.items()}, tolerance), ""
    except ValueError as error:
        return None, f"{error}."


def _after_gains(panel: LadderPanel, runs: PanelRuns) -> str:
    if runs.missing:
        return runs.remedy
    if panel.unplanned:
        sizes = ", ".join(map(str, panel.unplanned))
        return f"start the same command again: it plans batch sizes {sizes} from these runs, and trains them."
    return "nothing more to run."


def _next(
    runs: PanelRuns,
    predictions: Sequence[RungPrediction],
    drift: Drift | None,
    scaling: ScalingVerdict | None,
    unscaled: str,
    unread: str,
) -> str:
    if runs.missing:
        return runs.remedy
    if not predictions:
        return unread if scaling is not None else unscaled
    first = predictions[0]
    smallest = f"at the smallest, B={first.batch_size}"
    if not any(one.usable for one in predictions):
        if first.linear.noise_to_signal.value < PREDICTS_FROM:
            return f"start the ladder lower: no baseline predicts; {smallest}, {first.status}"
        return f"no baseline predicts; {smallest}: {first.status}"
    if drift is None:
        return "take at least 12 readings at two or more batch sizes, in the same part of training."
    adaptive = first.linear.basis == "second_moment"
    if not (first.theorem or adaptive):
        return f"{smallest}, no theorem applies: {first.linear.reasons[0]}"
    if math.isinf(drift.crossings[0].observed.value):
        size, claim = f"{first.linear.limit.value:,.0f}", "are estimated to" if adaptive else "must"
        return f"add batch sizes up to {size}, where the statistics {claim} have drifted apart."
    if drift.crossings[0].strict.value < _HELD * first.batch_size:
        ratio = f"N/{first.linear.signal} is {_INVARIANT_FROM:g}"
        return (
            f"nothing is missing. Starting at a smaller batch, where {ratio} (it is "
            f"{first.linear.noise_to_signal.value:.2g} at {first.batch_size}), would also show batches between which "
            "training hardly changes."
        )
    return "nothing more to run: the drift is located to within the spacing of the ladder."
