"""The pictures of the theory, by the label of what they show."""

from collections.abc import Callable

from svag.findings.heavy_tails import TailFinding
from svag.report.charts import balances, noise_trace, norm_transient, poisson_laws, sample_paths, schedules, weak_error
from svag.report.content import Figure


def theory_figures(label: str) -> tuple[Figure, ...]:
    """Compute and draw what belongs to a label; nothing if it has no picture, only a check."""
    return _PICTURES[label]() if label in _PICTURES else ()


def tail_figure(found: TailFinding) -> Figure:
    """N against the number of batches it is estimated from, on a network's gradients (sec:app_heayvtailed)."""
    rows = noise_trace.table(found)
    title = "Noise trace against the number of batches"
    return Figure.of("noise_trace", title, noise_trace.chart(rows), str(found), "noise traces", rows)


def _weak_error() -> tuple[Figure, ...]:
    rows = weak_error.table()
    picture, sentence = weak_error.chart(rows), weak_error.sentence(rows)
    return (Figure.of("weak_error", "Weak error against ell", picture, sentence, "weak errors", rows),)


def _sample_paths() -> tuple[Figure, ...]:
    found = sample_paths.table()
    title = "Sample paths over the density of the SDE"
    picture, sentence = sample_paths.chart(found), sample_paths.sentence(found)
    return (Figure.of("sample_paths", title, picture, sentence, "paths", found.paths),)


def _poisson() -> tuple[Figure, ...]:
    laws, distances = poisson_laws.table(), poisson_laws.distance_table()
    sentence = poisson_laws.sentence(distances)
    of_laws, of_distances = poisson_laws.chart(laws), poisson_laws.distance_chart(distances)
    return (
        Figure.of("poisson_laws", "Laws under Poisson gradients", of_laws, sentence, "laws", laws),
        Figure.of("distances", "Distance to the SDE", of_distances, sentence, "distances", distances),
    )


def _balances() -> tuple[Figure, ...]:
    rows = balances.table()
    picture, sentence = balances.chart(rows), balances.sentence(rows)
    return (Figure.of("balances", "Balances at equilibrium", picture, sentence, "balances", rows),)


def _transient() -> tuple[Figure, ...]:
    rows = norm_transient.table()
    picture, sentence = norm_transient.chart(rows), norm_transient.sentence(rows)
    return (Figure.of("norm_transient", "The squared norm on its way", picture, sentence, "squared norms", rows),)


def _schedules() -> tuple[Figure, ...]:
    rows = schedules.table()
    picture, sentence = schedules.chart(rows), schedules.sentence(rows)
    return (Figure.of("schedules", "Learning rates", picture, sentence, "learning rates", rows),)


_PICTURES: dict[str, Callable[[], tuple[Figure, ...]]] = {
    "thm:sde_svag": _weak_error,
    "fig:proof_concept": _sample_paths,
    "sec:counterexample": _poisson,
    "thm:eq_sde_sgd": _balances,
    "eq:norm_sgd_wd": _transient,
    "eq:norm_sde_wd": _transient,
    "fig:app_exotic_lr": _schedules,
}
DRAWN = tuple(_PICTURES)
