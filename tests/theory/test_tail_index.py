import math

import numpy as np
import pytest

from svag.arrays import FloatArray
from svag.theory.tail_index import expected_inverse_tail_index, inverse_tail_index, inverse_tail_index_per_coordinate

RNG = np.random.default_rng(0)


def test_by_hand() -> None:
    values = np.array([1.0, 3.0, -2.0, 10.0])  # block sums 4 and 8
    log_sums, log_values = math.log(4 * 8) / 2, math.log(1 * 3 * 2 * 10) / 4
    assert inverse_tail_index(values, 2) == pytest.approx((log_sums - log_values) / math.log(2), rel=1e-14)


def test_per_coordinate_is_the_estimator_of_each_column() -> None:
    samples = RNG.standard_normal((12, 3))
    columns = [inverse_tail_index(samples[:, i], 4) for i in range(3)]
    assert inverse_tail_index_per_coordinate(samples, 4) == pytest.approx(columns)


def test_unequal_scales_read_outside_of_one_half_to_one() -> None:
    assert expected_inverse_tail_index(np.diag([1.0, 1e-4, 1e-4, 1e-4])) > 1
    negative = np.array([[1.0, -0.9], [-0.9, 1.0]])
    assert expected_inverse_tail_index(negative) < 0.5


def test_many_repeats_hide_the_correlation() -> None:
    covariance = 0.5 * np.ones((4, 4)) + 0.5 * np.eye(4)
    readings = [expected_inverse_tail_index(covariance, repeats) for repeats in (1, 100, 10**8)]
    assert readings[0] > readings[1] > readings[2] > 0.5
    assert readings[2] == pytest.approx(0.5, abs=0.03)


def test_block_centred_values_are_refused() -> None:
    blocks = RNG.standard_normal((50, 10))
    centred = (blocks - blocks.mean(axis=1, keepdims=True)).ravel()
    with pytest.raises(ValueError, match=r"^blocks\b"):
        inverse_tail_index(centred, 10)


@pytest.mark.parametrize(
    ("values", "block", "word"),
    [
        (np.ones(5), 2, "multiple"),
        (np.array([]), 2, "multiple"),
        (np.ones(4), 1, "block"),
        (np.array([1.0, 0.0]), 2, r"^values\b"),
        (np.array([1.0, np.inf]), 2, "finite"),
        (np.array([1.0, -1.0]), 2, "must not sum to 0"),
    ],
)
def test_refused(values: FloatArray, block: int, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        inverse_tail_index(values, block)


@pytest.mark.parametrize(
    ("covariance", "word"),
    [(np.ones((2, 3)), "square"), (np.zeros((2, 2)), "variance"), (np.eye(1), "block")],
)
def test_expectation_refuses(covariance: FloatArray, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        expected_inverse_tail_index(covariance)
