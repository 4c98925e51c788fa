"""`svag report` as a user runs it."""

import io
import json
import sys
from pathlib import Path

import pytest
from tests.lab.report.folders import CASES, ladder_folder
from typer.testing import CliRunner

from svag.lab.cli.report import at_work
from svag.lab.experiments import EXPERIMENT
from svag.paper.cli.app import app

runner = CliRunner()


def test_it_writes_the_page_and_says_the_answer(tmp_path: Path) -> None:
    folder = CASES["ladder_never_fails"](tmp_path / "in")
    done = runner.invoke(app, ["report", str(folder), "--format", "svg"])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert len(lines) <= 12
    assert (lines[-2], lines[-1]) == (
        f"Page: {folder / 'report' / 'index.html'}",
        "All numbers: add --details, or open the page.",
    )
    details = runner.invoke(app, ["report", str(folder), "--format", "svg", "--details"]).output
    assert len(details.splitlines()) > 12
    everything = " ".join(details.split())
    assert lines[0].strip() in everything
    assert "statistics" in everything
    assert (folder / "report" / "index.html").exists()
    assert "statistics" in (folder / "report" / "summary.md").read_text()
    assert {path.suffix for path in (folder / "report" / "figures").iterdir()} == {".svg"}
    assert (folder / "report" / "tables" / "runs.csv").read_text().count("\n") == 10


def test_json_holds_the_finding_and_the_paths_and_nothing_else_is_printed(tmp_path: Path) -> None:
    folder = ladder_folder(tmp_path / "in", {32: [0.15, 0.151], 128: [0.2, 0.21]})
    done = runner.invoke(app, ["report", str(folder), "--out", str(tmp_path / "out"), "--format", "svg", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["kind"] == "ladder"
    assert found["observed"] > 32
    assert Path(found["page"]) == tmp_path / "out" / "index.html"
    assert not (folder / "report").exists()


@pytest.mark.parametrize("make", [False, True])
def test_a_folder_without_runs_is_one_sentence_and_exit_code_2(tmp_path: Path, make: bool) -> None:
    folder = tmp_path / "in"
    if make:
        folder.mkdir()
    done = runner.invoke(app, ["report", str(folder)])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"Error: {folder}: ")
    assert done.stderr.count("\n") == 1


def test_as_says_what_a_mere_folder_of_runs_is(tmp_path: Path) -> None:
    folder = CASES["ladder_never_fails"](tmp_path / "in")
    (folder / EXPERIMENT).unlink()
    report = ["report", str(folder), "--format", "svg"]
    assert "--as " in " ".join(runner.invoke(app, report).output.split())
    for family, code, said in (
        ("scaling", 2, "got 'scaling'"),
        ("ngd", 2, "ngd"),
        ("ladder", 0, "batch size 32"),
        ("ladder", 2, EXPERIMENT),
    ):
        done = runner.invoke(app, [*report, "--as", family])
        assert (done.exit_code, said in " ".join(done.output.split())) == (code, True), done.output
        assert (folder / EXPERIMENT).exists() == (family == "ladder")


def test_a_folder_that_cannot_be_written_is_one_sentence_and_exit_code_1(tmp_path: Path) -> None:
    folder = CASES["compare_one_seed"](tmp_path / "in")
    (tmp_path / "file").write_text("")
    done = runner.invoke(app, ["report", str(folder), "--out", str(tmp_path / "file" / "below")])
    assert done.exit_code == 1
    assert str(tmp_path / "file") in done.stderr


def test_open_opens_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    folder = CASES["compare_one_seed"](tmp_path / "in")
    runner.invoke(app, ["report", str(folder), "--format", "svg", "--open"])
    assert opened == [(folder / "report" / "index.html").resolve().as_uri()]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_that_it_is_at_work_and_a_file_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with at_work("Reading the runs"):
            pass
        assert ("Reading the runs" in stream.getvalue(), bool(stream.getvalue())) == (shown, shown)
    folder = ladder_folder(tmp_path / "in", {32: [0.15, 0.151], 128: [0.2, 0.21]})
    assert runner.invoke(app, ["report", str(folder), "--format", "svg"]).stderr == ""
