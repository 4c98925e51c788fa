"""The figures of a ladder: errors, G/N, what each rung predicted, curves."""

from collections.abc import Iterator

from svag.experiments.ladder_finding import LadderFinding
from svag.report.charts import curves, ladder_error, ladder_predictions, ladder_ratio
from svag.report.content import Figure
from svag.report.sections.compare import curve_figure


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
