import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from scipy.stats import spearmanr

from svag.as_json import json_fields, json_number
from svag.stats.samples import finite_row, positive, probability, rank_correlation


def test_a_bad_row_is_refused_with_its_place_and_value() -> None:
    with pytest.raises(ValueError, match=r"^losses\[1\] .*nan"):
        finite_row("losses", [1.0, math.nan])
    with pytest.raises(ValueError, match=r"^losses\b.*\(1, 2\)"):
        finite_row("losses", [[1.0, 2.0]])
    with pytest.raises(ValueError, match=r"^losses\b.* 2 .*got 0"):
        finite_row("losses", [], at_least=2)


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, 95.0, math.nan])
def test_a_confidence_outside_the_open_interval_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=rf"^confidence\b.*got {value}"):
        probability("confidence", value)


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_a_margin_that_is_not_positive_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"^margin\b"):
        positive("margin", value)


def test_json_numbers_are_finite_or_null() -> None:
    assert [json_number(x) for x in (1.5, math.inf, -math.inf, math.nan)] == [1.5, None, None, None]


def test_only_the_floats_of_a_record_are_changed() -> None:
    @dataclass(frozen=True)
    class Record:
        known: bool
        count: int
        names: tuple[str, ...]
        limit: float
        missing: float | None

    assert json_fields(vars(Record(True, 3, ("a",), math.inf, None))) == {
        "known": True,
        "count": 3,
        "names": ("a",),
        "limit": None,
        "missing": None,
    }


@pytest.mark.parametrize("check", [positive, probability])
def test_what_is_no_number_is_named(check: Callable[[str, Any], float]) -> None:
    for value in ([0.5], "0.5", None, True):
        with pytest.raises(TypeError, match=rf"^margin\b.* {type(value).__name__}$"):
            check("margin", value)
    with pytest.raises(ValueError, match=r"^margin\b.* 1e308$"):
        check("margin", 10**400)


def test_rank_correlation_is_scipys() -> None:
    one, other = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0], [2.0, 7.0, 1.0, 8.0, 2.0, 8.0]
    assert rank_correlation(one, other) == pytest.approx(spearmanr(one, other).statistic, rel=1e-12)
