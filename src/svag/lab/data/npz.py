"""A user's own data: the arrays train_x, train_y, test_x, test_y of an npz file, loaded without pickle."""

import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from svag.lab.data.arrays import Arrays, checked
from svag.lab.data.errors import DataError

_LARGEST = float(np.finfo(np.float32).max)
NAMES = ("train_x", "train_y", "test_x", "test_y")


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
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise DataError(f"{path} is not an npz file: write it with numpy.savez(path, train_x=…, …)")
            missing = [name for name in NAMES if name not in archive.files]
            if missing:
                raise DataError(
                    f"{path} has no array {', '.join(missing)}: write it with numpy.savez(path, {'=…, '.join(NAMES)}=…)"
                )
            return {name: archive[name] for name in NAMES}
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}: check the path") from error
    except (OSError, EOFError, ValueError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} cannot be read as an npz file of plain arrays ({error}): write it again") from error


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
