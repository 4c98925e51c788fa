"""SGD, noisy gradient descent and gradient descent side by side: the answer, the gaps, the curves."""

import math
from collections.abc import Iterator

from svag.experiments.ngd import NgdFinding, NgdPanelFinding
from svag.report import wording
from svag.report.charts import curves, gap
from svag.report.content import Answer, Figure, Tone
from svag.report.sections.compare import arm_said, curve_figure, sgd_curve

QUESTION = "Does Gaussian noise of the same covariance do what the noise of SGD does?"
_TONES: dict[str, Tone] = {"equivalent": "yes", "different": "no", "inconclusive": "open"}


def answers(finding: NgdFinding) -> tuple[Answer, ...]:
    """One a panel."""
    return tuple(_answer(panel) for panel in finding.panels)


def _answer(panel: NgdPanelFinding) -> Answer:
    metric = panel.metric
    numbers = [
        (one.name, f"{wording.difference(one.gap, metric)} {wording.interval(one.low, one.high, metric)}")
        for one in (panel.sgd_ngd, panel.sgd_gd)
        if one is not None
    ]
    numbers += [(arm.arm, arm_said(arm, metric)) for arm in panel.arms]
    tone = "open" if panel.sgd_ngd is None else _TONES[panel.sgd_ngd.answer]
    spark, spark_of = sgd_curve(panel.curves, metric)
    return Answer(
        panel.name,
        panel.verdict,
        tone,
        (*numbers, *_more(panel)),
        panel.status,
        spark,
        spark_of,
        first=len(numbers),
    )


def _more(panel: NgdPanelFinding) -> Iterator[tuple[str, str]]:
    best = [f"{arm} {wording.value(value, panel.metric)}" for arm, value in panel.best if math.isfinite(value)]
    if best:
        yield "best along the run", f"{', '.join(best)} (means over seeds, as the paper prints them)"
    for one in (panel.sgd_ngd, panel.sgd_gd):
        if one is not None:
            said = f"a gap: {one.p_different:.2g}; smaller than the margin: {one.p_equivalent:.2g}"
            rates = "" if one.p_divergence is None else f"; unequal rates of divergence: {one.p_divergence:.2g}"
            yield f"p values of {one.name}", said + rates


def figures(finding: NgdFinding) -> Iterator[Figure]:
    """Gaps and curves of every panel: the metric, and the training loss."""
    for number, panel in enumerate(finding.panels, 1):
        name = f"panel{number}"
        rows = [
            gap.row(one.name, one.answer, one.gap, one.low, one.high, panel.margin)
            for one in (panel.sgd_ngd, panel.sgd_gd)
            if one is not None
        ]
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
