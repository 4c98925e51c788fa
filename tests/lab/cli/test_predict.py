"""`svag predict` as a user runs it."""

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.lab.experiments.on_disk import at, readings_at, write_run
from typer.testing import CliRunner

import svag
import svag.lab
from svag.lab.experiments.wording import LINES
from svag.lab.training.measuring import throughput_of
from svag.noise.reading import append_readings
from svag.paper.cli.app import app
from svag.theory.bounds import critical_batch_size

invoke = CliRunner().invoke


def baseline(root: Path, size: int = 32, grad_sq: float = 1.0, noise: float = 10.0, seed: int = 0) -> Path:
    spec = at(size, seed=seed)
    return write_run(root, spec, 0.9, readings=readings_at(spec, grad_sq, noise))


def test_one_run_predicts(tmp_path: Path) -> None:
    folder = baseline(tmp_path)
    result = invoke(app, ["predict", str(folder)])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Batch 256: 1.6× the examples, 4.9 times fewer steps")
    found = json.loads(invoke(app, ["predict", str(folder), "--json", "--c2", "3"]).stdout)
    limit = critical_batch_size(32, 10.0, c2=3.0, lr_wd=1e-4)
    assert found["linear"]["limit"]["value"] == pytest.approx(limit, rel=1e-9)
    assert found["critical_batch"]["value"] == pytest.approx(critical_batch_size(32, 10.0, c2=3.0), rel=1e-9)
    assert found["linear"]["proved"] is True
    assert found["runs"] == [str(folder)]


def test_details_say_the_rest(tmp_path: Path) -> None:
    folder = baseline(tmp_path)
    brief, full = (invoke(app, ["predict", str(folder), *flags]).stdout for flags in ([], ["--details"]))
    assert "B* = 384" in full
    assert "B* = 384" not in brief
    assert full.startswith(f"From {folder}:\n")
    rows = [line for line in brief.splitlines() if line.split()[0].isdigit()]
    assert len(rows) == 6
    assert set(rows) <= set(full.splitlines())


def fits(answer: str) -> bool:
    """Whether an answer is one of at most 12 lines of 80 columns."""
    lines = answer.rstrip("\n").split("\n")
    return sum(max(math.ceil(len(line) / 80), 1) for line in lines) <= LINES == 12


KINDS: dict[str, dict[str, object]] = {
    "sgd": {},
    "momentum": {"optimizer": {"kind": "sgd", "momentum": 0.9}},
    "adamw": {"optimizer": {"kind": "adamw"}},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("noise", [0.09, 10.0])
def test_an_answer_has_six_rows_and_at_most_12_lines_of_80_columns(tmp_path: Path, kind: str, noise: float) -> None:
    spec = at(32, **KINDS[kind])
    write_run(tmp_path, spec, 0.9, readings=readings_at(spec, 1.0, noise))
    said = invoke(app, ["predict", str(tmp_path)]).stdout
    assert fits(said), said
    assert sum(line.split()[0].isdigit() for line in said.splitlines()) == 6


@pytest.mark.parametrize("settings", [2, 30])
def test_several_settings_have_a_line_each_and_at_most_12_lines(tmp_path: Path, settings: int) -> None:
    for lr in range(1, settings + 1):
        spec = at(32, lr=lr / 100)
        write_run(tmp_path / ("x" * 30), spec, 0.9, readings=readings_at(spec, 1.0, 10.0))
    said = invoke(app, ["predict", str(tmp_path)]).stdout
    assert fits(said), said
    lines = said.splitlines()
    told = sum(line.startswith("From batch size 32, ") for line in lines)
    more = [int(line.split()[1]) for line in lines if line.startswith("and ")]
    assert told + sum(more) == settings
    assert told == 2 or more


def test_seeds_are_pooled_and_batch_sizes_are_not(tmp_path: Path) -> None:
    baseline(tmp_path, 64, 1.0, 4.0)
    baseline(tmp_path, 32, 0.5, 8.0)
    baseline(tmp_path, 32, 1.5, 12.0, seed=1)
    found = json.loads(invoke(app, ["predict", str(tmp_path), "--json"]).stdout)
    assert [row["batch_size"] for row in found["predictions"]] == [32, 64]
    assert [row["noise_to_signal"]["value"] for row in found["predictions"]] == pytest.approx([10.0, 4.0])
    assert len(found["predictions"][0]["runs"]) == 2
    assert "critical_batch" not in found


def test_the_answer_counts_its_runs_and_the_details_name_them(tmp_path: Path) -> None:
    seeds = [str(baseline(tmp_path, seed=seed)) for seed in range(4)]
    brief, full = (invoke(app, ["predict", str(tmp_path), *flags]).stdout for flags in ([], ["--details"]))
    assert "From 4 runs." in brief
    said = full.splitlines()[0]
    assert said.startswith("From 4 runs, ")
    assert sum(path in said for path in seeds) == 3


def test_a_file_of_readings_from_an_own_loop(tmp_path: Path) -> None:
    file = tmp_path / "readings.jsonl"
    for size, run in ((64, "a"), (32, "seed 0"), (32, "seed 1")):
        append_readings(file, [replace(one, run=run) for one in readings_at(at(size), 1.0, 10.0)])
    result = invoke(app, ["predict", str(file)])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"From batch size 32, {file} seed 0 and 1 more: Batch 256: ")
    assert f"From batch size 64, {file} a: Batch 512: " in result.stdout
    full = invoke(app, ["predict", str(file), "--details"]).stdout
    assert full.startswith(f"From 2 runs, {file} seed 0, {file} seed 1:\nBatch 256: ")
    assert f"From {file} a:\nBatch 512: " in full
    found = json.loads(invoke(app, ["predict", str(file), "--json", "--window", "0", "12160"]).stdout)
    assert [row["readings"] for row in found["predictions"]] == [400, 400]  # half of those at 32, all of those at 64
    own = svag.price_list(one for one in svag.load_readings(file) if one.batch_size == 64)
    again = json.loads(invoke(app, ["predict", str(file), "--json"]).stdout)["predictions"][1]
    assert again["critical_batch"] == own.critical_batch.to_dict()
    both = json.loads(invoke(app, ["predict", str(file), str(baseline(tmp_path / "runs", 128)), "--json"]).stdout)
    assert [row["batch_size"] for row in both["predictions"]] == [32, 64, 128]


