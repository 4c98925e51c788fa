"""A place that cannot be written is one sentence with the way out, from every command that writes."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from svag.paper.cli.app import app

invoke = CliRunner().invoke

COMMANDS = {
    "run": ["run", "{base}", "--out"],
    "ladder": ["ladder", "{base}", "--batch-sizes", "8", "16", "--seeds", "1", "--workers", "1", "--out"],
    "compare": ["compare", "{base}", "--ell", "1", "2", "--seeds", "1", "--workers", "1", "--out"],
    "ngd": ["ngd", "{base}", "--seeds", "1", "--workers", "1", "--out"],
    "reproduce": ["reproduce", "fig:lsr_acc_gnr", "--size", "smoke", "--seeds", "1", "--workers", "1", "--out"],
    "reproduce theory": ["reproduce", "fig:app_exotic_lr", "--out"],
    "demo": ["demo", "--workers", "1", "--out"],
    "report": ["report", "{runs}", "--out"],
}


@pytest.fixture
def runs(tmp_path: Path, base: Path) -> Path:
    done = invoke(app, ["run", str(base), "--out", str(tmp_path / "runs" / "one")])
    assert done.exit_code == 0, done.output
    return tmp_path / "runs"


def refused(arguments: list[str]) -> None:
    done = invoke(app, arguments)
    assert isinstance(done.exception, SystemExit), repr(done.exception)
    assert done.exit_code == 1, done.output
    [sentence] = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert sentence.endswith("--out")


@pytest.mark.parametrize("command", COMMANDS)
def test_below_a_file(base: Path, runs: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "file").write_text("")
    names = {"base": base, "runs": runs}
    refused([*(one.format(**names) for one in COMMANDS[command]), str(tmp_path / "file" / "out")])


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("command", ["run", "ladder", "compare", "ngd", "reproduce theory", "report"])
def test_on_a_disk_that_takes_nothing(
    base: Path, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, number: int
) -> None:
    opens = os.open

    def read_only(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and str(path).startswith(str(tmp_path)):
            raise OSError(number, os.strerror(number), str(path))
        return opens(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", read_only)
    names = {"base": base, "runs": runs}
    refused([*(one.format(**names) for one in COMMANDS[command]), str(tmp_path / "out")])
