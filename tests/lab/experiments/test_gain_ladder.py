"""A ladder by the gain rule: the smallest batch plans the others, plans are written down, the finding compares."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.lab.training.small import EXAMPLES, small, write_npz

import svag.lab
from svag.lab.execution import conduct as conducting
from svag.lab.execution.conduct import carry_out, conduct_workload, preview
from svag.lab.execution.estimate import Workload
from svag.lab.execution.execution import Execution
from svag.lab.execution.plan import own_runs, plan_runs
from svag.lab.experiments import EXPERIMENT, experiment_from, load_experiment
from svag.lab.experiments.arms import SGD
from svag.lab.experiments.data_price import loss_curves, ratio_of_means
from svag.lab.experiments.demo import learned
from svag.lab.experiments.gain_finding import CLOSE, _ended, baseline_prices
from svag.lab.experiments.ladder import Ladder
from svag.lab.experiments.ladder_finding import LadderFinding
from svag.lab.records.record import RUNS, load_records
from svag.lab.specs.fields import SpecError
from svag.lab.specs.parts import GainSpec
from svag.lab.specs.spec import RunSpec
from svag.prices.estimate import Estimate
from svag.prices.history import run_history
from svag.prices.plan import GainPlan

HERE = Execution(workers=1, device="cpu", progress=False)
SIZES = (4, 8, 16)
EDITS: dict[str, Any] = {"batch_size": 4, "budget": 60, "evaluate": {"every": 0.25, "train": True}}


def ladder_of(npz: Path, sizes: tuple[int, ...] = SIZES, seeds: int = 2, **edits: Any) -> Ladder:
    return Ladder.of(small(npz, EDITS | edits), sizes, seeds, rule="gain", name="base")


@pytest.fixture(scope="module")
def npz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_npz(tmp_path_factory.mktemp("data") / "data.npz")


@pytest.fixture(scope="module")
def done(npz: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Ladder, LadderFinding, Path]:
    """A ladder that was carried out: never changed by the tests."""
    out = tmp_path_factory.mktemp("ladder")
    planned, conducted = carry_out(ladder_of(npz), out, HERE)
    return planned, planned.find(conducted.records), out


def readings_of(out: Path, size: int) -> list[Any]:
    found = [record for record in load_records(out) if record.spec and record.spec.batch_size == size]
    return sorted(found, key=lambda record: record.spec.seed if record.spec else 0)


def test_it_begins_with_the_smallest_batch_probed_from_the_first_step(npz: Path) -> None:
    ladder = ladder_of(npz)
    assert ladder.waits
    assert [(spec.batch_size, spec.seed) for spec in ladder.runs()] == [(4, 0), (4, 1)]
    probe = ladder.runs()[0].probe
    assert (probe.kind, probe.window) == ("in_run", (0.0, 1.0))  # type: ignore[union-attr]
    assert ladder.panels[0].unplanned == [8, 16]


def test_the_plans_come_from_all_seeds_and_are_written_down(done: tuple[Ladder, LadderFinding, Path]) -> None:
    ladder, _, out = done
    assert not ladder.waits
    readings = []
    for record in readings_of(out, 4):
        readings += [replace(one, run=f"seed {record.spec.seed}") for one in record.readings]
    history = run_history(readings, 60)
    assert ladder.panels[0].plans == tuple((size, history.plan(size).phases) for size in (8, 16))
    assert load_experiment(out) == ladder
    for spec in ladder.runs()[2:]:
        assert isinstance(spec.process, GainSpec)
        assert spec.process.base_batch_size == 4
        assert (spec.lr, spec.budget, spec.steps(EXAMPLES)) == (0.1, 60, 60)
    asked = json.loads((out / EXPERIMENT).read_text())["panels"][0]
    assert (asked["rule"], len(asked["plans"])) == ("gain", 2)
    assert "batch size 4: " in str(preview(ladder, out, HERE))


def test_the_same_call_computes_nothing_again(
    npz: Path, done: tuple[Ladder, LadderFinding, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ladder, found, out = done
    monkeypatch.setattr(conducting, "LocalWorkers", None)  # nobody could work
    again, conducted = carry_out(ladder_of(npz), out, HERE)
    assert again == ladder
    assert again.find(conducted.records).to_dict() == found.to_dict()


def test_it_resumes_between_its_two_stages(
    npz: Path, tmp_path: Path, done: tuple[Ladder, LadderFinding, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = []

    def killed(experiment: Ladder, out: Path, workload: Workload) -> Any:
        stages.append(len(workload.plan))
        if len(stages) == 2:
            raise KeyboardInterrupt
        return conduct_workload(experiment, out, workload)

    with monkeypatch.context() as patch:
        patch.setattr(conducting, "conduct_workload", killed)
        with pytest.raises(KeyboardInterrupt):
            carry_out(ladder_of(npz), tmp_path, HERE)
    assert stages == [2, 6]
    unplanned = load_experiment(tmp_path)
    assert isinstance(unplanned, Ladder)
    assert unplanned.waits
    early = unplanned.find(load_records(tmp_path / RUNS)).panels[0]
    assert (len(early.missing), early.gain is not None) == (0, True)
    assert "8, 16" in early.status
    ladder, found, out = done
    again, conducted = carry_out(ladder_of(npz), tmp_path, HERE)
    assert again == ladder
    mine, theirs = again.find(conducted.records).to_dict(), found.to_dict()
    assert mine["gain"] == theirs["gain"]
    for record in load_records(out / RUNS):
        other = tmp_path / RUNS / record.path.name / "metrics.jsonl"
        assert other.read_bytes() == (record.path / "metrics.jsonl").read_bytes()


def test_a_rung_that_is_added_later_leaves_the_plans_of_the_others(npz: Path, tmp_path: Path) -> None:
    first, _ = carry_out(ladder_of(npz, (4, 8), seeds=1), tmp_path, HERE)
    more = ladder_of(npz, (4, 8, 16), seeds=2).with_plans_of(load_experiment(tmp_path))
    assert more.panels[0].plans == first.panels[0].plans
    assert more.panels[0].unplanned == [16]
    other = ladder_of(npz, (4, 8), seeds=1, lr=0.2).with_plans_of(load_experiment(tmp_path))
    assert other.panels[0].plans == (), "another baseline has plans of its own"


def test_shards_plan_the_same_and_one_that_comes_early_says_so(
    npz: Path, tmp_path: Path, done: tuple[Ladder, LadderFinding, Path]
) -> None:
    ladder = ladder_of(npz)
    shards = [Execution(workers=1, device="cpu", progress=False, shard=(part, 2)) for part in (0, 1)]
    own = [own_runs(plan_runs(ladder.runs(), tmp_path), one.shard) for one in shards]
    early, late = (shards if own[0] else shards[::-1]) if len(own[0]) < 2 else shards[::-1]
    first, conducted = carry_out(ladder, tmp_path, early)
    if len(own[shards.index(early)]) < 2:
        assert first.waits
        assert conducted.left == 2 - len(own[shards.index(early)])
    second, _ = carry_out(ladder, tmp_path, late)
    assert not second.waits
    last, conducted = carry_out(ladder, tmp_path, early)
    assert last == second == done[0]
    assert conducted.left == 0


def test_the_finding_compares_loss_price_and_drift(done: tuple[Ladder, LadderFinding, Path]) -> None:
    ladder, found, out = done
    panel = found.panels[0]
    gain = panel.gain
    assert gain is not None
    assert (gain.baseline, gain.measured, gain.loss_metric) == (4, False, "train_set_loss")
    base = [record.final["train_set_loss"] for record in readings_of(out, 4)]
    for rung, (size, phases) in zip(gain.rungs, ladder.panels[0].plans, strict=True):
        plan = GainPlan(4, size, phases, 60)
        assert rung.batch_size == size
        assert rung.price == pytest.approx(plan.price())
        assert rung.paid == pytest.approx(plan.kappa * plan.steps() / 60)
        mine = [record.final["train_set_loss"] for record in readings_of(out, size)]
        assert rung.loss.value == pytest.approx(math.sqrt(math.prod(mine) / math.prod(base)))
        assert rung.loss.low < rung.loss.value < rung.loss.high
        assert rung.ended == _ended(rung.loss, [])
        assert rung.drift is None or rung.drift.baseline == 4
        assert panel.rungs[SIZES.index(size)].lr == pytest.approx(0.1 * plan.kappa / rung.paid)
    document = found.to_dict()
    assert document["gain"] == gain.to_dict()
    assert (panel.drift, panel.shortfalls, panel.certificates) == (None, (), ())
    assert [one.batch_size for one in panel.predictions] in ([], [4])
    rows = [row for row in gain.rows if row.batch_size == 16 and row.seed == 0]
    assert rows[-1].baseline_time == 60
    assert rows[-1].price == pytest.approx(gain.rungs[-1].paid)
    assert all(row.gain == row.price == 1 for row in gain.rows if row.batch_size == 4)


def test_examples_to_the_same_loss_are_counted_and_not_steps(done: tuple[Ladder, LadderFinding, Path]) -> None:
    """An effective step of these rungs is the baseline's: counted as steps, a factor would be κ/D times too large."""
    out = done[2]
    curves = loss_curves({size: readings_of(out, size) for size in SIZES})
    for size in SIZES:
        # before the learning rate first falls, at half of the run
        for record, points in zip(readings_of(out, size), curves[size], strict=True):
            seen = [row for row in record.rows if row["kind"] == "loss" and row["step"] <= 30][-1]
            assert points[-1] == (seen.get("examples", 30 * size), seen["train_loss"])


