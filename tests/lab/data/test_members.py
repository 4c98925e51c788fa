"""Reading the official formats, loose, compressed, in archives or fetched; and what a damaged file says."""

import gzip
import hashlib
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from svag.lab.data import downloads
from svag.lab.data.formats import Arrays, DataError
from svag.lab.data.sources import SOURCES


def visible(folder: Path) -> set[str]:
    """All files but the empty locks."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"}


def assert_same(arrays: Arrays, tiny: Any) -> None:
    for name in ("train_x", "train_y", "test_x", "test_y"):
        np.testing.assert_array_equal(getattr(arrays, name), getattr(tiny, name))
        assert getattr(arrays, name).dtype == (np.uint8 if name.endswith("x") else np.int64)


def test_fetched_once_then_found(tiny: Any, server: Any, tmp_path: Path) -> None:
    assert downloads.find(tiny.source, tmp_path) is None
    assert_same(downloads.read(tiny.source, tmp_path), tiny)
    assert visible(tmp_path) == {f"{tiny.source.name}/{name}" for name in tiny.files}
    asked = len(server.requests)
    assert asked == len(tiny.files)
    assert_same(downloads.read(tiny.source, tmp_path), tiny)
    assert len(server.requests) == asked
    found = downloads.find(tiny.source, tmp_path)
    assert found is not None
    assert {path.name for path in found} == set(tiny.files)


@pytest.mark.parametrize("place", ["name", "folder", "name/folder"])
@pytest.mark.parametrize("packed", [False, True])
def test_unpacked_files_are_found_where_people_keep_them(
    tiny: Any, server: Any, tmp_path: Path, place: str, packed: bool
) -> None:
    folder = tmp_path / place.replace("name", tiny.source.name).replace("folder", tiny.source.folder)
    folder.mkdir(parents=True)
    for name, content in tiny.members.items():
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content, compresslevel=1))
        else:
            (folder / name).write_bytes(content)
    assert_same(downloads.read(tiny.source, tmp_path), tiny)
    assert not server.requests


@pytest.mark.parametrize("damage", ["truncated", "flipped", "emptied"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_damaged_file_is_one_sentence_with_the_file_and_the_fix(
    tiny: Any, tmp_path: Path, damage: str, packed: bool
) -> None:
    folder = tmp_path / tiny.source.name
    folder.mkdir()
    written = tiny.files if packed else tiny.members
    for name, content in written.items():
        (folder / name).write_bytes(content)
    victim = folder / list(written)[-1]
    content = victim.read_bytes()
    middle = len(content) // 2
    victim.write_bytes(
        {
            "truncated": content[: 2 * len(content) // 3],
            "flipped": content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :],
            "emptied": b"",
        }[damage]
    )
    if tiny.source.name == "cifar100" and damage == "flipped" and not packed:
        downloads.read(tiny.source, tmp_path)  # the one case that no published checksum covers
        return
    with pytest.raises(DataError) as caught:
        downloads.read(tiny.source, tmp_path)
    message = str(caught.value)
    assert str(tmp_path) in message
    assert "corrupt" in message
    assert "svag data get" in message
    assert "\n" not in message
    if tiny.source.name != "cifar100":
        assert str(victim) in message


@pytest.mark.parametrize("tiny", ["cifar100"], indirect=True)
def test_wrong_labels_and_counts_are_refused_where_there_is_no_checksum(tiny: Any, tmp_path: Path) -> None:
    folder = tmp_path / "cifar100"
    folder.mkdir()
    for name, content in tiny.members.items():
        (folder / name).write_bytes(content)
    (folder / "test.bin").write_bytes(bytes([0, 200]) + tiny.members["test.bin"][2:])
    with pytest.raises(DataError, match=r"/cifar100 .* 200 .* 99: "):
        downloads.read(tiny.source, tmp_path)
    (folder / "test.bin").write_bytes(tiny.members["test.bin"][:3074])
    with pytest.raises(DataError, match=r"^cifar100 .* 9 .* 1 .* 9 .* 4: "):
        downloads.read(tiny.source, tmp_path)


def with_archive(tiny: Any, tmp_path: Path, *, right: bool = True, **changes: Any) -> Any:
    """The source of CIFAR-10 whose archive holds nothing but entries of these types; its checksum is right or not."""
    path = tmp_path / "cifar10" / "cifar-10-binary.tar.gz"
    path.parent.mkdir()
    with tarfile.open(path, "w:gz") as archive:
        for name in tiny.members if changes else ():
            entry = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            vars_of = {"linkname": f"cifar-10-batches-bin/{name}", **changes}
            for field, value in vars_of.items():
                setattr(entry, field, value)
            archive.addfile(entry)
    md5 = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    (download,) = tiny.source.downloads
    return replace(tiny.source, downloads=(replace(download, md5=md5),)) if right else tiny.source


@pytest.mark.parametrize("tiny", ["cifar10"], indirect=True)
def test_an_archive_that_lacks_a_file_is_refused(tiny: Any, tmp_path: Path, server: Any) -> None:
    source = with_archive(tiny, tmp_path)
    with pytest.raises(DataError, match=r"binary\.tar\.gz .*\(.*\bdata_batch_1\.bin, data_"):
        downloads.read(source, tmp_path)
    assert not server.requests


@pytest.mark.parametrize("tiny", ["cifar10"], indirect=True)
@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_links_and_devices_in_an_archive_are_refused(tiny: Any, tmp_path: Path, kind: bytes) -> None:
    source = with_archive(tiny, tmp_path, type=kind)
    with pytest.raises(DataError, match=r"\(data_batch_1\.bin .*\bplain\b"):
        downloads.read(source, tmp_path)


@pytest.mark.parametrize("tiny", ["cifar10"], indirect=True)
def test_an_archive_is_not_opened_before_its_checksum_is_right(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = with_archive(tiny, tmp_path, right=False)
    monkeypatch.setattr(tarfile, "open", None)
    with pytest.raises(DataError, match=rf"\(.*\bmd5 .*{source.downloads[0].md5}\)"):
        downloads.read(source, tmp_path)


@pytest.mark.parametrize("tiny", ["fashion-mnist"], indirect=True)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_file_that_unpacks_without_end_is_cut_off(
    tiny: Any, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "LARGEST", 10**6)
    folder = tmp_path / "fashion-mnist"
    folder.mkdir()
    for name, content in tiny.members.items():
        zeros = content + bytes(10**6)
        (folder / f"{name}{ending}").write_bytes(gzip.compress(zeros, compresslevel=1) if ending else zeros)
    with pytest.raises(DataError, match=rf"idx3-ubyte{ending} .* 1000000 bytes\)"):
        downloads.read(tiny.source, tmp_path)


def test_the_table_of_sources_is_complete() -> None:
    for name, source in SOURCES.items():
        assert source.name == name
        assert source.megabytes > 1
        for download in source.downloads:
            assert len(bytes.fromhex(download.md5)) == 16
            assert all(member.md5 is None or len(bytes.fromhex(member.md5)) == 16 for member in download.members)
    assert (SOURCES["cifar10"].mean, SOURCES["cifar10"].std) == ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
    assert (SOURCES["svhn"].mean, SOURCES["svhn"].std) == ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
