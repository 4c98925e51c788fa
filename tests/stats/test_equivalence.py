import numpy as np
import pytest
from scipy import special, stats

from svag.stats.decisions import three_way
from svag.stats.means import Estimate, welch

REPEATS = 4000


def answers(seed: int, n: tuple[int, int], sd: tuple[float, float], gap: float) -> list[str]:
    rng = np.random.default_rng(seed)
    ones = gap + sd[0] * rng.normal(size=(REPEATS, n[0]))
    others = sd[1] * rng.normal(size=(REPEATS, n[1]))
    return [three_way(welch(one, other), margin=1.0) for one, other in zip(ones, others, strict=True)]


@pytest.mark.parametrize(("seeds", "chance"), [(3, 0.31), (5, 0.76), (6, 0.88)])
def test_how_often_no_gap_is_called_equivalent(seeds: int, chance: float) -> None:
    # 4,000 trials: 4.9 standard errors (α = 1e-6) are .036 at most, and .005 is the rounding of the promised numbers.
    found = answers(1, (seeds, seeds), (0.5, 0.5), 0.0).count("equivalent") / REPEATS
    assert abs(found - chance) < 4.9 * np.sqrt(chance * (1 - chance) / REPEATS) + 0.005


# Promise: at most 5% wrong answers, with three seeds an arm and up, and spreads as unequal as 1 : 4. Welch's test with
# 3 against 3 at such spreads is known to reach 6%: that is the bound, with the 1e-6 quantile of the binomial on top.
LIMIT = stats.binom.isf(1e-6, REPEATS, 0.06) / REPEATS
ARMS = [((3, 3), (0.5, 0.5)), ((3, 6), (0.6, 0.15)), ((6, 3), (0.15, 0.6)), ((5, 5), (0.1, 0.4))]


@pytest.mark.parametrize(("n", "sd"), ARMS)
def test_wrong_answers_are_as_rare_as_promised(n: tuple[int, int], sd: tuple[float, float]) -> None:
    assert answers(2, n, sd, 0.0).count("different") / REPEATS < LIMIT
    for gap in (1.0, -1.0):
        assert answers(3, n, sd, gap).count("equivalent") / REPEATS < LIMIT


def test_negative_control_no_significant_difference_is_not_equivalence() -> None:
    rng = np.random.default_rng(4)
    found = [welch(1 + rng.normal(size=3), rng.normal(size=3)).p_different() > 0.05 for _ in range(REPEATS)]
    assert np.mean(found) > 0.5 > LIMIT


def test_negative_control_a_common_spread_cries_wolf() -> None:
    rng = np.random.default_rng(5)
    ones, others = 0.6 * rng.normal(size=(REPEATS, 3)), 0.15 * rng.normal(size=(REPEATS, 6))
    pooled = (2 * ones.var(axis=1, ddof=1) + 5 * others.var(axis=1, ddof=1)) / 7
    t = np.abs(ones.mean(axis=1) - others.mean(axis=1)) / np.sqrt(pooled * (1 / 3 + 1 / 6))
    assert np.mean(t > special.stdtrit(7, 0.975)) > LIMIT


def test_a_small_real_gap_is_equivalent_and_certainty_has_an_answer() -> None:
    assert three_way(Estimate(0.1, 0.001, 9.0), margin=0.5) == "equivalent"
    assert three_way(Estimate(0.7, 0.001, 9.0), margin=0.5) == "different"
    assert three_way(Estimate(0.6, 0.2, 9.0), margin=0.5) == "different"
    assert three_way(Estimate(0.4, 0.3, 9.0), margin=0.5) == "inconclusive"


def test_margin_and_level_are_checked() -> None:
    with pytest.raises(ValueError, match="margin"):
        three_way(Estimate(0.0, 1.0, 2.0), margin=0.0)
    with pytest.raises(ValueError, match="alpha"):
        three_way(Estimate(0.0, 1.0, 2.0), margin=1.0, alpha=5.0)
