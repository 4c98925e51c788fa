"""The theory's tables as numbers, its charts as data."""

import math

import numpy as np
import pytest
from tests.report.charts.drawn import layers, marks, of_kind

from svag.exact.processes import Svag
from svag.findings.heavy_tails import heavy_tails
from svag.findings.verify.beds import SKEWED, SYMMETRIC
from svag.records.schedules import Cosine
from svag.report.charts import balances, noise_trace, norm_transient, poisson_laws, sample_paths, schedules, weak_error


def test_weak_errors_fall_as_one_over_ell_and_the_ladder_stays() -> None:
    rows = weak_error.table(ells=(64, 256))
    errors = {(row.series, row.degree, row.ell): row.error for row in rows}
    for degree in (1, 2, 3, 4):
        fall = math.log(errors["SVAG → Itô", degree, 256] / errors["SVAG → Itô", degree, 64]) / math.log(4)
        assert fall == pytest.approx(-1, abs=0.02)
        reference = errors[weak_error.REFERENCE, degree, 64] / errors[weak_error.REFERENCE, degree, 256]
        assert reference == pytest.approx(4, rel=1e-12)
        below = min(error for (s, d, ell), error in errors.items() if (d, ell) == (degree, 256) and s[0] != "s")
        assert errors[weak_error.REFERENCE, degree, 256] < below
    assert errors["ladder → Itô", 3, 256] > 0.9 * errors["ladder → Itô", 3, 64]
    assert "Not in every degree: ladder → Itô." in weak_error.sentence(rows)


def test_with_symmetric_noise_the_ladder_misses_the_fourth_degree_only() -> None:
    rows = weak_error.table(SYMMETRIC, (64, 256))
    ratio = {row.degree: row.error for row in rows if row.series == "ladder → Itô" and row.ell == 256}
    before = {row.degree: row.error for row in rows if row.series == "ladder → Itô" and row.ell == 64}
    assert [before[d] / ratio[d] > 3 for d in (1, 2, 3, 4)] == [True, True, True, False]


def test_weak_errors_are_drawn_a_panel_a_degree_on_logarithmic_axes() -> None:
    chart = weak_error.chart(weak_error.table(ells=(2, 4)))
    assert marks(chart) == ["line", "point"]
    assert chart.to_dict()["facet"]["column"]["field"] == "degree"
    for channel in ("x", "y"):
        assert layers(chart)[0]["encoding"][channel]["scale"]["type"] == "log"


def test_the_errors_drawn_are_those_of_the_bed() -> None:
    (one,) = [row for row in weak_error.table(ells=(4, 8)) if (row.series, row.degree, row.ell) == ("SVAG → Itô", 2, 8)]
    from svag.exact.processes import Ito

    apart = SKEWED.moments(Svag(8), 8, 2)[:, 2] - SKEWED.limit_moments(Ito(), 8, 2, 8)[:, 2]
    assert one.error == pytest.approx(np.abs(apart).max(), rel=1e-12)


def test_poisson_laws_are_distribution_functions_and_svag_comes_closer() -> None:
    rows = poisson_laws.table(points=101)
    for law in {row.law for row in rows}:
        curve = [row.probability for row in rows if row.law == law]
        assert curve == sorted(curve)
        assert curve[0] < 0.01 < 0.99 < curve[-1]
    distances = {(row.process, row.ell): row.distance for row in poisson_laws.distance_table(ells=(1, 16))}
    assert distances["SVAG", 1] == pytest.approx(distances["ladder (linear scaling)", 16], rel=1e-9)
    assert distances["SVAG", 16] < distances["SVAG", 1] / 20
    assert "never" not in poisson_laws.sentence(poisson_laws.distance_table(ells=(1, 16)))
    assert marks(poisson_laws.distance_chart(poisson_laws.distance_table(ells=(1, 2)))) == ["line", "point"]
    assert layers(poisson_laws.chart(rows))[0]["mark"]["interpolate"] == "step-after"


def test_schedules_do_not_depend_on_ell_and_the_applied_rate_does() -> None:
    rows = schedules.table({"cosine": Cosine(floor=0.0)}, lr=0.8, steps=100, ells=(1, 4), points=11)
    by_ell = {ell: [row for row in rows if row.ell == ell] for ell in (1, 4)}
    assert [row.lr for row in by_ell[1]][:-1] == [row.lr for row in by_ell[4]][:-1]
    assert all(row.applied == row.lr / row.ell for row in rows)
    assert by_ell[1][5].lr == pytest.approx(0.4, rel=1e-12)
    assert by_ell[4][5].effective_step == 50
    assert marks(schedules.chart(rows)) == ["line", "line"]


def test_the_transient_follows_both_recursions() -> None:
    # 400 chains and 2 × 31 correlated comparisons: 6 standard errors is α below 1e-6 for all of them together.
    rows = norm_transient.table(chains=400, steps=30)
    assert max(abs(r.simulated - r.predicted) / r.error for r in rows if r.error > 0) < 6
    ends = {row.process: row.simulated for row in rows}
    assert ends["SGD"] > ends["Itô SDE"] + 0.2  # the discrete steps add η²G
    chart = norm_transient.chart(rows)
    assert marks(chart) == ["line", "rule", "point"]
    assert of_kind(chart, "line")[0]["encoding"]["y"]["field"] == "predicted"


def test_balances_hold_for_their_own_process_only() -> None:
    # 200 chains over 40 steps leave a standard error of about 3%; the other balances are off by 13% and more.
    rows = balances.table(chains=200, window=40)
    for row in rows:
        z = abs(row.ratio - 1) / row.error
        assert (z < 4.9) == (row.kind == balances.OWN) or abs(row.ratio - 1) > 0.05, row
    assert {row.process for row in rows} == {"SGD", "NGD", "SVAG(4)", "Itô SDE"}
    assert marks(balances.chart(rows)) == ["rule", "rule", "point"]


def test_sample_paths_end_in_the_density_of_the_sde() -> None:
    found = sample_paths.table(paths=1, chains=1000)
    sde, svag, sgd = found.inside.values()
    assert sde == pytest.approx(0.9, abs=0.047)  # 4.9 standard errors of 1,000 chains
    assert svag == pytest.approx(0.9, abs=0.047)
    assert sgd < 0.88  # 0.84 to 0.85, below the others by four standard errors of 1,000 chains
    assert len(found.paths) == 12 * (64 + 16 + 1) + 3
    starts = {(row.x, row.y) for row in found.paths if row.order == 0}
    assert starts == {(2.0, -1.0)}
    drawn = layers(sample_paths.chart(found))
    assert [layer["mark"]["type"] for layer in drawn] == ["line"] * 6
    assert len(drawn[0]["rows"]) == 3 * 61


def test_the_noise_trace_is_that_of_the_finding_flat_for_gaussians_and_growing_for_the_control() -> None:
    found = heavy_tails(np.random.default_rng(0).standard_normal((400, 20)))
    rows = noise_trace.table(found, "Gaussian")
    ours, control = ([row for row in rows if row.source == name] for name in ("Gaussian", noise_trace.CONTROL))
    assert [row.noise_trace for row in ours] == [one.noise_trace for one in found.rows]
    assert [row.noise_trace for row in control] == [one.control for one in found.rows]
    assert (ours[0].relative, control[0].relative) == (1.0, 1.0)
    assert ours[-1].relative == pytest.approx(1, abs=0.3)
    assert control[-1].relative > 2
    assert "stays flat" in noise_trace.sentence(found)
    assert marks(noise_trace.chart(rows)) == ["line", "point"]
