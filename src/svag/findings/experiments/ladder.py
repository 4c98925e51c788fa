"""From the records of a ladder to where linear scaling fails, and what each rung predicted (fig:lsr_acc_gnr)."""

import math
from collections.abc import Mapping, Sequence
from typing import get_args

import numpy as np

from svag.findings.critical_batch.prediction import CriticalBatch, predict_critical_batch
from svag.findings.experiments.arm_name import SGD, svag_arm
from svag.findings.experiments.certificates import certificates
from svag.findings.experiments.ladder_finding import (
    LadderFinding,
    LadderPanelFinding,
    PredictionRange,
    Rung,
    RungPrediction,
)
from svag.findings.experiments.limit import Limit, fitted_limit
from svag.findings.experiments.panel_runs import runs_of, strangers
from svag.findings.experiments.runs import PanelRuns
from svag.findings.experiments.wording import CONTINUE
from svag.findings.scaling.answer import ScalingVerdict
from svag.findings.scaling.verdict import scaling_verdict
from svag.records.experiment import Ladder, LadderPanel
from svag.records.record import RunRecord
from svag.stats.contrast import contrast
from svag.stats.quotient import Interval, quotient
from svag.theory.kappa import Form


def find_ladder(experiment: Ladder, records: Sequence[RunRecord]) -> LadderFinding:
    """Find where each ladder fails and what its rungs predicted."""
    panels = tuple(_panel(experiment, panel, records) for panel in experiment.panels)
    return LadderFinding(experiment.title, panels, strangers(experiment, records))


def _panel(experiment: Ladder, panel: LadderPanel, records: Sequence[RunRecord]) -> LadderPanelFinding:
    runs = runs_of(panel, experiment.seeds_of(panel), records, "test_accuracy")
    sizes = sorted(set(panel.batch_sizes))
    errors = {size: found for size in sizes if (found := _errors(runs, size))}
    scaling, unscaled = _scaling(errors, experiment.tolerance)
    pooled, unread = _pooled(runs, sizes, experiment.c2)
    predictions = tuple(_prediction(one, by_seed, scaling) for one, by_seed in pooled)
    measured = [one.critical for one in predictions]
    rungs = tuple(_rung(panel, runs, size, errors.get(size, {}), measured) for size in sizes)
    return LadderPanelFinding(
        name=panel.name,
        rungs=rungs,
        scaling=scaling,
        predictions=predictions,
        ranges=_ranges(predictions),
        certificates=certificates(measured, sizes),
        c2=experiment.c2,
        runs=runs.rows(),
        curves=runs.curves(),
        missing=runs.missing,
        status=_next(runs, predictions, scaling, unscaled, unread),
    )


def _errors(runs: PanelRuns, size: int) -> dict[int, float]:
    return {seed: 1 - accuracy for seed, accuracy in runs.finals(SGD, size, "test_accuracy").items()}


def _scaling(errors: Mapping[int, Mapping[int, float]], tolerance: float) -> tuple[ScalingVerdict | None, str]:
    if len(errors) < 2:
        return None, "run at least two batch sizes: a ladder of one rung shows no failure."
    try:
        return scaling_verdict({size: list(found.values()) for size, found in errors.items()}, tolerance), ""
    except ValueError as error:
        return None, f"{error}."


Pooled = tuple[CriticalBatch, tuple[tuple[int, CriticalBatch], ...]]


def _pooled(runs: PanelRuns, sizes: Sequence[int], c2: float) -> tuple[list[Pooled], str]:
    """One prediction per batch size from the readings of all seeds together, and one per seed; or why there is none."""
    found: list[Pooled] = []
    problem = "give the base spec a probe, as in probe: {kind: in_run}: without readings nothing is predicted."
    for size in sizes:
        readings = runs.readings(SGD, size)
        if not readings:
            continue
        try:
            together = predict_critical_batch([one for seed in readings.values() for one in seed], c2)
            found.append((together, tuple((seed, predict_critical_batch(own, c2)) for seed, own in readings.items())))
        except ValueError as error:
            problem = f"at B={size}, {error}."
    return found, problem


