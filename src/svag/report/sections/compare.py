"""A comparison of SGD with its SDE: the answer, the evidence beside it, the curves, the limit, the gap.

What a comparison knows beside its verdict: convergence in ell, curves, C-closeness, decompositions.

A comparison of SGD with its SDE: the answer, the curves, the limit, the gap.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict

from svag.experiments.compare import CompareFinding, ComparePanelFinding
from svag.experiments.evidence import ArmResult, CurveGap, Limit
from svag.experiments.runs import CurveRow
from svag.experiments.sde_evidence import Closeness, Decomposition
from svag.findings.sde_verdict import SDEVerdict
from svag.report import wording
from svag.report.charts import curves, gap, limit
from svag.report.content import Answer, Figure, Table, Tone

_ROUTES = {"gaussian": "decomposed through NGD", "ladder": "decomposed through the ladder"}


def rows(panel: ComparePanelFinding) -> Iterator[tuple[str, str]]:
    """One row for everything that was found."""
    if panel.curve is not None:
        yield "over the curve", _curve(panel.curve, panel.metric)
    if panel.verdict is not None:
        yield "convergence in ell", _convergence(panel.verdict)
    if panel.richardson is not None:
        ells = " and ".join(map(str, panel.richardson.ells))
        yield "Richardson", f"{limit_said(panel.richardson, panel.metric)} from ell = {ells}"
    if panel.closeness is not None:
        yield from _closeness(panel.closeness)
    for one in panel.decompositions:
        yield _ROUTES[one.route], _decomposition(one, panel.metric)
    if panel.verdict is not None:
        yield "p values", _p_values(panel.verdict)


def limit_said(found: Limit, metric: str) -> str:
    """A limit with its interval, and how many seeds are not in it."""
    low, high = (wording.value(wording.within(edge, metric), metric) for edge in (found.low, found.high))
    lost = f", {found.diverged} diverged left out" if found.diverged else ""
    return f"{wording.value(found.value, metric)} ({low} to {high}){lost}"


def _curve(found: CurveGap, metric: str) -> str:
    limits = ""
    if math.isfinite(found.low):
        limits = f" {wording.interval(found.low, found.high, metric)}, 95% at all steps at once"
    lost = f", before {wording.count(found.diverged, 'seed')} diverged" if found.diverged else ""
    weak = "; more seeds are needed for a p below 0.05" if found.smallest_p >= 0.05 else ""
    return (
        f"p = {found.p_value:.2g}, SGD against SVAG ell={found.ell} up to effective step {found.until_step:,}{lost}; "
        f"furthest apart at {found.at_step:,}, by {wording.difference(found.gap, metric)}{limits}; "
        f"{found.smallest_p:.2g} is the smallest p possible{weak}"
    )


def _convergence(found: SDEVerdict) -> str:
    shown = f"shown from ell = {found.converged_at} on" if found.converged else "not shown"
    tested = "untested" if found.lack_of_fit is None else f"lack of fit p = {found.lack_of_fit:.2g}"
    match found.limit:
        case "fit":
            return f"{shown}; the limit is E_∞ of E_∞ + c/ell ({tested})"
        case "largest_ell":
            return f"{shown}; the limit is the largest ell, because E_∞ + c/ell does not fit ({tested})"
        case "none":
            return f"{shown}; the spread is unknown"


def _closeness(found: Closeness) -> Iterator[tuple[str, str]]:
    ratios = ", ".join(
        f"{one.name} {wording.plain(one.value)} [{wording.plain(one.low)}, {wording.plain(one.high)}]"
        for one in found.ratios
    )
    yield (
        "C-closeness",
        (
            f"SGD over SVAG ell={found.ell} {found.where}: {ratios}; smallest C² = {wording.plain(found.c2)}, "
            f"at least {wording.plain(found.c2_low)}"
        ),
    )
    balances = (("SGD", found.sgd_balance), (f"SVAG ell={found.ell}", found.svag_balance))
    known = [f"{name} {balance:.3g}" for name, balance in balances if balance is not None]
    if known:
        yield "equilibrium", f"growth over decay of |x|², 1 at equilibrium: {', '.join(known)}"


def _decomposition(found: Decomposition, metric: str) -> str:
    steps = ", ".join(
        f"{term.name} = {wording.difference(term.value, metric)} {wording.interval(term.low, term.high, metric)}"
        for term in found.terms
    )
    lost = f"; {found.left_out} diverged left out" if found.left_out else ""
    total = f"{found.total.name} = {wording.difference(found.total.value, metric)}"
    return f"{total}: {steps} ({wording.count(found.seeds, 'seed')}{lost})"


def _p_values(found: SDEVerdict) -> str:
    said = f"a gap: {found.p_different:.2g}; smaller than the margin: {found.p_equivalent:.2g}"
    if found.p_divergence is None:
        return said
    return f"{said}; unequal rates of divergence: {found.p_divergence:.2g}"


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
        numbers.append(("SDE limit", limit_said(panel.limit, metric)))
    numbers += [(arm.arm, arm_said(arm, metric)) for arm in panel.arms]
    spark, spark_of = sgd_curve(panel.curves, metric)
    return Answer(
        panel.name,
        headline,
        tone,
        (*numbers, *rows(panel)),
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


def curve_figure(name: str, panel: str, found: curves.CurveTable) -> Figure:
    """Curves of one panel."""
    tables = [Table(name, "means over seeds", [asdict(row) for row in found.rows])]
    if found.diverged:
        tables.append(Table(f"{name}-diverged", "diverged runs", [asdict(row) for row in found.diverged]))
    title = f"{panel}: {wording.UNITS[found.metric]} during training"
    return Figure(name, title, curves.chart(found), curves.sentence(found), tuple(tables))
