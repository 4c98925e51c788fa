"""What is left of a plan is counted, and timed from runs that have ended or from a measurement."""

import json
from pathlib import Path

import pytest
from tests.lab.training.small import small

from svag.lab.execution import worker
from svag.lab.execution.conduct import look_ahead
from svag.lab.execution.estimate import TimeEstimate, Workload, time_of
from svag.lab.execution.execution import Execution
from svag.lab.execution.plan import PlannedRun, plan_runs
from svag.lab.training.run import run
from svag.lab.training.training import Training


def estimated(plan: list[PlannedRun], execution: Execution) -> TimeEstimate:
    found = look_ahead(Workload(plan, execution))
    assert isinstance(found, TimeEstimate)
    return found


def test_from_runs_of_the_same_shape(npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_runs(
        [small(npz, {"seed": seed, "lr": 0.1 + seed, "budget": 10 * (1 + seed)}) for seed in range(3)], tmp_path
    )
    run(plan[0].spec, plan[0].folder, device="cpu", progress=False)
    outcome = json.loads((plan[0].folder / "outcome.json").read_text())
    (plan[0].folder / "outcome.json").write_text(json.dumps({**outcome, "seconds": 5.0}))
    monkeypatch.setattr(worker, "_time_an_update", None)  # nothing is measured
    found = estimated(plan, Execution(workers=1, device="cpu"))
    # half a second per effective step; 20 and 30 of them are left, 8 examples each
    assert (found.runs, found.done, found.to_do, found.examples) == (3, 1, 2, 400)
    assert found.seconds == pytest.approx(25.0)
    assert str(found) == "3 runs, 1 already done, 2 to do: 400 examples, about 25 s with 1 worker"
    assert found.to_dict()["to_do"] == 2
    assert estimated(plan, Execution(workers=2, device="cpu")).seconds == pytest.approx(15.0)
    assert str(estimated(plan[:1], Execution())) == "1 run, all done already"


def test_from_a_measurement(npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def told(training: Training, size: int) -> float:
        tried.append((id(training), size))
        return float(size)

    monkeypatch.setattr(worker, "_time_an_update", told)
    svag = {"process": {"kind": "svag", "ell": 3}, "seed": 1}
    full = {"process": {"kind": "gd"}}
    probed = {"probe": {"kind": "frozen", "readings": 4, "window": [0, 10], "batches": 3}}
    plan = plan_runs([small(npz, edits) for edits in ({}, svag, full, probed)], tmp_path)
    evaluations = 4 * 40 / 3  # at 0, 4, 8 and 10, of 40 test examples
    training = [10 * 8, 10 * 6 * 8, 10 * 64, 10 * 8 + 4 * 3 * 8]
    found = estimated(plan, Execution(workers=1, device="cpu"))
    assert found.seconds == pytest.approx(sum(training) + 4 * evaluations)
    assert found.examples == 10 * (8 + 48 + 64 + 8)
    assert sorted(size for _, size in tried) == [8, 40, 64]  # each batch size once
    assert len({network for network, _ in tried}) == 1  # of a network that is built once


def test_for_a_cluster_the_threads_that_were_asked_for_are_timed(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def told(runs: list[PlannedRun], loaded: object, device: object, threads: int) -> dict[str, float]:
        asked.append(threads)
        return {run.identity: 1.0 for run in runs}

    monkeypatch.setattr(worker, "timed_seconds", told)
    found = estimated(plan_runs([small(npz)], tmp_path), Execution(executor="ray", address="auto", threads=3))
    assert (asked, found.for_cluster, found.workers) == ([3], True, 1)


def test_an_update_is_timed_without_a_trace(npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_PATIENCE", 0.0)
    plan = plan_runs([small(npz)], tmp_path)
    found = estimated(plan, Execution(device="cpu"))
    assert found.seconds > 0
    assert not (tmp_path / "runs").exists()


def test_the_longest_run_bounds_the_time() -> None:
    assert time_of([8.0, 1.0, 1.0, 1.0], workers=2) == 8.0
    assert time_of([3.0, 3.0, 2.0, 2.0, 2.0], workers=2) == 7.0
    assert time_of([], workers=3) == 0.0
