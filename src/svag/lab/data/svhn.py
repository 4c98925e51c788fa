"""The cropped digits of SVHN: MATLAB files with X (32, 32, 3, n) and y (n, 1), where 10 stands for the digit 0."""

import io

import numpy as np
from numpy.typing import NDArray


def read_svhn(content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images (n, 3, 32, 32) and labels 0 … 9 of one MATLAB file."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        # the stubs do not know that a file-like object is allowed
        arrays = loadmat(io.BytesIO(content), variable_names=["X", "y"])  # type: ignore[arg-type]
        x, y = np.asarray(arrays["X"]), np.asarray(arrays["y"])
    except (MatReadError, ValueError, TypeError, OSError, EOFError, KeyError, NotImplementedError) as error:
        raise ValueError(f"it cannot be read as MATLAB data with X and y ({error})") from error
    if x.ndim != 4 or x.shape[:3] != (32, 32, 3) or x.dtype != np.uint8 or not np.issubdtype(y.dtype, np.number):
        raise ValueError(f"its X is {x.dtype} of shape {x.shape}, not bytes of shape (32, 32, 3, n)")
    images: NDArray[np.uint8] = np.ascontiguousarray(x.transpose(3, 2, 0, 1))
    return images, y.reshape(-1).astype(np.int64) % 10