def test_what_a_demo_says_of_it(done: tuple[Ladder, LadderFinding, Path]) -> None:
    _, found, _ = done
    said = list(learned(found))
    rung = found.panels[0].gain.rungs[-1]  # type: ignore[union-attr]
    assert any(f"used {rung.paid:.2g}×" in line and f"about {rung.price:.2g}×" in line for line in said)


def test_its_price_is_announced_from_the_baseline(npz: Path, done: tuple[Ladder, LadderFinding, Path]) -> None:
    _, found, out = done
    prices = baseline_prices(ladder_of(npz), readings_of(out, 4))
    gain = found.panels[0].gain
    assert gain is not None
    assert prices == {rung.batch_size: pytest.approx(rung.price) for rung in gain.rungs}


def test_measured_rungs_need_no_plan(npz: Path, tmp_path: Path) -> None:
    ladder = Ladder.of(small(npz, EDITS), (4, 16), 1, rule="gain", measured=True, name="base")
    assert not ladder.waits
    with pytest.raises(SpecError, match="rule"):
        Ladder.of(small(npz, EDITS), (4, 16), 1, rule="linear", measured=True).runs()
    assert [spec.batch_size for spec in ladder.runs()] == [4, 16]
    assert experiment_from(ladder.model_dump(mode="json")) == ladder
    planned, conducted = carry_out(ladder, tmp_path, HERE)
    gain = planned.find(conducted.records).panels[0].gain
    assert gain is not None
    assert gain.measured
    assert 1 <= gain.rungs[0].paid <= 4
    assert math.isfinite(gain.rungs[0].price), "the baseline's own history prices it"
    assert "Side by side" in "\n".join(learned(planned.find(conducted.records)))


