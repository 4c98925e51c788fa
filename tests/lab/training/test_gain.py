"""The process `gain`: it counts the baseline's steps, resumes bit for bit, is SGD at κ = 1, and ends at its loss."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.lab.training.small import EXAMPLES, go, same_bits, small, weights

from svag.lab.records.record import RunRecord
from svag.lab.specs.fields import SpecError
from svag.lab.specs.spec import RunSpec, examples_per_step
from svag.lab.training import loop
from svag.lab.training.loop import Loop
from svag.lab.training.run import run
from svag.lab.training.steppers import GainStepper
from svag.prices.history import run_history
from svag.prices.plan import GainPlan

PLAN = [[0, 1.5], [7, 3.25]]
PLANNED = {"process": {"kind": "gain", "base_batch_size": 8, "plan": PLAN}, "batch_size": 32, "budget": 40}
MEASURED = {
    "process": {"kind": "gain", "base_batch_size": 8},
    "batch_size": 32,
    "budget": 40,
    "probe": {"kind": "in_run", "parts": 4, "window": [5, 30]},
}
BATCH_NORM = {"model": {"arch": "preresnet8", "norm": "batch", "width": 0.25}}
CASES: dict[str, dict[str, Any]] = {
    "planned": PLANNED,
    "planned, momentum": PLANNED | {"optimizer": {"momentum": 0.9}, "data.augment": {"pad": 1, "flip": True}},
    "planned, adamw": PLANNED | {"optimizer": {"kind": "adamw"}, "lr": 0.01, "probe": {"kind": "in_run", "every": 3}},
    "planned, frozen": PLANNED | {"probe": {"kind": "frozen", "readings": 4, "window": [0, 40], "batches": 3}},
    "measured": MEASURED,
    "measured, batch norm": MEASURED | BATCH_NORM | {"sampling": "shuffle"},
    "measured, rmsprop": MEASURED | {"optimizer": {"kind": "rmsprop"}, "lr": 0.001},
    "fewer examples": PLANNED
    | {"process": {"kind": "gain", "base_batch_size": 8, "plan": [[0, 0.75]]}, "batch_size": 4},
}


def stopped(spec: RunSpec, folder: Path, update: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop a run before an update, right after the checkpoint of the one before it."""
    take = Loop._take_step

    def stop(self: Loop) -> None:
        stepper = self._run.stepper
        assert isinstance(stepper, GainStepper)
        if stepper.updates == update:
            raise KeyboardInterrupt
        take(self)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Loop, "_take_step", stop)
        with pytest.raises(KeyboardInterrupt):
            run(spec, folder, device="cpu", progress=False, save_seconds=0)


