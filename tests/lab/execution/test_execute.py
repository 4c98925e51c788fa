"""A plan is carried out whatever happens to its workers, and ends with the bits of undisturbed runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.lab.execution.nets import DEATHS
from tests.lab.training.small import same_bits, small

from svag.lab.execution.conduct import execute
from svag.lab.execution.execution import Execution
from svag.lab.execution.plan import plan_runs
from svag.lab.execution.worker import first_step
from svag.lab.records.problems import Problem
from svag.lab.records.storage import RunLock, make_folder
from svag.lab.specs.fields import SpecError
from svag.lab.training.run import run

ALONE = Execution(workers=1, device="cpu", progress=False)
DEADLY: dict[str, Any] = {"model": {"arch": "tests.lab.execution.nets:build_deadly"}}


def test_a_killed_worker_costs_only_its_own_run_and_nothing_of_its_bits(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(DEATHS, str(tmp_path / "deaths"))
    (tmp_path / "deaths").write_text("x")
    edits: list[dict[str, Any]] = [{"seed": 1}, {"seed": 2, "process": {"kind": "svag", "ell": 4}}, DEADLY]
    specs = [small(npz, edit) for edit in edits]
    plan = plan_runs(specs, tmp_path)
    records = execute(plan, Execution(workers=1, device="cpu", save_seconds=0))
    assert [record.state for record in records] == ["finished"] * 3
    assert (tmp_path / "deaths").read_text() == ""
    lines = capfd.readouterr().err.splitlines()
    begun = [line.partition(" (")[0] for line in lines if "begins" in line or "continues at" in line]
    # the longest first, a user's own network before a tiny one; the one that died goes on from its checkpoint
    assert begun == [
        "sgd B=8 seed=0 begins, 10 steps",
        "sgd B=8 seed=0 continues at step 6 of 10",
        "svag ell=4 split=1 B=8 seed=2 begins, 10 effective steps",
        "sgd B=8 seed=1 begins, 10 steps",
    ]
    assert any("tried again from its last checkpoint: its process was ended by SIGKILL" in line for line in lines)
    assert "a user's network may print" in lines
    for planned in plan:
        run(planned.spec, tmp_path / "straight" / planned.identity, device="cpu", progress=False)
        assert same_bits(planned.folder, tmp_path / "straight" / planned.identity)
    monkeypatch.setattr("svag.lab.execution.local.WorkerProcess", None)  # nobody is started for a plan that is done
    assert [record.state for record in execute(plan, Execution(progress=False))] == ["finished"] * 3
    assert capfd.readouterr().err == ""


def test_a_run_begins_where_its_checkpoint_is_whatever_was_evaluated_since(npz: Path, tmp_path: Path) -> None:
    (planned,) = plan_runs([small(npz)], tmp_path)
    run(planned.spec, planned.folder, device="cpu", progress=False)
    (planned.folder / "outcome.json").unlink()
    assert first_step(planned.folder, planned.identity, "cpu") == 10
    (planned.folder / "checkpoint.pt").unlink()  # killed before the first one
    assert planned.record().step == 10
    assert first_step(planned.folder, planned.identity, "cpu") == 0
    (planned.folder / "checkpoint.pt").write_bytes(b"damaged")
    assert first_step(planned.folder, planned.identity, "cpu") == 0


def test_three_deaths_and_an_error_are_failures_while_the_others_go_on_and_may_be_tried_again(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DEATHS, str(tmp_path / "deaths"))
    (tmp_path / "deaths").write_text("xxx")
    failing = {"model": {"arch": "tests.lab.execution.nets:build_failing"}}
    diverging = {"lr": 1e19, "weight_decay": 0, "model.norm": "none", "budget": 60}
    plan = plan_runs([small(npz, edit) for edit in (DEADLY, failing, {"seed": 5}, diverging)], tmp_path)
    died, failed, good, diverged = execute(plan, Execution(workers=2, device="cpu", progress=False))
    assert [record.state for record in (died, failed, good, diverged)] == ["failed", "failed", "finished", "diverged"]
    reason = "its process was ended by SIGKILL, possibly out of memory, as 2 times before"
    assert died.problem == reason
    assert died.outcome["versions"]["svag"]
    assert died.outcome["hardware"]["device"] == "cpu"
    assert (died.outcome["step"], died.outcome["examples"]) == (4, 32)
    assert failed.code is Problem.FAILED
    again = execute(plan[:1], ALONE)
    assert [record.state for record in again] == ["finished"]


def test_what_is_wrong_for_all_stops_the_plan_before_it_begins(npz: Path, tmp_path: Path) -> None:
    plan = plan_runs([small(npz), small(npz, {"batch_size": 1000})], tmp_path)
    with pytest.raises(SpecError, match=r"^batch_size:.*got 1000"):
        execute(plan, Execution(device="cpu", progress=False))
    assert not (tmp_path / "runs").exists()


def test_a_network_that_cannot_be_built_stops_the_plan_with_its_sentence(npz: Path, tmp_path: Path) -> None:
    plan = plan_runs([small(npz, {"model": {"arch": "tests.lab.execution.nets:build_nothing"}})], tmp_path)
    with pytest.raises(SpecError, match=r"^model\.arch: .*build_nothing.*RuntimeError"):
        execute(plan, ALONE)


def test_shards_share_a_plan_and_leave_alone_what_others_hold(npz: Path, tmp_path: Path) -> None:
    plan = plan_runs([small(npz, {"seed": seed, "budget": 2}) for seed in range(5)], tmp_path)
    mine = [int(planned.identity, 16) % 2 == 0 for planned in plan]
    assert 0 < sum(mine) < 5
    records = execute(plan, replace(ALONE, shard=(0, 2)))
    assert [record.state for record in records] == ["finished" if own else "interrupted" for own in mine]
    assert {record.code for record, own in zip(records, mine, strict=True) if not own} == {Problem.NOT_BEGUN}
    held = next(planned for planned, own in zip(plan, mine, strict=True) if not own)
    make_folder(held.folder)
    with RunLock(held.folder):
        records = execute(plan, replace(ALONE, shard=(1, 2)))
    expected = ["running" if planned == held else "finished" for planned in plan]
    assert [record.state for record in records] == expected
