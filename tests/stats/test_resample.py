import numpy as np
import pytest
from scipy import special, stats

from svag.stats.means import mean_deviations


@pytest.mark.parametrize("n", [4, 10])
def test_quantiles_of_the_bootstrap_cover_the_mean_and_plain_ones_do_not(n: int) -> None:
    # 2,000 groups of Gaussian numbers: the widened bootstrap covers 93 to 97% of the means (it is exact only on
    # average over resamples); 1e-6 quantiles of the binomial around that. The plain one with 4 numbers covers 81%.
    rng, repeats = np.random.default_rng(0), 2000
    upper = special.stdtrit(n - 1, 0.975) / special.ndtri(0.975) * np.sqrt(n / (n - 1))
    covered, plain = 0, 0
    for group in rng.normal(size=(repeats, n)):
        drawn = mean_deviations(group, 1000, 0.95, n - 1, rng)
        low, high = np.quantile(drawn, [0.025, 0.975])
        covered += group.mean() + low <= 0 <= group.mean() + high
        plain += group.mean() + low / upper <= 0 <= group.mean() + high / upper
    low, high = stats.binom.ppf(1e-6, repeats, 0.93) / repeats, stats.binom.isf(1e-6, repeats, 0.97) / repeats
    assert low < covered / repeats < high
    assert n > 4 or plain / repeats < low


def test_no_spread_and_one_number() -> None:
    rng = np.random.default_rng(0)
    assert not mean_deviations(np.full(3, 0.1), 100, 0.95, 2, rng).any()
    with pytest.raises(ValueError, match="at least two numbers, got 1"):
        mean_deviations(np.ones(1), 100, 0.95, 1, rng)
