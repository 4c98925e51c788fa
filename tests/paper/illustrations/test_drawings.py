"""The drawings of the paper that hold no data, as numbers."""

from dataclasses import replace

import numpy as np
import pytest

from svag.paper.exact.processes import Ito, Svag
from svag.paper.illustrations.drawings import PLACES, SVAG, diagram, hybrids
from svag.paper.verify.beds import SKEWED, SYMMETRIC


def test_every_arrow_arrives_at_order_1_and_the_two_sdes_differ() -> None:
    found = diagram()
    assert {(one.start, one.end, one.along) for one in found.arrows} == {
        ("SGD", "Itô SDE", "SVAG"),
        ("SGD", "Lévy SDE", "LSR"),
        ("NGD", "Itô SDE", "SVAG"),
        ("NGD", "Itô SDE", "LSR"),
    }
    assert [one.order for one in found.arrows] == pytest.approx([1.0] * 4, abs=0.02)
    assert {one.start for one in found.arrows} | {one.end for one in found.arrows} == set(PLACES)
    assert abs(found.apart) < 0.1, "negative control: the ladder does not arrive at the Itô SDE"
    assert abs(diagram(SYMMETRIC).apart) < 0.1, "nor with symmetric noise"


def test_hybrids_lead_from_the_sde_to_svag_one_step_at_a_time() -> None:
    found = hybrids(steps=4, ell=2)
    moments = [row.mean for row in found.rows if row.process == SVAG]
    steep = replace(SKEWED, lr=0.8)
    assert moments == pytest.approx(steep.moments(Svag(2), 2, 1)[:, 1].tolist(), rel=1e-12)
    sde = steep.limit_moments(Ito(), 2, 1, ell=2)[:, 1]
    assert found.ends[0] == pytest.approx(sde[-1], rel=1e-12)
    assert found.ends[-1] == moments[-1]
    assert sum(found.errors) == pytest.approx(moments[-1] - sde[-1], rel=1e-12)
    for switch in range(4):
        path = [row for row in found.rows if row.process == f"SDE from step {switch}"]
        assert (path[0].step, path[0].mean) == (switch, moments[switch]), "it starts where SVAG is"
        assert path[-1].step == pytest.approx(4)
        assert path[-1].mean == found.ends[switch]


def test_the_error_of_one_step_falls_like_one_over_ell_squared() -> None:
    largest = [max(map(abs, hybrids(steps=4 * ell, ell=ell).errors)) for ell in (8, 32)]
    assert np.log(largest[1] / largest[0]) / np.log(4) == pytest.approx(-2, abs=0.05)