def test_a_file_that_holds_no_readings(tmp_path: Path) -> None:
    contents = {"empty": b"", "text": b"hello\n", "row": b'{"kind": "evaluation"}\n', "bytes": b"\xff\xfe\x00"}
    for name, content in contents.items():
        file = tmp_path / name
        file.write_bytes(content)
        result = invoke(app, ["predict", str(file)])
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
        assert str(file) in result.stderr


def test_throughput_adds_wall_clock_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def known(model: object, optimizer: object, loss: object, batch: object, sizes: Sequence[int]) -> dict[int, float]:
        return {size: 1000.0 * size / (size + 200) for size in sizes}

    monkeypatch.setattr("svag.lab.training.measuring.measure_throughput", known)
    folder = baseline(tmp_path)
    result = invoke(app, ["predict", str(folder), "--throughput"])
    assert result.exit_code == 0, result.output
    # 1.64 times the examples at 4.07 times the speed
    assert result.stdout.startswith("Batch 256 is the fastest here: 1.6× the examples in 0.40× the time")
    assert fits(result.stdout)
    full = invoke(app, ["predict", str(folder), "--throughput", "--details"]).stdout
    rows = [line for line in result.stdout.splitlines() if "×" in line and line.split()[0].isdigit()]
    assert rows
    assert set(rows) <= set(full.splitlines())  # the list with its times is among the details
    found = json.loads(invoke(app, ["predict", str(folder), "--throughput", "--json"]).stdout)
    assert list(found["throughput"]) == ["32", "64", "128", "256", "512", "1024", "2048"]
    assert min(found["prices"], key=lambda price: price["time"]["value"])["batch_size"] == 256
    plain = json.loads(invoke(app, ["predict", str(folder), "--json"]).stdout)
    assert "throughput" not in plain
    assert {price["time"] for price in plain["prices"]} == {None}


def test_a_batch_that_saves_no_time_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("svag.lab.training.measuring.throughput_of", lambda spec, **how: {32: 1000.0, 64: 1001.0})
    result = invoke(app, ["predict", str(baseline(tmp_path)), "--throughput"])
    assert result.stdout.startswith("Stay at batch 32: no other one is faster here")


def test_speeds_are_measured_with_freed_memory_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def speeds(spec: object, **how: object) -> dict[int, float]:
        calls.append("measure")
        return {32: 1000.0, 64: 1001.0}

    monkeypatch.setattr("svag.lab.training.run.keep_freed_memory", lambda: calls.append("keep"))
    monkeypatch.setattr("svag.lab.training.measuring.throughput_of", speeds)
    invoke(app, ["predict", str(baseline(tmp_path)), "--throughput"])
    assert calls == ["keep", "measure"]


def test_throughput_is_that_of_the_network_of_the_run() -> None:
    spec = at(32, **{"data.subset": 100, "model.width": 0.0625, "data.pool": 2})
    assert list(throughput_of(spec, device="cpu")) == [32, 64]  # 128 would be more than there is


def test_the_throughput_behind_a_file_is_not_known(tmp_path: Path) -> None:
    file = tmp_path / "readings.jsonl"
    append_readings(file, readings_at(at(32), 1.0, 10.0))
    result = invoke(app, ["predict", str(file), "--throughput"])
    assert result.exit_code == 2
    assert "svag.measure_throughput" in result.stderr


