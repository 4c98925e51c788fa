"""The page of each family of experiments: its answers, its figures, and the meaning of its terms.

A new family has a function here and a row in both tables.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from svag.lab.experiments.compare_finding import CompareFinding
from svag.lab.experiments.ladder_finding import LadderFinding, LadderPanelFinding
from svag.lab.experiments.ngd_finding import NgdFinding
from svag.lab.experiments.wording import UNITS, criterion, is_share
from svag.lab.records.record import RunRecord
from svag.lab.report.charts import costs as cost_charts
from svag.lab.report.charts import gap, ladder_error, signal_to_noise, statistics_drift, training_curves
from svag.lab.report.content import Card, Figure, Table
from svag.lab.report.costs import LadderCosts, cost_table, headline, ladder_costs, outside_said

if TYPE_CHECKING:
    from svag.lab.experiments.experiment import Metric


def compare_figures(finding: CompareFinding) -> Iterator[Figure]:
    """The gaps of all panels, then curves and limit of each."""
    judged = [(panel, panel.verdict) for panel in finding.panels if panel.verdict is not None]
    if judged:
        metric = judged[0][0].metric
        rows = [gap.GapRow(p.name, v.answer, v.gap, v.low, v.high, v.margin) for p, v in judged]
        names = " or ".join(dict.fromkeys(panel.optimizer for panel, _ in judged))
        title = f"The gap between {names} and its SDE, and the margin"
        picture, sentence = gap.chart(rows, metric, f"{names} − SDE limit"), gap.sentence(rows, metric)
        yield Figure.of("gap", title, picture, sentence, "gaps", rows)
    for number, panel in enumerate(finding.panels, 1):
        name = f"panel{number}"
        if panel.curves:
            table = training_curves.table(panel.curves, panel.runs, panel.metric, across="effective_step")
            yield curve_figure(f"{name}-curves", panel.name, table)
        if panel.arms:
            limit = gap.limit_table(panel)
            title = f"Final {UNITS[panel.metric]} against 1/ell"
            picture, sentence = gap.limit_chart(limit), gap.limit_sentence(limit)
            yield Figure.of(f"{name}-limit", title, picture, sentence, "final metrics", limit.rows, panel.name)


def ladder_figures(finding: LadderFinding, all_costs: Sequence[LadderCosts]) -> Iterator[Figure]:
    """Data, time and loss of every panel, then drift, G/N, test errors and curves."""
    for number, (panel, costs) in enumerate(zip(finding.panels, all_costs, strict=True), 1):
        name = f"panel{number}"
        yield from cost_figures(name, panel, costs)
        drift = statistics_drift.table(panel)
        if drift is not None:
            title = "How far training statistics drift apart, predicted and measured"
            picture, sentence = statistics_drift.chart(drift), statistics_drift.sentence(drift)
            yield Figure.of(f"{name}-drift", title, picture, sentence, "factors", drift.rows, panel.name)
        ratio = signal_to_noise.table(panel)
        if panel.gain is None and ratio.rows:  # for the gain rule the slope would be about runs that do not exist
            title = "Signal over noise of the gradient, G/N"
            picture, sentence = signal_to_noise.chart(ratio), signal_to_noise.sentence(ratio)
            yield Figure.of(f"{name}-ratio", title, picture, sentence, "G/N", ratio.rows, panel.name)
        error = ladder_error.error_table(panel)
        if error.rows:
            rule = "gain" if panel.gain is not None else "square-root" if panel.adaptive else "scaling"
            title = f"{criterion(panel.metric).capitalize()} along the {rule} rule"
            picture, sentence = ladder_error.error_chart(error), ladder_error.error_sentence(error)
            what = "test errors" if is_share(panel.metric) else "test losses"
            yield Figure.of(f"{name}-error", title, picture, sentence, what, error.rows, panel.name)
        if panel.curves:
            by_size = training_curves.by_batch_size
            table = training_curves.table(panel.curves, panel.runs, panel.metric, by_size, "budget")
            yield curve_figure(f"{name}-curves", panel.name, table)


def cost_figures(name: str, panel: LadderPanelFinding, costs: LadderCosts) -> Iterator[Figure]:
    """The data that the batch sizes of one panel needed, and their training loss against data and time."""
    if costs.rungs:
        rows = cost_charts.needed_rows(costs)
        picture, sentence = cost_charts.needed_chart(rows), cost_charts.needed_sentence(rows, costs.forecast)
        title = "Data needed for the same training loss"
        yield Figure.of(f"{name}-examples", title, picture, sentence, "factors in examples", rows, panel.name)
    moments = costs.moments
    axes: list[tuple[cost_charts.LossAxis, str]] = [("examples", "training examples")]
    if moments and all(math.isfinite(moment.seconds) for moment in moments):
        axes.append(("seconds", "time"))
    if panel.gain is not None:
        axes.append(("baseline_time", f"steps of batch size {costs.baseline}"))
    for across, said in axes if moments else ():
        drawn = (moments, across, costs.baseline)
        picture, sentence = cost_charts.loss_chart(*drawn), cost_charts.loss_sentence(*drawn)
        file = f"{name}-loss-{across.replace('_', '-')}"
        yield Figure.of(file, f"Training loss against {said}", picture, sentence, "losses", moments, panel.name)
    if panel.gain is not None and any(math.isfinite(moment.gain) for moment in moments):
        larger = [moment for moment in moments if moment.batch_size != costs.baseline]
        sentence = (
            f"How many steps of batch size {costs.baseline} one update is worth. The learning rate (for Adam, its "
            "square) is multiplied by it."
        )
        picture = cost_charts.gain_chart(larger, costs.baseline)
        yield Figure.of(f"{name}-gain", "Gain along training", picture, sentence, "gains", larger, panel.name)


def ngd_figures(finding: NgdFinding) -> Iterator[Figure]:
    """Gaps and curves of every panel: the metric, and the training loss."""
    for number, panel in enumerate(finding.panels, 1):
        name = f"panel{number}"
        rows = [gap.GapRow(pair.name, pair.answer, pair.gap, pair.low, pair.high, panel.margin) for pair in panel.gaps]
        if rows:
            picture, sentence = gap.chart(rows, panel.metric, "difference"), gap.sentence(rows, panel.metric)
            yield Figure.of(f"{name}-gap", "Gaps and the margin", picture, sentence, "gaps", rows, panel.name)
        metrics: tuple[Metric, ...] = (panel.metric, "train_loss")
        for metric in dict.fromkeys(metrics):
            table = training_curves.table(panel.curves, panel.runs, metric)
            if table.rows:
                yield curve_figure(f"{name}-{metric.replace('_', '-')}", panel.name, table)


def ladder_card(panel: LadderPanelFinding, costs: LadderCosts, number: int) -> Card:
    """The answer of a ladder: data and time first, and the statistics of training among the numbers."""
    answer, said = panel.answer(), headline(costs)
    if not said:
        return Card(answer)
    shown = outside_said(costs)
    badge, tone = answer.badge, answer.tone
    if panel.gain is None:
        shown += (("statistics", answer.headline),)
        tone = tone if badge else "note"  # the headline is an answer, even if that on the statistics is open
    elif tone == "open":
        badge = "same final loss: not decided"
    numbers = (*shown, *answer.numbers)
    answer = replace(answer, headline=said, tone=tone, badge=badge, numbers=numbers, first=len(shown))
    return Card(answer, cost_table(f"costs{number}", costs))


PageParts = tuple[tuple[Card, ...], Iterator[Figure]]
"""What a page shows of a finding: the answers, and the figures as they are drawn."""


def ladder_page(finding: LadderFinding, records: Sequence[RunRecord]) -> PageParts:
    """Every panel with what its batch sizes cost."""
    costs = [ladder_costs(panel, records) for panel in finding.panels]
    pairs = enumerate(zip(finding.panels, costs, strict=True), 1)
    cards = tuple(ladder_card(panel, panel_costs, number) for number, (panel, panel_costs) in pairs)
    return cards, ladder_figures(finding, costs)


def compare_page(finding: CompareFinding, records: Sequence[RunRecord]) -> PageParts:
    """Every panel with its gap."""
    return tuple(map(Card, finding.answers())), compare_figures(finding)


def ngd_page(finding: NgdFinding, records: Sequence[RunRecord]) -> PageParts:
    """Every panel with its gaps."""
    return tuple(map(Card, finding.answers())), ngd_figures(finding)


PAGES: dict[str, Callable[[Any, Sequence[RunRecord]], PageParts]] = {
    "compare": compare_page,
    "ladder": ladder_page,
    "ngd": ngd_page,
}
"""By the kind of the experiment: what its page shows of a finding and its records."""

_TERMS = {
    "[low, high]": "a 95% interval",
    "±": "the standard deviation over seeds",
    "G, N": "signal and noise: G is the squared norm |∇L|² of the full gradient, N the variance of one batch's "
    "gradient, summed over all weights. B_simple = B·N/G is the gradient noise scale.",
    "D": "distortion: by what factor training statistics change when batch and learning rate grow together, predicted "
    "from N/G of the smaller run. At the gain rule's learning rate it is a price: at D = 1.5, expect to need about 1.5 "
    "times the data for the same training loss. Another rule may cost more or less.",
    "gain": "how many steps of the small batch one step at κ times the batch is worth, κ/D. By the gain rule the "
    "learning rate (for Adam, its square) is multiplied by it, and the run takes D times the examples.",
    "examples, predicted": "how many times the examples of the smallest batch a larger one is expected to need for "
    "the same training loss, from the gradient noise at the smallest batch; in parentheses the range of that price",
    "examples, measured": "how many times as many it took to the training loss of the smallest batch, on average over "
    "its losses at 25, 50 and 75% of training; ⚠ outside the predicted range",
    "time": "how many times as long that took, by the fastest seed of each batch size on the machine of these runs",
    "final loss": "training loss at the end over that of the smallest batch",
    "examples": "how many times as many a larger batch is expected to need for the same training loss at the learning "
    "rate of its row; in parentheses the range of measured over predicted prices on the ladders where they were "
    "checked (80%)",
    "noise scale": "B·N/G in examples, where N/G is the gradient noise over its signal at batch size B: the batch "
    "size at which the two are equal",
    "linear rule": "the learning rate by the linear (Adam: square-root) scaling rule, for comparison",
    "C²": "the largest factor between training statistics that still counts as the same training; 2 by default",
    "B*": "the batch size at which D reaches C². It is about the statistics of training and not about test error, "
    "which may suffer earlier, later or not at all.",
    "drift": "what D predicts, measured. Squared weight norm (for Adam, the second moment), G and κN of the larger "
    "run are divided by those of the smaller one, whose batch is κ times smaller; the drift is the largest of these "
    "ratios over the smallest.",
    "ell": "into how many sub-steps SVAG divides a step; ell = 1 is the optimizer itself. The SDE limit extrapolates "
    "the final result to infinite ell.",
    "SDE": "stochastic differential equation: training with infinitely small steps and Gaussian noise",
    "margin": "a gap that would not matter, chosen before the runs; a point is a percentage point",
    "C-close": "R (squared weight norm), G and N of the two differ by less than a factor C; C² is 2",
}
_SHOWN = {
    "ladder": (
        "examples, predicted",
        "examples, measured",
        "time",
        "final loss",
        "gain",
        "D",
        "C²",
        "B*",
        "drift",
        "G, N",
        "[low, high]",
    ),
    "compare": ("SDE", "ell", "margin", "G, N", "C-close", "±", "[low, high]"),
    "ngd": ("margin", "±", "[low, high]"),
    "folder": ("examples", "noise scale", "linear rule", "[low, high]"),
}
WORDS = {kind: tuple((term, _TERMS[term]) for term in terms) for kind, terms in _SHOWN.items()}
"""By the kind of the experiment: what the terms on its page mean."""


def curve_figure(name: str, panel: str, curves: training_curves.CurveTable) -> Figure:
    """Curves of one panel."""
    tables = [Table(name, "means over seeds", [asdict(row) for row in curves.rows])]
    if curves.diverged:
        tables.append(Table(f"{name}-diverged", "diverged runs", [asdict(row) for row in curves.diverged]))
    title = f"{UNITS[curves.metric].capitalize()} during training"
    picture, sentence = training_curves.chart(curves), training_curves.sentence(curves)
    return Figure(name, title, picture, sentence, tuple(tables), panel)
