"""The tables behind the pictures of SVAG and its SDE, as numbers."""

import math

import numpy as np
import pytest

from svag.lab.specs.schedules import Cosine
from svag.paper.exact.processes import Ito, Svag
from svag.paper.illustrations.curves import (
    REFERENCE,
    learning_rates,
    poisson_cdfs,
    poisson_distances,
    sample_paths,
    weak_errors,
)
from svag.paper.verify.beds import SKEWED, SYMMETRIC


def test_weak_errors_fall_as_one_over_ell_and_the_ladder_stays() -> None:
    found = weak_errors(ells=(64, 256))
    errors = {(row.series, row.degree, row.ell): row.error for row in found.rows}
    for degree in (1, 2, 3, 4):
        fall = math.log(errors["SVAG → Itô", degree, 256] / errors["SVAG → Itô", degree, 64]) / math.log(4)
        assert fall == pytest.approx(-1, abs=0.02)
        assert fall <= found.slopes["SVAG → Itô"] + 1e-12
        reference = errors[REFERENCE, degree, 64] / errors[REFERENCE, degree, 256]
        assert reference == pytest.approx(4, rel=1e-12)
        below = min(error for (s, d, ell), error in errors.items() if (d, ell) == (degree, 256) and s[0] != "s")
        assert errors[REFERENCE, degree, 256] < below
    assert errors["ladder → Itô", 3, 256] > 0.9 * errors["ladder → Itô", 3, 64]
    assert "Not in every degree: ladder → Itô." in str(found)


def test_with_symmetric_noise_the_ladder_misses_the_fourth_degree_only() -> None:
    rows = weak_errors(SYMMETRIC, (64, 256)).rows
    ratio = {row.degree: row.error for row in rows if row.series == "ladder → Itô" and row.ell == 256}
    before = {row.degree: row.error for row in rows if row.series == "ladder → Itô" and row.ell == 64}
    assert [before[d] / ratio[d] > 3 for d in (1, 2, 3, 4)] == [True, True, True, False]


def test_the_errors_are_those_of_the_bed() -> None:
    rows = weak_errors(ells=(4, 8)).rows
    (one,) = [row for row in rows if (row.series, row.degree, row.ell) == ("SVAG → Itô", 2, 8)]
    apart = SKEWED.moments(Svag(8), 8, 2)[:, 2] - SKEWED.limit_moments(Ito(), 8, 2, 8)[:, 2]
    assert one.error == pytest.approx(np.abs(apart).max(), rel=1e-12)


def test_sample_paths_end_in_the_density_of_the_sde() -> None:
    found = sample_paths(paths=1, chains=1000)
    sde, svag, sgd = found.inside.values()
    assert sde == pytest.approx(0.9, abs=0.047)  # 4.9 standard errors of 1,000 chains
    assert svag == pytest.approx(0.9, abs=0.047)
    assert sgd < 0.88  # 0.84 to 0.85, below the others by four standard errors of 1,000 chains
    assert len(found.paths) == 12 * (64 + 16 + 1) + 3
    starts = {(row.x, row.y) for row in found.paths if row.order == 0}
    assert starts == {(2.0, -1.0)}
    assert len(found.levels) == 3 * 61
    assert f"SGD: {sgd:.1%}." in str(found)


def test_poisson_laws_are_distribution_functions() -> None:
    rows = poisson_cdfs(points=101)
    assert len({row.law for row in rows}) == 4
    for law in {row.law for row in rows}:
        curve = [row.probability for row in rows if row.law == law]
        assert curve == sorted(curve)
        assert curve[0] < 0.01 < 0.99 < curve[-1]


def test_svag_comes_closer_to_the_sde_and_the_ladder_does_not() -> None:
    distances = {(row.process, row.ell): row.distance for row in poisson_distances(ells=(1, 16)).rows}
    assert distances["SVAG", 1] == pytest.approx(distances["ladder (linear scaling)", 16], rel=1e-9)
    assert distances["SVAG", 16] < distances["SVAG", 1] / 20


def test_schedules_do_not_depend_on_ell_and_the_applied_rate_does() -> None:
    rows = learning_rates({"cosine": Cosine(floor=0.0)}, lr=0.8, steps=100, ells=(1, 4), points=11).rows
    by_ell = {ell: [row for row in rows if row.ell == ell] for ell in (1, 4)}
    assert [row.lr for row in by_ell[1]][:-1] == [row.lr for row in by_ell[4]][:-1]
    assert all(row.applied == row.lr / row.ell for row in rows)
    assert by_ell[1][5].lr == pytest.approx(0.4, rel=1e-12)
    assert by_ell[4][5].effective_step == 50
