import numpy as np
import pytest

from svag.stats.decisions import chance_to_decide, samples_to_decide, three_way
from svag.stats.means import welch

REPEATS = 4000


@pytest.mark.parametrize(("n", "gap"), [(5, 0.0), (6, 0.3), (5, 1.0), (10, 0.6)])
def test_the_chances_are_those_of_the_test(n: int, gap: float) -> None:
    # 4,000 trials: 4.9 standard errors are .039 at most; .015 is what the approximation may be off.
    rng = np.random.default_rng(0)
    ones, others = gap + 0.5 * rng.normal(size=(REPEATS, n)), 0.5 * rng.normal(size=(REPEATS, n))
    found = [three_way(welch(one, other), margin=1.0) for one, other in zip(ones, others, strict=True)]
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
