"""`svag data` as a user runs it: tables, JSON, exit codes and one-sentence errors."""

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from svag.lab.data.sources import SOURCES, Download
from svag.paper.cli.app import app

run = CliRunner().invoke


@pytest.fixture(autouse=True)
def _folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SVAG_DATA", str(tmp_path))


def test_list_shows_what_is_here_and_how_to_get_the_rest(tmp_path: Path) -> None:
    done = run(app, ["data", "list"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    assert "fashion-small  14×14" in done.stdout
    assert "no (170 MB)" in done.stdout
    assert str(tmp_path) in done.stdout
    folder = tmp_path / "svhn"
    folder.mkdir()
    for name in ("train_32x32.mat", "test_32x32.mat"):
        (folder / name).write_bytes(b"")
    found = json.loads(run(app, ["data", "list", "--json"]).stdout)
    assert found["data_dir"] == str(tmp_path)
    assert {row["name"]: row["where"] for row in found["data"]} == {
        "fashion-small": "embedded",
        "moby-dick": "embedded",
        "fashion-mnist": None,
        "cifar10": None,
        "cifar100": None,
        "svhn": str(folder),
    }
    elsewhere = json.loads(run(app, ["data", "list", "--json", "--data-dir", str(folder)]).stdout)
    assert sum(row["here"] for row in elsewhere["data"]) == 2


def test_get_reads_what_is_here() -> None:
    done = run(app, ["data", "get", "fashion-small"])
    assert done.exit_code == 0
    assert re.findall(r"\d+", done.stdout) == ["10000", "10000", "10"]
    assert json.loads(run(app, ["data", "get", "fashion-small", "--json"]).stdout)["train"] == 10000
    assert run(app, ["data", "get", "moby-dick"]).exit_code == 0


@pytest.mark.parametrize("name", ["mnist", "npz", "\x1b[2J"])
def test_a_name_that_does_not_exist_is_exit_code_2(name: str) -> None:
    done = run(app, ["data", "get", name], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert re.search(rf"{re.escape(repr(name))}.*fashion-small, fashion-mnist, cifar10\b", done.stderr)


def test_a_corrupt_file_is_exit_code_1_and_one_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "fashion-mnist"
    folder.mkdir()
    for download in SOURCES["fashion-mnist"].downloads:
        (folder / download.filename).write_bytes(gzip.compress(np.arange(9, dtype=np.uint8).tobytes()))
    done = run(app, ["data", "get", "fashion-mnist"])
    assert done.exit_code == 1
    assert not done.stdout
    assert done.stderr.startswith(f"Error: {folder / 'train-images-idx3-ubyte.gz'} ")
    assert "md5" in done.stderr
    assert done.stderr.count("\n") == 1


def test_no_connection_is_exit_code_1_and_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    official = SOURCES["cifar10"]
    nowhere = Download("http://127.0.0.1:9/cifar-10-binary.tar.gz", "0" * 32, 1.0, official.downloads[0].members)
    monkeypatch.setitem(SOURCES, "cifar10", replace(official, downloads=(nowhere,)))
    monkeypatch.setattr("svag.lab.data.downloads.time.sleep", lambda seconds: None)
    done = run(app, ["data", "get", "cifar10"])
    assert done.exit_code == 1
    assert "cifar-10-binary.tar.gz" in done.stderr
    assert done.stderr.strip().count("\n") == 0
