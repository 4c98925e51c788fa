"""The figures of SGD, noisy gradient descent and gradient descent side by side: the gaps and the curves."""

from collections.abc import Iterator

from svag.experiments.ngd_finding import NgdFinding
from svag.report.charts import curves, gap
from svag.report.content import Figure
from svag.report.sections.compare import curve_figure


def figures(finding: NgdFinding) -> Iterator[Figure]:
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
