"""`svag compare`, `ladder`, `ngd` and `reproduce` as a user runs them: bad input, dry runs, continuing, answers."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.lab.cli.answers import answer, invoke

from svag.lab.execution.conduct import Conducted
from svag.lab.execution.plan import plan_runs
from svag.lab.experiments import load_experiment
from svag.lab.experiments.compare import Compare
from svag.lab.experiments.ladder import Ladder
from svag.lab.records.problems import Problem
from svag.lab.records.record import load_records
from svag.paper.cli.app import app


def test_a_dry_run_counts_and_leaves_nothing(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    planned = answer(["compare", str(base), "--ell", "1", "4", "16", "--seeds", "2", "--out", str(out), "--dry-run"])
    assert (planned["kind"], planned["runs"], planned["estimate"]["done"]) == ("compare", 6, 0)
    assert planned["estimate"]["seconds"] > 0
    said = invoke(app, ["compare", str(base), "--ell", "1,4,16", "--seeds", "2", "--out", str(out), "--dry-run"])
    assert "6 runs, 0 already done, 6 to do" in said.stdout
    assert not out.exists()


def test_what_a_plan_cannot_give_is_said_beforehand(base: Path, tmp_path: Path) -> None:
    probe = ["--probe.kind", "in_run", "--probe.parts", "2", "--weight-decay", "1e-3", "--budget", "93"]
    command = ["ladder", str(base), "--batch-sizes", "4", "8", *probe, "--out", str(tmp_path / "out"), "--dry-run"]
    said = invoke(app, [*command, "--lr", "0.1"])
    assert said.exit_code == 0, said.output
    assert "Note: " in said.stdout
    caution = answer([*command, "--lr", "0.1"])["caution"]
    assert caution
    assert caution in " ".join(said.stdout.split())
    assert answer([*command, "--lr", "40", "--schedule.kind", "constant"])["caution"] == ""  # settles in 6 steps


def test_a_dry_run_does_not_fetch_data(tmp_path: Path) -> None:
    flags = ["--size", "paper", "--data-dir", str(tmp_path), "--out", str(tmp_path / "out"), "--dry-run"]
    planned = answer(["reproduce", "fig:app_svag_c100", *flags])
    assert (planned["runs"], planned["size"]) == (80, "paper")
    assert "cifar100" in planned["estimate"]["unknown"]
    assert list(tmp_path.iterdir()) == []


def test_compare_writes_what_was_asked_and_answers_then_only_reads(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [
        "compare",
        "--ell",
        "1",
        "2",
        str(base),
        "--seeds",
        "2",
        "--out",
        str(out),
        "--lr",
        "0.2",
        "--margin",
        "9",
    ]
    found = answer(command)
    asked = load_experiment(out)
    assert isinstance(asked, Compare)
    assert (asked.margin, asked.seeds, asked.panels[0].base.lr, asked.panels[0].ells) == (9.0, (0, 1), 0.2, (1, 2))
    written = {path: path.stat().st_mtime_ns for path in out.rglob("metrics.jsonl")}
    assert len(written) == 4
    assert answer(command) == found
    assert {path: path.stat().st_mtime_ns for path in out.rglob("metrics.jsonl")} == written, (
        "nothing is computed twice"
    )
    more = [*command[:2], "1,2", *command[4:], "--glsr", "2"]
    planned = answer([*more, "--dry-run"])["estimate"]
    assert (planned["runs"], planned["done"], planned["to_do"]) == (6, 4, 2)
    again = invoke(app, command)
    assert "all done already" in again.stderr
    assert "Yes: SGD" in again.stdout
    assert (out / "report" / "index.html").exists()
    code = (
        "import sys, svag.cli\n"
        "try:\n    svag.cli.main()\n"
        "except SystemExit as stop:\n    assert not stop.code, stop.code\n"
        "assert 'torch' not in sys.modules"
    )
    dry = subprocess.run(
        [sys.executable, "-c", code, *command, "--dry-run", "--json"], capture_output=True, text=True, check=False
    )
    assert dry.returncode == 0, dry.stderr
    assert json.loads(dry.stdout)["estimate"]["done"] == 4, "a folder that is finished is looked at without torch"


def test_within_runs_a_pilot_plans_from_it_and_continues(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["compare", str(base), "--within", "60", "--out", str(out)]
    before = answer([*command, "--dry-run"])
    assert (before["runs"], "planned" in before) == (8, False), "without its pilot only the pilot is known"
    assert not out.exists()
    found = answer(command)
    plan = found["plan"]
    assert plan["ells"][:2] == [1, 4]
    assert len(found["runs"]) == sum(plan["seeds"])
    assert found["missing"] == []
    assert found["limit"] == "plan"
    asked = load_experiment(out)
    assert isinstance(asked, Compare)
    assert (asked.margin, asked.panels[0].split) == (0.6, 2)
    again = answer([*command, "--dry-run"])
    assert again["estimate"]["done"] == again["runs"] == len(found["runs"])
    assert "±60.00 points" in invoke(app, [*command, "--dry-run"]).stdout
    shutil.rmtree(found["runs"][-1]["path"])
    repeated = answer(command)
    assert repeated["plan"] == plan, "the same pilot gives the same plan"
    assert repeated["gap"] == found["gap"]


@pytest.mark.parametrize(
    "flag", [["--ell", "1", "4"], ["--seeds", "3"], ["--split", "2"], ["--margin", "1"], ["--ngd"]]
)
def test_within_chooses_the_arms_itself(base: Path, tmp_path: Path, flag: list[str]) -> None:
    refused = invoke(app, ["compare", str(base), "--within", "1", *flag, "--out", str(tmp_path / "out")])
    assert refused.exit_code == 2
    assert refused.stderr.startswith(f"Error: {flag[0]}: --within ")


def test_a_ladder_in_shards_has_a_probe_and_answers_when_all_are_done(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [
        "ladder",
        str(base),
        "--batch-sizes",
        "4",
        "8",
        "16",
        "--rule",
        "linear",
        "--seeds",
        "2",
        "--out",
        str(out),
        "--workers",
        "1",
    ]
    first = answer([*command, "--shard", "0/2"])
    done = len(load_records(out))
    assert first == {"runs": 6, "left": 6 - done}
    found = answer(command)
    assert {"observed", "observed_low", "observed_high", "predictions", "runs"} <= set(found)
    asked = load_experiment(out)
    assert isinstance(asked, Ladder)
    assert asked.panels[0].base.probe.kind == "in_run"
    records = load_records(out)
    assert sorted((r.spec.batch_size, r.spec.lr, r.steps) for r in records if r.spec is not None) == [
        *[(4, 0.05, 40)] * 2,
        *[(8, 0.1, 20)] * 2,
        *[(16, 0.2, 10)] * 2,
    ]
    assert all(record.readings for record in records)


def test_ngd_runs_three_processes(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer(["ngd", str(base), "--seeds", "1"])
    records = load_records(tmp_path / "experiments" / "base-ngd")
    assert sorted(r.spec.process.kind for r in records if r.spec is not None) == ["gd", "ngd", "sgd"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["compare", "--ell", "four"], "--ell: takes whole numbers above 0, such as 1 4 16, got 'four'"),
        (["compare", "--ell", "1"], "ell: SGD alone has nothing to be compared with"),
        (["compare", "--ells", "1"], "--ells: there is no such field; did you mean ell?"),
        (["compare", "--seed", "1"], "--seed: every arm runs with the same seeds"),
        (["compare", "--split", "3"], "process.split: must divide batch_size=8, got 3"),
        (["compare", "--split", "2", "--model.norm", "batch"], "process.split: batch norm sees the whole batch"),
        (["compare", "--margin", "-1"], "compare.margin: must be greater than 0"),
        (["compare", "--momentum", "0.9"], "process.momentum_limit: momentum has two limits"),
        (["compare", "--shard", "2/2"], "--shard: must be i/n"),
        (["compare", "--process.kind", "gd"], "process.kind: the base of an experiment is the SGD run"),
        (["compare", "another.yaml"], "another.yaml: give one spec"),
        (["ladder"], "--batch-sizes: is missing"),
        (["ladder", "--batch-sizes", "8"], "batch_sizes: a ladder has at least two rungs"),
        (["ladder", "--rule", "linear", "--batch-sizes", "8", "1600"], "schedule.at: "),
        (
            ["ladder", "--batch-sizes", "4", "8", "--c2", "1"],
            "ladder.c2: c2 (the square of the closeness constant C) must",
        ),
        (["ngd", "--model.norm", "batch"], "model.norm: ngd needs a loss for every example"),
        (["ngd", "--lr", "-1"], "lr: must be greater than 0, got -1"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    base: Path, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    out = tmp_path / "out"
    result = invoke(app, [arguments[0], str(base), *arguments[1:], "--out", str(out)])
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith(f"Error: {sentence}"), result.stderr
    assert result.stderr.count("\n") == 1
    assert not out.exists(), "nothing is left behind"


def test_a_run_that_failed_is_said_with_exit_code_1(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(experiment: Any, out: Path, _: object) -> Conducted:
        plan = plan_runs(experiment.runs(), out)
        records = [run.record() for run in plan]
        return Conducted(
            plan,
            [
                replace(records[0], state="failed", code=Problem.FAILED, detail="RuntimeError: broken"),
                *(replace(record, state="finished") for record in records[1:]),
            ],
        )

    monkeypatch.setattr("svag.lab.execution.conduct.conduct", fails)
    result = invoke(app, ["ngd", str(base), "--seeds", "1", "--out", str(tmp_path / "out")])
    assert result.exit_code == 1, result.output
    assert re.search(r"^Error: sgd B=8 seed=0 .*RuntimeError: broken", result.stderr, re.MULTILINE)


def test_a_ladder_plans_its_larger_batches_from_the_smallest(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["ladder", str(base), "--batch-sizes", "8", "16", "--seeds", "1", "--out", str(out), "--workers", "1"]
    waiting = invoke(app, [*command, "--dry-run", "--json"])
    assert (json.loads(waiting.stdout)["runs"], "planned" in waiting.stderr) == (1, True)
    found = answer(command)
    assert [(rung["batch_size"], rung["ended"]) for rung in found["gain"]["rungs"]] == [(16, "open")]
    asked = load_experiment(out)
    assert isinstance(asked, Ladder)
    assert (asked.panels[0].rule, [size for size, _ in asked.panels[0].plans]) == ("gain", [16])
    planned = answer([*command, "--dry-run"])
    assert (planned["runs"], planned["estimate"]["done"]) == (2, 2)
    assert [record.steps for record in load_records(out)] == [20, 20]
    refused = invoke(app, [*command, "--ell", "4"])
    assert (refused.exit_code, "ells: " in refused.stderr) == (2, True)


def test_a_shard_that_comes_before_the_baseline_is_done_says_so(base: Path, tmp_path: Path) -> None:
    command = [
        "ladder",
        str(base),
        "--batch-sizes",
        "8",
        "16",
        "--seeds",
        "2",
        "--out",
        str(tmp_path),
        "--workers",
        "1",
    ]
    parts = [answer([*command, "--shard", f"{part}/9"]) for part in range(9)]
    early = [part for part in parts if part.get("planned") is False]
    assert early, "9 shards do not all come after the last run of the baseline"
    assert all(part["runs"] == 2 and part["left"] > 0 for part in early)
    assert [rung["batch_size"] for rung in answer(command)["gain"]["rungs"]] == [16]


def test_one_damaged_run_does_not_stop_the_others(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["ladder", str(base), "--rule", "linear", "--batch-sizes", "4", "8", "--out", str(out), "--workers", "1"]
    command += ["--seeds"]
    answer([*command, "1"])
    broken = next(record for record in load_records(out) if record.spec is not None and record.spec.batch_size == 8)
    metrics = broken.path / "metrics.jsonl"
    whole = metrics.read_bytes()
    metrics.write_bytes(bytes([*whole[:-9], whole[-9] ^ 1, *whole[-8:]]))
    planned = answer([*command, "2", "--dry-run"])["estimate"]
    assert (planned["runs"], planned["done"], planned["broken"], planned["to_do"]) == (4, 1, 1, 2)
    result = invoke(app, [*command, "2", "--json"])
    assert result.exit_code == 1, "an answer with a run missing"
    (failure,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert failure.startswith("Error: sgd B=8 seed=0 broken: metrics.jsonl ")
    assert failure.endswith(f"({broken.path})")
    assert "--out" not in failure
    assert [record.state for record in load_records(out)].count("finished") == 3, "the others are computed"
    found = json.loads(result.stdout)
    (missing,) = found["missing"]
    assert (missing["state"], missing["path"]) == ("broken", str(broken.path))
    assert missing["problem"] == f"broken: {load_records(broken.path)[0].problem}"
    assert str(broken.path) in found["status"]
    shutil.rmtree(broken.path)
    assert answer([*command, "2"])["missing"] == []
