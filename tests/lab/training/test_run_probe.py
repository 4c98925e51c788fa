"""What a probe reads in a run, and that it leaves no trace."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.lab.training.small import EXAMPLES, final, fresh, go, small

import svag
import svag.lab
from svag.lab.training.streams import BatchStream


@pytest.mark.parametrize("process", [{"kind": "sgd"}, {"kind": "svag", "ell": 2}], ids=["sgd", "svag"])
def test_a_frozen_probe_leaves_no_trace_in_the_run(npz: Path, tmp_path: Path, process: dict[str, Any]) -> None:
    plain = small(npz, {"process": process, "model.norm": "batch", "momentum": 0.0})
    probed = plain.edited({"probe": {"kind": "frozen", "readings": 5, "window": [0, 10], "batches": 3}})
    one, other = final(plain, tmp_path / "plain"), final(probed, tmp_path / "probed")
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert [reading.step for reading in go(probed, tmp_path / "probed").readings] == [0, 2, 4, 6, 8]


def test_a_frozen_reading_is_a_measurement_on_batches_of_its_own(npz: Path, tmp_path: Path) -> None:
    spec = small(npz, {"probe": {"kind": "frozen", "readings": 1, "window": [0, 0.1], "batches": 3}})
    bare = fresh(spec)
    batches = BatchStream(bare.data, spec, "probe", 8)  # not those that the run trains on
    expected = svag.measure_noise(bare.model, bare.loss, [batches.draw() for _ in range(3)])
    [reading] = go(spec, tmp_path / "run").readings
    assert (reading.grad_sq, reading.noise_trace) == (expected.grad_sq, expected.noise_trace)
    assert (reading.population, reading.lr, reading.n) == (EXAMPLES, 0.1, 3)


def test_pairs_are_measured_without_a_trace(npz: Path, tmp_path: Path) -> None:
    plain = small(npz, {"process": {"kind": "svag", "ell": 3}})
    one = final(plain, tmp_path / "plain")
    other = final(plain.edited({"probe": {"kind": "in_run", "window": [2, 7]}}), tmp_path / "probed")
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    record = svag.lab.load_records(tmp_path / "probed")[0]
    assert [reading.step for reading in record.readings] == [2, 3, 4, 5, 6]
    assert {(reading.n, reading.ell, reading.batch_size) for reading in record.readings} == {(6, 3, 8)}


@pytest.mark.parametrize("process", [{"kind": "sgd"}, {"kind": "svag", "ell": 2}, {"kind": "glsr", "parts": 2}])
def test_an_in_run_probe_reads_only_as_often_as_it_is_told(npz: Path, tmp_path: Path, process: dict[str, Any]) -> None:
    probe = {"kind": "in_run", "parts": 2, "window": [1, 9]}
    spec = small(npz, {"process": process, "probe": probe})
    often = {reading.step: reading for reading in go(spec, tmp_path / "often").readings}
    seldom = go(spec.edited({"probe.every": 3}), tmp_path / "seldom").readings
    assert [reading.step for reading in seldom] == [1, 4, 7]
    for reading in seldom:  # SGD cuts its batch only where it measures, which rounds differently
        same = often[reading.step]
        assert reading.noise_trace == pytest.approx(same.noise_trace, rel=1e-3)
        assert reading.n == same.n


def test_an_in_run_probe_changes_the_gradients_by_rounding_only(npz: Path, tmp_path: Path) -> None:
    plain = final(small(npz), tmp_path / "plain")
    probed = final(small(npz, {"probe": {"kind": "in_run", "parts": 4}}), tmp_path / "probed")
    for one, other in zip(plain, probed, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert len(svag.lab.load_records(tmp_path / "probed")[0].readings) == 10


def test_the_ladder_reads_its_own_batches_and_rates(npz: Path, tmp_path: Path) -> None:
    edits = {"process": {"kind": "glsr", "parts": 2}, "probe": {"kind": "in_run", "parts": 2}}
    readings = go(small(npz, edits), tmp_path / "in_run").readings
    assert [(reading.batch_size, reading.n) for reading in readings] == [(4, 4)] * 10
    assert [reading.lr for reading in readings] == [0.05] * 5 + [pytest.approx(0.005)] * 5
    edits["probe"] = {"kind": "frozen", "readings": 2, "window": [0, 4], "batches": 2}
    frozen = go(small(npz, edits), tmp_path / "frozen").readings
    assert [(reading.batch_size, reading.lr, reading.population) for reading in frozen] == [(4, 0.05, EXAMPLES)] * 2


@pytest.mark.parametrize(
    ("edits", "ell"), [({}, 1), ({"process": {"kind": "svag", "ell": 4}}, 4), ({"process": {"kind": "gd"}}, 1)]
)
def test_the_balance_is_a_ratio_of_averages(npz: Path, tmp_path: Path, edits: dict[str, Any], ell: int) -> None:
    probe = {"kind": "frozen", "readings": 4, "window": [0, 4], "batches": 3}
    record = go(small(npz, {**edits, "probe": probe, "model.scale_invariant": True}), tmp_path / "run")
    R, G, N = (sum(getattr(r, name) for r in record.readings) / 4 for name in ("param_sq", "grad_sq", "noise_trace"))
    h, eta, lam = 0.1 / ell, 0.1, 0.01
    noise = 0.0 if "gd" in str(edits) else N
    expected = (h * G + eta * noise) / ((2 - h * lam) * lam * R)
    found = record.evaluations[1]["noise"]
    assert found["readings"] == 4
    assert found["balance"] == pytest.approx(expected, rel=1e-12)


def test_no_balance_across_a_change_of_the_learning_rate(npz: Path, tmp_path: Path) -> None:
    edits = {"evaluate.every": 10, "probe": {"kind": "in_run"}, "model.scale_invariant": True}
    record = go(small(npz, edits), tmp_path / "run")
    assert record.final["noise"]["balance"] is None


def test_no_balance_at_a_learning_rate_of_zero(npz: Path, tmp_path: Path) -> None:
    edits = {
        "schedule": {"kind": "triangle", "floor": 0.0, "peaks": [1.0]},
        "evaluate.every": 1,
        "probe": {"kind": "in_run", "window": [0, 10]},
        "model.scale_invariant": True,
    }
    record = go(small(npz, edits), tmp_path / "run")
    assert record.state == "finished"
    assert record.readings[0].lr == 0
    assert record.evaluations[1]["noise"]["balance"] is None
    assert record.evaluations[3]["noise"]["balance"] is not None


def test_no_balance_where_the_loss_itself_pulls_on_the_weights(npz: Path, tmp_path: Path) -> None:
    edits: dict[str, Any] = {"probe": {"kind": "in_run"}, "model.scale_invariant": True}
    declared, plain = (
        go(small(npz, edits | {"model.scale_invariant": flag}), tmp_path / str(flag)) for flag in (True, False)
    )
    assert declared.evaluations[1]["noise"]["balance"] is not None
    assert plain.evaluations[1]["noise"]["balance"] is None
