"""A comparison of SGD with its SDE: the answer, the curves, the limit, the gap."""

import math
from collections.abc import Iterator
from dataclasses import asdict

from svag.findings.experiments.arm_result import ArmResult
from svag.findings.experiments.compare_finding import CompareFinding, ComparePanelFinding
from svag.findings.experiments.runs import CurveRow
from svag.report import wording
from svag.report.charts import curves, gap, limit
from svag.report.content import Answer, Figure, Table, Tone

QUESTION = "Does the SDE describe this SGD? SVAG converges to the SDE as ell grows; the gap is SGD minus that limit."
_TONES: dict[str, Tone] = {"equivalent": "yes", "different": "no", "inconclusive": "open"}


def answers(finding: CompareFinding) -> tuple[Answer, ...]:
    """One a panel."""
    return tuple(_answer(panel) for panel in finding.panels)


def _answer(panel: ComparePanelFinding) -> Answer:
    found, metric = panel.verdict, panel.metric
    if found is None:
        return Answer(panel.name, "No answer yet: SGD and SVAG both need results.", "open", (), panel.status)
    margin = wording.difference(found.margin, metric).removeprefix("+")
    match found.answer:
        case "equivalent":
            headline = f"Yes: SGD ends where its SDE ends, to within ±{margin}."
        case "different":
            side = "above" if found.gap > 0 else "below"
            size = wording.difference(abs(found.gap), metric).removeprefix("+")
            headline = "No: SGD and its SDE do not diverge equally often."
            if math.isfinite(found.gap) and found.p_different < 0.05:
                headline = f"No: SGD ends {size} {side} its SDE."
        case "inconclusive":
            headline = f"Not decided: these runs cannot tell a gap from none, to within ±{margin}."
    numbers = [
        (
            "SGD − SDE",
            f"{wording.difference(found.gap, metric)} {wording.interval(found.low, found.high, metric)}",
        )
    ]
    if panel.limit is not None:
        edges = " to ".join(wording.value(edge, metric) for edge in (panel.limit.low, panel.limit.high))
        numbers.append(("SDE limit", f"{wording.value(panel.limit.value, metric)} ({edges})"))
    numbers += [(arm.arm, arm_said(arm, metric)) for arm in panel.arms]
    spark = sgd_curve(panel.curves, metric)
    return Answer(panel.name, headline, _TONES[found.answer], tuple(numbers), panel.status, spark)


def arm_said(arm: ArmResult, metric: str) -> str:
    """Mean, spread and seeds of one arm."""
    spread = f" ± {wording.value(arm.std, metric)}" if math.isfinite(arm.std) else ""
    lost = f", {arm.diverged} diverged" if arm.diverged else ""
    return f"{wording.value(arm.mean, metric)}{spread} ({wording.count(arm.seeds, 'seed')}{lost})"


def sgd_curve(rows: tuple[CurveRow, ...], metric: str) -> tuple[float, ...]:
    """The curve of the first seed of SGD."""
    mine = [row for row in rows if row.arm == "SGD"]
    first = min((row.seed for row in mine), default=0)
    found = (getattr(row, metric) for row in mine if row.seed == first)
    return tuple(float(value) for value in found if value is not None)


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
