import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from tests.lab.experiments.on_disk import at, given, readings_at, write_run

from svag.lab.experiments.ladder import Ladder, LadderPanel
from svag.lab.experiments.ladder_finding import LadderFinding, LadderPanelFinding
from svag.lab.experiments.runs import MissingRun
from svag.lab.records.record import load_records
from svag.prices.reasons import Code
from svag.stats.ratios import Interval, quotient
from svag.theory.bounds import critical_batch_size, large_run_threshold

SIZES = (16, 32, 64, 128, 256)
SEEDS = (0, 1, 2)
MEANS = {16: 0.1, 32: 0.1, 64: 0.1, 128: 0.1, 256: 0.14}  # above 0.12 halfway, on the logarithmic scale, to 256
B_SIMPLE = 80.0
OBSERVED = 128 * math.sqrt(2)


def asked(ells: tuple[int, ...] = (), seeds: tuple[int, ...] = SEEDS, sizes: tuple[int, ...] = SIZES) -> Ladder:
    panel = LadderPanel(name="p", base=at(32), batch_sizes=sizes, ells=ells)
    return Ladder(title="t", seeds=seeds, panels=(panel,))


def fill(root: Path, sizes: tuple[int, ...] = SIZES, growth: float = 1.0) -> None:
    for size in sizes:
        for seed in SEEDS:
            spec = at(size, seed=seed)
            readings = readings_at(spec, 1.0, B_SIMPLE / size, growth=growth)
            write_run(root, spec, 1 - MEANS[size] - (seed - 1) * 0.001, readings=readings)


def panel_of(finding: object) -> LadderPanelFinding:
    assert isinstance(finding, LadderFinding)
    json.dumps(finding.to_dict(), allow_nan=False)
    [panel] = finding.panels
    return panel


def test_what_is_known_comes_out(tmp_path: Path) -> None:
    fill(tmp_path)
    finding = asked().find(load_records(tmp_path))
    panel = panel_of(finding)
    assert not panel.missing
    assert not finding.strangers
    assert panel.observed == pytest.approx(OBSERVED)
    assert [one.batch_size for one in panel.predictions] == list(SIZES)
    for one in panel.predictions:
        size, lr_wd = one.batch_size, 0.1 * one.batch_size / 32 * 1e-3
        assert one.linear.limit.value == pytest.approx(
            critical_batch_size(size, B_SIMPLE / size, lr_wd=lr_wd), rel=1e-10
        )
        assert len(one.by_seed) == 3
        assert one.usable is (size <= B_SIMPLE)  # N/G is B_SIMPLE/size
        assert list(one.sizes) == [larger for larger in SIZES if larger > size]
    rung = panel.rungs[2]
    assert rung.signal_to_noise == pytest.approx(64 / B_SIMPLE)
    assert rung.signal_to_noise_low < rung.signal_to_noise < rung.signal_to_noise_high
    assert (rung.error, rung.lr, rung.balance) == pytest.approx((0.1, 0.2, 1.0))
    # three values spaced by s: the standard deviation is s, and t with 2 degrees of freedom is 4.3027
    assert rung.error_high - rung.error == pytest.approx(4.302653 * 0.001 / math.sqrt(3), rel=1e-6)
    assert len(panel.runs) == 15
    assert len(panel.curves) == 30


def test_the_json_of_the_contract_stands_at_the_top(tmp_path: Path) -> None:
    fill(tmp_path)
    found: dict[str, Any] = asked().find(load_records(tmp_path)).to_dict()
    assert {"observed", "observed_low", "observed_high", "predictions", "runs", "panels"} <= found.keys()
    new = {"observed_dynamics", "observed_dynamics_low", "observed_dynamics_high", "pairs", "crossings", "data_prices"}
    assert new <= found.keys()
    assert found["observed_dynamics_low"] <= found["observed_dynamics"] <= found["observed_dynamics_high"]
    assert [row["batch_size"] for row in found["predictions"][2]["distortion"]] == [128, 256]
    wanted = {"batch_size", "linear", "noise_to_signal", "prices", "status", "usable"}
    assert all(wanted <= row.keys() for row in found["predictions"])
    assert found["observed_low"] <= found["observed"] <= found["observed_high"]


def test_the_smallest_and_the_largest_prediction_are_those_of_baselines_that_predict(tmp_path: Path) -> None:
    fill(tmp_path)
    panel = panel_of(asked().find(load_records(tmp_path)))
    usable = [one.linear.limit.value for one in panel.predictions if one.usable]
    predicted = given(panel.predicted)
    assert (predicted.smallest, predicted.largest) == (min(usable), max(usable))
    assert (predicted.smallest_from, predicted.largest_from) == (16, 64)


