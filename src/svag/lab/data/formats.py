"""Readers for the formats of data sets, without pickle: IDX, CIFAR's binary records, SVHN's MATLAB files, npz.

Every reader checks the images and labels and returns them as they are in the file.
"""

import io
import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


class DataError(Exception):
    """A data file is missing, corrupt, or cannot be downloaded; the message names the file and what to do."""


@dataclass(frozen=True, eq=False)
class Arrays:
    """Images (n, channels, height, width) as bytes or floats, and labels 0 … num_classes − 1."""

    train_x: NDArray[np.uint8] | NDArray[np.float32]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.uint8] | NDArray[np.float32]
    test_y: NDArray[np.int64]
    num_classes: int


def checked(arrays: Arrays, where: str, fix: str) -> Arrays:
    """Return `arrays`, or raise DataError if the labels do not fit the images or the classes."""
    for split, x, y in (("train", arrays.train_x, arrays.train_y), ("test", arrays.test_x, arrays.test_y)):
        if len(x) != len(y) or not len(x):
            raise DataError(f"{where} holds {len(x)} {split} images and {len(y)} {split} labels: {fix}")
        if y.min() < 0 or y.max() >= arrays.num_classes:
            raise DataError(
                f"{where} holds {split} labels from {y.min()} to {y.max()} instead of 0 to {arrays.num_classes - 1}: "
                f"{fix}"
            )
    if arrays.train_x.shape[1:] != arrays.test_x.shape[1:]:
        raise DataError(
            f"{where} holds training examples of shape {arrays.train_x.shape[1:]} and test examples of shape "
            f"{arrays.test_x.shape[1:]}: {fix}"
        )
    return arrays


