"""What is drawn of the paper: a picture by the label of the theory, the gallery of its figures, and the atlas."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import altair as alt

from svag.lab.report import look
from svag.lab.report.content import Figure, Table
from svag.lab.report.figures import PAGES, WORDS
from svag.paper.atlas.atlas import Atlas
from svag.paper.charts import linear_pairs, theory
from svag.paper.illustrations.curves import learning_rates, poisson_cdfs, poisson_distances, sample_paths, weak_errors
from svag.paper.illustrations.drawings import diagram, hybrids
from svag.paper.illustrations.heavy_tails import TailMoments
from svag.paper.illustrations.weight_norm import norm_balances, norm_transient

_LADDER_WORD = (
    "ladder",
    "the same training at several batch sizes; a pair is two of them, and the smaller one is the baseline",
)
ATLAS_WORDS = (_LADDER_WORD, *WORDS["ladder"])
"""What the terms on the page of an atlas mean."""


def atlas_figures(atlas: Atlas) -> Iterator[Figure]:
    """Spread and examples against D, with the tables of all pairs and of all baselines."""
    if not atlas.pairs:
        return
    baselines = [
        linear_pairs.baseline_row(baseline, ladder) for ladder in atlas.ladders for baseline in ladder.baselines
    ]
    pairs = [linear_pairs.pair_row(pair) for ladder in atlas.ladders for pair in ladder.pairs]
    tables = (
        Table("baselines", "B* and where training statistics drifted apart by C²", baselines),
        Table("pairs", "every pair of rungs", pairs),
    )
    filled = "Filled: by a theorem, the point lies on the dashed line or above. Hollow: D is an estimate."
    chart = linear_pairs.chart(linear_pairs.spread_points(atlas.pairs), "measured drift (factor)")
    title = "How far training statistics drift apart, predicted and measured"
    yield Figure("spread", title, chart, f"One point for every two batch sizes of a ladder. {filled}", tables)
    points = linear_pairs.example_points(atlas.pairs)
    if points:
        chart = linear_pairs.chart(points, "measured factor in data")
        sentence = (
            "How many times more training examples the larger batch needed for the same training loss. Dashed: exactly "
            "D times as many. Arrows: it never reached that loss, so the factor is at least this."
        )
        title = "How much more data a larger batch needs, predicted and measured"
        yield Figure.of("examples", title, chart, sentence, "factors in examples", points)


_IN_GALLERY = {"compare": ("-curves",), "ladder": ("-error", "-drift"), "ngd": ("-test-accuracy", "-train-loss")}


def gallery_figures(kind: str, finding: Any) -> list[Figure]:
    """The figures of a finding that show what the paper's figure shows.

    Curves of a comparison; drift and test error of every ladder; test accuracy and training loss of SGD, NGD and GD.

    Args:
        kind: of the experiment.
        finding: what it found.
    """
    _, figures = PAGES[kind](finding, ())
    return [figure for figure in figures if figure.name.endswith(_IN_GALLERY[kind])]


def side_by_side(figures: Sequence[Figure]) -> alt.ConcatChart:
    """Several figures as one picture, two in a row under the names of their panels, with nothing to click on."""
    charts = []
    for figure in figures:
        size = {"width": 320, "height": 200, "title": figure.panel}
        charts.append(alt.LayerChart.from_dict({**_still(figure.chart.to_dict()), **size}))
    apart = alt.ScaleResolveMap(
        color="independent", shape="independent", strokeDash="independent", fill="independent", stroke="independent"
    )
    return alt.ConcatChart(concat=charts, columns=2, spacing=30, resolve=alt.Resolve(scale=apart))


def _still(value: Any) -> Any:
    """A chart without its parameters: nothing is hidden or moved, and several charts have no names in common."""
    if isinstance(value, dict):
        kept = {name: _still(part) for name, part in value.items() if name not in {"params", "config", "$schema"}}
        if "transform" in kept:
            kept["transform"] = [step for step in kept["transform"] if not isinstance(step.get("filter"), dict)]
        return kept
    return [_still(part) for part in value] if isinstance(value, list) else value


def theory_figures(label: str) -> tuple[Figure, ...]:
    """Compute and draw what belongs to a label; nothing if it has no picture, only a check.

    >>> (figure,) = theory_figures("fig:app_exotic_lr")
    >>> figure.title, theory_figures("lem:D")
    ('Learning rates', ())
    """
    match label:
        case "thm:sde_svag":
            title = "Weak error against ell"
            return (_figure("weak_error", title, "weak errors", weak_errors(), theory.weak_error_chart),)
        case "fig:proof_concept":
            paths = sample_paths()
            picture, title = theory.sample_path_chart(paths), "Sample paths over the density of the SDE"
            return (Figure.of("sample_paths", title, picture, str(paths), "paths", paths.paths),)
        case "fig:app_proof_overview":
            title = "From one step to many: SVAG first, then the SDE"
            return (_figure("hybrids", title, "hybrids", hybrids(), theory.hybrid_chart),)
        case "fig:diagram":
            limits = diagram()
            picture, title = theory.diagram_chart(limits), "Which process tends to which SDE"
            return (Figure.of("diagram", title, picture, str(limits), "arrows", limits.arrows),)
        case "sec:counterexample":
            laws, distances = poisson_cdfs(), poisson_distances()
            picture, title = theory.cdf_chart(laws), "Laws under Poisson gradients"
            return (
                Figure.of("poisson_laws", title, picture, str(distances), "laws", laws),
                _figure("distances", "Distance to the SDE", "distances", distances, theory.distance_chart),
            )
        case "thm:eq_sde_sgd":
            title = "Balances at equilibrium"
            return (_figure("balances", title, "balances", norm_balances(), theory.balance_chart),)
        case "eq:norm_sgd_wd" | "eq:norm_sde_wd":
            title = "The squared norm on its way"
            return (_figure("norm_transient", title, "squared norms", norm_transient(), theory.transient_chart),)
        case "fig:app_exotic_lr":
            rates = learning_rates()
            return (_figure("schedules", "Learning rates", "learning rates", rates, theory.learning_rate_chart),)
    return ()


def _figure(name: str, title: str, what: str, found: Any, chart: Callable[[Any], look.Picture]) -> Figure:
    """What was found, with a picture of its rows and what it says of itself."""
    return Figure.of(name, title, chart(found.rows), str(found), what, found.rows)


def tail_figure(tails: TailMoments) -> Figure:
    """N against the number of batches it is estimated from, on a network's gradients (sec:app_heayvtailed)."""
    rows = tails.traces()
    title = "Noise trace against the number of batches"
    return Figure.of("noise_trace", title, theory.noise_trace_chart(rows), str(tails), "noise traces", rows)
