import math

import numpy as np
import pytest
from scipy import special, stats

from svag.arrays import FloatArray
from svag.stats.means import Contrast, contrast, fit_limit, mean_deviations, paired, remaining_bias, welch


def test_welch_is_the_textbook_test() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=4), 1 + 2 * rng.normal(size=7)
    reference = stats.ttest_ind(one, other, equal_var=False)
    found = welch(one, other)
    assert found.p_different() == pytest.approx(reference.pvalue, rel=1e-10)
    assert found.interval(0.9) == pytest.approx(tuple(reference.confidence_interval(0.9)), rel=1e-10)
    assert found.value == pytest.approx(one.mean() - other.mean(), rel=1e-12)


def test_pairs_are_the_textbook_test() -> None:
    rng = np.random.default_rng(0)
    shared = 5 * rng.normal(size=6)
    one, other = shared + rng.normal(size=6), shared + rng.normal(size=6)
    reference = stats.ttest_rel(one, other)
    found = paired(one, other)
    assert found.p_different() == pytest.approx(reference.pvalue, rel=1e-10)
    assert found.interval(0.9) == pytest.approx(tuple(reference.confidence_interval(0.9)), rel=1e-10)
    assert found.error < welch(one, other).error


def test_equivalence_is_a_ninety_per_cent_interval_inside_the_margin() -> None:
    found = Contrast(0.2, 0.1, freedom=7.0)
    edge = found.interval(0.9)[1]
    assert found.p_equivalent(edge) == pytest.approx(0.05, rel=1e-10)
    assert Contrast(-0.2, 0.1, 7.0).p_equivalent(edge) == pytest.approx(0.05, rel=1e-10)
    assert found.p_equivalent(0.1) > 0.5


def test_a_difference_beyond_something_is_a_widened_interval_that_leaves_out_zero() -> None:
    found = Contrast(-0.5, 0.1, freedom=7.0)
    beyond = -found.interval(0.95)[1]
    assert found.p_different(beyond) == pytest.approx(0.05, rel=1e-10)
    assert found.p_different(0.6) == 1.0


def test_without_spread_everything_is_certain() -> None:
    same = welch(np.full(3, 0.1), np.full(3, 0.1))
    assert (same.error, same.freedom, same.p_different(), same.p_equivalent(0.1)) == (0.0, math.inf, 1.0, 0.0)
    apart = welch(np.full(3, 0.4), np.full(3, 0.1))
    assert (apart.p_different(), apart.p_equivalent(0.2)) == (0.0, 1.0)
    assert apart.interval() == (apart.value, apart.value)


def test_one_number_is_no_group() -> None:
    with pytest.raises(ValueError, match=r"\[1, 3\]"):
        contrast([np.ones(1), np.ones(3)], [1, -1])


X = (1.0, 1 / 4, 1 / 16)


def samples(rng: np.random.Generator, c: float, sd: tuple[float, float, float], n: int = 5) -> list[FloatArray]:
    return [c * x + s * rng.normal(size=n) for x, s in zip(X, sd, strict=True)]


def test_the_line_is_the_least_squares_line() -> None:
    rng = np.random.default_rng(0)
    groups = [rng.normal(size=n) for n in (3, 5, 4)]
    x = np.repeat(X, (3, 5, 4))
    slope, limit = np.polyfit(x, np.concatenate(groups), 1)
    fit = fit_limit(X, groups)
    assert (fit.slope.value, fit.limit.value) == pytest.approx((slope, limit), rel=1e-10)


def test_lack_of_fit_is_the_textbook_f_test() -> None:
    rng = np.random.default_rng(1)
    groups = [rng.normal(size=n) for n in (3, 5, 4, 6)]
    x = np.repeat([*X, 1 / 64], (3, 5, 4, 6))
    y = np.concatenate(groups)
    residual = y - np.polyval(np.polyfit(x, y, 1), x)
    pure = sum(float(np.square(group - group.mean()).sum()) for group in groups)
    f = ((residual @ residual - pure) / 2) / (pure / (y.size - 4))
    assert fit_limit([*X, 1 / 64], groups).lack_of_fit == pytest.approx(stats.f.sf(f, 2, y.size - 4), rel=1e-9)


REPEATS = 4000  # binomial bounds at α = 1e-6: ±.017 around .95 and around .05


