"""A ladder of batch sizes: the answer, errors, G/N, and what each rung predicted."""

import math
from collections.abc import Iterator, Sequence

from svag.experiments.ladder_finding import (
    LadderFinding,
    LadderPanelFinding,
    PredictionRange,
    Rung,
    RungPrediction,
    ruled_out,
)
from svag.report import wording
from svag.report.charts import curves, ladder_error, ladder_predictions, ladder_ratio
from svag.report.charts.ladder_regions import unbounded
from svag.report.content import Answer, Figure, Tone
from svag.report.sections.compare import curve_figure

QUESTION = (
    "How far does linear scaling go? Batch size and learning rate grow together; each rung also predicts, from its own "
    "gradient noise, the batch size B* beyond which the rule cannot hold."
)
_TONES: dict[str, Tone] = {"fails": "no", "never fails": "yes", "fails from the start": "no"}


def answers(finding: LadderFinding) -> tuple[Answer, ...]:
    """One a panel."""
    return tuple(_answer(panel) for panel in finding.panels)


def _answer(panel: LadderPanelFinding) -> Answer:
    found = panel.scaling
    numbers = []
    if found is not None:
        limits = wording.batch_interval(found.low, found.high)
        observed = wording.batch(found.observed) if found.observed is not None else "no failure"
        numbers.append(("observed failure", f"{observed} {limits}"))
        if found.best_batch is not None:
            best = min(rung.error for rung in panel.rungs if rung.batch_size == found.best_batch)
            numbers.append(("lowest test error", f"{best:.2%} at batch size {found.best_batch:,}"))
    numbers += [*_diverged(panel.rungs), *_predicted(panel), *_checked(panel.predictions)]
    tone = "open" if found is None or ladder_error.unsure(found) else _TONES[found.answer]
    return Answer(
        panel.name,
        ladder_error.verdict(panel),
        tone,
        (*numbers, *_more(panel)),
        panel.status,
        spark=tuple(rung.error for rung in panel.rungs),
        spark_of="test error by batch size",
        first=len(numbers),
    )


def _diverged(rungs: Sequence[Rung]) -> Iterator[tuple[str, str]]:
    lost = [rung for rung in rungs if rung.diverged]
    if lost:
        first, *others = (f"{rung.diverged} of {rung.seeds}{{}} at {rung.batch_size:,}" for rung in lost)
        yield "diverged", ", ".join([first.format(" seeds"), *(one.format("") for one in others)])


def _predicted(panel: LadderPanelFinding) -> Iterator[tuple[str, str]]:
    """The smallest and the largest of all usable predictions, as the paper's figures show them."""
    usable = sorted((one for one in panel.predictions if one.usable), key=lambda one: one.critical.critical_batch)
    if len(usable) == 1:
        yield "predicted", _said(usable[0])
    elif usable:
        yield f"smallest of {len(usable)} predictions", _said(usable[0])
        yield f"largest of {len(usable)} predictions", _said(usable[-1])
    elif panel.predictions:
        yield "predicted", "no baseline gives a usable prediction"


def _said(one: RungPrediction) -> str:
    found = one.critical
    limits = wording.batch_interval(found.low, found.high)
    text = f"B* = {wording.batch(found.critical_batch)} {limits} from B = {one.batch_size}"
    if one.over_observed is None:
        return text
    low, high = one.over_observed_low, one.over_observed_high
    bounds = ""
    if low is not None and high is not None and not unbounded(low, high):
        bounds = f" [{low:.2f}, {high:.2f}]" if math.isfinite(high) else f" [{low:.2f}, ∞)"
    return f"{text}, {one.over_observed:.2f}{bounds} × observed"


def _checked(predictions: Sequence[RungPrediction]) -> Iterator[tuple[str, str]]:
    """Whether the smallest usable baseline had it right; nothing without a failure to hold it against."""
    first = next((one for one in predictions if one.usable), None)
    if first is None or first.over_observed_low is None or first.over_observed_high is None:
        return
    low, high = first.over_observed_low, first.over_observed_high
    prediction = f"The prediction from B = {first.batch_size}"
    if unbounded(low, high):
        yield "check", f"{prediction} cannot be checked: predicted over observed has no bounds"
    elif high < 1:
        yield "check", f"{prediction} lies below the observed failure"
    elif low > 1:
        yield "check", f"{prediction} lies above the observed failure, which the theorem allows"
    else:
        yield "check", f"{prediction} agrees with the observed failure"


def _more(panel: LadderPanelFinding) -> Iterator[tuple[str, str]]:
    """One row for everything else that was found."""
    forms = [f"{_range(one)} as {one.form}" for one in panel.ranges if one.form != "sharp"]
    if forms:
        yield "as printed / as plotted", f"B* = {'; '.join(forms)}"
    if panel.certificates:
        fired = ruled_out(panel.certificates).items()
        yield "ruled out", "; ".join(f"at B = {size} {what}" for size, what in fired)
    balances = [(rung.batch_size, rung.balance) for rung in panel.rungs if rung.balance is not None]
    if balances:
        said = ", ".join(f"{balance:.3g} at B = {size}" for size, balance in balances)
        yield "equilibrium", f"growth over decay of |x|², 1 at equilibrium: {said}"
    ratios = [(one.batch_size, one.critical.noise_to_signal) for one in panel.predictions]
    if ratios:
        yield "N/G", ", ".join(f"{wording.plain(ratio)} at B = {size}" for size, ratio in ratios)
    limits = [(rung.batch_size, rung.sde) for rung in panel.rungs if rung.sde is not None]
    if limits:
        said = ", ".join(f"{one.value:.2%} ({one.low:.2%} to {one.high:.2%}) at B = {size}" for size, one in limits)
        yield "SDE limit of the error", said
    for one in panel.predictions:
        if not one.usable:
            yield f"not usable from B = {one.batch_size}", one.status.partition(". ")[0]  # the table has all of it


def _range(one: PredictionRange) -> str:
    if one.smallest_from == one.largest_from:
        return wording.batch(one.smallest)
    return f"{wording.batch(one.smallest)} to {wording.batch(one.largest)}"


def figures(finding: LadderFinding) -> Iterator[Figure]:
    """Errors, G/N, predictions and curves of every panel."""
    for number, panel in enumerate(finding.panels, 1):
        name = f"panel{number}"
        error = ladder_error.table(panel)
        if error.rows:
            title = f"{panel.name}: test error along the linear scaling rule"
            picture, sentence = ladder_error.chart(error), ladder_error.sentence(error)
            yield Figure.of(f"{name}-error", title, picture, sentence, "test errors", error.rows)
        ratio = ladder_ratio.table(panel)
        if ratio.rows:
            title = f"{panel.name}: signal over noise of the gradient, G/N"
            picture, sentence = ladder_ratio.chart(ratio), ladder_ratio.sentence(ratio)
            yield Figure.of(f"{name}-ratio", title, picture, sentence, "G/N", ratio.rows)
        predicted = ladder_predictions.table(panel)
        if predicted.rows:
            title = f"{panel.name}: predicted critical batch size, by baseline"
            picture, sentence = ladder_predictions.chart(predicted), ladder_predictions.sentence(predicted)
            yield Figure.of(f"{name}-predictions", title, picture, sentence, "predictions", predicted.rows)
        if panel.curves:
            found = curves.table(panel.curves, panel.runs, "test_accuracy", curves.by_batch_size, "budget")
            yield curve_figure(f"{name}-curves", panel.name, found)