def test_certificates_fire_exactly_where_the_whole_interval_is_beyond(tmp_path: Path) -> None:
    fill(tmp_path)
    panel = panel_of(asked().find(load_records(tmp_path)))
    fired = {(one.kind, one.baseline, one.batch_size) for one in panel.certificates}
    by_size = {one.batch_size: one.linear for one in panel.predictions}
    baseline = {("baseline", b, s) for b in SIZES for s in SIZES if s > b and s > by_size[b].limit.high}
    large = {
        ("large_run", b, s)
        for b in SIZES
        for s in SIZES
        if s > b and by_size[s].noise_to_signal.high < large_run_threshold(s / b)
    }
    sde = {("sde", None, s) for s in SIZES if by_size[s].noise_to_signal.high < 1}
    assert fired == baseline | large | sde
    # B* = 2B + 80: 112 from 16, 144 from 32, 208 from 64; N/G at 256 is 0.31, at 128 0.63, at 64 1.25
    assert baseline == {("baseline", 16, 128), ("baseline", 16, 256), ("baseline", 32, 256), ("baseline", 64, 256)}
    assert {("large_run", 16, 256), ("large_run", 64, 256)} <= large
    assert ("large_run", 128, 256) not in large
    assert sde == {("sde", None, 128), ("sde", None, 256)}
    assert "at B = 256 linear scaling from 16, 32, 64 " in str(panel)


def test_nothing_is_refuted_away_from_equilibrium(tmp_path: Path) -> None:
    fill(tmp_path, growth=1.5)
    panel = panel_of(asked().find(load_records(tmp_path)))
    assert not panel.certificates
    assert not any(one.linear.ruled_out(size) for one in panel.predictions for size in one.sizes)
    answer = panel.answer()
    assert answer.tone == "note"
    assert re.search(r"B\* = 112 \[.* No theorem applies here: no batch size is ruled out\.$", answer.headline)
    assert panel.predictions[0].linear.reasons[0].code is Code.NOT_BALANCED
    assert panel.rungs[0].balance == pytest.approx(1.5)


def test_n_over_g_is_a_ratio_of_averages_over_the_seeds(tmp_path: Path) -> None:
    for seed, (grad_sq, noise) in enumerate([(0.5, 8.0), (1.5, 12.0)]):  # 16 and 8: their average is 12, but
        spec = at(32, seed=seed)
        write_run(tmp_path, spec, 0.9, readings=readings_at(spec, grad_sq, noise))
    [one] = panel_of(asked(seeds=(0, 1), sizes=(32, 64)).find(load_records(tmp_path))).predictions
    assert one.linear.noise_to_signal.value == pytest.approx(10.0)
    assert [round(own.noise_to_signal.value, 9) for _, own in one.by_seed] == [16.0, 8.0]


def test_a_diverged_seed_moves_the_failure_and_dropping_it_would_not(tmp_path: Path) -> None:
    fill(tmp_path)
    records = load_records(tmp_path)
    victim = next(r for r in records if r.spec is not None and (r.spec.batch_size, r.spec.seed) == (128, 2))
    (victim.path / "outcome.json").write_text('{"state": "diverged", "reason": "the loss is not finite"}')
    panel = panel_of(asked().find(load_records(tmp_path)))
    assert 64 < given(panel.observed) < 128
    assert panel.missing == ()
    assert (panel.rungs[3].seeds, panel.rungs[3].diverged) == (3, 1)
    assert math.isnan(dict(panel.rungs[3].errors)[2])
    assert [seed for seed, _ in panel.predictions[3].by_seed] == [0, 1], "a diverged run has no equilibrium"
    dropped = [record for record in load_records(tmp_path) if record.path != victim.path]
    assert given(panel_of(asked().find(dropped)).observed) == pytest.approx(OBSERVED, rel=0.01)


def test_missing_runs_are_said_first(tmp_path: Path) -> None:
    fill(tmp_path, (16, 32, 64))
    write_run(tmp_path, at(128, seed=0), state=None)
    write_run(tmp_path, at(128, seed=1), state="failed")
    finding = asked().find(load_records(tmp_path))
    panel = panel_of(finding)
    assert [run.state for run in panel.missing] == ["interrupted", "failed", *4 * ["not run"]]
    assert all(isinstance(run, MissingRun) for run in finding.missing)
    assert re.match(r"Incomplete: 6 .*: SGD B=128 seed 0 \(interrupted\)", str(finding))
    assert str(finding).endswith("Next: start the same command again: it continues with the runs that have no result.")
    assert panel.observed is None


def test_nothing_at_all_is_an_answer_too() -> None:
    finding = asked().find([])
    panel = panel_of(finding)
    assert len(panel.missing) == 15
    assert panel.scaling is None


