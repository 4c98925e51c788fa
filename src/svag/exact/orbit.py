"""A linear recursion, step by step."""

import numpy as np

from svag.arrays import FloatArray


def orbit(matrix: FloatArray, start: FloatArray, steps: int) -> FloatArray:
    """start, matrix @ start, …, matrix^steps @ start, one row each.

    >>> orbit(np.array([[2.0]]), np.array([1.0]), 3).ravel()
    array([1., 2., 4., 8.])
    """
    rows = np.empty((steps + 1, *start.shape))
    rows[0] = start
    for k in range(steps):
        rows[k + 1] = matrix @ rows[k]
    return rows
