"""A plan on a cluster of two nodes: the same records and bits as here, whatever happens to a node or a process."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.lab.execution.conftest import ROOT
from tests.lab.execution.on_ray.conftest import Nodes
from tests.lab.training.small import same_bits, small

from svag.lab.execution.conduct import carry_out, execute
from svag.lab.execution.execution import Execution
from svag.lab.execution.plan import PlannedRun, plan_runs
from svag.lab.experiments.ladder import Ladder
from svag.lab.records.record import RUNS
from svag.lab.records.storage import in_use
from svag.lab.specs.fields import SpecError
from svag.lab.training.run import run

DEADLY, FAILING, WAITING, NOTHING = (
    {"model": {"arch": f"tests.lab.execution.nets:build_{name}"}}
    for name in ("deadly", "failing", "waiting", "nothing")
)
# A broken program must not hang the tests; a good one never comes near it.
PATIENCE = 300

# Every process that starts imports torch: one of a pair is quick; deaths are counted by code that local tests cover.
SLOW = pytest.mark.slow
MAILED_QUICKLY = pytest.mark.parametrize(
    "mail", [pytest.param(True, id="no shared folder"), pytest.param(False, id="a shared folder", marks=SLOW)]
)


def on(nodes: Nodes, **fields: Any) -> Execution:
    return Execution(executor="ray", address=nodes.address, device="cpu", **fields)


def straight(planned: PlannedRun, folder: Path) -> Path:
    run(planned.spec, folder / planned.identity, device="cpu", progress=False)
    return folder / planned.identity


@MAILED_QUICKLY
def test_a_lost_node_costs_only_the_time_since_the_checkpoint_and_nothing_of_the_bits(
    nodes: Nodes, npz: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], mail: bool
) -> None:
    edits: list[dict[str, Any]] = [
        {**WAITING, "seed": 0},
        {**WAITING, "seed": 1},
        {"seed": 2, "process": {"kind": "svag", "ell": 4}},
    ]
    plan = plan_runs([small(npz, edit) for edit in edits], tmp_path)

    def lose_a_node_when_both_are_at_work() -> None:
        nodes.wait_until_awaited(2)
        nodes.lose_the_second()
        nodes.go.touch()

    fate = threading.Thread(target=lose_a_node_when_both_are_at_work)
    fate.start()
    try:
        records = execute(plan, on(nodes, save_seconds=0, mail=mail))
    finally:
        nodes.go.touch()
        fate.join()
        nodes.replace_the_second()
    assert [record.state for record in records] == ["finished"] * 3
    lines = capfd.readouterr().err.splitlines()
    again = [line for line in lines if "is tried again from its last checkpoint: its " in line]
    assert len(again) == 1, lines
    name = again[0].partition(" is tried")[0]
    starts = (f"{name} begins", f"{name} continues")
    first, second = (line.partition(" (")[0] for line in lines if line.startswith(starts))
    assert first == f"{name} begins, 10 steps"
    # files are mailed after every evaluation, as at step 4, and now and then in between: how often, the clock decides
    assert second in [f"{name} continues at step {step} of 10" for step in ((4, 5, 6) if mail else (6,))]
    assert len(list((tmp_path / "runs").iterdir())) == 3  # nothing but the runs is left there
    for planned in plan:
        assert same_bits(planned.folder, straight(planned, tmp_path / "straight"))


@SLOW
@pytest.mark.parametrize("mail", [False, True], ids=["a shared folder", "no shared folder"])
def test_three_deaths_and_an_error_are_failures_while_the_others_go_on_and_may_be_tried_again(
    nodes: Nodes, npz: Path, tmp_path: Path, mail: bool
) -> None:
    nodes.deaths.write_text("xxx")
    diverging = {"lr": 1e19, "weight_decay": 0, "model.norm": "none", "budget": 60}
    plan = plan_runs([small(npz, edit) for edit in (DEADLY, FAILING, {"seed": 5}, diverging)], tmp_path)
    records = execute(plan, on(nodes, progress=False, mail=mail))
    assert [record.state for record in records] == ["failed", "failed", "finished", "diverged"]
    died, failed, *_ = records
    assert died.problem == "its process died on its node, or its node went away, as 2 times before"
    assert (died.outcome["step"], died.outcome["hardware"]["device"]) == (0 if mail else 4, "cpu")
    assert failed.problem == "RuntimeError: no more of this"
    nodes.deaths.write_text("")
    (again,) = execute(plan[:1], on(nodes, progress=False, mail=mail))
    assert again.state == "finished"
    assert same_bits(again.path, straight(plan[0], tmp_path / "straight"))


@SLOW
@pytest.mark.parametrize("mail", [False, True], ids=["a shared folder", "no shared folder"])
def test_interrupted_it_cancels_what_is_queued_and_the_same_plan_continues(
    nodes: Nodes, npz: Path, tmp_path: Path, mail: bool
) -> None:
    plan = plan_runs([small(npz, {**WAITING, "seed": seed}) for seed in range(3)], tmp_path)
    order = {"specs": [one.spec.to_dict() for one in plan], "out": str(tmp_path)}
    execution = {"executor": "ray", "address": nodes.address, "mail": mail}
    program = [sys.executable, "-m", "tests.lab.execution.executing"]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(program, text=True, cwd=ROOT, **pipes) as process:
        rescue = threading.Timer(PATIENCE, process.kill)
        rescue.start()
        assert process.stdin is not None
        process.stdin.write(json.dumps({**order, "execution": execution}))
        process.stdin.close()
        process.stdin = None
        nodes.wait_until_awaited(2)  # two are at work, and one is queued
        process.send_signal(signal.SIGINT)
        said, complained = process.communicate()
        rescue.cancel()
    assert process.returncode == 130, complained
    assert said == "interrupted, 0 of 3 runs have ended: the same command continues from the last checkpoints\n"
    assert "Traceback" not in complained
    assert not any(in_use(planned.folder) for planned in plan)
    known = 4 if mail else 6  # the last evaluation; where the folder is shared, the checkpoint after it
    assert sorted(planned.record().step for planned in plan) == [0, known, known]
    nodes.go.touch()
    records = execute(plan, on(nodes, progress=False, mail=mail))
    assert [record.state for record in records] == ["finished"] * 3
    assert same_bits(plan[0].folder, straight(plan[0], tmp_path / "straight"))


def test_a_network_that_cannot_be_built_stops_the_plan_with_its_sentence(
    nodes: Nodes, npz: Path, tmp_path: Path
) -> None:
    plan = plan_runs([small(npz, NOTHING)], tmp_path)
    with pytest.raises(SpecError, match="build_nothing failed: RuntimeError: there is no such network"):
        execute(plan, on(nodes, progress=False))


@pytest.mark.slow
def test_a_ladder_by_the_gain_rule_is_planned_and_computed_as_it_is_here(
    nodes: Nodes, npz: Path, tmp_path: Path
) -> None:
    ladder = Ladder.of(small(npz, {"batch_size": 4, "budget": 60}), (4, 8), 1, rule="gain", name="base")
    here, there = tmp_path / "here", tmp_path / "there"
    ours, _ = carry_out(ladder, here, Execution(workers=1, device="cpu", progress=False))
    theirs, conducted = carry_out(ladder, there, on(nodes, progress=False))
    assert not theirs.waits
    assert theirs == ours
    assert len(conducted.records) == 2
    assert all(same_bits(record.path, here / RUNS / record.path.name) for record in conducted.records)


@pytest.mark.slow
def test_in_a_session_that_goes_on_an_edited_network_is_the_one_that_runs(
    nodes: Nodes, npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.syspath_prepend(str(tmp_path))
    source = tmp_path / "edited_between_plans.py"
    network = "from torch import nn\n\ndef build(in_channels, num_classes, image_size):\n    return {}\n"
    ray.init(nodes.address, log_to_driver=False)
    try:
        for layers in (
            "nn.Sequential(nn.Flatten(), nn.Linear(36, 4))",
            "nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.Tanh())",
        ):
            source.write_text(network.format(layers))
            sys.modules.pop(source.stem, None)
            plan = plan_runs([small(npz, {"model": {"arch": f"{source.stem}:build"}})], tmp_path)
            (record,) = execute(plan, Execution(executor="ray", device="cpu", progress=False))
            assert same_bits(record.path, straight(plan[0], tmp_path / "straight"))
        assert ray.is_initialized()
        assert len(list((tmp_path / "straight").iterdir())) == 2
    finally:
        ray.shutdown()