def test_what_was_not_asked_for_is_listed_and_not_used(tmp_path: Path) -> None:
    fill(tmp_path)
    write_run(tmp_path, at(512), 0.5)
    write_run(tmp_path, at(64, weight_decay=2e-3), 0.5)
    write_run(tmp_path, at(64, lr=0.1), 0.5)  # off the linear rule
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "spec.json").write_text("{")
    finding = asked().find(load_records(tmp_path))
    assert len(finding.strangers) == 4
    assert sum("broken" in sentence for sentence in finding.strangers) == 1
    assert panel_of(finding).observed == pytest.approx(OBSERVED)


def test_without_a_probe_the_failure_is_found_and_a_probe_is_asked_for(tmp_path: Path) -> None:
    for size in SIZES:
        for seed in SEEDS:
            write_run(tmp_path, at(size, seed=seed), 1 - MEANS[size] - (seed - 1) * 0.001)
    panel = panel_of(asked().find(load_records(tmp_path)))
    assert panel.observed == pytest.approx(OBSERVED)
    assert panel.predictions == ()
    assert "probe" in panel.status


def test_the_error_of_the_sde_limit_stands_beside_each_rung(tmp_path: Path) -> None:
    fill(tmp_path, (16, 32))
    for size in (16, 32):
        for ell in (2, 4):  # errors 0.1 at ell = 1, and 0.08 + 0.02/ell further on: a line through all three
            for seed in SEEDS:
                spec = at(size, seed=seed, process={"kind": "svag", "ell": ell})
                write_run(tmp_path, spec, 1 - (0.08 + 0.02 / ell) - (seed - 1) * 0.001)
    panel = panel_of(asked(ells=(2, 4), sizes=(16, 32)).find(load_records(tmp_path)))
    for rung in panel.rungs:
        assert rung.sde is not None
        assert rung.sde.value == pytest.approx(0.08)
        assert rung.sde.source == "fit"
        assert rung.sde.ells == (1, 2, 4)
        gap = given(rung.sde_gap)
        assert gap.value == pytest.approx(rung.error - 0.08), "SGD minus its limit"
        assert gap.low <= gap.value <= gap.high


def test_a_ladder_in_steps_has_fewer_of_them_at_larger_batches(tmp_path: Path) -> None:
    base = at(32, budget=1001, schedule={"kind": "steps", "at": [801], "factor": 0.1})
    for size, budget, decay in ((32, 1001, 801), (64, 500, 400), (128, 250, 200)):
        spec = at(size, budget=budget, schedule={"kind": "steps", "at": [decay], "factor": 0.1})
        write_run(tmp_path, spec, 0.9)
    write_run(tmp_path, at(256, budget=126, schedule={"kind": "steps", "at": [100], "factor": 0.1}), 0.9)  # not 125
    panel = LadderPanel(name="p", base=base, batch_sizes=(32, 64, 128, 256))
    finding = Ladder(title="t", seeds=(0,), panels=(panel,)).find(load_records(tmp_path))
    assert [run.batch_size for run in finding.missing] == [256]
    assert len(finding.strangers) == 1


def test_a_quotient_keeps_the_asymmetry_of_its_parts() -> None:
    found = quotient(Interval(8.0, 4.0, math.inf), Interval(2.0, 1.0, 8.0))
    assert found.value == 4.0
    assert found.low == pytest.approx(4 * math.exp(-math.hypot(math.log(2), math.log(4))))
    assert math.isinf(found.high)
    open_end = quotient(Interval(8.0, 4.0, 16.0), Interval(2.0, 0.0, 2.0))
    assert open_end.low == pytest.approx(2.0)
    assert math.isinf(open_end.high)
    with pytest.raises(ValueError, match="Interval"):
        Interval(1.0, 2.0, 1.0)


def test_a_prediction_in_json_is_a_price_list_and_so_is_each_seed(tmp_path: Path) -> None:
    fill(tmp_path)
    finding = asked().find(load_records(tmp_path))
    found: dict[str, Any] = finding.to_dict()
    prediction, row = panel_of(finding).predictions[0], found["predictions"][0]
    listed = prediction.price_list.to_dict()
    assert {name: row[name] for name in listed} == listed
    assert set(row) - set(listed) == {"usable", "status", "distortion", "by_seed"}
    assert [(at["batch_size"], at["distortion"]) for at in row["distortion"]] == [
        (size, prediction.linear.distortion(size).to_dict()) for size in prediction.sizes
    ]
    assert row["by_seed"] == [{"seed": seed, **own.to_dict()} for seed, own in prediction.by_seed]
    json.dumps(found, allow_nan=False)
