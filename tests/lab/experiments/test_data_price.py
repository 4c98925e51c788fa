"""The factor in examples: exact on curves whose inverse is known, with an interval over seeds."""

import math

import numpy as np
import pytest

from svag.lab.experiments.data_price import Curve, data_prices


def line(slope: float, start: float = 10.0, end: int = 1000) -> Curve:
    """A loss that falls by `slope` for every example, the mean over each interval: exact under interpolation."""
    points = range(0, end, 10)
    return [(e + 10, start - slope * (e + 5)) for e in points]


def test_straight_curves_give_the_ratio_of_their_slopes() -> None:
    (price,) = data_prices({32: [line(0.004)], 128: [line(0.002, end=4000)]})
    assert [one.value for one in price.factors] == pytest.approx([2.0, 2.0, 2.0])
    assert price.reached == pytest.approx([2.0, 2.0, 2.0])
    assert price.at_least == 1.0


def test_what_is_never_reached_is_infinite() -> None:
    (price,) = data_prices({32: [line(0.004)], 128: [line(0.002)]})
    assert [math.isinf(one.value) for one in price.factors] == [False, False, True]
    assert price.at_least == pytest.approx(4 / 3, rel=0.01)  # it ends where the baseline had seen three quarters
    assert price.to_dict()["factors"][-1]["value"] is None


def test_a_curve_that_rises_again_counts_from_where_it_was_first_low_enough() -> None:
    falling = list(line(0.004))
    bumpy = [(e, loss + (3.0 if e == 800 else 0.0)) for e, loss in falling]
    (price,) = data_prices({32: [falling], 128: [bumpy]}, shares=(0.5,))
    assert price.factors[0].value == pytest.approx(1.0)


def test_the_interval_is_welch_s_on_logarithms() -> None:
    paces = np.array([1.0, 1.1, 1.3]), np.array([2.0, 2.3])
    ladder = {32: [line(0.004 / p, end=4000) for p in paces[0]], 64: [line(0.004 / p, end=9000) for p in paces[1]]}
    (price,) = data_prices(ladder, shares=(0.2,))
    logs = [np.log(p) for p in paces]
    value = math.exp(logs[1].mean() - logs[0].mean())
    assert price.factors[0].value == pytest.approx(value, rel=1e-6)
    from scipy import stats

    reference = stats.ttest_ind(logs[1], logs[0], equal_var=False).confidence_interval(0.95)
    assert price.factors[0].low == pytest.approx(math.exp(reference.low), rel=1e-6)
    assert price.factors[0].high == pytest.approx(math.exp(reference.high), rel=1e-6)


def test_one_seed_has_no_interval_and_no_curve_no_price() -> None:
    (price,) = data_prices({32: [line(0.004)], 64: [line(0.004)], 128: [[]]}, shares=(0.5,))
    assert (price.factors[0].low, price.factors[0].high) == (0.0, math.inf)
    assert data_prices({32: [line(0.004)]}) == ()