def _prediction(
    one: CriticalBatch, by_seed: tuple[tuple[int, CriticalBatch], ...], scaling: ScalingVerdict | None
) -> RungPrediction:
    observed = None if scaling is None else scaling.observed
    below = observed is None or one.batch_size < observed
    beyond = f"B={one.batch_size} is not below the observed failure, and a baseline has to be."
    over = _over_observed(one, scaling)
    return RungPrediction(
        critical=one,
        by_seed=by_seed,
        usable=one.ok and below,
        status=one.status if below else beyond if one.ok else f"{beyond} {one.status}",
        over_observed=None if over is None else over.value,
        over_observed_low=None if over is None else over.low,
        over_observed_high=None if over is None else over.high,
    )


def _over_observed(one: CriticalBatch, scaling: ScalingVerdict | None) -> Interval | None:
    """Predicted over observed; None when the ladder gives no failure, or only a bound on it, to compare with."""
    if scaling is None or scaling.observed is None or scaling.answer != "fails" or math.isinf(one.critical_batch):
        return None
    # the interval is a test inverted, and may leave out the estimate
    low, high = min(scaling.low, scaling.observed), max(scaling.high, scaling.observed)
    return quotient(Interval(one.critical_batch, one.low, one.high), Interval(scaling.observed, low, high))


def _rung(
    panel: LadderPanel, runs: PanelRuns, size: int, errors: Mapping[int, float], found: Sequence[CriticalBatch]
) -> Rung:
    values = np.array([error for error in errors.values() if math.isfinite(error)])
    low, high = contrast([values], [1.0]).interval() if values.size > 1 else (-math.inf, math.inf)
    reading = next((one for one in found if one.batch_size == size), None)
    unknown = (math.nan, math.nan, math.nan)
    rho = unknown if reading is None else _ratio(reading)
    return Rung(
        batch_size=size,
        lr=panel.base.lr * size / panel.base.batch_size,
        seeds=len(errors),
        diverged=len(errors) - values.size,
        errors=tuple(sorted(errors.items())),
        error=float(values.mean()) if values.size else math.nan,
        error_low=low,
        error_high=high,
        signal_to_noise=_inverse(rho[0]),
        signal_to_noise_low=_inverse(rho[2]),
        signal_to_noise_high=_inverse(rho[1]),
        balance=None if reading is None else reading.balance,
        sde=_sde_error(panel, runs, size, errors),
    )


def _ratio(one: CriticalBatch) -> tuple[float, float, float]:
    return one.noise_to_signal, one.noise_to_signal_low, one.noise_to_signal_high


def _inverse(ratio: float) -> float:
    return math.inf if ratio == 0 else 1 / ratio


def _sde_error(panel: LadderPanel, runs: PanelRuns, size: int, errors: Mapping[int, float]) -> Limit | None:
    finals = {1: np.array(list(errors.values()))}
    for ell in panel.ells:
        accuracies = runs.finals(svag_arm(ell), size, "test_accuracy")
        if ell > 1 and accuracies:
            finals[ell] = 1 - np.array(list(accuracies.values()))
    estimate = fitted_limit(finals) if len(finals) > 1 else None
    return None if estimate is None else estimate.limit


def _ranges(predictions: Sequence[RungPrediction]) -> tuple[PredictionRange, ...]:
    usable = [one.critical for one in predictions if one.usable]
    found = []
    for form in get_args(Form):
        values = [(_by_form(one, form), one.batch_size) for one in usable]
        if values:
            (smallest, low_from), (largest, high_from) = min(values), max(values)
            found.append(PredictionRange(form, smallest, low_from, largest, high_from))
    return tuple(found)


def _by_form(one: CriticalBatch, form: Form) -> float:
    return {"sharp": one.critical_batch, "printed": one.printed, "plotted": one.plotted}[form]


def _next(
    runs: PanelRuns,
    predictions: Sequence[RungPrediction],
    scaling: ScalingVerdict | None,
    unscaled: str,
    unread: str,
) -> str:
    if runs.missing:
        return CONTINUE
    if scaling is None:
        return unscaled
    if not predictions:
        return unread
    if not any(one.usable for one in predictions):
        return f"no baseline is usable; at the smallest, B={predictions[0].batch_size}: {predictions[0].status}"
    return scaling.status
