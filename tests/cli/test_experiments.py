"""`svag compare`, `ladder`, `ngd` and `reproduce` as a user runs them: bad input, dry runs, continuing, answers."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.lab.small import write_npz
from typer.testing import CliRunner

from svag.cli.app import app
from svag.records.experiment import Compare, Ladder, load_experiment
from svag.records.record import load_records
from svag.records.spec import RunSpec

invoke = CliRunner().invoke


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A perceptron on 64 vectors: what takes time is starting the workers."""
    spec = RunSpec.from_dict(
        {
            "data": {"name": "npz", "path": str(write_npz(tmp_path / "data.npz"))},
            "model": {"arch": "mlp", "norm": "layer", "width": 0.0625, "scale_invariant": True},
            "batch_size": 8,
            "lr": 0.1,
            "weight_decay": 0.01,
            "schedule": {"kind": "steps", "at": [0.8]},
            "budget": 20,
            "evaluate": {"every": 0.5},
        }
    )
    path = tmp_path / "base.yaml"
    path.write_text(spec.to_yaml())
    return path


def answer(arguments: list[str], code: int = 0) -> Any:
    result = invoke(app, [*arguments, "--json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def test_a_dry_run_counts_and_leaves_nothing(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    planned = answer(["compare", str(base), "--ell", "1", "4", "16", "--seeds", "2", "--out", str(out), "--dry-run"])
    assert (planned["kind"], planned["runs"], planned["estimate"]["done"]) == ("compare", 6, 0)
    assert planned["estimate"]["seconds"] > 0
    said = invoke(app, ["compare", str(base), "--ell", "1,4,16", "--seeds", "2", "--out", str(out), "--dry-run"])
    assert "6 runs, 0 already done, 6 to do" in said.stdout
    assert not out.exists()


def test_a_dry_run_does_not_fetch_data(tmp_path: Path) -> None:
    flags = ["--size", "paper", "--data-dir", str(tmp_path), "--out", str(tmp_path / "out"), "--dry-run"]
    planned = answer(["reproduce", "fig:app_svag_c100", *flags])
    assert (planned["runs"], planned["size"]) == (60, "paper")
    assert "svag data get cifar100" in planned["estimate"]["unknown"]
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
    said = invoke(app, [*more, "--dry-run"])
    assert "6 runs, 4 already done, 2 to do" in said.stdout
    again = invoke(app, command)
    assert "all done already" in again.stderr
    assert "ends where its SDE ends" in " ".join(again.stdout.split())
    assert (out / "report" / "index.html").exists()


def test_a_ladder_in_shards_has_a_probe_and_answers_when_all_are_done(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [
        "ladder",
        str(base),
        "--batch-sizes",
        "4",
        "8",
        "16",
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
        (["compare", "--seed", "1"], "--seed: an experiment runs every arm with the same seeds"),
        (["compare", "--split", "3"], "process.split: must divide batch_size=8, got 3"),
        (["compare", "--split", "2", "--model.norm", "batch"], "process.split: batch norm sees the whole batch"),
        (["compare", "--margin", "-1"], "compare.margin: must be greater than 0"),
        (["compare", "--momentum", "0.9"], "process.momentum_limit: momentum has two limits"),
        (["compare", "--shard", "2/2"], "--shard: must be i/n"),
        (["compare", "--process.kind", "gd"], "process.kind: the base of an experiment is the SGD run"),
        (["compare", "another.yaml"], "another.yaml: one spec at a time"),
        (["ladder"], "--batch-sizes: is missing"),
        (["ladder", "--batch-sizes", "8"], "batch_sizes: a ladder has at least two rungs"),
        (["ladder", "--batch-sizes", "8", "1600"], "schedule.at: "),
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


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["fig:svag_accz"], "fig:svag_accz: no figure or theorem has this label; did you mean fig:svag_accs?"),
        (["fig:nope"], "fig:nope: no figure or theorem has this label; svag list figures shows all\n"),
        (["fig:svag_accs", "--model.norm", "none"], "PreResNet-8 GN, B = 8: model.scale_invariant: needs"),
        (["fig:ngd_sgd_vgg", "--sampling", "shuffle"], "sampling: ngd has the noise of independent batches"),
    ],
)
def test_a_figure_that_cannot_be_is_refused(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    result = invoke(app, ["reproduce", *arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith(f"Error: {sentence}"), result.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["thm:sde_svag", "--lr", "3"], "--lr: a label of the theory has no spec to change"),
        (["thm:sde_svag", "--bogus", "5"], "--bogus: there is no such field"),
        (["thm:sde_svag", "--seeds", "4"], "--seeds: a label of the theory has no arms"),
        (["thm:sde_svag", "--shard", "0/2"], "--shard: a label of the theory has no runs to share"),
        (["thm:sde_svag", "--shard", "2/2"], "--shard: must be i/n"),
        (["thm:sde_svag", "--executor", "ray"], "--executor: a label of the theory is checked on this machine"),
        (["thm:sde_svag", "--address", "auto"], "--address: is that of a Ray cluster"),
        (["sec:app_heayvtailed", "--seeds", "2"], "--seeds: a label of the theory has no arms"),
        (["sec:app_heayvtailed", "--lr", "-1"], "lr: must be greater than 0, got -1"),
    ],
)
def test_what_a_label_of_the_theory_has_not_is_refused(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    result = invoke(app, ["reproduce", *arguments, "--out", str(tmp_path / "out"), "--dry-run"])
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith(f"Error: {sentence}"), result.stderr
    assert result.stderr.count("\n") == 1


def test_a_dry_run_of_the_theory_says_what_would_be_trained(tmp_path: Path) -> None:
    flags = ["--out", str(tmp_path / "out"), "--data-dir", str(tmp_path), "--dry-run"]
    checked = answer(["reproduce", "thm:sde_svag", *flags])
    assert (checked["kind"], checked["runs"]) == ("theory", 0)
    tails = answer(["reproduce", "sec:app_heayvtailed", "--size", "smoke", *flags, "--budget", "20"])
    assert (tails["runs"], tails["estimate"]["examples"], tails["note"]) == (1, 20 * 32, "with budget = 20")
    paper = answer(["reproduce", "sec:app_heayvtailed", "--size", "paper", *flags])
    assert "svag data get cifar10" in paper["estimate"]["unknown"]
    assert "preresnet32" in invoke(app, ["reproduce", "sec:app_heayvtailed", "--size", "paper", *flags]).stdout
    assert list(tmp_path.iterdir()) == []


def test_tails_of_a_run_that_is_not_finished_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverges(plan: Any, **_: object) -> Any:
        return [replace(run.record(), state="diverged", problem="the loss is nan") for run in plan]

    monkeypatch.setattr("svag.execution.local.execute", diverges)
    flags = ["--size", "smoke", "--out", str(tmp_path / "out")]
    result = invoke(app, ["reproduce", "sec:app_heayvtailed", *flags])
    assert result.exit_code == 1, result.output
    assert "Error: sgd B=32 seed=0 diverged: the loss is nan (" in result.stderr
    assert not result.stdout


def test_a_label_of_the_theory_is_checked() -> None:
    checks = answer(["reproduce", "app:lem:ito_taylor"])
    assert [check["passed"] for check in checks] == [True, True]


def test_the_figures_are_listed() -> None:
    listed = answer(["list", "figures"])
    assert {"label": "fig:lsr_acc_gnr", "family": "ladder"}.items() <= next(
        row for row in listed if row["label"] == "fig:lsr_acc_gnr"
    ).items()
    titles = [row["title"] for row in listed]
    assert len(set(titles)) == len(titles), "each says something of its own"
    commands = {row["label"]: row["command"] for row in listed}
    assert commands["thm:sde_svag"] == "svag verify thm:sde_svag"
    for label in ("sec:app_heayvtailed", "fig:app_exotic_lr", "fig:svag_accs"):
        assert commands[label] == f"svag reproduce {label}"
    said = " ".join(invoke(app, ["list", "figures"], env={"COLUMNS": "200"}).stdout.split())
    assert "fig:ngd_sgd_vgg" in said
    assert "(svag reproduce sec:app_heayvtailed)" in said


def test_a_run_that_failed_is_said_with_exit_code_1(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from svag.execution import local

    def fails(plan: Any, **_: object) -> Any:
        records = [run.record() for run in plan]
        return [
            replace(records[0], state="failed", problem="RuntimeError: broken"),
            *(replace(record, state="finished") for record in records[1:]),
        ]

    monkeypatch.setattr(local, "execute", fails)
    result = invoke(app, ["ngd", str(base), "--seeds", "1", "--out", str(tmp_path / "out")])
    assert result.exit_code == 1, result.output
    assert "Error: sgd B=8 seed=0 failed: RuntimeError: broken" in result.stderr


def test_on_ray_the_answer_is_the_one_of_this_machine(base: Path, tmp_path: Path) -> None:
    flags = ["compare", str(base), "--ell", "1", "4", "--seeds", "2", "--workers", "1", "--device", "cpu"]
    here = answer([*flags, "--out", str(tmp_path / "here")])
    there = answer([*flags, "--out", str(tmp_path / "there"), "--executor", "ray"])
    places = {"page", "summary", "figures", "tables"}
    here, there = ({name: one[name] for name in one if name not in places} for one in (here, there))
    assert _without_paths(here) == _without_paths(there)


def test_on_ray_the_runs_of_the_shard_are_announced_in_the_time_of_this_machine(base: Path, tmp_path: Path) -> None:
    flags = ["ngd", str(base), "--seeds", "2", "--out", str(tmp_path / "out"), "--dry-run", "--executor", "ray"]
    whole = answer([*flags, "--address", "auto"])["estimate"]
    assert (whole["runs"], whole["workers"], whole["of"]) == (6, 1, "cores of this machine")
    shards = [answer([*flags, "--shard", f"{part}/2"])["estimate"] for part in (0, 1)]
    assert [one["runs"] for one in shards] != [6, 6]
    assert (sum(one["runs"] for one in shards), sum(one["examples"] for one in shards)) == (6, whole["examples"])
    said = invoke(app, [*flags, "--workers", "3"])
    assert re.search(r": 6 runs, 0 already done, 6 to do: about .* on 3 cores of this machine;", said.stdout)
    assert answer([*flags, "--workers", "3"])["estimate"]["workers"] == 3


def test_on_ray_a_dry_run_does_not_fetch_data(tmp_path: Path) -> None:
    flags = ["--size", "paper", "--data-dir", str(tmp_path), "--dry-run", "--executor", "ray", "--shard", "0/60"]
    estimate = answer(["reproduce", "fig:app_svag_c100", *flags])["estimate"]
    assert re.match(r"\d runs?, 0 already done; .* svag data get cifar100", estimate["unknown"])


def test_an_address_without_ray_is_refused(base: Path, tmp_path: Path) -> None:
    flags = ["ngd", str(base), "--seeds", "2", "--out", str(tmp_path / "out"), "--dry-run"]
    refused = invoke(app, [*flags, "--address", "auto"])
    assert refused.exit_code == 2
    assert refused.stderr == "Error: --address: is that of a Ray cluster: add --executor ray\n"


def test_without_the_extra_ray_is_refused_before_anything_else(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    refused = invoke(app, ["compare", str(base), "--out", str(tmp_path / "out"), "--executor", "ray"])
    assert refused.exit_code == 2
    assert refused.stderr == (
        "Error: the executor ray needs an extra that is not installed: pip install -c constraints.txt '.[ray]'\n"
    )
    assert not (tmp_path / "out").exists()


def _without_paths(found: Any) -> Any:
    return json.loads(re.sub(r'"(path|seconds|out)": [^,}]*', r'"\1": null', json.dumps(found)))
