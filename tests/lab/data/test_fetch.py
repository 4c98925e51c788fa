"""Downloads that break, lie or happen twice at once."""

import errno
import fcntl
import os
import subprocess
import sys
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest
from tests.lab.specs.fuzz import answers_within

from svag.lab.data.downloads import Resume, _most, fetch
from svag.lab.data.formats import DataError
from svag.lab.data.sources import SOURCES, Download

CONTENT = bytes(range(256)) * 4000
MIDDLE = len(CONTENT) // 2


@pytest.fixture
def download(server: Any) -> Download:
    server.files["file.bin"] = CONTENT
    return Download(f"{server.address}/file.bin", md5(CONTENT, usedforsecurity=False).hexdigest(), 1.0, ())


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"}


def test_a_cut_connection_is_continued_where_it_broke(download: Download, server: Any, tmp_path: Path) -> None:
    server.cuts = [MIDDLE, 1000]
    assert fetch(download, tmp_path, wait=0).read_bytes() == CONTENT
    asked = [wanted for _, wanted in server.requests]
    assert asked == [None, f"bytes={MIDDLE}-", f"bytes={MIDDLE + 1000}-"]
    assert files(tmp_path) == {"file.bin"}


def test_a_server_without_ranges_is_asked_for_everything_again(download: Download, server: Any, tmp_path: Path) -> None:
    server.cuts, server.ranges = [MIDDLE], False
    assert fetch(download, tmp_path, wait=0).read_bytes() == CONTENT
    assert len(server.requests) == 2


def test_it_gives_up_after_three_attempts_that_bring_nothing_and_continues_next_time(
    download: Download, server: Any, tmp_path: Path
) -> None:
    server.cuts = [MIDDLE, 0, 0, 0]
    with pytest.raises(DataError, match=r"file\.bin \(.*connection.*\): .*\bagain\b"):
        fetch(download, tmp_path, wait=0)
    assert len(server.requests) == 4
    assert files(tmp_path) == {".svag/file.bin.part"}
    assert fetch(download, tmp_path, wait=0).read_bytes() == CONTENT
    assert server.requests[-1][1] == f"bytes={MIDDLE}-"
    assert files(tmp_path) == {"file.bin"}


def test_a_server_that_always_breaks_at_the_same_byte_does_not_hold_us_forever(
    download: Download, server: Any, tmp_path: Path
) -> None:
    server.cuts, server.ranges = [MIDDLE] * 10, False
    with pytest.raises(DataError, match=r"file\.bin "):
        fetch(download, tmp_path, wait=0)
    assert len(server.requests) == 4


def test_a_wrong_checksum_leaves_nothing(download: Download, server: Any, tmp_path: Path) -> None:
    server.files["file.bin"] = b"x" + CONTENT[1:]
    with pytest.raises(DataError, match=rf"md5.* {download.md5}\b"):
        fetch(download, tmp_path, wait=0)
    assert files(tmp_path) == set()
    server.files["file.bin"] = CONTENT
    assert fetch(download, tmp_path, wait=0).read_bytes() == CONTENT


@pytest.mark.parametrize("rubbish", [b"x" * 1000, b"x" * len(CONTENT), b"x" * (len(CONTENT) + 1)])
def test_what_a_killed_process_left_is_thrown_away_when_it_is_wrong(
    download: Download, tmp_path: Path, rubbish: bytes
) -> None:
    (tmp_path / ".svag").mkdir()
    (tmp_path / ".svag" / "file.bin.part").write_bytes(rubbish)
    assert fetch(download, tmp_path, wait=0).read_bytes() == CONTENT
    assert files(tmp_path) == {"file.bin"}


@pytest.mark.parametrize("length", ["abc", "-5", "9" * 5000, "²", ""])
def test_a_length_that_is_no_number_is_ignored(download: Download, server: Any, tmp_path: Path, length: str) -> None:
    server.length = length
    assert fetch(download, tmp_path, wait=0).read_bytes() == CONTENT
    assert len(server.requests) == 1


@pytest.mark.parametrize("length", ["", "99000000000"])
def test_a_body_without_end_is_not_written(download: Download, server: Any, tmp_path: Path, length: str) -> None:
    server.length, server.repeat = length, 300  # megabytes where one is expected
    with pytest.raises(DataError, match=r"file\.bin .* 1\.2 MB "):
        fetch(download, tmp_path, wait=0)
    assert files(tmp_path) == set()
    assert len(server.requests) == 1


