"""`svag reproduce` and `svag list figures`: by the paper's labels, figures and theory."""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.lab.cli.answers import answer, invoke
from tests.lab.experiments.on_disk import write_run

from svag.lab.execution.conduct import Conducted
from svag.lab.execution.estimate import TimeEstimate, Workload
from svag.lab.execution.execution import Execution
from svag.lab.execution.plan import plan_runs
from svag.lab.experiments.experiment import Experiment
from svag.lab.records.identity import identity
from svag.lab.records.problems import Problem
from svag.paper.cli.app import app
from svag.paper.cli.reproduce import find_results
from svag.paper.figures import LABELS, figure


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
        (["thm:sde_svag", "--spec"], "--spec: a label of the theory has no panels with settings"),
        (["thm:sde_svag", "--fresh"], "--fresh: a label of the theory has no records"),
        (["sec:app_heayvtailed", "--seeds", "2"], "--seeds: a label of the theory has no arms"),
        (["sec:app_heayvtailed", "--lr", "-1"], "lr: must be greater than 0, got -1"),
    ],
)
def test_what_a_label_of_the_theory_has_not_is_refused(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    result = invoke(app, ["reproduce", *arguments, "--out", str(tmp_path / "out"), "--dry-run"])
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith(f"Error: {sentence}"), result.stderr
    assert result.stderr.count("\n") == 1


def test_settings_are_printed_beside_the_papers_and_nothing_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    rows = answer(["reproduce", "fig:svag_accs", "--spec", "--lr", "0.3"])
    first = {row["name"]: row for row in rows if row["panel"] == rows[0]["panel"]}
    assert {row["label"] for row in rows} == {"fig:svag_accs"}
    assert (first["lr"]["paper"], first["lr"]["here"], first["lr"]["reason"]) == ("0.4", "0.3", "flag")
    assert (first["model.arch"]["differs"], first["model.arch"]["reason"]) == (True, "smaller_network")
    assert {row["label"] for row in answer(["reproduce", "all", "--spec"])} == {
        label for label, kind in LABELS.items() if kind != "theory"
    }
    printed = invoke(app, ["reproduce", "fig:svag_accs", "--spec"]).stdout
    assert printed.count("model.scale_invariant") == 2, "a name is never broken"
    assert max(map(len, printed.splitlines())) <= 80
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_of_the_theory_says_what_would_be_trained(tmp_path: Path) -> None:
    flags = ["--out", str(tmp_path / "out"), "--data-dir", str(tmp_path), "--dry-run"]
    checked = answer(["reproduce", "thm:sde_svag", *flags])
    assert (checked["kind"], checked["runs"]) == ("theory", 0)
    tails = answer(["reproduce", "sec:app_heayvtailed", "--size", "smoke", *flags, "--budget", "20"])
    examples = (20 + 2 + 8) * 32  # the run, and the same stopped after a tenth and four tenths of it
    assert (tails["runs"], tails["estimate"]["examples"], tails["note"]) == (3, examples, "with budget = 20")
    paper = answer(["reproduce", "sec:app_heayvtailed", "--size", "paper", *flags])
    assert "cifar10" in paper["estimate"]["unknown"]
    assert "preresnet32" in invoke(app, ["reproduce", "sec:app_heayvtailed", "--size", "paper", *flags]).stdout
    assert list(tmp_path.iterdir()) == []


def test_tails_of_a_run_that_is_not_finished_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverges(plan: Any, *_: object) -> Any:
        return [
            replace(run.record(), state="diverged", code=Problem.DIVERGED, detail="the loss is nan") for run in plan
        ]

    monkeypatch.setattr("svag.lab.execution.conduct.execute", diverges)
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


NGD, NGD_TOO = "fig:ngd_sgd_vgg", "fig:ngd_sgd_b125"
RUNS, RUNS_TOO = (len(figure(label, "small").runs()) for label in (NGD, NGD_TOO))
FINALS = {"sgd": 0.8, "ngd": 0.801, "gd": 0.7}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of the project without records, in which the command is given."""
    for folder in ("results", "src/svag", "deeper"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src" / "svag" / "cli.py").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def keep(folder: Path, label: str = NGD, **edits: object) -> list[Path]:
    """Records of a figure that agree with the paper; edits are of what is measured on the way."""
    specs = figure(label, "small").runs()
    return [
        write_run(folder / "runs", spec.edited(edits), FINALS[spec.process.kind] + spec.seed / 1000) for spec in specs
    ]


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was computed, run by run: records come out as in `keep`, without training."""
    names: list[str] = []

    def conduct(experiment: Experiment, out: Path, execution: Execution) -> Conducted:
        plan = plan_runs(experiment.runs(), out)
        for run in plan:
            if run.record().to_do:
                names.append(f"{experiment.label} {run.name}")
                write_run(run.folder.parent, run.spec, FINALS[run.spec.process.kind] + run.spec.seed / 1000)
        return Conducted(plan, [run.record() for run in plan])

    monkeypatch.setattr("svag.lab.execution.conduct.conduct", conduct)
    return names


def test_a_figure_with_records_is_answered_from_them(
    checkout: Path, computed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(checkout / "results" / "older", evaluate={"every": 0.5, "train": True})
    found = answer(["reproduce", NGD])
    assert found["paper"]["verdict"] == "agrees"
    assert [claim["verdict"] for claim in found["paper"]["claims"]] == ["agrees"] * 4
    assert {Path(run["path"]).parent for run in found["runs"]} == {Path("results/older/runs")}
    assert Path(found["page"]) == Path("experiments/fig-ngd_sgd_vgg-small/report/index.html")
    monkeypatch.chdir(checkout / "deeper")
    said = invoke(app, ["reproduce", NGD, "--out", "here"])
    first, second = said.stderr.splitlines()
    assert f"../results/older ({RUNS} runs, 1 s " in first
    assert second.startswith("--fresh ")
    assert Path("here/report/index.html").exists()
    assert not computed


def test_records_are_looked_for_where_they_may_be(checkout: Path, computed: list[str], tmp_path: Path) -> None:
    keep(checkout / "results" / "figures" / "fig-ngd_sgd_vgg")
    assert answer(["reproduce", NGD, "--dry-run"])["estimate"]["to_do"] == 0
    for flags, path in ((["--shard", "0/2"], "--shard"), (["--track", "tensorboard"], "--track")):
        result = invoke(app, ["reproduce", NGD, *flags])
        assert result.exit_code == 2
        assert re.fullmatch(rf"Error: {path}: .* results/figures/fig-ngd_sgd_vgg .*--fresh.*\n", result.stderr)
    assert not computed
    answer(["reproduce", NGD, "--fresh", "--out", "own"])
    assert len(computed) == RUNS
    write_run(tmp_path / "begun" / "runs", figure(NGD, "small").runs()[0], 0.8)
    answer(["reproduce", NGD, "--fresh", "--out", "begun"])
    assert len(computed) == 2 * RUNS - 1, "what was begun is continued"
    write_run(tmp_path / "begun too" / "runs", figure(NGD, "small").runs()[0], 0.8)
    said = invoke(app, ["reproduce", NGD, "--out", "begun too"]).stderr
    assert f"{RUNS - 1} of {RUNS} runs " in said
    assert len(computed) == 2 * RUNS - 1
    answer(["reproduce", NGD, "--lr", "0.2", "--out", "other"])
    assert len(computed) == 3 * RUNS - 1, "another question has no records"


def test_outside_of_a_checkout_nothing_is_found(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    assert find_results(tmp_path) is None
    (tmp_path / "src" / "svag").mkdir(parents=True)
    (tmp_path / "src" / "svag" / "cli.py").touch()
    assert find_results(tmp_path) == Path("results")
    assert find_results(tmp_path / "src" / "svag") == Path("../../results")


def test_what_is_left_of_a_figure_is_run_and_the_rest_copied(checkout: Path, computed: list[str]) -> None:
    """Two runs have no records, and one was interrupted."""
    first, second, third, *others = keep(checkout / "results" / "some")
    for folder in (first, second):
        shutil.rmtree(folder)
    (third / "outcome.json").unlink()
    assert answer(["reproduce", NGD, "--dry-run"])["estimate"]["done"] == RUNS - 3
    result = invoke(app, ["reproduce", NGD])
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith(f"{RUNS - 3} of {RUNS} runs ")
    assert len(computed) == 3
    copied = {path.name for path in Path("experiments/fig-ngd_sgd_vgg-small/runs").iterdir()}
    assert {path.name for path in others} < copied
    assert not list(Path("experiments").rglob(".*")), "nothing half copied stays"


@pytest.fixture
def two_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the paper had two trained figures and one that is drawn."""
    labels = {NGD: "ngd", NGD_TOO: "ngd", "thm:sde_svag": "theory", "fig:app_exotic_lr": "theory"}
    monkeypatch.setattr("svag.paper.figures.LABELS", labels)


@pytest.mark.usefixtures("two_figures")
def test_all_figures_are_answered_and_what_is_left_is_run(checkout: Path, computed: list[str]) -> None:
    keep(checkout / "results" / "some")
    recorded, run, drawn = answer(["reproduce", "all"])
    assert (recorded["label"], recorded["out"], recorded["verdict"]) == (NGD, "results/some", "agrees")
    assert (run["label"], run["verdict"], run["failures"]) == (NGD_TOO, "agrees", [])
    assert run["out"] == "experiments/fig-ngd_sgd_b125-small"
    assert len(computed) == RUNS_TOO
    assert all(Path(one["page"]).exists() for one in (recorded, run))
    assert drawn["figures"] == [f"experiments/fig-app_exotic_lr-small/schedules.{kind}" for kind in ("html", "png")]
    result = invoke(app, ["reproduce", "all"], env={"COLUMNS": "80"})
    assert len(computed) == RUNS_TOO, "nothing is computed twice"
    assert [line.split()[:2] for line in result.stdout.splitlines()[1:4]] == [
        [NGD, "agrees"],
        [NGD_TOO, "agrees"],
        ["fig:app_exotic_lr", "drawn"],
    ]
    assert result.stdout.endswith("Pages: experiments/FIGURE/report/index.html\n")


@pytest.mark.usefixtures("checkout", "two_figures")
def test_all_figures_continue_after_an_interruption(computed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import svag.lab.execution.conduct as module

    whole = module.conduct

    def interrupted(experiment: Experiment, out: Path, execution: Execution) -> Conducted:
        if experiment.label == NGD_TOO:
            raise KeyboardInterrupt
        return whole(experiment, out, execution)

    with monkeypatch.context() as patch:
        patch.setattr("svag.lab.execution.conduct.conduct", interrupted)
        result = invoke(app, ["reproduce", "all"])
    assert result.exit_code == 130
    assert len(computed) == RUNS
    answer(["reproduce", "all"])
    assert len(computed) == len(set(computed)) == RUNS + RUNS_TOO


@pytest.mark.usefixtures("checkout")
def test_all_figures_are_priced_and_shared_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_ahead(workload: Workload, *, fetch: bool) -> TimeEstimate:
        assert not fetch
        return TimeEstimate(len(workload.plan), 0, 0, 60.0 * len(workload.plan), 2)

    monkeypatch.setattr("svag.lab.execution.conduct.look_ahead", look_ahead)
    keep(Path("results/some"))
    rows = {row["label"]: row for row in answer(["reproduce", "all", "--dry-run"])}
    wanted = [label for label, kind in LABELS.items() if kind != "theory" or label.startswith("fig:")]
    assert list(rows) == wanted
    assert (rows[NGD]["to_do"], rows[NGD]["recorded"]) == (0, True)
    trained = [label for label in rows if LABELS[label] != "theory" and label != NGD]
    different = {identity(spec) for label in trained for spec in figure(label, "small").runs()}
    assert sum(rows[label]["to_do"] for label in trained) == len(different)
    for label in trained:
        assert rows[label]["runs"] == len(figure(label, "small").runs())
    said = invoke(app, ["reproduce", "all", "--dry-run"], env={"COLUMNS": "80"}).stdout
    assert max(map(len, said.splitlines())) <= 80
    assert re.search(rf"\b{len(different)} runs .*\b2 workers\b", " ".join(said.split()))
    assert not Path("experiments").exists()


def test_all_figures_have_no_common_spec() -> None:
    result = invoke(app, ["reproduce", "all", "--lr", "0.1"])
    assert (result.exit_code, result.stderr.startswith("Error: --lr: ")) == (2, True)


@pytest.mark.usefixtures("checkout", "two_figures")
def test_all_figures_go_on_when_a_run_fails(computed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import svag.lab.execution.conduct as module

    whole = module.conduct

    def failing(experiment: Experiment, out: Path, execution: Execution) -> Conducted:
        done = whole(experiment, out, execution)
        lost = replace(done.records[0], state="failed", code=Problem.FAILED, detail="out of memory")
        return replace(done, records=[lost, *done.records[1:]]) if experiment.label == NGD else done

    monkeypatch.setattr("svag.lab.execution.conduct.conduct", failing)
    result = invoke(app, ["reproduce", "all"])
    assert result.exit_code == 1
    size = figure(NGD, "small").runs()[0].batch_size
    assert f"Error: sgd B={size} seed=0 failed: out of memory (" in result.stderr
    assert len(computed) == RUNS + RUNS_TOO
