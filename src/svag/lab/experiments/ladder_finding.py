"""What a ladder found: what each rung predicted, what the ladder measured, and then test error (fig:lsr_acc_gnr).

All rungs are averaged over one window of training time, as fractions of the budget; it begins where the last rung has
settled. The theorem is about statistics of training; test error is a separate, empirical criterion.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from svag.as_json import json_fields_of, json_value
from svag.lab.experiments import wording
from svag.lab.experiments.arms import SGD
from svag.lab.experiments.data_price import DataPrice, data_prices, loss_curves
from svag.lab.experiments.drift import (
    Crossing,
    Drift,
    Fractions,
    Shortfall,
    covered,
    ladder_drift,
    shortfalls,
    steps_of,
)
from svag.lab.experiments.experiment import own_metric
from svag.lab.experiments.finding import Finding, PanelFinding
from svag.lab.experiments.gain_finding import GainFinding, find_gains
from svag.lab.experiments.ladder import Ladder, LadderPanel
from svag.lab.experiments.rungs import (
    PREDICTS_FROM,
    Certificate,
    PredictionRange,
    Rung,
    RungPrediction,
    certificates,
    final_errors,
    predicted_range,
    predictions_of,
    ruled_out,
    rung_of,
    signal_slope,
)
from svag.lab.experiments.runs import PanelRuns, gather
from svag.lab.experiments.wording import Answer, Tone, criterion, judged_by, percent, unbounded
from svag.lab.records.record import RunRecord
from svag.prices.basis import BALANCED
from svag.prices.estimate import Estimate
from svag.prices.windows import choose_window
from svag.theory.adaptive import step_shortfall
from svag.verdicts.scaling import ScalingVerdict, scaling_verdict

NumberRows = Iterator[tuple[str, str]]

# With at least this N/G, invariance holds over several rungs before it is lost: B* is then at least 10 times B.
_INVARIANT_FROM = 8.0
# Invariance counts as seen if it still holds at this multiple of the smallest batch.
_HELD = 4
COMPARED = {
    "R": "weight norm |x|², gradient |∇L|² and noise κN",
    "T": "pull on the weights T, gradient |∇L|² and noise κN",
    "V": "second moment κV, gradient |∇L|² and noise κN",
}


@dataclass(frozen=True, kw_only=True)
class LadderPanelFinding(PanelFinding):
    """What one ladder found; its metric is test accuracy, judged as test error, or bits per character of a text.

    Attributes:
        rungs: one per batch size, increasing.
        predictions: one per rung with readings, increasing in batch size.
        drift: how far the rungs really drifted apart, pair by pair; None when fewer than two can be compared.
        data: the measured factor in examples to the same training loss, pair by pair.
        window: fractions of the budget over which all rungs were averaged; None without readings.
        shortfalls: pairs whose spread lies below D although a theorem applies, with the likely cause.
        scaling: where test error was seen to fail; None when fewer than two batch sizes have results.
        predicted: the smallest and the largest B* of the baselines that predict; None without any.
        slope: slope of log G/N against log B, 1 while B_simple does not depend on the batch; None with fewer than two
            rungs.
        certificates: what the measured N/G rule out.
        c2: C² of the predictions.
        adaptive: whether the optimizer has the square-root rule, which the batch sizes follow unless `gain` is set: all
            predictions are then estimates, as no theorem applies.
        gain: the results by the gain rule; None along the other rules. Then only the smallest batch size predicts, and
            `drift`, `shortfalls` and `certificates`, which are about the other rules, are empty.
    """

    rungs: tuple[Rung, ...]
    predictions: tuple[RungPrediction, ...]
    drift: Drift | None
    data: tuple[DataPrice, ...]
    window: Fractions | None
    shortfalls: tuple[Shortfall, ...]
    scaling: ScalingVerdict | None
    predicted: PredictionRange | None
    slope: Estimate | None
    certificates: tuple[Certificate, ...]
    c2: float
    adaptive: bool
    gain: GainFinding | None = None

    @property
    def unbalanced(self) -> tuple[tuple[int, float | None], ...]:
        """Batch sizes whose weights were not measured at equilibrium: growth over decay is unknown or off by 10%."""
        balances = ((rung.batch_size, rung.balance) for rung in self.rungs)
        return tuple((size, balance) for size, balance in balances if balance is None or abs(balance - 1) > BALANCED)

    @property
    def observed(self) -> float | None:
        """The batch size at which test error was seen to fail."""
        return None if self.scaling is None else self.scaling.observed

    @property
    def checked(self) -> tuple[tuple[RungPrediction, Crossing], ...]:
        """The baselines that predict, each with where the ladder crossed C² above it."""
        crossings = {} if self.drift is None else {crossing.baseline: crossing for crossing in self.drift.crossings}
        return tuple(
            (prediction, crossings[prediction.batch_size])
            for prediction in self.predictions
            if prediction.usable and prediction.batch_size in crossings
        )

    def to_dict(self) -> dict[str, object]:
        """Return the panel for a JSON document, without the curves."""
        scaling, drift, nothing = self.scaling, self.drift, Estimate(math.nan, math.nan, math.nan)
        crossed = nothing if drift is None else drift.crossings[0].observed
        return {
            **self.shared_fields(),
            **json_fields_of(self, "observed", "predictions", "window", "rungs", "predicted", "slope"),
            **json_fields_of(self, "certificates", "scaling", "c2"),
            "observed_low": None if scaling is None else json_value(scaling.low),
            "observed_high": None if scaling is None else json_value(scaling.high),
            "observed_dynamics": json_value(crossed.value),
            "observed_dynamics_low": json_value(crossed.low),
            "observed_dynamics_high": json_value(crossed.high),
            "compared": None if drift is None else drift.compared,
            "pairs": [] if drift is None else json_value(drift.pairs),
            "crossings": [] if drift is None else json_value(drift.crossings),
            "shortfalls": [str(shortfall) for shortfall in self.shortfalls],
            "data_prices": json_value(self.data),
            **({} if self.gain is None else {"gain": self.gain.to_dict()}),
        }

    def answer(self) -> Answer:
        """The prediction, the measurement and test error; by the gain rule price and loss of every batch size."""
        gain, first = self.gain, None
        if gain is None:
            headline, (tone, badge) = drift_headline(self), _judged(self)
            numbers = [*_examples(self), *_predicted(self), *_theorem(self), *_second_moment(self), *_invariance(self)]
            numbers += judged_by_error(self)
            first = len(numbers)
            numbers += [*_drifted(self), *_ruled_out(self), *_rungs(self), *_silent(self)]
        else:
            headline, tone = gain.headline() or error_headline(self), gain.tone
            badge = "the same training loss" if tone in {"yes", "no"} else ""
            numbers = [*gain.numbers(), *judged_by_error(self)]
        return Answer(
            self.name,
            headline,
            tone,
            tuple(numbers),
            self.status,
            tuple(rung.error for rung in self.rungs),
            f"{criterion(self.metric)} by batch size",
            first=first,
            badge=badge,
        )


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
    gathered, strangers = gather(experiment, records, "test_accuracy")
    panels = tuple(_panel(experiment, panel, runs) for panel, runs in zip(experiment.panels, gathered, strict=True))
    return LadderFinding(experiment.title, panels, strangers)


def _panel(experiment: Ladder, panel: LadderPanel, runs: PanelRuns) -> LadderPanelFinding:
    sizes = panel.sizes
    # By the gain rule only the smallest batch size predicts, as the others do not train by the rule of the prediction.
    baselines = sizes[:1] if panel.gained else sizes
    errors = {size: own for size in sizes if (own := final_errors(panel, runs, SGD, size))}
    scaling, unscaled = _scaling(errors, experiment.tolerance)
    window = experiment.window or _shared_window(runs, baselines)
    # Predictions use the same part of training in which they are checked.
    windows = {} if window is None else {size: steps_of(window, runs.steps(size)) for size in errors}
    predictions, unread = predictions_of(runs, baselines, sizes, experiment.c2, windows)
    rules = [prediction.linear for prediction in predictions]
    rungs = tuple(rung_of(panel, runs, size, errors.get(size, {}), rules) for size in sizes)
    data = data_prices(loss_curves({size: runs.of(SGD, size).values() for size in sizes}))
    drift, gain = None, None
    if panel.gained:
        gain = find_gains(panel, runs, data, window)
        rates = gain.rates(panel.baseline)
        rungs = tuple(replace(rung, lr=rates.get(rung.batch_size, rung.lr)) for rung in rungs)
        status = _next_by_gain(panel, runs)
    else:
        drift = None if window is None else ladder_drift(runs, rules, window, experiment.c2)
        status = _next(runs, predictions, drift, unread if scaling is not None else unscaled)
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
        **runs.listed(),
        status=status,
        metric=own_metric([panel]),
        adaptive=panel.base.optimizer.rule == "square_root",
        gain=gain,
    )


def _scaling(errors: Mapping[int, Mapping[int, float]], tolerance: float) -> tuple[ScalingVerdict | None, str]:
    if len(errors) < 2:
        return None, "run at least two batch sizes: a ladder of one rung shows no failure."
    try:
        return scaling_verdict({size: list(own.values()) for size, own in errors.items()}, tolerance), ""
    except ValueError as error:
        return None, f"{error}."


def _shared_window(runs: PanelRuns, sizes: Sequence[int]) -> Fractions | None:
    """The window of training time over which all rungs are averaged; None without readings, or if they share none.

    Each rung's own window is that of `svag.price_list`; the shared one starts where the last of them does.
    """
    windows = []
    for size in sizes:
        if readings := runs.pooled_readings(SGD, size):
            own, steps = choose_window(readings), runs.steps(size)
            windows.append((own.start / steps, own.stop / steps))
    if not windows:
        return None
    start, stop = max(start for start, _ in windows), min(stop for _, stop in windows)
    return (start, stop) if start < stop else None


def _next_by_gain(panel: LadderPanel, runs: PanelRuns) -> str:
    if runs.missing:
        return runs.remedy
    if panel.unplanned:
        sizes = ", ".join(map(str, panel.unplanned))
        return f"start the same command again: it plans batch sizes {sizes} from these runs, and trains them."
    return "nothing more to run."


def _next(runs: PanelRuns, predictions: Sequence[RungPrediction], drift: Drift | None, without: str) -> str:
    """What to do next; `without` is what to do if there is no prediction."""
    if runs.missing:
        return runs.remedy
    if not predictions:
        return without
    first = predictions[0]
    smallest = f"at the smallest, B={first.batch_size}"
    if not any(prediction.usable for prediction in predictions):
        if first.silent:
            return f"start the ladder lower: no baseline predicts; {smallest}, {first.status}"
        return f"no baseline predicts; {smallest}: {first.status}"
    if drift is None:
        return "take at least 12 readings at two or more batch sizes, in the same part of training."
    adaptive = first.linear.basis == "second_moment"
    if not (first.theorem or adaptive):
        return f"nothing more to run. About B={first.batch_size}: {first.linear.reasons[0]}"
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


# The finding in words.


def drift_headline(panel: LadderPanelFinding) -> str:
    """What the smallest baseline predicted and what the ladder measured; test error where nothing was predicted."""
    if not panel.checked:
        return error_headline(panel)
    prediction, crossing = panel.checked[0]
    limit = prediction.linear.limit
    start = f"Scaling {'by the square-root rule ' if panel.adaptive else ''}from batch size {prediction.batch_size}, "
    factor, size = f"drift apart by a factor of {panel.c2:g}", f"B* = {wording.batch_estimate(limit)}"
    if math.isinf(limit.value):
        start += f"training statistics were never expected to {factor}"
    elif prediction.theorem:
        start += f"training statistics must {factor} by {size}"
    else:
        start += f"training statistics were estimated to {factor} at {size}"
    if math.isinf(crossing.observed.value):
        seen = f"up to {panel.rungs[-1].batch_size:,}, the largest batch here, they did not"
    else:
        seen = f"they did at {wording.batch_estimate(crossing.observed)}"
        seen += f", {_ratio(crossing.over_predicted)} of B*" if math.isfinite(crossing.over_predicted.value) else ""
    rests = "These are estimates" if panel.adaptive else "No theorem applies here"
    return f"{start}; {seen}.{'' if prediction.theorem else f' {rests}: no batch size is ruled out.'}"


def _judged(panel: LadderPanelFinding) -> tuple[Tone, str]:
    """The tone of a panel and its badge: only the statement of a theorem can hold or fail."""
    if not panel.checked:
        return ("open" if panel.scaling is None or _undecided(panel.scaling) else "note"), ""
    prediction, crossing = panel.checked[0]
    if panel.shortfalls:
        return "no", "contradicts the theorem"
    if not prediction.theorem:
        return "note", "estimate"
    if math.isinf(crossing.observed.value):
        return "open", "not reached on this ladder"
    if crossing.over_predicted.low > 1:
        return "no", "contradicts the theorem"
    # of two runs of which one was still settling, the theorem says nothing
    if any(balance is not None for _, balance in panel.unbalanced):
        return "open", "not at equilibrium at every batch size"
    return "yes", "agrees with the theorem"


def _ratio(ratio: Estimate) -> str:
    high = f"{ratio.high:.2f}]" if math.isfinite(ratio.high) else "∞)"
    return f"{ratio.value:.2f} [{ratio.low:.2f}, {high}"


def _crossed(crossing: Crossing, last: int) -> str:
    if math.isinf(crossing.observed.value):
        low = f" (at least {wording.batch(crossing.observed.low)})" if math.isfinite(crossing.observed.low) else ""
        return f"not reached up to {last:,}{low}"
    share = f", {_ratio(crossing.over_predicted)} of it" if math.isfinite(crossing.over_predicted.value) else ""
    return f"measured {wording.batch_estimate(crossing.observed)}{share}"


def _predicted(panel: LadderPanelFinding) -> NumberRows:
    """Predicted and measured batch size of a drift by C², one row per baseline."""
    last = panel.rungs[-1].batch_size
    for prediction, crossing in panel.checked:
        kind = "B*" if prediction.theorem else "estimated B*"
        mark = " (these runs only)" if prediction.linear.window_only else ""
        said = f"{kind} = {wording.batch_estimate(prediction.linear.limit)}{mark}"
        yield f"from {prediction.batch_size}", f"{said}; {_crossed(crossing, last)}"
    if panel.predictions and not panel.checked:
        yield "predicted", "no baseline predicts: see Next"


def _theorem(panel: LadderPanelFinding) -> NumberRows:
    """Whether the inequality spread ≥ D held, or a note that no theorem applies."""
    if panel.drift is None:
        return
    compared = COMPARED[panel.drift.compared]
    if panel.adaptive:
        said = "an estimate: neither the price list nor the measured drift of"
        yield "reliability", f"{said} {compared} rules a batch size out"
        return
    pairs = [pair for pair in panel.drift.pairs if covered(pair, panel.predictions)]
    if not pairs:
        yield "theorem", f"none applies: the drift of {compared} is measured, and no batch size is ruled out"
    elif panel.shortfalls:
        more = f" (and {len(panel.shortfalls) - 1} more pairs)" if len(panel.shortfalls) > 1 else ""
        yield "theorem", f"does not hold: {panel.shortfalls[0]}{more}"
    else:
        which = "the only pair" if len(pairs) == 1 else f"all {len(pairs)} pairs"
        yield "theorem", f"holds: {compared} drifted apart by at least D, within intervals, on {which} of batch sizes"


def _second_moment(panel: LadderPanelFinding) -> NumberRows:
    """How much the second moment grew beyond the assumption of the square-root rule, with D, one row per baseline.

    The first row says what that means for the steps.
    """
    pairs = [] if panel.drift is None else panel.drift.pairs
    known = [(pair, seen) for pair in pairs if (seen := pair.second_moment_over_noise) is not None]
    if known:
        first = known[0][0].baseline
        steps = [
            f"{_step_shortfall(seen)} at {pair.batch_size} (predicted {_step_shortfall(pair.distortion)})"
            for pair, seen in known
            if pair.baseline == first
        ]
        yield f"steps from {first}", f"shorter than the square-root rule assumes by {', '.join(steps)}"
    for base in dict.fromkeys(pair.baseline for pair, _ in known):
        said = [
            f"{_ratio(seen)} at {pair.batch_size} (D = {_ratio(pair.distortion)})"
            for pair, seen in known
            if pair.baseline == base
        ]
        yield f"κV′/V over κN′/N from {base}", ", ".join(said)


def _step_shortfall(growth: Estimate) -> str:
    return f"{step_shortfall(max(growth.value, 1.0)):.0%}"  # a measured value may be below 1 by chance


def _invariance(panel: LadderPanelFinding) -> NumberRows:
    """The batch size at which strict invariance (def:lsi) is lost: one of the three has changed by more than C."""
    if not panel.checked or panel.drift is None:
        return
    said = [
        f"at {wording.batch_estimate(crossing.strict)} from {crossing.baseline}, "
        f"{crossing.strict_over_predicted.value:.2f} of B*"
        if math.isfinite(crossing.strict.value)
        else f"not up to {panel.rungs[-1].batch_size:,} from {crossing.baseline}"
        for _, crossing in panel.checked
    ]
    bound = f"one of the three changes by more than C = {math.sqrt(panel.c2):.3g}"
    if panel.drift.compared != "V":  # the definition is about linear scaling and the weight norm
        bound = f"the paper's stricter criterion: {bound}"
    yield "invariance lost", f"{'; '.join(said)} ({bound})"


def _examples(panel: LadderPanelFinding) -> NumberRows:
    """The measured price in examples and D, from the smallest baseline that predicts."""
    if not panel.checked:
        return
    baseline, said = panel.checked[0][0], []
    for price in panel.data:
        if price.baseline == baseline.batch_size:
            cost = _distortion(baseline, price.batch_size)
            said.append(f"{price.said()} at {price.batch_size} (D = {cost})")
            if not price.reached:  # larger batch sizes would only repeat this bound
                break
    if said:
        yield "data needed", f"{', '.join(said)}, for the training loss of batch size {baseline.batch_size}"


def _distortion(baseline: RungPrediction, batch_size: float) -> str:
    return f"{baseline.linear.distortion(batch_size).value:.2g}"


def _undecided(scaling: ScalingVerdict) -> bool:
    """Whether the test errors leave open where scaling fails."""
    return unbounded(scaling.low, scaling.high) or scaling.answer == "not decided"


def error_headline(panel: LadderPanelFinding) -> str:
    """Where test error fails, in one sentence."""
    if panel.scaling is None:
        return "Fewer than two batch sizes have results."
    said, what = _error_said(panel, panel.scaling), criterion(panel.metric)
    return f"Not decided by {what}: {said}." if _undecided(panel.scaling) else f"{what.capitalize()} {said}."


def _error_said(panel: LadderPanelFinding, scaling: ScalingVerdict) -> str:
    """The batch size at which test error fails, or why that is not decided."""
    limits, at = wording.batch_interval(scaling.low, scaling.high), wording.batch(scaling.observed)
    if unbounded(scaling.low, scaling.high):
        where = f"at batch size {at}" if scaling.observed is not None else "nowhere on this ladder"
        return f"the means would put the failure {where}, but there are too few seeds for an interval"
    failing = [rung for rung in panel.rungs if scaling.observed is not None and rung.batch_size >= scaling.observed]
    cause = f", as seeds diverged at {failing[0].batch_size:,}" if failing and failing[0].diverged else ""
    first, last = panel.rungs[0].batch_size, panel.rungs[-1].batch_size
    above = f"more than {percent(scaling.tolerance)} above the lowest"
    then = f", then is {above} from {at} {limits} on{cause}" if scaling.observed is not None else ""
    return {
        "fails": f"is {above} from batch size {at} {limits} on{cause}",
        "never fails": f"is nowhere {above}, up to batch size {last:,}; 95% interval of where it would be {limits}",
        "fails from the start": f"is {above} already at the smallest batch size, {first:,}{cause}",
        "improves": f"improves up to batch size {wording.batch(scaling.best_batch)}{then}",
        "not decided": f"no batch size has learned enough for an error to be {above}",
    }[scaling.answer]


def judged_by_error(panel: LadderPanelFinding) -> NumberRows:
    """Where test error fails, its lowest value, and the seeds that diverged."""
    scaling = panel.scaling
    if scaling is not None:
        said = ("not decided: " if _undecided(scaling) else "") + _error_said(panel, scaling)
        if panel.checked and scaling.observed is not None and scaling.answer == "fails":
            baseline = panel.checked[0][0]
            said += f", where D from {baseline.batch_size} is {_distortion(baseline, scaling.observed)}"
        what = judged_by(panel.metric)
        yield what, f"{said} (neither D nor B* is about {what})"
        if scaling.best_batch is not None:
            best = min(rung.error for rung in panel.rungs if rung.batch_size == scaling.best_batch)
            unit = "" if wording.is_share(panel.metric) else f" {wording.unit(panel.metric)}"
            lowest = f"{wording.value(best, panel.metric)}{unit}"
            yield f"lowest {what}", f"{lowest} at batch size {scaling.best_batch:,}"
    if lost := [rung for rung in panel.rungs if rung.diverged]:
        first, *others = (f"{rung.diverged} of {rung.seeds}{{}} at {rung.batch_size:,}" for rung in lost)
        yield "diverged", ", ".join([first.format(" seeds"), *(other.format("") for other in others)])


def _drifted(panel: LadderPanelFinding) -> NumberRows:
    """The parts of the drift from the smallest baseline, and its explanation."""
    if panel.drift is None or not panel.drift.crossings:
        return
    base = panel.checked[0][0].batch_size if panel.checked else panel.drift.crossings[0].baseline
    pairs = [pair for pair in panel.drift.pairs if pair.baseline == base]
    if panel.window is not None:
        start, stop = panel.window
        said = f"{COMPARED[panel.drift.compared]}, averaged over {start:.0%} to {stop:.0%} of training"
        yield "what drifted", f"{said}; the drift is the largest of their ratios over the smallest"
    said = ", ".join(
        f"{pair.spread.value:.3g} at {pair.batch_size} (D = {pair.distortion.value:.3g})" for pair in pairs
    )
    yield f"drift from {base}", said
    scales = ", ".join(f"{pair.noise_scale.value:.2f} at {pair.batch_size}" for pair in pairs)
    yield f"B_simple relative to {base}", f"{scales}; where it is 1, the drift is D"
    moving = [f"{pair.moving.value:.2g} at {pair.batch_size}" for pair in pairs if pair.moving is not None]
    if moving:
        yield (
            f"X relative to {base}",
            f"{', '.join(moving)}; with momentum X takes the place of the squared gradient in D",
        )
    if panel.slope is not None:
        yield "slope of G/N", f"{_ratio(panel.slope)} against batch size, both logarithmic; 1 if B_simple is constant"


def _ruled_out(panel: LadderPanelFinding) -> NumberRows:
    if panel.certificates:
        fired = ruled_out(panel.certificates).items()
        yield "ruled out", "; ".join(f"at B = {size} {what}" for size, what in fired)


def _rungs(panel: LadderPanelFinding) -> NumberRows:
    balances = [f"{rung.balance:.3g} at B = {rung.batch_size}" for rung in panel.rungs if rung.balance is not None]
    if balances:
        yield "equilibrium", f"growth over decay of |x|², 1 at equilibrium: {', '.join(balances)}"
    premises = [(prediction.batch_size, prediction.linear.second_moment_ratio) for prediction in panel.predictions]
    known = [f"{ratio:.2f} at B = {size}" for size, ratio in premises if ratio is not None]
    if known:
        yield "V/(G + N)", f"{', '.join(known)}; 1 where v has settled at the squared gradient, as D assumes"
    if panel.predictions:
        rules = [prediction.linear for prediction in panel.predictions]
        ratios = [f"{wording.plain(rule.noise_to_signal.value)} at B = {rule.batch_size}" for rule in rules]
        yield f"N/{rules[0].signal}", ", ".join(ratios)
    limits, gaps = [], []
    for rung in panel.rungs:
        if rung.sde is not None:
            edges = (rung.sde.value, rung.sde.low, rung.sde.high)
            value, low, high = (wording.value(edge, panel.metric) for edge in edges)
            limits.append(f"{value} ({low} to {high}) at B = {rung.batch_size}")
        if (gap := rung.sde_gap) is not None:
            said = wording.estimated(gap.value, gap.low, gap.high, panel.metric)
            gaps.append(f"{said} at B = {rung.batch_size}")
    if limits:
        yield f"SDE limit of the {judged_by(panel.metric).removeprefix('test ')}", ", ".join(limits)
        yield "SGD above its SDE limit", ", ".join(gaps)


def _silent(panel: LadderPanelFinding) -> NumberRows:
    """Rungs that do not predict, and why."""
    unusable = [prediction for prediction in panel.predictions if not prediction.usable]
    small = [prediction for prediction in unusable if prediction.silent]
    if small:
        sizes = ", ".join(str(prediction.batch_size) for prediction in small)
        why = f"N/{small[0].linear.signal} is below {PREDICTS_FROM:g}, so B* would mostly be C² times their own"
        yield "do not predict", f"{sizes}: {why} batch size"
    for prediction in unusable:
        if not prediction.silent:
            yield f"does not predict: {prediction.batch_size}", prediction.status
