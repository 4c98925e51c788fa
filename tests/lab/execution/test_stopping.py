"""Interrupted, terminated or killed, and two at once: nothing is left behind, nothing is computed twice.

The runs wait inside for a file, so that nothing here depends on how fast anything is. A worker holds the standard error
of the one who started it: its end of file says that all of them are gone.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.lab.execution.conftest import ROOT
from tests.lab.execution.nets import GO
from tests.lab.training.small import same_bits, small

from svag.lab.execution.conduct import execute
from svag.lab.execution.dispatch import order_for
from svag.lab.execution.execution import Execution
from svag.lab.execution.plan import PlannedRun, plan_runs
from svag.lab.records.storage import in_use, parse_lines
from svag.lab.training.run import run

# A broken program must not hang the tests; a good one never comes near it.
PATIENCE = 300


@pytest.fixture
def plan(npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[PlannedRun]:
    monkeypatch.setenv(GO, str(tmp_path / "go"))
    model = {"arch": "tests.lab.execution.nets:build_waiting"}
    return plan_runs([small(npz, {"model": model, "seed": seed}) for seed in range(2)], tmp_path)


@contextmanager
def executing(plan: list[PlannedRun], out: Path, workers: int, **execution: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.lab.execution.executing"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,  # as a job of a shell or of a scheduler has one
    )
    assert process.stdin is not None
    order: dict[str, Any] = {
        "specs": [one.spec.to_dict() for one in plan],
        "out": str(out),
        "execution": {"workers": workers, **execution},
    }
    process.stdin.write(json.dumps(order))
    process.stdin.close()
    process.stdin = None
    rescue = threading.Timer(PATIENCE, process.kill)
    rescue.start()
    try:
        yield process
    finally:
        rescue.cancel()
        process.kill()
        process.communicate()


def wait_for(process: subprocess.Popen[str], words: str, times: int = 1) -> None:
    assert process.stderr is not None
    seen: list[str] = []
    while times:
        line = process.stderr.readline()
        assert line, f"ended before it said {words!r}: {''.join(seen)}"
        seen.append(line)
        times -= words in line


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_it_says_so_and_the_same_plan_continues(
    plan: list[PlannedRun], tmp_path: Path, stop: signal.Signals
) -> None:
    with executing(plan, tmp_path, 2) as process:
        wait_for(process, "begins", 2)
        process.send_signal(stop)
        said, complained = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, complained
    assert said == "interrupted, 0 of 2 runs have ended: the same command continues from the last checkpoints\n"
    assert "Traceback" not in complained
    assert not any(in_use(planned.folder) for planned in plan)
    if stop is not signal.SIGINT:
        return
    (tmp_path / "go").touch()
    assert [record.state for record in execute(plan, Execution(workers=2, device="cpu", progress=False))] == [
        "finished"
    ] * 2
    run(plan[0].spec, tmp_path / "straight", device="cpu", progress=False)
    assert same_bits(plan[0].folder, tmp_path / "straight")


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_workers_save_before_they_end(plan: list[PlannedRun], tmp_path: Path, stop: signal.Signals) -> None:
    """However their parent is stopped; those that can finish their step, as here when they may go on."""
    with executing(plan, tmp_path, 2, save_seconds=1000) as process:
        wait_for(process, "begins", 2)
        while len(list(tmp_path.glob("go.awaited.*"))) < 2:
            time.sleep(0.02)
        process.send_signal(stop)
        (tmp_path / "go").touch()
        process.communicate(timeout=PATIENCE)
    assert all((planned.folder / "checkpoint.pt").exists() for planned in plan)
    run(plan[0].spec, plan[0].folder, device="cpu", progress=False)
    run(plan[0].spec, tmp_path / "straight", device="cpu", progress=False)
    assert same_bits(plan[0].folder, tmp_path / "straight")


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGHUP])
def test_the_workers_save_when_everybody_is_told_to_stop(
    plan: list[PlannedRun], tmp_path: Path, stop: signal.Signals
) -> None:
    """As schedulers and closing terminals do: the whole group gets the signal, and the workers then their parent's."""
    with executing(plan, tmp_path, 2, save_seconds=1000) as process:
        wait_for(process, "begins", 2)
        while len(list(tmp_path.glob("go.awaited.*"))) < 2:
            time.sleep(0.02)
        os.killpg(process.pid, stop)
        os.killpg(process.pid, stop)
        (tmp_path / "go").touch()
        _, complained = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, complained
    assert "Traceback" not in complained
    assert [(planned.record().state, (planned.folder / "checkpoint.pt").exists()) for planned in plan] == [
        ("interrupted", True)
    ] * 2


def test_a_report_that_nobody_reads_does_not_end_a_run(plan: list[PlannedRun], tmp_path: Path) -> None:
    """A parent that is killed closes both pipes, one after the other: in between, the run goes on."""
    order = {"task": "run", **order_for(plan[0], Execution(device="cpu", save_seconds=1000)), "worker": 0}
    program = [sys.executable, "-c", "from svag.lab.execution.worker import main; main()"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as worker:
        rescue = threading.Timer(PATIENCE, worker.kill)
        rescue.start()
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(json.dumps(order) + "\n")
        worker.stdin.flush()
        while not list(tmp_path.glob("go.awaited.*")) and worker.poll() is None:
            time.sleep(0.02)
        worker.stdout.close()
        (tmp_path / "go").touch()
        while plan[0].record().state != "finished" and worker.poll() is None:
            time.sleep(0.02)
        rescue.cancel()
    assert plan[0].record().state == "finished"


def test_when_the_parent_is_killed_no_worker_lives_on(plan: list[PlannedRun], tmp_path: Path) -> None:
    with executing(plan, tmp_path, 2) as process:
        wait_for(process, "begins", 2)
        process.kill()
        process.communicate(timeout=PATIENCE)  # to the end of a file that every worker holds
    assert not any(in_use(planned.folder) for planned in plan)
    assert not any((planned.folder / "outcome.json").exists() for planned in plan)


def test_two_at_once_share_a_plan_and_both_see_all_of_it(plan: list[PlannedRun], tmp_path: Path) -> None:
    with executing(plan, tmp_path, 1) as first, executing(plan, tmp_path, 1) as second:
        speaking = {"first": first, "second": second}
        for process in speaking.values():
            wait_for(process, "begins")
        (tmp_path / "go").touch()
        for process in speaking.values():
            said, complained = process.communicate(timeout=PATIENCE)
            assert said == "['finished', 'finished']\n", complained
    for planned in plan:
        timings = parse_lines((planned.folder / "timings.jsonl").read_bytes())
        assert sum("examples" in row for row in timings) == 4  # evaluated once at each moment
