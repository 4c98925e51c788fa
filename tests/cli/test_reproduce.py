"""`svag reproduce` and `svag list figures`: by the paper's labels, figures and theory."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli.answers import answer, invoke

from svag.cli.app import app


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
    def diverges(plan: Any, *_: object) -> Any:
        return [replace(run.record(), state="diverged", problem="the loss is nan") for run in plan]

    monkeypatch.setattr("svag.execution.conduct.execute", diverges)
    flags = ["--size", "smoke", "--out", str(tmp_path / "out")]
    result = invoke(app, ["reproduce", "sec:app_heayvtailed", *flags])
    assert result.exit_code == 1, result.output
    assert "Error: sgd B=32 seed=0 diverged: the loss is nan (" in result.stderr
    assert not result.stdout


def test_a_label_of_the_theory_is_checked() -> None:
    checks = answer(["reproduce", "app:lem:ito_taylor"])
    assert {check["control"] for check in checks} == {True, False}
    assert all(check["passed"] for check in checks)


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
