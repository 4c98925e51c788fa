"""Up to which batch size does linear scaling hold? The runs, and what they found (fig:lsr_acc_gnr).

Moments at another batch size: effective steps shrink as the batch grows, fractions of the budget stay.

The probe of a ladder whose base has none: the predictions are made from what it measures.

The runs behind "up to which batch size does linear scaling hold?": batch sizes along the rule, with a probe.

Which theorems fire on a ladder: what the measured N/G rules out, by the whole of its interval.

From the records of a ladder to where linear scaling fails, and what each rung predicted (fig:lsr_acc_gnr).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

import numpy as np

from svag.experiments.arms import over_seeds, panel, require_sgd, svag_arms
from svag.experiments.base import Ladder, LadderPanel
from svag.experiments.evidence import Limit, fitted_limit
from svag.experiments.ladder_finding import (
    Certificate,
    LadderFinding,
    LadderPanelFinding,
    PredictionRange,
    Rung,
    RungPrediction,
)
from svag.experiments.runs import CONTINUE, SGD, PanelRuns, runs_of, strangers, svag_arm
from svag.findings.critical_batch import CriticalBatch, predict_critical_batch
from svag.findings.scaling_verdict import ScalingVerdict, scaling_verdict
from svag.records.fields import SpecError, step_of
from svag.records.parts import FrozenProbe, InRunProbe, NoProbe
from svag.records.record import RunRecord
from svag.records.schedules import Steps
from svag.records.spec import RunSpec
from svag.stats.means import contrast
from svag.stats.ratios import Interval, quotient
from svag.theory.bounds import Form, large_run_refutes, large_run_threshold, sde_threshold
from svag.theory.optimizers import linear_scaling


def scaled_steps(spec: RunSpec, kappa: float) -> dict[str, Any]:
    """Edits that divide everything in a spec that is a number of effective steps by κ, to the nearest step.

    A probe that reads at every effective step goes on doing so.

    >>> spec = RunSpec.from_yaml('''{data: {name: svhn}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: 400,
    ...     schedule: {kind: steps, at: [100, 0.5]}, evaluate: {every: 20}}''')
    >>> scaled_steps(spec, 4)
    {'schedule.warmup': 0, 'schedule.at': [25, 0.5], 'evaluate.every': 5, 'budget': 100}
    """
    edits: dict[str, Any] = {"schedule.warmup": _scaled(spec.schedule.warmup, kappa)}
    if isinstance(spec.schedule, Steps):
        edits["schedule.at"] = [_scaled(moment, kappa) for moment in spec.schedule.at]
    if isinstance(spec.probe, InRunProbe | FrozenProbe):
        edits["probe.window"] = [_scaled(moment, kappa) for moment in spec.probe.window]
    if isinstance(spec.probe, InRunProbe) and spec.probe.every != 1:
        edits["probe.every"] = _scaled(spec.probe.every, kappa)
    edits["evaluate.every"] = _scaled(spec.evaluate.every, kappa)
    if isinstance(spec.budget, int):
        edits["budget"] = _scaled(spec.budget, kappa)
    return edits


def _scaled(moment: float, kappa: float) -> float:
    return max(1, round(moment / kappa)) if isinstance(moment, int) and moment > 0 else moment


READINGS, BATCHES = 60, 20


def with_probe(base: RunSpec, batch_sizes: Iterable[int]) -> RunSpec:
    """The base with a probe over the last third of its last-but-one phase, unless it has one.

    In the run where all batches can be cut into parts; at frozen weights with BatchNorm, which cutting would change,
    and with a network of the user's own, which may have it.

    >>> base = RunSpec.from_yaml('''{data: {name: svhn}, model: {arch: mlp, norm: layer}, batch_size: 8, lr: 1,
    ...     budget: {epochs: 9}, schedule: {kind: steps, at: [0.3, 0.9]}}''')
    >>> with_probe(base, [8, 16]).probe
    InRunProbe(kind='in_run', parts=4, window=(0.7, 0.9), every=0.0005)
    >>> with_probe(base.edited({"model.norm": "batch"}), [8, 16]).probe
    FrozenProbe(kind='frozen', readings=60, window=(0.7, 0.9), batches=20)
    """
    if not isinstance(base.probe, NoProbe):
        return base
    sizes, window = list(batch_sizes), _window(base)
    parts = next((parts for parts in (4, 2) if not any(size % parts for size in sizes)), None)
    if parts is not None and base.model.norm != "batch" and not base.model.is_callable:
        return base.edited({"probe": {"kind": "in_run", "parts": parts, "window": window, "every": 0.0005}})
    readings = _that_fit([rung(base, size) for size in sizes], window)
    return base.edited({"probe": {"kind": "frozen", "readings": readings, "window": window, "batches": BATCHES}})


def _window(base: RunSpec) -> list[float]:
    """As fractions of the budget; a rate that never decays in steps is watched over the second half."""
    if not isinstance(base.schedule, Steps):
        return [0.5, 1.0]
    moments: list[float] = [0.0, *base.schedule.at]
    if any(isinstance(moment, int) for moment in moments):
        try:
            moments = [step_of(moment, base.steps()) / base.steps() for moment in moments]
        except SpecError:  # an npz file in epochs
            raise SpecError("probe", "is missing: say when to measure G and N, such as {kind: frozen}") from None
    start, end = moments[-2:]
    return [round(end - (end - start) / 3, 6), float(end)]


def _that_fit(rungs: Iterable[RunSpec], window: list[float]) -> int:
    """A reading at every step of the window at most, at the largest batch size."""
    known = [spec for spec in rungs if isinstance(spec.budget, int) or spec.data.examples is not None]
    steps = (step_of(window[1], spec.steps()) - step_of(window[0], spec.steps()) for spec in known)
    return max(1, min([READINGS, *steps]))


def runs(experiment: Ladder) -> list[RunSpec]:
    """SGD at every batch size of every panel, and SVAG where it is asked for, with every seed.

    >>> base = RunSpec.from_yaml("{data: {name: svhn}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: {epochs: 9}}")
    >>> panel = LadderPanel(name="mine", base=base, batch_sizes=(4, 8, 16))
    >>> [(spec.batch_size, spec.lr) for spec in runs(Ladder(title="mine", panels=(panel,), seeds=(0,)))]
    [(4, 0.5), (8, 1.0), (16, 2.0)]
    """
    found: list[RunSpec] = []
    for one in experiment.panels:
        with panel(one.name, len(experiment.panels)):
            found += over_seeds(_arms(one), experiment.seeds_of(one))
    return found


def _arms(one: LadderPanel) -> list[RunSpec]:
    require_sgd(one.base)
    sizes = dict.fromkeys(one.batch_sizes)
    if len(sizes) < 2:
        raise SpecError("batch_sizes", "a ladder has at least two rungs: name more batch sizes")
    if one.probe_batches and len(one.probe_batches) != len(one.batch_sizes):
        raise SpecError("probe_batches", f"must be one for each of the {len(one.batch_sizes)} batch sizes, or none")
    batches = dict(zip(one.batch_sizes, one.probe_batches, strict=False))
    arms = []
    for size in sizes:
        sgd = rung(one.base, size)
        if size in batches and isinstance(sgd.probe, FrozenProbe):
            sgd = sgd.edited({"probe.batches": batches[size]})
        arms += [sgd, *svag_arms(sgd, one.ells, one.split, one.momentum_limit)]
    return arms


def rung(base: RunSpec, batch_size: int) -> RunSpec:
    """The base at another batch size, along the linear scaling rule (def:lsr): the same epochs, the same moments.

    At its own batch size the base is left as it is, so that a run of it that is there already is not repeated. Whatever
    is a number of effective steps is divided by κ.

    >>> base = RunSpec.from_yaml("{data: {name: svhn}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: 900}")
    >>> rung(base, 32).budget, rung(base, 32).lr
    (225, 4.0)
    """
    if batch_size == base.batch_size:
        return base
    kappa = batch_size / base.batch_size
    try:
        scaled = linear_scaling(kappa, lr=base.lr, batch_size=base.batch_size, weight_decay=base.weight_decay)
    except ValueError as error:
        raise SpecError("batch_sizes", f"{batch_size} cannot be reached from {base.batch_size}: {error}") from None
    return base.edited(scaled_steps(base, kappa) | {"batch_size": scaled.batch_size, "lr": scaled.lr})


def certificates(found: Sequence[CriticalBatch], batch_sizes: Sequence[int]) -> tuple[Certificate, ...]:
    """All that fired: baselines against larger rungs, large runs on their own, SGD against its SDE.

    Only predictions that are `ok` count, and only when the whole interval is on the other side of the threshold.
    """
    sure = [one for one in found if one.ok]
    return (
        *(one for run in sure for one in _baseline(run, batch_sizes)),
        *(one for run in sure for one in _large_run(run, batch_sizes)),
        *(one for run in sure for one in _sde(run)),
    )


def _baseline(run: CriticalBatch, batch_sizes: Sequence[int]) -> Iterator[Certificate]:
    for size in batch_sizes:
        if size > run.batch_size and run.refutes(size):
            yield Certificate("baseline", size, run.batch_size, run.high, size)


def _large_run(run: CriticalBatch, batch_sizes: Sequence[int]) -> Iterator[Certificate]:
    for size in batch_sizes:
        kappa = run.batch_size / size
        if kappa > 1 and large_run_refutes(run.noise_to_signal_high, kappa, run.c2):
            threshold = large_run_threshold(kappa, run.c2)
            yield Certificate("large_run", run.batch_size, size, run.noise_to_signal_high, threshold)


def _sde(run: CriticalBatch) -> Iterator[Certificate]:
    if run.sde_refuted:
        yield Certificate("sde", run.batch_size, None, run.noise_to_signal_high, sde_threshold(run.c2))


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
