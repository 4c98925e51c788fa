from dataclasses import replace
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.lab.experiments.on_disk import at, readings_at, write_run

from svag import Reading, price_list
from svag.lab.experiments.baseline import (
    BaselinePrediction,
    BaselinePredictions,
    predict_from_runs,
    shortfall,
    start_over_settled,
)
from svag.lab.experiments.ladder import Ladder, LadderPanel
from svag.lab.experiments.ladder_finding import LadderFinding
from svag.lab.records.record import RunRecord, load_records
from svag.lab.specs.spec import RunSpec

# seeds that differ in their numbers and in how many they have, so that the order of the readings would be felt
MEANS = {0: (0.7, 11.0, 120), 1: (1.4, 8.0, 200), 2: (1.0, 10.0, 160), 3: (0.9, 9.0, 80)}


def fill(root: Path) -> None:
    for seed, (grad_sq, noise, count) in MEANS.items():
        spec = at(32, seed=seed)
        write_run(root, spec, 0.9, readings=readings_at(spec, grad_sq, noise, count=count))


def test_the_order_of_the_runs_changes_nothing(tmp_path: Path) -> None:
    fill(tmp_path)
    records = load_records(tmp_path)
    first = predict_from_runs(records)
    for order in permutations(records):
        assert predict_from_runs(order).to_dict() == first.to_dict()


def test_a_ladder_predicts_from_a_rung_what_its_runs_predict_alone(tmp_path: Path) -> None:
    fill(tmp_path)
    [alone] = predict_from_runs(load_records(tmp_path)).predictions
    for seeds in ((0, 1, 2, 3), (3, 1, 0, 2)):
        panel = LadderPanel(name="p", base=at(32), batch_sizes=(32, 64))
        finding = Ladder(title="t", seeds=seeds, panels=(panel,)).find(load_records(tmp_path))
        assert isinstance(finding, LadderFinding)
        [prediction] = finding.panels[0].predictions
        ladder, own = prediction.price_list.to_dict(), alone.price_list.to_dict()
        # a ladder chooses the window itself, the same for all its rungs, and the reasons say so
        assert {**ladder, "reasons": None} == {**own, "reasons": None}


def test_with_a_throughput_the_recommendation_comes_first() -> None:
    readings = [Reading(g, 10.0, 1.0, 64, 4, optimizer="AdamW") for g in (0.9, 1.1) * 200]
    speeds = {64: 100.0, 128: 190.0}
    for name in ("AdamW", "SGD"):
        found = price_list([replace(r, optimizer=name) for r in readings])
        one = BaselinePrediction(found, ("r",), speeds)
        assert one.details().startswith("From r:\nBatch 128 is the fastest here")
        assert str(BaselinePredictions((one,), ())).startswith("Batch 128 is the fastest here")
        assert BaselinePrediction(found, ("r",)).details() == f"From r:\n{found.details()}"


def test_adam_does_not_wait_for_an_equilibrium_of_sgd() -> None:
    spec = at(32, budget=93, probe={"kind": "in_run", "parts": 4})
    assert shortfall([spec])
    # as a spec of AdamW would have it: the check must not ask for a momentum
    other = spec.model_copy(update={"optimizer": SimpleNamespace(kind="adamw")})
    assert shortfall([other]) == ""


def ended(spec: RunSpec, start: float, settled: float, balance: float | None) -> RunRecord:
    """A run whose |x|² was `start` at first and is `settled` with this growth over decay at last."""
    noise = {"param_sq": settled, "balance": balance}
    rows = ({"step": 0, "param_sq": start}, {"step": 5, "param_sq": 2.0, "noise": noise}, {"step": 9, "param_sq": 2.0})
    return RunRecord(Path("r"), "finished", spec, "", 9, tuple({"kind": "evaluation", **row} for row in rows), {})


def test_where_the_weights_began_is_read_from_a_record() -> None:
    """By hand: R = 50 grows 0.64 times as fast as it decays, so R* = 50·√0.64 = 40 and R₀/R* = 8."""
    spec = at(32)
    assert start_over_settled(ended(spec, 320.0, 50.0, 0.64)) == pytest.approx(8)
    assert start_over_settled(ended(spec, 320.0, 50.0, None)) is None
    assert start_over_settled(RunRecord(Path("r"), "finished", spec, "", 9, (), {})) is None


def test_the_advice_knows_where_the_weights_begin() -> None:
    """Four relaxation times are enough from 2R*, which takes ln 27 = 3.3, but not from 5R*, with ln 216 = 5.4."""
    spec = at(32, budget=400, weight_decay=0.025, lr=0.1, probe={"kind": "in_run", "parts": 4})
    spec = spec.edited({"schedule": {"kind": "constant"}})
    assert shortfall([spec]) == "", "unknown: three are taken to be enough"
    assert shortfall([spec], [ended(spec, 2.0, 1.0, 1.0)]) == ""
    assert "5.4 relaxation" in shortfall([spec], [ended(spec, 5.0, 1.0, 1.0)])
    other = spec.edited({"model.width": 2})
    assert shortfall([spec], [ended(other, 5.0, 1.0, 1.0)]) == "", "another network says nothing"
    short = spec.edited({"budget": 20})
    assert shortfall([short]) != ""
    assert shortfall([short], [ended(spec, 1.02, 1.0, 1.0)]) == "", "weights that begin at equilibrium need not wait"
