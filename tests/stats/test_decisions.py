import math

import numpy as np
import pytest
from scipy import special, stats
from scipy.stats import binom

from svag.arrays import FloatArray
from svag.stats.curves import smallest_p
from svag.stats.decisions import chance_to_decide, compare_rates, holm, samples_to_decide, three_way
from svag.stats.means import Contrast, welch

REPEATS = 4000


def two_groups(seed: int, n: tuple[int, int], sd: tuple[float, float], gap: float) -> tuple[FloatArray, FloatArray]:
    """Pairs of groups, one pair a row, whose means are `gap` apart."""
    rng = np.random.default_rng(seed)
    return gap + sd[0] * rng.normal(size=(REPEATS, n[0])), sd[1] * rng.normal(size=(REPEATS, n[1]))


def answers(ones: FloatArray, others: FloatArray) -> list[str]:
    return [three_way(welch(one, other), margin=1.0) for one, other in zip(ones, others, strict=True)]


@pytest.mark.parametrize(("seeds", "chance"), [(3, 0.31), (5, 0.76), (6, 0.88)])
def test_how_often_no_gap_is_called_equivalent(seeds: int, chance: float) -> None:
    # 4,000 trials: 4.9 standard errors (α = 1e-6) are .036 at most, and .005 is the rounding of the promised numbers.
    found = answers(*two_groups(1, (seeds, seeds), (0.5, 0.5), 0.0)).count("equivalent") / REPEATS
    assert abs(found - chance) < 4.9 * np.sqrt(chance * (1 - chance) / REPEATS) + 0.005


# Promise: at most 5% wrong answers, with three seeds an arm and up, and spreads as unequal as 1 : 4. Welch's test with
# 3 against 3 at such spreads is known to reach 6%: that is the bound, with the 1e-6 quantile of the binomial on top.
LIMIT = stats.binom.isf(1e-6, REPEATS, 0.06) / REPEATS
ARMS = [((3, 3), (0.5, 0.5)), ((3, 6), (0.6, 0.15)), ((6, 3), (0.15, 0.6)), ((5, 5), (0.1, 0.4))]


@pytest.mark.parametrize(("n", "sd"), ARMS)
def test_wrong_answers_are_as_rare_as_promised(n: tuple[int, int], sd: tuple[float, float]) -> None:
    assert answers(*two_groups(2, n, sd, 0.0)).count("different") / REPEATS < LIMIT
    for gap in (1.0, -1.0):
        assert answers(*two_groups(3, n, sd, gap)).count("equivalent") / REPEATS < LIMIT


def test_no_significant_difference_is_not_equivalence() -> None:
    """A gap of the whole margin: most small samples show no significant difference, and none of that is equivalence."""
    ones, others = two_groups(4, (3, 3), (1.0, 1.0), 1.0)
    assert answers(ones, others).count("equivalent") / REPEATS < LIMIT
    insignificant = [welch(one, other).p_different() > 0.05 for one, other in zip(ones, others, strict=True)]
    assert np.mean(insignificant) > 0.5


def test_unequal_spreads_raise_no_false_alarms_where_a_common_spread_does() -> None:
    ones, others = two_groups(5, (3, 6), (0.6, 0.15), 0.0)
    pooled = (2 * ones.var(axis=1, ddof=1) + 5 * others.var(axis=1, ddof=1)) / 7
    t = np.abs(ones.mean(axis=1) - others.mean(axis=1)) / np.sqrt(pooled * (1 / 3 + 1 / 6))
    ours = [welch(one, other).p_different() < 0.05 for one, other in zip(ones, others, strict=True)]
    assert np.mean(ours) < LIMIT < np.mean(t > special.stdtrit(7, 0.975))


def test_a_small_real_gap_is_equivalent_and_certainty_has_an_answer() -> None:
    assert three_way(Contrast(0.1, 0.001, 9.0), margin=0.5) == "equivalent"
    assert three_way(Contrast(0.7, 0.001, 9.0), margin=0.5) == "different"
    assert three_way(Contrast(0.6, 0.2, 9.0), margin=0.5) == "different"
    assert three_way(Contrast(0.4, 0.3, 9.0), margin=0.5) == "inconclusive"


def test_margin_and_level_are_checked() -> None:
    with pytest.raises(ValueError, match="margin"):
        three_way(Contrast(0.0, 1.0, 2.0), margin=0.0)
    with pytest.raises(ValueError, match="alpha"):
        three_way(Contrast(0.0, 1.0, 2.0), margin=1.0, alpha=5.0)


def test_holm_is_its_definition() -> None:
    assert holm([0.03, 0.01, 0.04]) == [0.06, 0.03, 0.06]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([0.2]) == [0.2]


