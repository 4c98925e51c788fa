"""What is no number is refused by the name of the argument, in one short line, whatever it is."""

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from svag.theory import domain

CHECKS: list[Callable[[str, Any], float]] = [
    domain.number,
    domain.finite,
    domain.positive,
    domain.non_negative,
    domain.whole,
    domain.refinement,
]
STRANGE = [
    None,
    True,
    [1],
    (),
    {},
    "1",
    "x" * 10**6,
    b"1",
    1j,
    np.ones(3),
    object(),
    [0] * 10**6,
    float,
    Decimal("sNaN"),
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("value", STRANGE, ids=lambda value: type(value).__name__)
def test_what_is_no_number_is_named(check: Callable[[str, Any], float], value: object) -> None:
    with pytest.raises(TypeError, match=r"^gamma must be a number, got [^\n]{1,60}$"):
        check("gamma", value)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_whole_number_beyond_all_floats_is_refused(check: Callable[[str, Any], float]) -> None:
    with pytest.raises(ValueError, match="gamma must be a finite number, got one beyond 1e308"):
        check("gamma", 10**5000)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("value", [3, 3.0, np.float32(3), np.int64(3), Fraction(6, 2), Decimal(3), np.array(3)])
def test_numbers_of_any_kind_are_numbers(check: Callable[[str, Any], float], value: object) -> None:
    assert check("gamma", value) == 3


def test_infinity_and_nan_are_numbers_that_few_want() -> None:
    assert domain.number("gamma", math.inf) == math.inf
    assert domain.noise_to_signal(math.inf) == math.inf
    with pytest.raises(ValueError, match="gamma must be a finite number, got nan"):
        domain.finite("gamma", math.nan)
    with pytest.raises(TypeError, match=r"noise_to_signal must be a number, got \[1.0\]"):
        domain.noise_to_signal([1.0])  # type: ignore[arg-type]


def test_a_refinement_has_an_end() -> None:
    assert domain.refinement("ell", 10**6) == 10**6
    for value in (10**6 + 1, 1e308):
        with pytest.raises(ValueError, match=r"ell must be at most 1000000, got 1e\+"):
            domain.refinement("ell", value)