def test_that_the_sde_is_ruled_out_is_said(tmp_path: Path) -> None:
    told, quiet = (
        invoke(app, ["predict", str(baseline(tmp_path / str(noise), noise=noise)), "--details"]).stdout
        for noise in (0.09, 10.0)
    )
    assert "The SDE does not describe this run" in told
    assert "The SDE does not describe" not in quiet


def test_a_window_in_steps_and_in_fractions(tmp_path: Path) -> None:
    spec = at(32)  # 18,720 steps; 400 readings from 9,360 to 14,976
    folder = write_run(tmp_path, spec, 0.9, readings=readings_at(spec, 1.0, 10.0))
    for window in (["9360", "12160"], ["0.5", "0.65"]):  # 0.65 of the budget is step 12,168
        found = json.loads(invoke(app, ["predict", str(folder), "--json", "--window", *window]).stdout)
        assert found["readings"] in (200, 201)
    late = invoke(app, ["predict", str(folder), "--window", "0.9", "1.0"])
    assert (late.exit_code, "window" in late.stderr) == (2, True)
    wrong = invoke(app, ["predict", str(folder), "--window", "a", "1.0"])
    assert wrong.exit_code == 2
    assert "Error: --window: " in wrong.stderr


@pytest.mark.parametrize(
    ("edits", "state", "sentence"),
    [
        ({}, "finished", "has no readings of the noise: run it with a probe"),
        ({}, "diverged", "diverged and has no equilibrium to measure at: lower the learning rate"),
        ({}, "failed", "failed (x): repair that"),
        ({}, None, "was interrupted at step 0 of 18720: run its spec again into the same folder"),
        ({"process": {"kind": "svag", "ell": 4}}, "finished", "is a run of svag, but predictions come from SGD"),
    ],
)
def test_a_run_that_says_nothing_says_what_to_do(
    tmp_path: Path, edits: dict[str, object], state: str | None, sentence: str
) -> None:
    folder = write_run(tmp_path / "a", at(32, **edits), 0.9 if state == "finished" else None, state=state)
    alone = invoke(app, ["predict", str(folder)])
    assert alone.exit_code == 2
    assert sentence in alone.stderr
    assert alone.stderr.count("\n") == 1
    baseline(tmp_path / "b", seed=5)
    together = invoke(app, ["predict", str(tmp_path)])
    assert together.exit_code == 0
    assert f"Note: {folder} " in together.stderr


def test_one_run_that_is_not_used_says_why_and_the_others_are_counted(tmp_path: Path) -> None:
    baseline(tmp_path / "b", seed=5)
    for seed in range(3):
        write_run(tmp_path / "a", at(32, seed=seed), None, state="diverged")
    brief, full = (invoke(app, ["predict", str(tmp_path), *flags]).stderr for flags in ([], ["--details"]))
    assert (brief.count("diverged"), full.count("diverged")) == (1, 3)
    assert "2 more runs" in brief


def test_folders_without_runs(tmp_path: Path) -> None:
    for folder in (tmp_path / "none", tmp_path):
        result = invoke(app, ["predict", str(folder)])
        assert (result.exit_code, str(folder) in result.stderr) == (2, True)
    (tmp_path / "spec.json").write_text("{")
    assert str(tmp_path) in invoke(app, ["predict", str(tmp_path)]).stderr


def test_the_version_of_the_runs_and_that_they_have_no_digest_is_said_once(tmp_path: Path) -> None:
    for size in (32, 64):
        baseline(tmp_path, size)  # written without a digest, as version 1 did
    said, found = (invoke(app, ["predict", str(tmp_path), *flags]).stdout for flags in ([], ["--json"]))
    sentence = "2 of 2 runs: no digest of the metrics, so that damage to them would not be noticed"
    assert f"Computed by version 1 of the numerics; {sentence}." in " ".join(said.split())
    assert said.count("no digest") == 1
    assert json.loads(found)["record_notes"] == [sentence]
    assert [row["numerics"] for row in json.loads(found)["predictions"]] == [1, 1]


def test_a_broken_run_has_one_remedy(tmp_path: Path) -> None:
    folder = baseline(tmp_path)
    (folder / "metrics.jsonl").write_text("{}")
    result = invoke(app, ["predict", str(folder)])
    assert result.exit_code == 1
    assert result.stderr.count("restore") == 1


def test_c2_of_1_is_refused_in_a_sentence(tmp_path: Path) -> None:
    result = invoke(app, ["predict", str(baseline(tmp_path)), "--c2", "1"])
    assert (result.exit_code, "c2" in result.stderr) == (2, True)


def test_no_torch_is_needed(tmp_path: Path) -> None:
    folder = baseline(tmp_path)
    code = (
        "import sys, svag.cli\n"
        "try:\n    svag.cli.main()\n"
        "except SystemExit as stop:\n    assert not stop.code, stop.code\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, "predict", str(folder)], check=True, capture_output=True)
