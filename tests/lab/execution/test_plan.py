"""The same run is planned once; shards cut a plan into parts that cover it; the work of a run is what it looks at."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lab.training.small import small, write_npz

from svag.lab.execution.plan import DataShape, PlannedRun, cost, own_runs, plan_runs
from svag.lab.records.problems import Problem
from svag.lab.specs.spec import RunSpec, examples_per_step
from svag.lab.training.steppers import stepper_for
from svag.lab.training.training import load_inputs, pick_device, prepare

SPEC = RunSpec.from_yaml("{data: {name: svhn}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: 9}")
SHAPE = DataShape(64, 40, 1, 6)
PROCESSES: list[dict[str, Any]] = [
    {"kind": "sgd"}, {"kind": "svag", "ell": 1}, {"kind": "svag", "ell": 3}, {"kind": "svag", "ell": 4, "split": 2},
    {"kind": "glsr", "parts": 4}, {"kind": "ngd"}, {"kind": "gd"}, {"kind": "sde", "refine": 3},
]  # fmt: skip


def test_duplicates_are_one_run_at_the_first_place() -> None:
    seeds = [3, 1, 3, 2, 1]
    plan = plan_runs([SPEC.edited({"seed": seed}) for seed in seeds], Path("out"))
    assert [run.spec.seed for run in plan] == [3, 1, 2]
    assert [run.name for run in plan] == ["sgd B=8 seed=3", "sgd B=8 seed=1", "sgd B=8 seed=2"]
    assert plan[0].record().state == "interrupted"
    assert (plan[0].record().steps, plan[0].record().code) == (9, Problem.NOT_BEGUN)


@given(
    st.lists(st.binary(min_size=32, max_size=32).map(bytes.hex), unique=True, max_size=30),
    st.integers(min_value=1, max_value=7),
)
def test_shards_cover_a_plan_exactly_once(identities: list[str], count: int) -> None:
    plan = [PlannedRun(SPEC, identity, Path(identity[:12])) for identity in identities]
    parts = [own_runs(plan, (index, count)) for index in range(count)]
    assert Counter(run.identity for part in parts for run in part) == Counter(identities)
    assert all(part == [run for run in plan if run in part] for part in parts)
    assert own_runs(plan, None) == plan


@pytest.mark.parametrize("process", PROCESSES, ids=str)
def test_the_examples_of_a_step_are_those_of_its_stepper(tmp_path: Path, process: dict[str, Any]) -> None:
    spec = small(write_npz(tmp_path / "data.npz"), {"process": process})
    stepper = stepper_for(prepare(spec, load_inputs(spec.data, None, pick_device("cpu"))))
    assert examples_per_step(spec, 64) == stepper.seen(1)
    stepper.close()


def test_what_makes_a_run_longer_costs_more(npz: Path) -> None:
    base = small(npz)
    longer: list[dict[str, Any]] = [
        {"budget": 11}, {"batch_size": 16}, {"process": {"kind": "svag", "ell": 2}}, {"model": {"arch": "preresnet8"}},
        {"process": {"kind": "glsr", "parts": 2}}, {"process": {"kind": "gd"}}, {"model.width": 0.0625},
    ]  # fmt: skip
    for edits in longer:
        assert cost(base.edited(edits), SHAPE) > cost(base, SHAPE), edits
    assert cost(base.edited({"seed": 1, "lr": 0.3}), SHAPE) == cost(base, SHAPE)
    ell = {key: cost(base.edited({"process": {"kind": "svag", "ell": key}}), SHAPE) for key in (2, 8)}
    assert ell[8] == 4 * ell[2]
    depths = {arch: cost(base.edited({"model": {"arch": arch}}), SHAPE) for arch in ("preresnet8", "preresnet32")}
    assert depths["preresnet32"] == 4 * depths["preresnet8"]
