"""A user's own arrays: what is accepted, what is refused in one sentence, and what identifies them."""

import io
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from svag.lab.data.formats import DataError, read_npz
from svag.lab.data.load import load_data

GOOD = {
    "train_x": np.arange(8 * 3 * 4 * 4, dtype=np.uint8).reshape(8, 3, 4, 4),
    "train_y": np.array([0, 1, 2, 0, 1, 2, 0, 1]),
    "test_x": np.ones((2, 3, 4, 4), np.uint8),
    "test_y": np.array([3, 0], np.uint8),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.savez(tmp_path / "mine.npz", **GOOD)  # type: ignore[arg-type]  # the stubs mistake arrays for allow_pickle
    return tmp_path / "mine.npz"


def save(path: Path, **changes: object) -> Path:
    np.savez(path, **(GOOD | changes))  # type: ignore[arg-type]
    return path


def test_it_is_loaded_like_any_other(path: Path) -> None:
    data = load_data("npz", path=path, subset=5, pool=2)
    assert (data.train_x.shape, data.test_x.shape, data.num_classes) == ((5, 3, 2, 2), (2, 3, 2, 2), 4)
    assert torch.equal(data.test_y, torch.tensor([3, 0]))


def test_grey_images_and_vectors(path: Path) -> None:
    grey = read_npz(save(path, train_x=np.ones((8, 5, 4)), test_x=np.ones((2, 5, 4))))
    assert grey.train_x.shape == (8, 1, 5, 4)
    assert grey.train_x.dtype == np.float32
    vectors = read_npz(save(path, train_x=np.ones((8, 7)), test_x=np.ones((2, 7))))
    assert vectors.train_x.shape == (8, 7, 1, 1)
    assert load_data("npz", path=path).in_channels == 7


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_y": np.arange(7)}, r" 8 train .* 7 train "),
        ({"train_y": np.ones(8)}, r"train_y in .* must be whole numbers of shape \(n,\), got float64"),
        ({"test_y": np.eye(2, dtype=int)}, r"^test_y .*\(2, 2\)"),
        ({"train_y": np.arange(8) - 1}, r" train .* -1 .* 6 .* 6: "),
        (
            {"train_x": np.ones((8, 32, 32, 3))},
            r"^train_x .*train_x\.transpose",
        ),
        ({"train_x": np.ones(8)}, r"^train_x .*got \(8,\)"),
        ({"train_x": np.ones((8, 3, 4, 4), int)}, r"^train_x .*\buint8\b.*got int64"),
        ({"train_x": np.full((8, 3, 4, 4), np.nan)}, r"^train_x .*\bfinite\b"),
        (
            {"train_x": np.full((8, 3, 4, 4), -1e39)},
            r"^train_x .*3\.4e\+38\b",
        ),
        ({"train_x": np.full((8, 3, 4, 4), np.inf)}, r"^train_x .*\bfinite\b"),
        ({"test_x": np.ones((2, 3, 4, 5), np.uint8)}, r"\(3, 4, 4\) .*\(3, 4, 5\)"),
        ({"test_x": np.ones((0, 3, 4, 4), np.uint8)}, r"^test_x "),
        ({"train_y": np.zeros(0, int)}, r" 0 train "),
    ],
)
def test_arrays_that_do_not_fit_are_one_sentence(path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read_npz(save(path, **changes))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


class Trap:
    """Would run code when unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path("/nonexistent/trap"),)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"\bno file .*mine\.npz"),
        (b"", r"mine\.npz .*\(.*\): "),
        (b"PK\x03\x04 rubbish", r"mine\.npz .*\(.*\): "),
        (pickle.dumps(Trap()), r"mine\.npz .*\(.*\): "),
    ],
)
def test_files_that_are_no_npz_are_one_sentence(path: Path, content: bytes | None, message: str) -> None:
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_npz(path)


def with_member(path: Path, content: bytes) -> Path:
    """The good file with other bytes in place of train_y."""
    good = {name: io.BytesIO() for name in GOOD}
    for name, buffer in good.items():
        np.save(buffer, GOOD[name])
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, buffer in good.items():
            archive.writestr(f"{name}.npy", content if name == "train_y" else buffer.getvalue())
    return path


def header(text: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"rubbish",
        header(b""),
        header(b"{'descr': '<i8', 'fortran_order': False, 'shape': (8,"),
        header(b"{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000,)}"),
        header(b"{'descr': '<i8', 'fortran_order': False, 'shape': ('a',)}"),
        header(b"{'descr': [('a', '<i8'), ('a', 'x')], 'fortran_order': False, 'shape': (8,)}"),
        header(b"(" * 5000),
        b"\x93NUMPY\x09\x00\x00\x00",
    ],
)
def test_a_damaged_member_is_one_sentence(path: Path, content: bytes) -> None:
    with pytest.raises(DataError, match=r"mine\.npz .*\(.*\): ") as e:
        read_npz(with_member(path, content))
    assert "\n" not in str(e.value)
    assert len(str(e.value)) < 400


def test_arrays_that_do_not_fit_into_memory_are_not_unpacked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sysconf", lambda name: 16)
    with pytest.raises(DataError, match=r"mine\.npz .* 0\.0 GB.* 0\.0 GB"):
        read_npz(path)


def test_a_pipe_and_a_device_are_no_files_of_arrays(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(DataError, match=rf"^{path} .*numpy\.savez"):
            read_npz(path)


def test_objects_are_never_unpickled(path: Path) -> None:
    with pytest.raises(DataError, match=r"mine\.npz .*\(Object "):
        read_npz(save(path, train_y=np.array([Trap()] * 8, dtype=object)))


def test_a_single_array_and_a_missing_one_are_named(path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.ones(3))
    path.write_bytes(buffer.getvalue())
    with pytest.raises(DataError, match=r"mine\.npz .*numpy\.savez"):
        read_npz(path)
    np.savez(path, train_x=GOOD["train_x"], train_y=GOOD["train_y"])
    with pytest.raises(DataError, match=r"test_x, test_y: .*numpy\.savez"):
        read_npz(path)


def test_bytes_beside_floats_are_refused(path: Path) -> None:
    other = np.float32 if GOOD["test_x"].dtype == np.uint8 else np.uint8
    with pytest.raises(DataError, match=r"\btrain_x\b.*\btest_x\b"):
        read_npz(save(path, test_x=GOOD["test_x"].astype(other)))


def test_a_truncated_file_is_one_sentence(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"mine\.npz .*\(.*\): "):
        read_npz(path)
