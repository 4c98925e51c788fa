"""`svag run` and `svag list` as a user runs them."""

import json
import re
from pathlib import Path

import pytest
import torch
from tests.lab.training.small import small, write_npz
from typer.testing import CliRunner

from svag.lab.cli.flags import KNOWN, edits_from
from svag.lab.specs.fields import SpecError
from svag.lab.training.loop import Loop
from svag.paper.cli.app import app

invoke = CliRunner().invoke


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(small(write_npz(tmp_path / "data.npz")).to_yaml())
    return path


def test_a_run_from_yaml_with_flags_then_the_list(spec: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    flags = ["--lr", "0.2", "--process.kind", "svag", "--process.ell=2", "--model.norm", "none"]
    result = invoke(app, ["run", str(spec), "--out", str(out / "a"), *flags])
    assert result.exit_code == 0, result.output
    assert re.search(r"\ba: finished .* 10 of 10\b", result.stdout)
    assert re.search(r"\b4 of 10\b", result.stderr)
    again = invoke(app, ["run", str(spec), "--out", str(out / "a"), *flags, "--json"])
    found = json.loads(again.stdout)
    assert (found["state"], found["spec"]["lr"], found["spec"]["process"]["ell"]) == ("finished", 0.2, 2)
    listed = invoke(app, ["list", str(out)])
    assert listed.exit_code == 0
    assert "svag ell=2 split=1" in listed.stdout
    assert "10/10" in listed.stdout
    assert [run["state"] for run in json.loads(invoke(app, ["list", str(out), "--json"]).stdout)] == ["finished"]


def test_a_run_that_cannot_reach_equilibrium_is_told_so(spec: Path, tmp_path: Path) -> None:
    flags = ["--probe.kind", "in_run", "--probe.parts", "2"]
    short = invoke(app, ["run", str(spec), "--out", str(tmp_path / "a"), *flags])
    assert short.exit_code == 0, short.output
    # half of ten steps at the first rate, 0.1, and 1/(4 · 0.1 · 0.01) = 250
    (note,) = (line for line in short.stderr.splitlines() if "equilibrium" in line)
    assert note.startswith("Note: ")
    assert {"5", "250"} <= set(re.findall(r"\d+", note))
    settled = invoke(app, ["run", str(spec), "--out", str(tmp_path / "b"), *flags, "--weight-decay", "2"])
    assert "equilibrium" not in settled.stderr
    unmeasured = invoke(app, ["run", str(spec), "--out", str(tmp_path / "c")])
    assert "equilibrium" not in unmeasured.stderr


def test_without_out_the_folder_is_the_identity(spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = json.loads(invoke(app, ["run", str(spec), "--json"]).stdout)
    assert first["path"] == f"runs/{first['identity'][:12]}"
    assert invoke(app, ["list"]).stdout.count("finished") == 1


def test_a_diverged_run_is_a_result(spec: Path, tmp_path: Path) -> None:
    flags = ["--lr", "1e19", "--weight-decay", "0", "--model.norm", "none", "--budget", "60"]
    result = invoke(app, ["run", str(spec), "--out", str(tmp_path / "a"), *flags])
    assert result.exit_code == 0, result.output
    assert "diverged" in result.stdout


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--lr", "-1"], "Error: lr: must be greater than 0, got -1"),
        (["--model.nrm", "batch"], "Error: --model.nrm: there is no such field; did you mean model.norm?"),
        (["--lr"], "Error: --lr: needs a value"),
        (["--lr", "1", "--lr=2"], "Error: --lr: is given twice"),
        (["other.yaml"], "Error: other.yaml: give one spec"),
        (["--batch-size", "1000"], "Error: batch_size: must not exceed the 64 examples of the data, got 1000"),
        (["--data.path", "none.npz"], "Error: data.path: none.npz cannot be read"),
        (["--model.arch", "no_such_module:build"], "Error: model.arch: there is no module no_such_module"),
        (
            ["--model.arch", "tests.lab.training.small:nothing"],
            "Error: model.arch: tests.lab.training.small has no callable 'nothing'",
        ),
        (["--data.subset", "65"], "Error: data.subset: must lie between 1 and the 64 training examples, got 65"),
        (["--data.pool", "4"], "Error: data.pool: must divide the image size 6×6, got 4"),
        (
            ["--model", "{arch: 'tests.lab.training.random_nets:dropping'}", "--process.kind", "ngd"],
            "Error: model.arch: ngd cannot train this network: losses_fn gave two answers for the same chunk",
        ),
        (
            ["--model", "{arch: 'tests.lab.training.random_nets:mixing'}", "--process", "{kind: sde, refine: 2}"],
            "Error: model.arch: sde cannot train this network: the loss of an example depends on the other examples",
        ),
        (
            ["--model", "{arch: 'tests.lab.training.dropout_net:build'}", "--process.kind", "gd"],
            "Error: model.arch: gd cannot train this network: BatchNorm1d normalises by the batch",
        ),
        (["--schedule", "{kind: [1}"], "Error: not YAML"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    spec: Path, tmp_path: Path, flags: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3]))
    result = invoke(app, ["run", str(spec), "--trust-code", "--out", str(tmp_path / "run"), *flags])
    assert result.exit_code == 2, result.output
    said = [line for line in result.stderr.splitlines() if not line.startswith("Note: model.arch runs the code of")]
    assert len(said) == 1, result.stderr
    assert said[0].startswith(sentence), result.stderr
    assert not (tmp_path / "run").exists(), "nothing is left behind"


