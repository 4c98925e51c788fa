"""Which figures are drawn: one table by the family of an experiment, one by the label of the theory.

A new family has a function here and a row in the table.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import altair as alt

from svag.experiments.atlas import Atlas
from svag.experiments.compare_finding import CompareFinding
from svag.experiments.ladder_finding import LadderFinding
from svag.experiments.ngd_finding import NgdFinding
from svag.experiments.wording import UNITS, criterion, is_share
from svag.findings.heavy_tails import TailFinding
from svag.findings.illustrations import learning_rates, poisson_cdfs, poisson_distances, sample_paths, weak_errors
from svag.findings.weight_norm import norm_balances, norm_transient
from svag.report.charts import (
    atlas,
    curves,
    gap,
    ladder_error,
    ladder_prices,
    theory,
)
from svag.report.content import Figure, Table


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
    """Drift, predictions, G/N, test errors and curves of every panel."""
    for number, panel in enumerate(finding.panels, 1):
        name = f"panel{number}"
        drift = ladder_prices.drift_table(panel)
        if drift is not None:
            title = f"{panel.name}: how far training statistics drift apart, predicted and measured"
            picture, sentence = ladder_prices.drift_chart(drift), ladder_prices.drift_sentence(drift)
            yield Figure.of(f"{name}-drift", title, picture, sentence, "factors", drift.rows)
        predicted = ladder_prices.prediction_table(panel)
        if predicted.rows:
            title = f"{panel.name}: predicted and measured critical batch size, by baseline"
            picture, sentence = ladder_prices.prediction_chart(predicted), ladder_prices.prediction_sentence(predicted)
            yield Figure.of(f"{name}-predictions", title, picture, sentence, "predictions", predicted.rows)
        ratio = ladder_error.ratio_table(panel)
        if ratio.rows:
            title = f"{panel.name}: signal over noise of the gradient, G/N"
            picture, sentence = ladder_error.ratio_chart(ratio), ladder_error.ratio_sentence(ratio)
            yield Figure.of(f"{name}-ratio", title, picture, sentence, "G/N", ratio.rows)
        error = ladder_error.error_table(panel)
        if error.rows:
            rule = "square-root" if panel.adaptive else "scaling"
            title = f"{panel.name}: {criterion(panel.metric)} along the {rule} rule"
            picture, sentence = ladder_error.error_chart(error), ladder_error.error_sentence(error)
            what = "test errors" if is_share(panel.metric) else "test losses"
            yield Figure.of(f"{name}-error", title, picture, sentence, what, error.rows)
        if panel.curves:
            found = curves.table(panel.curves, panel.runs, panel.metric, curves.by_batch_size, "budget")
            yield curve_figure(f"{name}-curves", panel.name, found)


def atlas_figures(found: Atlas) -> Iterator[Figure]:
    """Spread and examples against D, with the tables of all pairs and of all baselines."""
    pairs = [pair for ladder in found.ladders for pair in ladder.pairs]
    if not found.pairs:
        return
    rows = [atlas.baseline_row(one, ladder) for ladder in found.ladders for one in ladder.baselines]
    tables = (
        Table("baselines", "B* and where training statistics drifted apart by C²", rows),
        Table("pairs", "every pair of rungs", [atlas.pair_row(pair) for pair in pairs]),
    )
    filled = "Filled: by a theorem, the point lies on the dashed line or above. Hollow: D is an estimate."
    picture = atlas.chart(atlas.spread_points(found.pairs), "measured drift (factor)")
    title = "How far training statistics drift apart, predicted and measured"
    yield Figure("spread", title, picture, f"One point for every two batch sizes of a ladder. {filled}", tables)
    points = atlas.example_points(found.pairs)
    if points:
        picture = atlas.chart(points, "measured factor in data")
        sentence = (
            "How many times more training examples the larger batch needed for the same training loss. Dashed: exactly "
            "D times as many. Arrows: it never reached that loss, so the factor is at least this."
        )
        title = "How much more data a larger batch needs, predicted and measured"
        yield Figure.of("examples", title, picture, sentence, "factors in examples", points)


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
_LADDER = (
    "ladder",
    "the same training at several batch sizes; a pair is two of them, and the smaller one is the baseline",
)

WORDS: dict[str, tuple[tuple[str, str], ...]] = {
    "ladder": (_DISTORTION, _CLOSE, _CRITICAL, _DRIFT, _SIGNAL, _BRACKETS),
    "compare": (_SDE, _ELL, _MARGIN, _SIGNAL, _C_CLOSE, _SPREAD, _BRACKETS),
    "ngd": (_MARGIN, _SPREAD, _BRACKETS),
    "atlas": (_LADDER, _DISTORTION, _CLOSE, _CRITICAL, _DRIFT, _SIGNAL, _BRACKETS),
    "folder": (_CRITICAL, _DISTORTION, _CLOSE, _SIGNAL, _BRACKETS),
}
"""By the kind of the experiment: what the terms on its page mean."""


_IN_GALLERY = {"compare": ("-curves",), "ladder": ("-error", "-drift"), "ngd": ("-test-accuracy", "-train-loss")}


def gallery_figures(kind: str, finding: Any) -> list[Figure]:
    """The figures of a finding that show what the paper's figure shows.

    Curves of a comparison; drift and test error of every ladder; test accuracy and training loss of SGD, NGD and GD.

    Args:
        kind: of the experiment.
        finding: what it found.
    """
    return [one for one in FIGURES[kind](finding) if one.name.endswith(_IN_GALLERY[kind])]


def side_by_side(figures: Sequence[Figure]) -> alt.ConcatChart:
    """Several figures as one picture, two in a row under the names of their panels, with nothing to click on."""
    charts = []
    for one in figures:
        size = {"width": 320, "height": 200, "title": one.title.partition(": ")[0]}
        charts.append(alt.LayerChart.from_dict({**_still(one.chart.to_dict()), **size}))
    apart = alt.ScaleResolveMap(color="independent", shape="independent", strokeDash="independent")
    return alt.ConcatChart(concat=charts, columns=2, spacing=30, resolve=alt.Resolve(scale=apart))


def _still(value: Any) -> Any:
    """A chart without its parameters: nothing is hidden or moved, and several charts have no names in common."""
    if isinstance(value, dict):
        kept = {name: _still(part) for name, part in value.items() if name not in {"params", "config", "$schema"}}
        if "transform" in kept:
            kept["transform"] = [one for one in kept["transform"] if not isinstance(one.get("filter"), dict)]
        return kept
    return [_still(part) for part in value] if isinstance(value, list) else value


def curve_figure(name: str, panel: str, found: curves.CurveTable) -> Figure:
    """Curves of one panel."""
    tables = [Table(name, "means over seeds", [asdict(row) for row in found.rows])]
    if found.diverged:
        tables.append(Table(f"{name}-diverged", "diverged runs", [asdict(row) for row in found.diverged]))
    title = f"{panel}: {UNITS[found.metric]} during training"
    return Figure(name, title, curves.chart(found), curves.sentence(found), tuple(tables))


def theory_figures(label: str) -> tuple[Figure, ...]:
    """Compute and draw what belongs to a label; nothing if it has no picture, only a check.

    >>> (figure,) = theory_figures("fig:app_exotic_lr")
    >>> figure.title, theory_figures("lem:D")
    ('Learning rates', ())
    """
    return _PICTURES[label]() if label in _PICTURES else ()


def tail_figure(found: TailFinding) -> Figure:
    """N against the number of batches it is estimated from, on a network's gradients (sec:app_heayvtailed)."""
    rows = found.traces()
    title = "Noise trace against the number of batches"
    return Figure.of("noise_trace", title, theory.noise_trace_chart(rows), str(found), "noise traces", rows)


