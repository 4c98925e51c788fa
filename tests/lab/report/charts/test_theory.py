"""The charts of the theory as data: what is drawn, how, and that it is the table's."""

from dataclasses import asdict

import numpy as np
from tests.lab.report.charts.drawn import layers, marks, of_kind

from svag.lab.specs.schedules import Cosine
from svag.paper.charts import theory
from svag.paper.illustrations.curves import learning_rates, poisson_cdfs, poisson_distances, sample_paths, weak_errors
from svag.paper.illustrations.heavy_tails import CONTROL, heavy_tails
from svag.paper.illustrations.weight_norm import OTHER, OWN, BalanceRatio, NormPoint


def test_weak_errors_are_drawn_a_panel_a_degree_on_logarithmic_axes() -> None:
    rows = weak_errors(ells=(2, 4)).rows
    chart = theory.weak_error_chart(rows)
    assert marks(chart) == ["line", "point"]
    assert layers(chart)[0]["rows"] == [asdict(row) for row in rows]
    assert chart.to_dict()["facet"]["column"]["field"] == "degree"
    for channel in ("x", "y"):
        assert layers(chart)[0]["encoding"][channel]["scale"]["type"] == "log"


def test_every_process_has_its_paths_over_the_same_ellipses() -> None:
    drawn = layers(theory.sample_path_chart(sample_paths(paths=1, chains=2)))
    assert [layer["mark"]["type"] for layer in drawn] == ["line"] * 6
    assert [len(layer["rows"]) for layer in drawn[::2]] == [3 * 61] * 3


def test_learning_rates_are_drawn_as_held_and_as_applied() -> None:
    chart = theory.learning_rate_chart(learning_rates({"cosine": Cosine()}, steps=10, ells=(1, 4), points=3).rows)
    assert marks(chart) == ["line", "line"]
    assert [layer["encoding"]["y"]["field"] for layer in layers(chart)] == ["lr", "applied"]


def test_poisson_laws_are_drawn_as_steps_and_their_distances_as_lines() -> None:
    assert layers(theory.cdf_chart(poisson_cdfs(points=3)))[0]["mark"]["interpolate"] == "step-after"
    assert marks(theory.distance_chart(poisson_distances(ells=(1, 2)).rows)) == ["line", "point"]


def test_the_noise_trace_is_drawn_beside_its_control() -> None:
    rows = heavy_tails(np.random.default_rng(0).standard_normal((400, 20))).traces("Gaussian")
    chart = theory.noise_trace_chart(rows)
    assert marks(chart) == ["line", "point"]
    (line,) = of_kind(chart, "line")
    assert line["encoding"]["y"]["field"] == "relative"
    assert line["encoding"]["color"]["scale"]["domain"] == ["Gaussian", CONTROL]


def test_a_balance_is_drawn_with_its_interval_around_one() -> None:
    rows = [BalanceRatio("SGD", "SGD", OWN, 1.0, 0.01), BalanceRatio("SGD", "Itô SDE", OTHER, 0.7, 0.01)]
    one, bars, points = layers(theory.balance_chart(rows))
    assert [layer["mark"]["type"] for layer in (one, bars, points)] == ["rule", "rule", "point"]
    assert one["rows"] == [{"one": 1.0}]
    assert [(row["low"], row["high"]) for row in bars["rows"]] == [(row.low, row.high) for row in rows]


def test_a_transient_is_drawn_as_a_line_by_the_recursion_and_points_by_simulation() -> None:
    line, bars, points = layers(theory.transient_chart([NormPoint("SGD", 0, 4.0, 0.1, 4.1)]))
    assert [layer["mark"]["type"] for layer in (line, bars, points)] == ["line", "rule", "point"]
    assert (line["encoding"]["y"]["field"], points["encoding"]["y"]["field"]) == ("predicted", "simulated")
    assert (bars["rows"][0]["low"], bars["rows"][0]["high"]) == (3.8, 4.2)