def test_a_run_that_fails_exits_with_1(spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(Loop, "go", failing)
    result = invoke(app, ["run", str(spec), "--out", str(tmp_path / "a")])
    assert result.exit_code == 1
    assert "step 0: RuntimeError: broken" in result.stderr
    (tmp_path / "file").write_text("")
    assert invoke(app, ["run", str(spec), "--out", str(tmp_path / "file" / "a")]).exit_code == 1


def test_an_interrupted_run_exits_with_130(spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Loop, "go", interrupted)
    result = invoke(app, ["run", str(spec), "--out", str(tmp_path / "a")])
    assert result.exit_code == 130


def test_a_bug_is_not_hidden(spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("svag.lab.training.run.prepare", bug)
    result = invoke(app, ["run", str(spec), "--out", str(tmp_path / "a")])
    assert isinstance(result.exception, ZeroDivisionError)


def test_list_of_nothing(tmp_path: Path) -> None:
    assert "no runs in" in invoke(app, ["list", str(tmp_path)]).stdout
    missing = invoke(app, ["list", str(tmp_path / "none")])
    assert missing.exit_code == 2
    assert str(tmp_path / "none") in missing.stderr
    (tmp_path / "metrics.jsonl").write_text("")
    assert "broken" in invoke(app, ["list", str(tmp_path)]).stdout


def test_every_field_is_a_flag(spec: Path) -> None:
    assert {"lr", "model.norm", "data.augment.pad", "process.ell", "schedule.at", "probe.window", "seed"} <= set(KNOWN)
    assert edits_from([f"--{KNOWN[0]}", "{name: svhn}"]) == {"data": {"name": "svhn"}}
    with pytest.raises(SpecError, match=r"^--nonsense:"):
        edits_from(["--nonsense", "1"])
    assert spec.exists()


@pytest.mark.parametrize("name", ["[", "[bold]red", "[x]"])
def test_list_takes_a_folder_s_name_for_text(tmp_path: Path, name: str) -> None:
    broken = tmp_path / name / "[/x]"
    broken.mkdir(parents=True)
    (broken / "spec.json").write_text("{")
    done = invoke(app, ["list", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert f"{name}/[/x]" in done.output


ACTING = "\x1b]0;title\x07\x9b2J\u202e\udcff"


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_names_and_records_cannot_act_on_the_terminal(tmp_path: Path, flags: list[str]) -> None:
    out = tmp_path / f"runs{ACTING}"
    (out / ACTING).mkdir(parents=True)
    (out / ACTING / "spec.json").write_bytes(json.dumps({"spec": {ACTING: 1}}).encode("utf-8", "surrogatepass"))
    result = invoke(app, ["list", str(out), *flags], env={"COLUMNS": "1000"})
    assert result.exit_code == 0, result.output
    assert "\\u001b" in result.stdout
    assert not set(result.output) & set(ACTING.replace("]0;title", "").replace("2J", ""))
    if flags:
        assert json.loads(result.stdout)[0]["path"] == str(out / ACTING)
    empty = invoke(app, ["list", str(out / "\x1bnowhere"), *flags])
    assert empty.exit_code == 2
    assert "\x1b" not in empty.output


def test_an_error_cannot_act_on_the_terminal(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text('{data: {name: "\\e[2J"}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: 1}')
    result = invoke(app, ["run", str(spec), "--out", str(tmp_path / "a")])
    assert result.exit_code == 2
    assert "\x1b" not in result.output
