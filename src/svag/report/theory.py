"""The pictures of the theory, by the label of what they show: the table of a finding, drawn, with its sentence."""

from collections.abc import Callable

from svag.findings.heavy_tails import TailFinding
from svag.findings.illustrations import learning_rates, poisson_cdfs, poisson_distances, sample_paths, weak_errors
from svag.findings.weight_norm import norm_balances, norm_transient
from svag.report.charts import theory
from svag.report.content import Figure


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