def read_idx(content: bytes) -> NDArray[np.uint8]:
    """Return the array of bytes that an uncompressed IDX file holds.

    >>> read_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]))
    array([7, 9], dtype=uint8)
    """
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise ValueError("it does not begin like an IDX file of bytes")
    dimensions = content[3]
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise ValueError("it ends within its header")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    if len(content) != start + math.prod(shape):
        raise ValueError(f"it has {len(content)} bytes, but its header promises {start + math.prod(shape)}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


PIXELS = 3 * 32 * 32


def read_cifar(content: bytes, label_bytes: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images (n, 3, 32, 32) and labels of one binary file.

    The last label byte is the class: CIFAR-10 has one, CIFAR-100 a coarse and a fine one.

    >>> images, labels = read_cifar(bytes([3, 5]) + bytes(3072), label_bytes=2)
    >>> images.shape, labels
    ((1, 3, 32, 32), array([5]))
    """
    record = label_bytes + PIXELS
    if not content or len(content) % record:
        raise ValueError(f"it has {len(content)} bytes, which is not a multiple of {record}")
    rows = np.frombuffer(content, np.uint8).reshape(-1, record)
    return rows[:, label_bytes:].reshape(-1, 3, 32, 32), rows[:, label_bytes - 1].astype(np.int64)


def read_svhn(content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images (n, 3, 32, 32) and labels 0 … 9 of one MATLAB file."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        # a file-like object is allowed, against the type stubs
        arrays = loadmat(io.BytesIO(content), variable_names=["X", "y"])  # type: ignore[arg-type]
        x, y = np.asarray(arrays["X"]), np.asarray(arrays["y"])
    except (MatReadError, ValueError, TypeError, OSError, EOFError, KeyError, NotImplementedError) as error:
        raise ValueError(f"it cannot be read as MATLAB data with X and y ({error})") from error
    if x.ndim != 4 or x.shape[:3] != (32, 32, 3) or x.dtype != np.uint8 or not np.issubdtype(y.dtype, np.number):
        raise ValueError(f"its X is {x.dtype} of shape {x.shape}, not bytes of shape (32, 32, 3, n)")
    images: NDArray[np.uint8] = np.ascontiguousarray(x.transpose(3, 2, 0, 1))
    return images, y.reshape(-1).astype(np.int64) % 10


_LARGEST = float(np.finfo(np.float32).max)
NAMES = ("train_x", "train_y", "test_x", "test_y")
_MEMBERS = {*NAMES, *(f"{name}.npy" for name in NAMES)}


def read_npz(path: Path) -> Arrays:
    """Read and check a user's arrays.

    Images are bytes or floats of shape (n, channels, height, width) or (n, height, width); vectors are (n, features).
    Labels are whole numbers from 0.
    """
    raw = _load(path)
    for name in ("train_y", "test_y"):
        if raw[name].ndim != 1 or not np.issubdtype(raw[name].dtype, np.integer):
            raise DataError(
                f"{name} in {path} must be whole numbers of shape (n,), got {raw[name].dtype} of shape "
                f"{raw[name].shape}: save class numbers, not one-hot rows"
            )
    train_y, test_y = raw["train_y"].astype(np.int64), raw["test_y"].astype(np.int64)
    num_classes = int(max(train_y.max(initial=0), test_y.max(initial=0))) + 1
    arrays = Arrays(
        _images("train_x", raw["train_x"], path), train_y, _images("test_x", raw["test_x"], path), test_y, num_classes
    )
    if arrays.train_x.dtype != arrays.test_x.dtype:
        raise DataError(
            f"one of train_x and test_x in {path} is bytes and the other floats, which are scaled differently: "
            "save both as bytes or both as floats"
        )
    return checked(arrays, str(path), "save matching arrays")


def _load(path: Path) -> dict[str, NDArray[np.generic]]:
    try:
        if not path.exists():
            raise DataError(f"there is no file {path}: check the path")
        if not path.is_file():  # reading a pipe or a device may never end
            raise DataError(f"{path} is not a plain file: save your arrays with numpy.savez(path, train_x=…, …)")
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise DataError(f"{path} is not an npz file: write it with numpy.savez(path, train_x=…, …)")
            missing = [name for name in NAMES if name not in archive.files]
            if missing:
                raise DataError(
                    f"{path} has no array {', '.join(missing)}: write it with numpy.savez(path, {'=…, '.join(NAMES)}=…)"
                )
            _refuse_larger_than_memory(path, archive)
            return {name: _member(archive, name) for name in NAMES}
    except DataError:
        raise
    except Exception as error:  # for a damaged file, numpy raises a dozen kinds of errors, even tokenize.TokenError
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise DataError(f"{path} cannot be read as an npz file of plain arrays ({reason}): write it again") from error


def _refuse_larger_than_memory(path: Path, archive: np.lib.npyio.NpzFile) -> None:
    entries = [] if archive.zip is None else archive.zip.infolist()
    unpacked = sum(int(entry.file_size) for entry in entries if entry.filename in _MEMBERS)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if unpacked > memory:
        raise DataError(
            f"the arrays of {path} take {unpacked / 1e9:.1f} GB, more than the {memory / 1e9:.1f} GB of memory here: "
            "save fewer examples"
        )


def _member(archive: np.lib.npyio.NpzFile, name: str) -> NDArray[np.generic]:
    array: object = archive[name]
    if not isinstance(array, np.ndarray):  # for a member that does not begin like an array, numpy returns its bytes
        raise ValueError(f"{name} is not an array")
    return array


def _images(name: str, x: NDArray[np.generic], path: Path) -> NDArray[np.uint8] | NDArray[np.float32]:
    if x.ndim == 2:
        x = x[:, :, None, None]
    elif x.ndim == 3:
        x = x[:, None]
    if x.ndim != 4 or 0 in x.shape:
        raise DataError(
            f"{name} in {path} must have shape (n, channels, height, width), (n, height, width) or (n, features), "
            f"got {x.shape}: reshape it"
        )
    if x.shape[3] in (1, 3) and x.shape[1] > 3 and x.shape[2] > 3:
        raise DataError(f"{name} in {path} has its channels last ({x.shape}): save {name}.transpose(0, 3, 1, 2)")
    if x.dtype == np.uint8:
        return x.astype(np.uint8, copy=False)
    if not np.issubdtype(x.dtype, np.floating):
        raise DataError(f"{name} in {path} must be bytes (uint8) or floats, got {x.dtype}: convert it")
    with np.errstate(over="ignore"):
        images = x.astype(np.float32)
    if not np.isfinite(images).all():
        if np.isfinite(x).all():
            raise DataError(f"{name} in {path} has values beyond ±{_LARGEST:.2g}, too large for float32: rescale it")
        raise DataError(f"{name} in {path} has values that are not finite: remove them")
    return images
