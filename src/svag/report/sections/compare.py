"""A comparison of SGD with its SDE: the answer, the curves, the limit, the gap."""

import math
from collections.abc import Iterator
from dataclasses import asdict

from svag.findings.experiments.arm_result import ArmResult
from svag.findings.experiments.compare_finding import CompareFinding, ComparePanelFinding
from svag.findings.experiments.runs import CurveRow
from svag.findings.sde.answer import SDEVerdict
from svag.report import wording
from svag.report.charts import curves, gap, limit
from svag.report.content import Answer, Figure, Table, Tone
from svag.report.sections import evidence

QUESTION = "Does the SDE describe this SGD? SVAG converges to the SDE as ell grows; the gap is SGD minus that limit."
_TONES: dict[str, Tone] = {"equivalent": "yes", "different": "no", "inconclusive": "open"}


def answers(finding: CompareFinding) -> tuple[Answer, ...]:
    """One a panel."""
    return tuple(_answer(panel) for panel in finding.panels)


def _answer(panel: ComparePanelFinding) -> Answer:
    found, metric = panel.verdict, panel.metric
    headline = "No answer yet: SGD and SVAG both need results."
    tone: Tone = "open"
    numbers = []
    if found is not None:
        headline, tone = _headline(found, metric), _TONES[found.answer]
        gap_said = f"{wording.difference(found.gap, metric)} {wording.interval(found.low, found.high, metric)}"
        numbers.append(("SGD − SDE", gap_said))
    if panel.limit is not None:
        numbers.append(("SDE limit", evidence.limit_said(panel.limit, metric)))
    numbers += [(arm.arm, arm_said(arm, metric)) for arm in panel.arms]
    spark, spark_of = sgd_curve(panel.curves, metric)
    return Answer(
        panel.name,
        headline,
        tone,
        (*numbers, *evidence.rows(panel)),
        panel.status,
        spark,
        spark_of,
        first=len(numbers),
    )


def _headline(found: SDEVerdict, metric: str) -> str:
    margin = wording.difference(found.margin, metric).removeprefix("+")
    match found.answer:
        case "equivalent":
            return f"Yes: SGD ends where its SDE ends, to within ±{margin}."
        case "different":
            if not (math.isfinite(found.gap) and found.p_different < 0.05):
                return "No: SGD and its SDE do not diverge equally often."
            side = "above" if found.gap > 0 else "below"
            return f"No: SGD ends {wording.difference(abs(found.gap), metric).removeprefix('+')} {side} its SDE."
        case "inconclusive":
            return f"Not decided: these runs cannot tell a gap from none, to within ±{margin}."


def arm_said(arm: ArmResult, metric: str) -> str:
    """Mean, spread and seeds of one arm."""
    spread = f" ± {wording.value(arm.std, metric)}" if math.isfinite(arm.std) else ""
    lost = f", {arm.diverged} diverged" if arm.diverged else ""
    return f"{wording.value(arm.mean, metric)}{spread} ({wording.count(arm.seeds, 'seed')}{lost})"


def sgd_curve(rows: tuple[CurveRow, ...], metric: str) -> tuple[tuple[float, ...], str]:
    """The curve of the first seed of SGD, and what it is."""
    mine = [row for row in rows if row.arm == "SGD"]
    first = min((row.seed for row in mine), default=0)
    found = (getattr(row, metric) for row in mine if row.seed == first)
    values = tuple(float(value) for value in found if value is not None)
    return values, f"{wording.UNITS[metric]} of SGD, seed {first}"


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