def _weak_error() -> tuple[Figure, ...]:
    found = weak_errors()
    picture = theory.weak_error_chart(found.rows)
    return (Figure.of("weak_error", "Weak error against ell", picture, str(found), "weak errors", found.rows),)


def _sample_paths() -> tuple[Figure, ...]:
    found = sample_paths()
    title = "Sample paths over the density of the SDE"
    return (Figure.of("sample_paths", title, theory.sample_path_chart(found), str(found), "paths", found.paths),)


def _poisson() -> tuple[Figure, ...]:
    laws, distances = poisson_cdfs(), poisson_distances()
    sentence = str(distances)
    of_laws, of_distances = theory.cdf_chart(laws), theory.distance_chart(distances.rows)
    return (
        Figure.of("poisson_laws", "Laws under Poisson gradients", of_laws, sentence, "laws", laws),
        Figure.of("distances", "Distance to the SDE", of_distances, sentence, "distances", distances.rows),
    )


def _balances() -> tuple[Figure, ...]:
    found = norm_balances()
    picture = theory.balance_chart(found.rows)
    return (Figure.of("balances", "Balances at equilibrium", picture, str(found), "balances", found.rows),)


def _transient() -> tuple[Figure, ...]:
    found = norm_transient()
    picture, title = theory.transient_chart(found.rows), "The squared norm on its way"
    return (Figure.of("norm_transient", title, picture, str(found), "squared norms", found.rows),)


def _learning_rates() -> tuple[Figure, ...]:
    found = learning_rates()
    picture = theory.learning_rate_chart(found.rows)
    return (Figure.of("schedules", "Learning rates", picture, str(found), "learning rates", found.rows),)


_PICTURES: dict[str, Callable[[], tuple[Figure, ...]]] = {
    "thm:sde_svag": _weak_error,
    "fig:proof_concept": _sample_paths,
    "sec:counterexample": _poisson,
    "thm:eq_sde_sgd": _balances,
    "eq:norm_sgd_wd": _transient,
    "eq:norm_sde_wd": _transient,
    "fig:app_exotic_lr": _learning_rates,
}
