"""Nobody's code is imported without a yes: a spec may come from anybody, and names a module that it runs."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from svag.lab.specs.spec import RunSpec
from svag.paper.cli.app import app

invoke = CliRunner().invoke

NETS = """
from pathlib import Path
from torch import nn
with (Path(__file__).parent / "imported").open("a") as file:
    file.write("x")

def build(in_channels, num_classes, image_size):
    size = in_channels * image_size[0] * image_size[1]
    return nn.Sequential(nn.Flatten(), nn.Linear(size, 8), nn.ReLU(), nn.Linear(8, num_classes))

def leave():
    raise SystemExit("I am\\ngone")
"""


@pytest.fixture
def module(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module beside the base that leaves a trace when it is imported, and the base that names it."""
    name = f"nets_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(NETS)
    spec = RunSpec.load(base, {"model": {"arch": f"{name}:build"}, "probe": {"kind": "in_run", "parts": 2}})
    base.write_text(spec.to_yaml())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    yield name
    sys.modules.pop(name, None)


def imported(folder: Path) -> bool:
    return (folder / "imported").exists()


COMMANDS = {
    "run": ["run", "base.yaml"],
    "ladder": ["ladder", "base.yaml", "--rule", "linear", "--batch-sizes", "8", "16", "--seeds", "1"],
    "compare": ["compare", "base.yaml", "--ell", "1", "2", "--seeds", "1"],
    "ngd": ["ngd", "base.yaml", "--seeds", "1"],
    "reproduce": ["reproduce", "fig:lsr_acc_gnr", "--size", "smoke", "--model.arch", "{module}:build"],
    "reproduce tails": ["reproduce", "sec:app_heayvtailed", "--size", "smoke", "--model.arch", "{module}:build"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_yes_nothing_is_imported_and_nothing_written(module: str, tmp_path: Path, command: str) -> None:
    arguments = [one.format(module=module) for one in COMMANDS[command]]
    done = invoke(app, [*arguments, "--out", "out"])
    assert done.exit_code == 2, done.output
    file = tmp_path / f"{module}.py"
    assert re.fullmatch(rf"Error: model\.arch: .* {module} \({re.escape(str(file))}\): .*--trust-code.*\n", done.stderr)
    assert not imported(tmp_path)
    assert not (tmp_path / "out").exists()


def test_with_the_flag_it_is_imported_and_named(module: str, tmp_path: Path) -> None:
    done = invoke(app, ["run", "base.yaml", "--out", "out", "--trust-code"])
    assert done.exit_code == 0, done.output
    assert f"Note: model.arch runs the code of {module} ({tmp_path / module}.py).\n" in done.stderr
    assert imported(tmp_path)
    again = invoke(app, ["run", "base.yaml", "--out", "out"])
    assert again.exit_code == 0, "what has ended is only read, and runs no code"
    assert module not in again.stderr


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 2), ("\n", 2), ("", 1)])
def test_a_person_is_asked(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    monkeypatch.setattr("svag.lab.cli.flags.somebody_is_there", lambda: True)
    done = invoke(app, ["run", "base.yaml", "--out", "out"], input=answer)
    assert done.exit_code == code, done.output
    assert module in done.stderr
    assert imported(tmp_path) == (answer == "y\n")
    assert (tmp_path / "out").exists() == (answer == "y\n")


def test_a_network_of_ours_needs_no_yes(base: Path, tmp_path: Path) -> None:
    """The negative control."""
    done = invoke(app, ["run", str(base), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0
    assert "Note: model.arch" not in done.stderr


def test_a_dry_run_imports_nothing_and_says_why_it_does_not_know_the_time(module: str, tmp_path: Path) -> None:
    done = invoke(app, [*COMMANDS["ladder"], "--out", "out", "--dry-run"])
    assert done.exit_code == 0, done.output
    assert f"{module}:build" in done.stdout
    said = json.loads(invoke(app, [*COMMANDS["ladder"], "--out", "out", "--dry-run", "--trust-code", "--json"]).stdout)
    assert f"{module}:build" in said["estimate"]["unknown"]
    assert said["runs"] == 2
    assert not imported(tmp_path)


def test_workers_run_what_was_agreed_to(module: str, tmp_path: Path) -> None:
    done = invoke(app, [*COMMANDS["ladder"], "--out", "out", "--trust-code", "--workers", "1"])
    assert done.exit_code == 0, done.output
    assert module in done.stderr
    again = invoke(app, [*COMMANDS["ladder"], "--out", "out"])
    assert again.exit_code == 0, "nothing is left to run"
    (tmp_path / "imported").unlink()
    known = invoke(app, [*COMMANDS["ladder"], "--seeds", "2", "--out", "out", "--dry-run", "--json"])
    estimate = json.loads(known.stdout)["estimate"]
    assert (estimate["done"], estimate["to_do"]) == (2, 2)
    assert estimate["seconds"] > 0, "the first seed tells how long the second takes"
    unasked = invoke(app, ["predict", "out", "--throughput"])
    assert unasked.exit_code == 2
    assert "--trust-code" in unasked.stderr
    assert invoke(app, ["list", "out"]).exit_code == invoke(app, ["report", "out"]).exit_code == 0
    assert not imported(tmp_path), "a record is only read"


def test_code_that_leaves_is_one_sentence(module: str, tmp_path: Path) -> None:
    done = invoke(app, ["run", "base.yaml", "--out", "out", "--trust-code", "--model.arch", f"{module}:leave"])
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (
        2,
        f"Error: model.arch: {module}:leave failed: SystemExit: I am",
    )
    (tmp_path / "leaving_now.py").write_text("raise SystemExit(0)")
    done = invoke(app, ["run", "base.yaml", "--out", "out", "--trust-code", "--model.arch", "leaving_now:build"])
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (
        2,
        "Error: model.arch: cannot import leaving_now: SystemExit: 0",
    )
