"""The pictures of the theory, by the label of what they show."""

from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from typing import Any

from svag.findings.heavy_tails import TailFinding
from svag.report.charts import (
    balances,
    noise_trace,
    norm_transient,
    poisson_laws,
    sample_paths,
    schedules,
    weak_error,
)
from svag.report.content import Figure, Row, Table


def theory_figures(label: str) -> tuple[Figure, ...]:
    """Compute and draw what belongs to a label; nothing if it has no picture, only a check."""
    return _PICTURES[label]() if label in _PICTURES else ()


def tail_figure(found: TailFinding) -> Figure:
    """N against the number of batches it is estimated from, on a network's gradients (sec:app_heayvtailed)."""
    rows = noise_trace.table(found)
    return _figure(
        "noise_trace", "Noise trace against the number of batches", noise_trace.chart(rows), rows, str(found)
    )


def _weak_error() -> tuple[Figure, ...]:
    rows = weak_error.table()
    return (_figure("weak_error", "Weak error against ell", weak_error.chart(rows), rows, weak_error.sentence(rows)),)


def _sample_paths() -> tuple[Figure, ...]:
    found = sample_paths.table()
    sentence, picture = sample_paths.sentence(found), sample_paths.chart(found)
    return (_figure("sample_paths", "Sample paths over the density of the SDE", picture, found.paths, sentence),)


def _poisson() -> tuple[Figure, ...]:
    laws, distances = poisson_laws.table(), poisson_laws.distance_table()
    sentence = poisson_laws.sentence(distances)
    return (
        _figure("poisson_laws", "Laws under Poisson gradients", poisson_laws.chart(laws), laws, sentence),
        _figure("distances", "Distance to the SDE", poisson_laws.distance_chart(distances), distances, sentence),
    )


def _balances() -> tuple[Figure, ...]:
    rows = balances.table()
    return (_figure("balances", "Balances at equilibrium", balances.chart(rows), rows, balances.sentence(rows)),)


def _transient() -> tuple[Figure, ...]:
    rows = norm_transient.table()
    sentence = norm_transient.sentence(rows)
    return (_figure("norm_transient", "The squared norm on its way", norm_transient.chart(rows), rows, sentence),)


def _schedules() -> tuple[Figure, ...]:
    rows = schedules.table()
    return (_figure("schedules", "Learning rates", schedules.chart(rows), rows, schedules.sentence(rows)),)


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


def _figure(name: str, title: str, chart: Any, rows: Any, sentence: str) -> Figure:
    return Figure(name, title, chart, sentence, (Table(name, title, [_plain(row) for row in rows]),))


def _plain(row: object) -> Row:
    assert is_dataclass(row)
    assert not isinstance(row, type)
    return asdict(row)
