"""The figures that each family of experiments is drawn in: a new family has a function here and a row in the table."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from svag.experiments.compare_finding import CompareFinding
from svag.experiments.ladder_finding import LadderFinding
from svag.experiments.ngd_finding import NgdFinding
from svag.experiments.wording import UNITS
from svag.report.charts import curves, gap, ladder_distortion, ladder_error, ladder_predictions, ladder_ratio, limit
from svag.report.content import Figure, Table


def compare_figures(finding: CompareFinding) -> Iterator[Figure]:
    """The gaps of all panels, then curves and limit of each."""
    judged = [(panel, panel.verdict) for panel in finding.panels if panel.verdict is not None]
    if judged:
        metric = judged[0][0].metric
        rows = [gap.row(p.name, v.answer, v.gap, v.low, v.high, v.margin) for p, v in judged]
        title = "The gap between SGD and its SDE, and the margin"
        picture, sentence = gap.chart(rows, metric, "SGD − SDE limit"), gap.sentence(rows, metric)
        yield Figure.of("gap", title, picture, sentence, "gaps", rows)
    for number, panel in enumerate(finding.panels, 1):
        name = f"panel{number}"
        if panel.curves:
            yield curve_figure(f"{name}-curves", panel.name, curves.table(panel.curves, panel.runs, panel.metric))
        if panel.arms:
            found = limit.table(panel)
            title = f"{panel.name}: final {UNITS[panel.metric]} against 1/ell"
            picture, sentence = limit.chart(found), limit.sentence(found)
            yield Figure.of(f"{name}-limit", title, picture, sentence, "final metrics", found.rows)


def ladder_figures(finding: LadderFinding) -> Iterator[Figure]:
    """Drift, predictions, G/N, test errors and curves of every panel."""
    for number, panel in enumerate(finding.panels, 1):
        name = f"panel{number}"
        drift = ladder_distortion.table(panel)
        if drift is not None:
            title = f"{panel.name}: how far training statistics drift apart, predicted and measured"
            picture, sentence = ladder_distortion.chart(drift), ladder_distortion.sentence(drift)
            yield Figure.of(f"{name}-drift", title, picture, sentence, "factors", drift.rows)
        predicted = ladder_predictions.table(panel)
        if predicted.rows:
            title = f"{panel.name}: predicted and measured critical batch size, by baseline"
            picture, sentence = ladder_predictions.chart(predicted), ladder_predictions.sentence(predicted)
            yield Figure.of(f"{name}-predictions", title, picture, sentence, "predictions", predicted.rows)
        ratio = ladder_ratio.table(panel)
        if ratio.rows:
            title = f"{panel.name}: signal over noise of the gradient, G/N"
            picture, sentence = ladder_ratio.chart(ratio), ladder_ratio.sentence(ratio)
            yield Figure.of(f"{name}-ratio", title, picture, sentence, "G/N", ratio.rows)
        error = ladder_error.table(panel)
        if error.rows:
            title = f"{panel.name}: test error along the linear scaling rule"
            picture, sentence = ladder_error.chart(error), ladder_error.sentence(error)
            yield Figure.of(f"{name}-error", title, picture, sentence, "test errors", error.rows)
        if panel.curves:
            found = curves.table(panel.curves, panel.runs, "test_accuracy", curves.by_batch_size, "budget")
            yield curve_figure(f"{name}-curves", panel.name, found)


def ngd_figures(finding: NgdFinding) -> Iterator[Figure]:
    """Gaps and curves of every panel: the metric, and the training loss."""
    for number, panel in enumerate(finding.panels, 1):
        name = f"panel{number}"
        rows = [gap.row(one.name, one.answer, one.gap, one.low, one.high, panel.margin) for one in panel.gaps]
        if rows:
            picture, sentence = gap.chart(rows, panel.metric, "difference"), gap.sentence(rows, panel.metric)
            yield Figure.of(f"{name}-gap", f"{panel.name}: gaps and the margin", picture, sentence, "gaps", rows)
        tables = [curves.table(panel.curves, panel.runs, panel.metric)]
        if panel.metric != "train_loss":
            tables.append(curves.table(panel.curves, panel.runs, "train_loss"))
        for found in tables:
            if found.rows:
                metric = found.metric
                yield curve_figure(f"{name}-{metric.replace('_', '-')}", panel.name, found)


FIGURES: dict[str, Callable[[Any], Iterator[Figure]]] = {
    "compare": compare_figures,
    "ladder": ladder_figures,
    "ngd": ngd_figures,
}
"""By the kind of the experiment: what draws its finding."""


def curve_figure(name: str, panel: str, found: curves.CurveTable) -> Figure:
    """Curves of one panel."""
    tables = [Table(name, "means over seeds", [asdict(row) for row in found.rows])]
    if found.diverged:
        tables.append(Table(f"{name}-diverged", "diverged runs", [asdict(row) for row in found.diverged]))
    title = f"{panel}: {UNITS[found.metric]} during training"
    return Figure(name, title, curves.chart(found), curves.sentence(found), tuple(tables))
