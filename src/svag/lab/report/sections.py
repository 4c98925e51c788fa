"""Which figures are drawn for each family of experiments, and what the terms on its page mean.

A new family has a function here and a row in the table.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from svag.lab.experiments.compare_finding import CompareFinding
from svag.lab.experiments.gain_finding import GainFinding
from svag.lab.experiments.ladder_finding import LadderFinding
from svag.lab.experiments.ngd_finding import NgdFinding
from svag.lab.experiments.wording import UNITS, criterion, is_share
from svag.lab.report.charts import curves, gains, gap, ladder_error, ladder_prices
from svag.lab.report.content import Figure, Table


def compare_figures(finding: CompareFinding) -> Iterator[Figure]:
    """The gaps of all panels, then curves and limit of each."""
    judged = [(panel, panel.verdict) for panel in finding.panels if panel.verdict is not None]
    if judged:
        metric = judged[0][0].metric
        rows = [gap.row(p.name, v.answer, v.gap, v.low, v.high, v.margin) for p, v in judged]
        names = " or ".join(dict.fromkeys(panel.optimizer for panel, _ in judged))
        title = f"The gap between {names} and its SDE, and the margin"
        picture, sentence = gap.chart(rows, metric, f"{names} − SDE limit"), gap.sentence(rows, metric)
        yield Figure.of("gap", title, picture, sentence, "gaps", rows)
    for number, panel in enumerate(finding.panels, 1):
        name = f"panel{number}"
        if panel.curves:
            yield curve_figure(f"{name}-curves", panel.name, curves.table(panel.curves, panel.runs, panel.metric))
        if panel.arms:
            found = gap.limit_table(panel)
            title = f"{panel.name}: final {UNITS[panel.metric]} against 1/ell"
            picture, sentence = gap.limit_chart(found), gap.limit_sentence(found)
            yield Figure.of(f"{name}-limit", title, picture, sentence, "final metrics", found.rows)


def ladder_figures(finding: LadderFinding) -> Iterator[Figure]:
    """Drift, predictions, G/N, test errors and curves of every panel; by the gain rule loss, gain and price first."""
    for number, panel in enumerate(finding.panels, 1):
        name = f"panel{number}"
        if panel.gain is not None:
            yield from gain_figures(name, panel.name, panel.gain)
        drift = ladder_prices.drift_table(panel)
        if drift is not None:
            title = f"{panel.name}: how far training statistics drift apart, predicted and measured"
            picture, sentence = ladder_prices.drift_chart(drift), ladder_prices.drift_sentence(drift)
            yield Figure.of(f"{name}-drift", title, picture, sentence, "factors", drift.rows)
        predicted = ladder_prices.prediction_table(panel)
        along = panel.gain is None  # by the gain rule B* and the slope of G/N are about runs that were not made
        if along and predicted.rows:
            title = f"{panel.name}: predicted and measured critical batch size, by baseline"
            picture, sentence = ladder_prices.prediction_chart(predicted), ladder_prices.prediction_sentence(predicted)
            yield Figure.of(f"{name}-predictions", title, picture, sentence, "predictions", predicted.rows)
        ratio = ladder_error.ratio_table(panel)
        if along and ratio.rows:
            title = f"{panel.name}: signal over noise of the gradient, G/N"
            picture, sentence = ladder_error.ratio_chart(ratio), ladder_error.ratio_sentence(ratio)
            yield Figure.of(f"{name}-ratio", title, picture, sentence, "G/N", ratio.rows)
        error = ladder_error.error_table(panel)
        if error.rows:
            rule = "gain" if panel.gain is not None else "square-root" if panel.adaptive else "scaling"
            title = f"{panel.name}: {criterion(panel.metric)} along the {rule} rule"
            picture, sentence = ladder_error.error_chart(error), ladder_error.error_sentence(error)
            what = "test errors" if is_share(panel.metric) else "test losses"
            yield Figure.of(f"{name}-error", title, picture, sentence, what, error.rows)
        if panel.curves:
            found = curves.table(panel.curves, panel.runs, panel.metric, curves.by_batch_size, "budget")
            yield curve_figure(f"{name}-curves", panel.name, found)


_GAINED: dict[gains.Drawn, str] = {"train_loss": "training loss", "gain": "gain", "price": "price so far"}


def gain_figures(name: str, panel: str, found: GainFinding) -> Iterator[Figure]:
    """Training loss, gain and price of one panel along the time of its baseline."""
    for drawn, title in _GAINED.items():
        rows = gains.table(found, drawn)
        if rows.rows:
            picture, sentence = gains.chart(rows), gains.sentence(rows)
            yield Figure.of(
                f"{name}-{drawn.replace('_', '-')}", f"{panel}: {title}", picture, sentence, title, list(rows.rows)
            )


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

_BRACKETS = ("[low, high]", "a 95% interval")
_SPREAD = ("±", "the standard deviation over seeds")
_SIGNAL = (
    "G, N",
    (
        "signal and noise: G is the squared norm |∇L|² of the full gradient, N the variance of one batch's gradient, "
        "summed over all weights. B_simple = B·N/G is the gradient noise scale."
    ),
)
_DISTORTION = (
    "D",
    (
        "distortion: by what factor training statistics change when batch and learning rate grow together, predicted "
        "from N/G of the smaller run. It is a price: at D = 1.5, expect to need about 1.5 times the data for the same "
        "training loss."
    ),
)
_GAIN = (
    "gain",
    (
        "how many steps of the small batch one step at κ times the batch is worth, κ/D. By the gain rule the learning "
        "rate (for Adam, its square) is multiplied by it, and the run takes D times the examples."
    ),
)
_CLOSE = ("C²", "the largest factor between training statistics that still counts as the same training; 2 by default")
_CRITICAL = (
    "B*",
    (
        "the batch size at which D reaches C². It is about the statistics of training and not about test error, which "
        "may suffer earlier, later or not at all."
    ),
)
_DRIFT = (
    "drift",
    (
        "what D predicts, measured. Squared weight norm (for Adam, the second moment), G and κN of the larger run are "
        "divided by those of the smaller one, whose batch is κ times smaller; the drift is the largest of these ratios "
        "over the smallest."
    ),
)
_ELL = (
    "ell",
    (
        "into how many sub-steps SVAG divides a step; ell = 1 is the optimizer itself. The SDE limit extrapolates the "
        "final result to infinite ell."
    ),
)
_SDE = ("SDE", "stochastic differential equation: training with infinitely small steps and Gaussian noise")
_MARGIN = ("margin", "a gap that would not matter, chosen before the runs; a point is a percentage point")
_C_CLOSE = ("C-close", "R (squared weight norm), G and N of the two differ by less than a factor C; C² is 2")
WORDS: dict[str, tuple[tuple[str, str], ...]] = {
    "ladder": (_DISTORTION, _GAIN, _CLOSE, _CRITICAL, _DRIFT, _SIGNAL, _BRACKETS),
    "compare": (_SDE, _ELL, _MARGIN, _SIGNAL, _C_CLOSE, _SPREAD, _BRACKETS),
    "ngd": (_MARGIN, _SPREAD, _BRACKETS),
    "folder": (_CRITICAL, _DISTORTION, _CLOSE, _SIGNAL, _BRACKETS),
}
"""By the kind of the experiment: what the terms on its page mean."""


def curve_figure(name: str, panel: str, found: curves.CurveTable) -> Figure:
    """Curves of one panel."""
    tables = [Table(name, "means over seeds", [asdict(row) for row in found.rows])]
    if found.diverged:
        tables.append(Table(f"{name}-diverged", "diverged runs", [asdict(row) for row in found.diverged]))
    title = f"{panel}: {UNITS[found.metric]} during training"
    return Figure(name, title, curves.chart(found), curves.sentence(found), tuple(tables))
