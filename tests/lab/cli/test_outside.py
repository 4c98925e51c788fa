"""What happens outside of a command: who reads what it prints goes away, a signal comes, a folder has any name."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.lab.training.small import same_bits, small, write_npz
from typer.testing import CliRunner

from svag.lab.training.run_folder import RunFolder
from svag.paper.cli.app import app

invoke = CliRunner().invoke

# Whoever started the tests may ignore Ctrl-C, as a shell does for its background jobs, and that is inherited.
PROGRAM = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from svag.cli import main; main()"
# A broken program must not hang the tests; a good one never comes near it.
PATIENCE = 300


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spec")
    path = folder / "spec.yaml"
    path.write_text(small(write_npz(folder / "data.npz"), {"probe": {"kind": "in_run", "parts": 2}}).to_yaml())
    return path


@pytest.fixture(scope="module")
def done(spec: Path) -> Path:
    """A run that has finished."""
    folder = spec.parent / "done"
    assert invoke(app, ["run", str(spec), "--out", str(folder)]).exit_code == 0
    return folder


@pytest.fixture
def unread() -> Iterator[int]:
    """The end of a pipe of which nobody has the other end any more."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


def svag(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-c", PROGRAM, *map(str, arguments)]


def without_streams() -> None:
    for number in range(3):
        os.close(number)


def test_a_run_without_streams_is_the_same_run(spec: Path, done: Path, tmp_path: Path) -> None:
    """None of its files takes the number of a stream, which torch and others write to."""
    command = svag("run", spec, "--out", tmp_path / "run")
    ended = subprocess.run(command, preexec_fn=without_streams, check=False, timeout=PATIENCE)
    assert ended.returncode == 0
    assert same_bits(tmp_path / "run", done)


def test_the_death_of_whoever_reads_the_log_is_not_that_of_the_run(
    spec: Path, done: Path, tmp_path: Path, unread: int
) -> None:
    command = svag("run", spec, "--out", tmp_path / "run")
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(command, stdout=full, stderr=unread, check=False, timeout=PATIENCE)
    assert ended.returncode == 0
    assert same_bits(tmp_path / "run", done)


def test_an_experiment_from_a_file_of_any_name_whose_answer_nobody_reads(
    spec: Path, tmp_path: Path, unread: int
) -> None:
    base = tmp_path / os.fsdecode(b"b\xff\n\x01.yaml")
    shutil.copyfile(spec, base)
    flags = ["--batch-sizes", "4", "8", "--seeds", "1", "--rule", "linear", "--workers", "1"]
    ended = subprocess.run(
        svag("ladder", base, *flags, "--out", tmp_path / "out"),
        stdout=unread,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.replace("\n", "").isprintable()
    assert (tmp_path / "out" / "report" / "index.html").exists()


@pytest.mark.parametrize("command", ["list", "predict"])
def test_a_command_that_only_prints_fails_when_it_cannot(done: Path, unread: int, command: str) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = [
            subprocess.run(
                svag(command, done), stdout=log, stderr=subprocess.PIPE, text=True, check=False, timeout=PATIENCE
            )
            for log in (full.fileno(), unread)
        ]
    assert [one.returncode for one in ended] == [1, 1]
    assert [one.stderr.count("\n") for one in ended] == [1, 0]  # who has heard enough need not be told
    assert "No space left on device" in ended[0].stderr
    assert invoke(app, [command, str(done)]).exit_code == 0


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_saves_and_says_so(spec: Path, tmp_path: Path, sent: signal.Signals, code: int) -> None:
    endless = ["--budget", "1000000000", "--evaluate.every", "100000000"]
    with subprocess.Popen(
        svag("run", spec, *endless, "--out", tmp_path / "run"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        first = ""
        while not first.startswith("step 0 of"):
            first = process.stderr.readline()
            assert first
        process.send_signal(sent)
        said, complained = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (code, "")
    step = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["step"]
    assert complained.count("\n") == 1
    assert f"step {step} of 1000000000" in complained


def test_a_broken_record_is_a_failure(spec: Path, done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Path(shutil.copytree(done, tmp_path / "broken"))
    with (broken / "metrics.jsonl").open("ab") as file:
        file.write(b"x")
    for command in (["run", str(spec), "--out", str(broken)], ["predict", str(broken)]):
        refused = invoke(app, command)
        assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (1, "", 1 + (command[0] == "run")), (
            refused.output
        )
    end = RunFolder.end

    def damaged(self: RunFolder, *arguments: object) -> None:
        end(self, *arguments)  # type: ignore[arg-type]
        (self._path / "metrics.jsonl").write_bytes(b"x")

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "end", damaged)
        ended = invoke(app, ["run", str(spec), "--out", str(tmp_path / "at the end"), "--json"])
    assert (ended.exit_code, json.loads(ended.stdout)["state"]) == (1, "broken")


# Among them what ends vl-convert, what forges a row, and what is no character at all.
NAMES = [b"\x01\x1b[2J", b"a\nfinished", b"\xff\xfe", "\uffff\u202e".encode(), b"\t\r=1+1"]


def test_any_name_is_listed_in_one_row_and_drawn(done: Path, tmp_path: Path) -> None:
    folder = tmp_path / "named \n\x07\udcff"
    for name in NAMES:
        shutil.copytree(done, folder / os.fsdecode(name))
    listed = invoke(app, ["list", str(folder)])
    assert (listed.exit_code, listed.stdout.count("\n")) == (0, 1 + len(NAMES))
    predicted = invoke(app, ["predict", str(folder)])
    assert predicted.exit_code == 0
    assert (listed.stdout + predicted.output).replace("\n", "").isprintable()
    drawn = subprocess.run(
        svag("report", folder, "--format", "png", "--format", "svg"),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert drawn.returncode == 0, drawn.stderr
    assert drawn.stdout.replace("\n", "").isprintable()
    page, summary = ((folder / "report" / name).read_text(encoding="utf-8") for name in ("index.html", "summary.md"))
    assert "\x01" not in page.partition("<main>")[2]
    assert summary.replace("\n", "").isprintable()
    with (folder / "report" / "tables" / "runs.csv").open(newline="", encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    assert len(rows) == len(NAMES)
    assert all(row["run"].isprintable() for row in rows)
