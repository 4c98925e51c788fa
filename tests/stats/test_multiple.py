import numpy as np
import pytest
from scipy.stats import binom

from svag.stats.decisions import holm, intersection_union

REPEATS = 20_000  # 1e-6 quantiles of the binomial around 5%: 4.3% and 5.8%
LIMIT = binom.isf(1e-6, REPEATS, 0.05) / REPEATS


def test_holm_is_its_definition() -> None:
    assert holm([0.03, 0.01, 0.04]) == [0.06, 0.03, 0.06]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([0.2]) == [0.2]


def test_holm_keeps_the_chance_of_any_false_alarm() -> None:
    p = np.random.default_rng(0).random((REPEATS, 3))
    assert np.mean([min(holm(row.tolist())) < 0.05 for row in p]) < LIMIT
    # one question has a true effect (p = 0): only the other two can be false alarms, and Holm still holds
    p[:, 0] = 0.0
    assert np.mean([min(holm(row.tolist())[1:]) < 0.05 for row in p]) < LIMIT


def test_negative_control_uncorrected_questions_cry_wolf() -> None:
    p = np.random.default_rng(1).random((REPEATS, 3))
    assert np.mean(p.min(axis=1) < 0.05) > LIMIT


def test_intersection_union_needs_every_question() -> None:
    p = np.random.default_rng(2).random((REPEATS, 3))
    p[:, 1:] = 0.0  # the worst case: one of the three equivalences is false, the others certain
    assert np.mean([intersection_union(row.tolist()) < 0.05 for row in p]) < LIMIT
    assert np.mean(p.min(axis=1) < 0.05) > LIMIT  # negative control: one equivalence is not all of them


@pytest.mark.parametrize("p", [[], [1.2], [-0.1], [float("nan")]])
def test_what_is_not_a_p_value_is_refused(p: list[float]) -> None:
    with pytest.raises(ValueError, match="p"):
        holm(p)