@pytest.mark.parametrize("name", CASES)
def test_resumed_runs_end_the_same(npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    spec = small(npz, CASES[name])
    for update in (1, 4, 6, 9):  # 4 and 6: inside a phase, and right after it
        stopped(spec, tmp_path / "run", update, monkeypatch)
    record = go(spec, tmp_path / "run")
    assert record.state == "finished"
    go(spec, tmp_path / "straight")
    assert same_bits(tmp_path / "run", tmp_path / "straight")
    go(spec.edited({"seed": 1}), tmp_path / "other")
    assert not same_bits(tmp_path / "other", tmp_path / "straight")


@pytest.mark.parametrize("optimizer", [{"momentum": 0.9}, {"kind": "adamw"}])
@pytest.mark.parametrize("measured", [False, True])
def test_at_the_batch_of_the_baseline_it_is_the_optimizer(
    npz: Path, tmp_path: Path, optimizer: dict[str, Any], measured: bool
) -> None:
    edits: dict[str, Any] = {"optimizer": optimizer, "lr": 0.01, "probe": {"kind": "in_run", "parts": 4}}
    sgd = go(small(npz, edits), tmp_path / "sgd")
    process = {"kind": "gain", "base_batch_size": 8} | ({} if measured else {"plan": [[0, 1.0]]})
    gain = go(small(npz, edits | {"process": process}), tmp_path / "gain")
    mine, theirs = weights(tmp_path / "gain"), weights(tmp_path / "sgd")
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert gain.readings == sgd.readings
    assert gain.losses == sgd.losses
    for one, other in zip(gain.evaluations, sgd.evaluations, strict=True):
        assert {key: one[key] for key in other if key != "noise"} == {
            key: other[key] for key in other if key != "noise"
        }
        assert (one["baseline_time"], one["examples"]) == (other["step"], 8 * other["step"])


def test_it_counts_the_steps_of_the_baseline(npz: Path, tmp_path: Path) -> None:
    spec = small(npz, PLANNED | {"probe": {"kind": "in_run", "window": [5, 30]}})
    record = go(spec, tmp_path / "run")
    plan = GainPlan(8, 32, PLAN, 40)  # type: ignore[arg-type]  # lists are taken too
    updates = plan.steps()
    assert (record.steps, record.step, updates) == (40, 40, 5 + 11)
    assert record.outcome["examples"] == 32 * updates == record.final["examples"]
    assert record.final["price"] == pytest.approx(4 * updates / 40)
    assert examples_per_step(spec, EXAMPLES) * 40 == pytest.approx(32 * updates)
    # as soon as an update has passed a multiple of 4, and at the end
    times = [row["baseline_time"] for row in record.evaluations]
    assert [row["step"] for row in record.evaluations] == [0, 4, *range(8, 40, 4), 40]
    assert times[:4] == [0, 4.5, 10.25, 13.5]
    assert times[-1] == 40
    # Σ η is the baseline's, but that the decay in step 20 waits for the end of the update that passes it
    late = next(row["baseline_time"] for row in record.evaluations if row["step"] == 20) - 20
    assert record.final["time"] == pytest.approx(0.1 * (20 + late) + 0.01 * (20 - late))
    # one reading an update whose first step lies in the window
    assert [reading.step for reading in record.readings] == [6, 7, 10, 13, 16, 20, 23, 26, 29]
    assert {reading.batch_size for reading in record.readings} == {32}


def test_epochs_are_those_of_the_baseline(npz: Path) -> None:
    spec = small(npz, PLANNED | {"budget": {"epochs": 3}})
    assert spec.steps(EXAMPLES) == 3 * EXAMPLES // 8


def test_a_measured_gain_lies_between_one_and_kappa(npz: Path, tmp_path: Path) -> None:
    record = go(small(npz, MEASURED | {"budget": 60}), tmp_path / "run")
    gains = [row["gain"] for row in record.rows if row["kind"] == "loss"]
    assert all(1 <= gain <= 4 for gain in gains[:-1])  # the last one is cut
    assert len(set(gains)) > 5
    assert 1 <= record.final["price"] <= 4
    assert record.final["baseline_time"] == 60


def test_checkpoints_of_other_processes_are_as_before(npz: Path, tmp_path: Path) -> None:
    go(small(npz), tmp_path / "sgd")
    go(small(npz, PLANNED), tmp_path / "gain")
    sgd, gain = (torch.load(tmp_path / name / "checkpoint.pt", weights_only=True) for name in ("sgd", "gain"))
    assert sgd["format"] == gain["format"] == 4
    assert gain.keys() - sgd.keys() == {"since_row"}
    assert sgd["stepper"].keys() == {"batches"}
    assert gain["stepper"]["rule"]["time"] == 40


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no probe to measure with": ({"process": {"kind": "gain", "base_batch_size": 8}}, "probe.kind"),
    "a probe that measures too late": (
        {"process": {"kind": "gain", "base_batch_size": 8}, "probe": {"kind": "frozen"}},
        "probe.kind",
    ),
    "no baseline": ({"process": {"kind": "gain"}}, "process.base_batch_size"),
    "a plan that begins late": ({"process.plan": [[3, 2.0]]}, "process.plan"),
    "a plan out of order": ({"process.plan": [[0, 2.0], [9, 3.0], [9, 2.0]]}, "process.plan"),
    "a gain above κ": ({"process.plan": [[0, 5.0]]}, "process.plan"),
    "a gain below 1": ({"process.plan": [[0, 0.5]]}, "process.plan"),
    "an empty plan": ({"process.plan": []}, "process.plan"),
    "a plan that is no list of pairs": ({"process.plan": [[0, 1.5, 2]]}, "process.plan.0"),
    "a misspelt field": ({"process.base_batch": 8}, "process.base_batch"),
    "a field of another kind": ({"process.ell": 4}, "process.ell"),
    "a rate that would diverge alone": ({"lr": 1.0, "weight_decay": 0.7}, "weight_decay"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused(npz: Path, name: str) -> None:
    edits, path = REFUSED[name]
    with pytest.raises(SpecError) as refused:
        small(npz, PLANNED).edited(edits)
    assert refused.value.path == path


def test_a_baseline_of_all_examples_is_refused(npz: Path, tmp_path: Path) -> None:
    process = {"kind": "gain", "base_batch_size": EXAMPLES, "plan": [[0, 0.75]]}
    with pytest.raises(SpecError) as refused:
        go(small(npz, PLANNED | {"process": process}), tmp_path / "run")
    assert refused.value.path == "process.base_batch_size"


BASE = RunSpec.from_dict(
    {
        "data": {"name": "fashion-small", "subset": 1000},
        "model": {"arch": "mlp", "norm": "layer", "width": 0.0625},
        "batch_size": 4,
        "lr": 0.04,
        "schedule": {"kind": "cosine"},
        "budget": 800,
        "probe": {"kind": "in_run"},
        "evaluate": {"every": 0.25, "train": True},
    }
)


def trained(tmp_path: Path, name: str, edits: dict[str, Any]) -> list[RunRecord]:
    return [go(BASE.edited({**edits, "seed": seed}), tmp_path / f"{name}{seed}") for seed in range(2)]


def loss(records: list[RunRecord]) -> float:
    return math.exp(sum(math.log(record.final["train_set_loss"]) for record in records) / len(records))


def test_it_ends_where_the_baseline_ends(tmp_path: Path) -> None:
    """Geometric means of two seeds: 0.99 (planned) and 0.98 (measured) of the baseline's loss when this was written.

    The control has the examples of the plan and the rate of the baseline.
    """
    base = trained(tmp_path, "base", {})
    readings = [replace(one, run=str(seed)) for seed, record in enumerate(base) for one in record.readings]
    plan = run_history(readings, 800).plan(32)
    process = {"kind": "gain", "base_batch_size": 4}
    planned = trained(tmp_path, "planned", {"batch_size": 32, "process": {**process, "plan": plan.phases}})
    measured = trained(tmp_path, "measured", {"batch_size": 32, "process": process})
    control = trained(tmp_path, "control", {"batch_size": 32, "budget": plan.steps()})
    assert 0.9 < loss(planned) / loss(base) < 1.07
    assert 0.9 < loss(measured) / loss(base) < 1.07
    assert loss(control) / loss(base) > 1.2
    for record in planned:
        assert record.final["price"] == pytest.approx(plan.price(), rel=0.05)  # the cuts at the ends of phases
    for record in measured:
        assert record.final["price"] == pytest.approx(plan.price(), rel=0.2)