def test_holm_keeps_the_chance_of_any_false_alarm_and_uncorrected_questions_do_not() -> None:
    repeats = 20_000  # 1e-6 quantile of the binomial around 5%: 5.8%
    limit = binom.isf(1e-6, repeats, 0.05) / repeats
    p = np.random.default_rng(0).random((repeats, 3))
    assert np.mean([min(holm(row.tolist())) < 0.05 for row in p]) < limit < np.mean(p.min(axis=1) < 0.05)
    # one question has a true effect (p = 0): only the other two can be false alarms, and Holm still holds
    p[:, 0] = 0.0
    assert np.mean([min(holm(row.tolist())[1:]) < 0.05 for row in p]) < limit < np.mean(p[:, 1:].min(axis=1) < 0.05)


@pytest.mark.parametrize("p", [[], [1.2], [-0.1], [float("nan")]])
def test_what_is_not_a_p_value_is_refused(p: list[float]) -> None:
    with pytest.raises(ValueError, match="p"):
        holm(p)


def false_alarms(n: int, m: int, p_value: dict[tuple[int, int], float]) -> float:
    """Exact probability of p < 5% when both groups fail equally often, at the worst such rate."""
    rates = np.linspace(0.02, 0.98, 49)
    alarms = [(i, j) for (i, j), p in p_value.items() if p < 0.05]
    return max(float(sum(binom.pmf(i, n, rate) * binom.pmf(j, m, rate) for i, j in alarms)) for rate in rates)


@pytest.mark.parametrize(("n", "m"), [(3, 3), (5, 5), (6, 4), (8, 8), (10, 10)])
def test_false_alarms_are_below_five_per_cent_at_every_rate(n: int, m: int) -> None:
    counts = [(i, j) for i in range(n + 1) for j in range(m + 1)]
    assert false_alarms(n, m, {(i, j): compare_rates(i, n, j, m) for i, j in counts}) < 0.05
    if n == m == 8:  # the normal approximation alarms in 7.7% of cases at a rate of one half
        assert false_alarms(n, m, {(i, j): normal_approximation(i, j, n) for i, j in counts}) > 0.05


def normal_approximation(i: int, j: int, n: int) -> float:
    rate = (i + j) / (2 * n)
    z = abs(i - j) / n / math.sqrt(2 * rate * (1 - rate) / n) if 0 < rate < 1 else 0.0
    return math.erfc(z / math.sqrt(2))


def test_the_best_that_these_sizes_can_do() -> None:
    for n, m in ((3, 3), (5, 5), (2, 5)):
        assert compare_rates(n, n, 0, m) == pytest.approx(smallest_p(n, m), rel=1e-10)
    assert compare_rates(0, 3, 0, 3) == 1.0


@pytest.mark.parametrize("failed", [-1, 4])
def test_counts_are_checked(failed: int) -> None:
    with pytest.raises(ValueError, match=f"got {failed} of 3"):
        compare_rates(0, 3, failed, 3)


@pytest.mark.parametrize(("n", "gap"), [(5, 0.0), (6, 0.3), (5, 1.0), (10, 0.6)])
def test_the_chances_are_those_of_the_test(n: int, gap: float) -> None:
    # 4,000 trials: 4.9 standard errors are .039 at most; .015 is what the approximation may be off.
    found = answers(*two_groups(0, (n, n), (0.5, 0.5), gap))
    freedom = 2 * (n - 1) * n / (n + 1)  # Welch's, on average
    chances = chance_to_decide(gap, np.array([0.5 * np.sqrt(2 / n)]), np.array([freedom]), margin=1.0)
    assert abs(found.count("equivalent") / REPEATS - chances[0][0]) < 0.039 + 0.015
    assert abs(found.count("different") / REPEATS - chances[1][0]) < 0.039 + 0.015


def test_the_advice_is_enough_and_not_too_much() -> None:
    rng = np.random.default_rng(1)
    gap, sd, margin = 0.1, 0.5, 0.5
    n = samples_to_decide(gap, sd * np.sqrt(2 / 5), freedom=8.0, samples=5, margin=margin)
    assert n is not None

    def decided(size: int) -> float:
        pairs = sd * rng.normal(size=(REPEATS, 2, size)) + np.array([gap, 0.0])[:, None]
        return float(np.mean([three_way(welch(*pair), margin) != "inconclusive" for pair in pairs]))

    assert decided(n) > 0.8 - 0.039
    assert decided(n - 3) < 0.8 + 0.039


def test_more_is_more_than_now_and_hopeless_is_none() -> None:
    assert samples_to_decide(0.0, 0.1, freedom=8.0, samples=5, margin=1.0) == 6
    assert samples_to_decide(0.0, 10.0, freedom=8.0, samples=5, margin=0.1) is None