@pytest.mark.parametrize("sd", [(0.3, 0.3, 0.3), (0.1, 0.2, 0.4), (0.4, 0.2, 0.1)])
def test_the_gap_is_covered_and_a_true_line_is_believed(sd: tuple[float, float, float]) -> None:
    rng = np.random.default_rng(2)
    fits = [fit_limit(X, samples(rng, 1.0, sd)) for _ in range(REPEATS)]
    low, high = stats.binom.ppf(1e-6, REPEATS, 0.94) / REPEATS, stats.binom.isf(1e-6, REPEATS, 0.97) / REPEATS
    assert low < np.mean([a <= 1.0 <= b for a, b in (fit.slope.interval() for fit in fits)]) < high
    assert low < np.mean([a <= 0.0 <= b for a, b in (fit.limit.interval() for fit in fits)]) < high
    # The F test assumes one spread: 5% false alarms there, up to 8% at spreads of 1 : 4.
    promised = 0.05 if len(set(sd)) == 1 else 0.08
    assert (
        np.mean([(fit.lack_of_fit or 0.0) < 0.05 for fit in fits]) < stats.binom.isf(1e-6, REPEATS, promised) / REPEATS
    )


def test_the_slope_covers_the_gap_where_the_smallest_x_in_place_of_the_limit_does_not() -> None:
    rng, fitted, smallest = np.random.default_rng(3), 0, 0
    for _ in range(REPEATS):  # E(1) − E(1/16) is 15/16 of the gap: 2 standard errors off at this spread
        groups = samples(rng, 1.0, (0.05, 0.05, 0.05))
        low, high = fit_limit(X, groups).slope.interval()
        fitted += low <= 1.0 <= high
        low, high = welch(groups[0], groups[2]).interval()
        smallest += low <= 1.0 <= high
    assert smallest / REPEATS < stats.binom.ppf(1e-6, REPEATS, 0.94) / REPEATS < fitted / REPEATS


def test_a_curve_that_is_no_line_is_noticed() -> None:
    rng = np.random.default_rng(4)
    bent = [np.array([e]) + 0.02 * rng.normal(size=5) for e in (1.0, 0.8, 0.1)]
    assert (fit_limit(X, bent).lack_of_fit or 0.0) < 1e-6


@pytest.mark.parametrize(("one", "other"), [(4, 16), (2, 4), (3, 8), (8, 64)])
def test_the_remaining_bias_is_exact_on_a_line(one: int, other: int) -> None:
    e = {ell: np.full(2, 5.0 + 3.0 / ell) for ell in (one, other)}
    assert remaining_bias(1 / one, 1 / other, e[one], e[other]).value == pytest.approx(3.0 / one, rel=1e-10)


def test_the_remaining_bias_carries_its_factor_into_the_error() -> None:
    rng = np.random.default_rng(5)
    one, other = rng.normal(size=(2, 4))
    plain, bias = welch(one, other), remaining_bias(1 / 4, 1 / 16, one, other)
    assert bias.error == pytest.approx(4 / 3 * plain.error, rel=1e-12)
    assert bias.freedom == pytest.approx(plain.freedom, rel=1e-12)


def test_convergence_is_claimed_wrongly_at_most_one_time_in_twenty() -> None:
    # The bias of x = 1/4 is c/4; at c = 4 × .5 it is just outside a margin of .5.
    rng = np.random.default_rng(6)
    wrong = 0
    for _ in range(REPEATS):
        _, one, other = samples(rng, 2.0, (0.1, 0.15, 0.15))
        wrong += remaining_bias(X[1], X[2], one, other).p_equivalent(0.5) < 0.05
    assert wrong / REPEATS < stats.binom.isf(1e-6, REPEATS, 0.05) / REPEATS


def test_groups_without_spread_and_two_groups() -> None:
    constant = [np.full(3, 1.0), np.full(3, 0.25), np.full(3, 1 / 16)]
    assert fit_limit(X, constant).lack_of_fit == 1.0
    assert fit_limit(X, [np.full(3, 1.0), np.full(3, 0.9), np.full(3, 0.0)]).lack_of_fit == 0.0
    assert fit_limit(X[:2], constant[:2]).lack_of_fit is None
    assert math.isclose(fit_limit(X[:2], constant[:2]).slope.value, 1.0)


def test_bad_ladders_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\bx\b"):
        fit_limit([1.0, 1.0], [np.ones(2), np.ones(2)])
    with pytest.raises(ValueError, match=r"^x_one\b.*x_other"):
        remaining_bias(1 / 16, 1 / 4, np.ones(2), np.ones(2))


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
    with pytest.raises(ValueError, match="got 1"):
        mean_deviations(np.ones(1), 100, 0.95, 1, rng)