def test_a_finished_ladder_gives_a_page(done: tuple[Ladder, LadderFinding, Path], tmp_path: Path) -> None:
    written = svag.lab.write_report(done[2], tmp_path, formats=())
    tables = {path.name for path in written.tables}
    assert tables >= {"costs1.csv", "panel1-gain.csv", "panel1-loss-examples.csv", "panel1-loss-baseline-time.csv"}
    rows = (tmp_path / "tables" / "panel1-gain.csv").read_text().splitlines()
    points = {(row.batch_size, row.baseline_time) for row in done[1].panels[0].gain.rows if row.batch_size > 4}  # type: ignore[union-attr]
    assert len(rows) == 1 + len(points), "one row for the seeds together"


BATCH_NORM: dict[str, Any] = {"model": {"arch": "preresnet8", "norm": "batch", "width": 0.25}}


@pytest.mark.parametrize(
    ("sizes", "edits", "fields", "path"),
    [
        ((8, 16), {}, {"ells": (2,)}, "ells"),
        ((8, 16), {}, {"probe_batches": (3, 3)}, "probe_batches"),
        ((8, 10), {"probe": {"kind": "in_run", "parts": 4}}, {}, "probe.parts"),
        ((8, 16), {"process": {"kind": "svag", "ell": 2}}, {}, "process.kind"),
        ((8, 16), {}, {"rule": "linear", "measured": True}, "rule"),
        ((8, 16), {}, {"rule": "square_root"}, "rule"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(
    npz: Path, sizes: tuple[int, ...], edits: dict[str, Any], fields: dict[str, Any], path: str
) -> None:
    ladder = ladder_of(npz, sizes, **({"batch_size": 8} | edits))
    panel = ladder.panels[0].model_copy(update=fields)
    with pytest.raises(SpecError) as refused:
        ladder.model_copy(update={"panels": (panel,)}).runs()
    assert refused.value.path == path


def test_a_rung_beyond_the_data_is_refused_before_anything_runs() -> None:
    base = RunSpec.from_yaml("{data: {name: svhn}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: 9}")
    with pytest.raises(SpecError, match="batch_size"):
        Ladder.of(base, [8, 80_000], 1, rule="gain").runs()


def test_batch_norm_is_read_at_frozen_weights_over_the_whole_run(npz: Path) -> None:
    probe = ladder_of(npz, **BATCH_NORM).panels[0].base.probe
    assert (probe.kind, probe.window, probe.readings) == ("frozen", (0.0, 1.0), 60)  # type: ignore[union-attr]


def test_without_readings_or_with_a_baseline_that_diverged_there_is_no_plan(npz: Path, tmp_path: Path) -> None:
    edits = {"lr": 1e19, "weight_decay": 0.0, "model.norm": "none", "schedule": {"kind": "constant"}}
    with pytest.raises(SpecError) as refused:
        carry_out(ladder_of(npz, (4, 8), seeds=1, **edits), tmp_path, HERE)
    assert refused.value.path == "lr"


def test_other_ladders_are_written_as_before(npz: Path) -> None:
    ladder = Ladder.of(small(npz, {"budget": 60}), (8, 16), 1)
    fields = ladder.model_dump(mode="json")["panels"][0]
    assert fields["rule"] is None
    assert not {"measured", "plans"} & fields.keys()
    assert [spec.lr for spec in ladder.runs()] == [0.1, 0.2]


@pytest.mark.parametrize(
    ("large", "small_", "ended"),
    [
        ([0.5, 0.501, 0.499], [0.5, 0.502, 0.498], "reached"),
        ([0.7, 0.701, 0.699], [0.5, 0.502, 0.498], "above"),
        ([0.7, 0.4], [0.5, 0.45], "open"),
        ([0.5], [0.5], "open"),
        ([], [0.5], "open"),
    ],
)
def test_a_rung_has_reached_the_loss_where_its_interval_says_so(
    large: list[float], small_: list[float], ended: str
) -> None:
    assert _ended(ratio_of_means(large, small_), []) == ended
    assert _ended(Estimate(1.0, 0.9, 1 + CLOSE), []) == "reached"


def test_the_arm_of_every_rung_is_the_optimizer_itself(done: tuple[Ladder, LadderFinding, Path]) -> None:
    assert {slot.arm for slot in done[0].slots()} == {SGD}
