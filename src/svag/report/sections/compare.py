"""The figures of a comparison of SGD with its SDE: the gap, the curves, the limit."""

from collections.abc import Iterator
from dataclasses import asdict

from svag.experiments import wording
from svag.experiments.compare_finding import CompareFinding
from svag.report.charts import curves, gap, limit
from svag.report.content import Figure, Table


def figures(finding: CompareFinding) -> Iterator[Figure]:
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
            title = f"{panel.name}: final {wording.UNITS[panel.metric]} against 1/ell"
            picture, sentence = limit.chart(found), limit.sentence(found)
            yield Figure.of(f"{name}-limit", title, picture, sentence, "final metrics", found.rows)


def curve_figure(name: str, panel: str, found: curves.Table) -> Figure:
    """Curves of one panel."""
    tables = [Table(name, "means over seeds", [asdict(row) for row in found.rows])]
    if found.diverged:
        tables.append(Table(f"{name}-diverged", "diverged runs", [asdict(row) for row in found.diverged]))
    title = f"{panel}: {wording.UNITS[found.metric]} during training"
    return Figure(name, title, curves.chart(found), curves.sentence(found), tuple(tables))