def test_every_official_file_fits_its_limit() -> None:
    sizes = {
        "train-images-idx3-ubyte.gz": 26_421_880,
        "t10k-labels-idx1-ubyte.gz": 5_148,
        "train_32x32.mat": 182_040_794,
    }
    downloads = {one.filename: one for source in SOURCES.values() for one in source.downloads}
    assert all(size < _most(downloads[name]) < 2 * size + 2**16 for name, size in sizes.items())


def test_a_link_in_place_of_the_part_is_not_followed(download: Download, tmp_path: Path) -> None:
    staging, precious = tmp_path / ".svag", tmp_path / "precious"
    staging.mkdir()
    precious.write_bytes(b"keep me")
    (staging / "file.bin.part").symlink_to(precious)
    assert fetch(download, tmp_path, wait=0).read_bytes() == CONTENT
    assert precious.read_bytes() == b"keep me"


def test_a_missing_file_and_a_missing_server_are_one_sentence(download: Download, server: Any, tmp_path: Path) -> None:
    server.files.clear()
    with pytest.raises(DataError, match=rf" 404\).*file\.bin into {tmp_path}"):
        fetch(download, tmp_path, wait=0)
    assert len(server.requests) == 1
    nowhere = Download("http://127.0.0.1:9/file.bin", download.md5, 1.0, ())
    with pytest.raises(DataError, match="connection"):
        fetch(nowhere, tmp_path, wait=0)
    assert files(tmp_path) == set()


def test_a_folder_that_cannot_be_written_is_one_sentence(download: Download, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DataError, match=r"file/file\.bin \(Not a directory\).*--data"):
        fetch(download, tmp_path / "file", wait=0)


def test_a_full_disk_is_one_sentence_and_gets_its_space_back(
    download: Download, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Resume, *_: object) -> None:
        self.part.write_bytes(CONTENT[:1000])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Resume, "_attempt", full)
    with pytest.raises(DataError, match=r"file\.bin \(No space .*\).*--data"):
        fetch(download, tmp_path, wait=0)
    assert files(tmp_path) == set()


def test_two_processes_download_once(download: Download, server: Any, tmp_path: Path) -> None:
    server.pause = 0.5  # long enough for the second process to come while the first one waits for its bytes
    code = (
        "import sys; from pathlib import Path; from svag.lab.data.downloads import fetch; "
        "from svag.lab.data.sources import Download; "
        "print(len(fetch(Download(sys.argv[1], sys.argv[2], 1.0, ()), Path(sys.argv[3])).read_bytes()))"
    )
    command = [sys.executable, "-c", code, download.url, download.md5, str(tmp_path)]
    environment = os.environ | {"no_proxy": "127.0.0.1"}
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        for _ in range(3)
    ]
    for process in processes:
        out, err = process.communicate(timeout=600)
        assert (out.strip(), process.returncode) == (str(len(CONTENT)), 0), err
    assert len(server.requests) == 1
    assert files(tmp_path) == {"file.bin"}


def test_the_time_limit_holds_for_waiting_on_another_process_too(download: Download, tmp_path: Path) -> None:
    (tmp_path / ".svag").mkdir()
    with (tmp_path / ".svag" / "file.bin.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with answers_within(60), pytest.raises(DataError, match=r"\bfile\.bin\b.* 1 s\b"):
            fetch(download, tmp_path, wait=0, limit=1.0)


def test_without_locks_it_downloads_and_warns(
    download: Download, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.warns(UserWarning, match="No locks available"):
        assert fetch(download, tmp_path, wait=0).read_bytes() == CONTENT


@pytest.mark.parametrize("trickle", ["head", "body"])
def test_a_server_that_sends_a_byte_now_and_then_is_given_up(
    download: Download, server: Any, tmp_path: Path, trickle: str
) -> None:
    """Each byte comes in time, and the file would take more than an hour."""
    server.trickle = trickle
    with answers_within(60), pytest.raises(DataError, match=r" 1 s\)"):
        fetch(download, tmp_path, wait=0, limit=1.0)
    assert len(server.requests) == 1
    server.trickle = ""
    assert fetch(download, tmp_path, wait=0, limit=60.0).read_bytes() == CONTENT
    assert files(tmp_path) == {"file.bin"}
