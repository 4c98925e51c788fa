"""A ladder of batch sizes: the answer, errors, G/N, and what each rung predicted."""

import math
from collections.abc import Iterator

from svag.findings.experiments.ladder_finding import LadderFinding, LadderPanelFinding, RungPrediction
from svag.report import wording
from svag.report.charts import curves, ladder_error, ladder_predictions, ladder_ratio
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
    usable = [one for one in panel.predictions if one.usable]
    if usable:
        numbers.append((f"predicted from B = {usable[0].batch_size}", _said(usable[0])))
    if len(usable) > 1:
        numbers.append((f"predicted from B = {usable[-1].batch_size}", _said(usable[-1])))
    if panel.predictions and not usable:
        numbers.append(("predicted", "no baseline gives a usable prediction"))
    tone = "open" if found is None or ladder_error.unsure(found) else _TONES[found.answer]
    spark = tuple(rung.error for rung in panel.rungs)
    return Answer(panel.name, ladder_error.verdict(panel), tone, tuple(numbers), panel.status, spark)


def _said(one: RungPrediction) -> str:
    found = one.critical
    text = f"B* = {wording.batch(found.critical_batch)} {wording.batch_interval(found.low, found.high)}"
    if one.over_observed is None:
        return text
    limits = ""
    if one.over_observed_low is not None and one.over_observed_high is not None:
        high = f"{one.over_observed_high:.2f}" if math.isfinite(one.over_observed_high) else "∞"
        limits = f" [{one.over_observed_low:.2f}, {high}]"
    return f"{text}, {one.over_observed:.2f}{limits} × observed"


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
