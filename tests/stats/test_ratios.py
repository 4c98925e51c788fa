import math

import numpy as np
import pytest
from scipy import special
from scipy.signal import lfilter
from scipy.stats import binom

from svag.arrays import FloatArray
from svag.stats.ratios import (
    PairMoments,
    fieller,
    log_delta,
    pair_moments,
    ratio_interval,
    successive_moments,
    successive_ratio,
)
from svag.stats.series import plan_blocks

TWENTY = PairMoments(3.0, 1.0, 0.04, 0.05, 0.01, count=20)


def rejects(pairs: PairMoments, ratio: float) -> bool:
    """Student's test of n̄ − r d̄ = 0, which Fieller's set inverts."""
    variance = pairs.var_num - 2 * ratio * pairs.cov + ratio**2 * pairs.var_den
    return abs(pairs.num - ratio * pairs.den) > pairs.t_quantile(0.95) * math.sqrt(variance)


def test_twenty_blocks_have_nineteen_degrees_of_freedom() -> None:
    assert TWENTY.t_quantile(0.95) == pytest.approx(2.0930240544, abs=1e-9)


def test_moments_are_those_of_the_means() -> None:
    num, den = np.random.default_rng(0).normal(size=(2, 7))
    pairs = pair_moments(num, den)
    assert pairs.var_num == pytest.approx(np.var(num, ddof=1) / 7, rel=1e-12)
    assert pairs.cov == pytest.approx(float((num - num.mean()) @ (den - den.mean())) / 42, rel=1e-12)


@pytest.mark.parametrize(
    "pairs",
    [
        TWENTY,
        PairMoments(3.0, 0.3, 0.04, 0.05, 0.01, count=20),  # denominator not resolved: [low, ∞)
        PairMoments(3.0, -0.2, 0.04, 0.05, 0.01, count=20),  # its estimate is negative: still [low, ∞)
        PairMoments(0.1, 1.0, 0.04, 0.05, 0.01, count=20),  # numerator not resolved: [0, high]
        PairMoments(0.1, 0.1, 0.04, 0.05, 0.0, count=20),  # neither: [0, ∞)
    ],
)
def test_fieller_is_the_set_of_ratios_that_the_test_keeps(pairs: PairMoments) -> None:
    limits = fieller(pairs)
    assert limits is not None
    for ratio in np.linspace(0.0, 60.0, 4001).tolist():
        assert (limits[0] <= ratio <= limits[1]) != rejects(pairs, ratio)


def test_fieller_is_empty_when_a_mean_is_significantly_negative() -> None:
    assert fieller(PairMoments(3.0, -1.0, 0.04, 0.05, 0.01, count=20)) is None
    assert fieller(PairMoments(-3.0, 1.0, 0.04, 0.05, 0.01, count=20)) is None
    assert fieller(PairMoments(-3.0, -1.0, 0.04, 0.05, 0.01, count=20)) is None


def test_without_spread_the_interval_is_the_value() -> None:
    sure = PairMoments(3.0, 2.0, 0.0, 0.0, 0.0, count=20)
    assert fieller(sure) == log_delta(sure) == (1.5, 1.5)
    assert fieller(PairMoments(3.0, 0.0, 0.0, 0.0, 0.0, count=20)) == (0.0, math.inf)


def test_turning_the_ratio_over_turns_the_interval_over() -> None:
    over = PairMoments(TWENTY.den, TWENTY.num, TWENTY.var_den, TWENTY.var_num, TWENTY.cov, 20)
    for limits in (log_delta, fieller):
        ends, swapped = limits(TWENTY), limits(over)
        assert ends is not None
        assert swapped is not None
        assert swapped == pytest.approx((1 / ends[1], 1 / ends[0]), rel=1e-10)


def test_both_methods_agree_when_the_spread_is_small() -> None:
    narrow = PairMoments(3.0, 1.0, 4e-6, 5e-6, 1e-6, count=20)
    assert fieller(narrow) == pytest.approx(log_delta(narrow), rel=1e-4)


def test_log_delta_refuses_a_mean_that_is_not_positive() -> None:
    with pytest.raises(ValueError, match="fieller"):
        log_delta(PairMoments(3.0, -1.0, 0.04, 0.05, 0.01, count=20))


PHI = 0.8  # integrated autocorrelation time 9


def readings(rng: np.random.Generator, n: int, den: float) -> tuple[FloatArray, FloatArray]:
    """A numerator around 2 and a denominator around `den`, single readings of either sign, correlated in time."""
    noise = lfilter([1.0], [1.0, -PHI], rng.normal(size=(2, n + 50)))[:, 50:] * math.sqrt(1 - PHI**2)
    return 2 + 0.5 * noise[0], den + 0.5 * noise[1] + 0.2 * noise[0]


# Promise: coverage .94 to .96. 2,000 series: the bounds are the 1e-6 quantiles of the binomial at those ends, .912 and
# .979; blocks of a tenth (.85) and intervals for independent readings (about .5) are far outside.
REPEATS = 2000
BOUNDS = binom.ppf(1e-6, REPEATS, 0.94) / REPEATS, binom.isf(1e-6, REPEATS, 0.96) / REPEATS


@pytest.mark.parametrize("den", [1.0, 0.1])  # log-delta; Fieller, sometimes unbounded
def test_the_interval_covers_as_promised(den: float) -> None:
    rng = np.random.default_rng(11)
    found = [ratio_interval(*readings(rng, 2400, den)) for _ in range(REPEATS)]
    assert BOUNDS[0] < np.mean([one.low <= 2 / den <= one.high for one in found]) < BOUNDS[1]
    assert {one.method for one in found} == ({"log_delta"} if den == 1.0 else {"log_delta", "fieller"})
    assert all(one.low >= 0 and one.value >= 0 for one in found)


def test_a_short_series_keeps_long_blocks_and_has_fewer() -> None:
    found = ratio_interval(*readings(np.random.default_rng(19), 900, 1.0))  # 100 autocorrelation times
    assert found.iact > 5
    assert found.block_length >= 10 * found.iact
    assert 2 <= found.blocks < 20
    assert not found.enough


def test_independent_readings_each_count_as_a_block() -> None:
    rng = np.random.default_rng(12)
    found = [
        ratio_interval(2 + rng.normal(size=40), 1 + 0.5 * rng.normal(size=40), independent=True) for _ in range(REPEATS)
    ]
    assert BOUNDS[0] < np.mean([one.low <= 2 <= one.high for one in found]) < BOUNDS[1]
    assert (found[0].blocks, found[0].block_length, found[0].enough) == (40, 1, True)


def test_negative_control_intervals_for_independent_readings_do_not_cover() -> None:
    rng = np.random.default_rng(13)
    found = [ratio_interval(*readings(rng, 2400, 1.0), independent=True) for _ in range(REPEATS)]
    assert np.mean([one.low <= 2 <= one.high for one in found]) < 0.7 < BOUNDS[0]


def test_negative_control_blocks_of_a_tenth_do_not_cover() -> None:
    rng, covered = np.random.default_rng(14), 0
    for _ in range(REPEATS):
        num, den = readings(rng, 20 * 9, 1.0)  # 20 blocks of one autocorrelation time
        low, high = log_delta(pair_moments(num.reshape(20, 9).mean(axis=1), den.reshape(20, 9).mean(axis=1)))
        covered += low <= 2 <= high
    assert covered / REPEATS < BOUNDS[0]


def test_the_ratio_of_averages_covers_where_the_average_of_ratios_does_not() -> None:
    rng, covered, wrong = np.random.default_rng(15), 0, 0
    for _ in range(REPEATS):
        num, den = readings(rng, 2400, 0.3)
        found = ratio_interval(num, den)
        covered += found.low <= 2 / 0.3 <= found.high
        ratios = (num / den).reshape(20, -1).mean(axis=1)
        half = special.stdtrit(19, 0.975) * ratios.std(ddof=1) / math.sqrt(20)
        wrong += abs(ratios.mean() - 2 / 0.3) <= half
    assert wrong / REPEATS < BOUNDS[0] < covered / REPEATS < BOUNDS[1]


def test_near_zero_log_delta_is_wrong_where_fieller_is_right() -> None:
    # Denominator 1.5 standard errors above 0, 20 Gaussian pairs; the set at the truth covers exactly 95%, less the
    # cases (pruned to the empty set) where the mean is significantly negative: P(t₁₉ < −2.09 − 1.5) < .001.
    rng, covered, log_covered = np.random.default_rng(16), 0, 0
    for _ in range(REPEATS):
        pairs = pair_moments(5 + rng.normal(size=20), 1.5 / math.sqrt(20) + rng.normal(size=20))
        truth, limits = 5 / (1.5 / math.sqrt(20)), fieller(pairs)
        covered += limits is not None and limits[0] <= truth <= limits[1]
        if pairs.den > 0:  # otherwise log-delta has no answer at all
            low, high = log_delta(pairs)
            log_covered += low <= truth <= high
    assert BOUNDS[0] < covered / REPEATS < BOUNDS[1]
    assert log_covered / REPEATS < BOUNDS[0]


def test_unresolved_empty_and_short_series_have_a_kind() -> None:
    rng = np.random.default_rng(17)
    noise = rng.normal(size=1000)
    unbounded = ratio_interval(5 + noise, 0.01 * noise)
    assert (unbounded.kind, unbounded.high) == ("unbounded", math.inf)
    assert unbounded.low > 100
    empty = ratio_interval(5 + noise, noise - 1)
    assert empty.kind == "empty"
    assert math.isnan(empty.value)
    short = ratio_interval(5 + noise[:8], 1 + 0.1 * noise[:8])
    assert (short.kind, short.low, short.method, short.enough) == ("unbounded", 0.0, "none", False)
    assert ratio_interval([1.0], [2.0]).value == 0.5


def test_a_constant_series_is_its_own_answer() -> None:
    found = ratio_interval(np.full(400, 3.0), np.full(400, 2.0))
    assert (found.value, found.low, found.high, found.kind) == (1.5, 1.5, 1.5, "bounded")


def test_units_do_not_matter() -> None:
    num, den = readings(np.random.default_rng(18), 2400, 1.0)
    one, other = ratio_interval(num, den), ratio_interval(1e-12 * num, 1e-9 * den)
    assert (other.low, other.high) == pytest.approx((1e-3 * one.low, 1e-3 * one.high), rel=1e-9)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"^numerator\b.* 3 .* 2 "):
        ratio_interval([1.0, 2.0, 3.0], [1.0, 2.0])
    with pytest.raises(ValueError, match=r"^denominator\[0\] .*nan"):
        ratio_interval([1.0], [math.nan])
    with pytest.raises(ValueError, match="confidence"):
        ratio_interval([1.0], [1.0], confidence=95)


def test_blocks_are_as_long_as_the_memory_of_what_is_uncertain() -> None:
    # Shared white noise hides a slow drift in both series; it cancels in num − ratio·den, whose mean is the uncertain
    # part: an AR(1) with coefficient .9 remembers 19 readings, where the series by themselves seem to remember 2.
    rng = np.random.default_rng(0)
    white, slow = rng.normal(size=4000), lfilter([0.1], [1, -0.9], rng.normal(size=4000))
    assert ratio_interval(5 + white + slow, 5 + white).iact == pytest.approx(19, rel=0.35)


def test_successive_moments_by_hand() -> None:
    """Two groups, (0, 2, 1) and (10, 13): squared differences 4, 1 and 9, none across; 5 readings."""
    found = successive_moments(
        np.array([0.0, 2.0, 1.0, 10.0, 13.0]), np.array([1.0, 1.0, 2.0, 2.0, 4.0]), starts=(0, 3)
    )
    assert (found.num, found.den) == (5.2, 2.0)
    assert found.var_num == pytest.approx((4 + 1 + 9) / 2 / 3 / 5)
    assert found.var_den == pytest.approx((0 + 1 + 4) / 2 / 3 / 5)
    assert found.cov == pytest.approx((0 - 1 + 6) / 2 / 3 / 5)
    assert found.count == 1 + 2
    with pytest.raises(ValueError, match="got 1"):
        successive_moments(np.arange(3.0), np.arange(3.0), starts=(0, 2))


PER_RUN, APART = 29, 33  # readings of a run, and steps between two of them: those of a small BatchNorm ladder


def path_and_readings(rng: np.random.Generator, shared: bool = False) -> tuple[FloatArray, FloatArray, float]:
    """Two runs whose N and G drift, wander and differ from run to run: their readings, and the ratio of the averages.

    The truth is about every step of both runs, of which one in 33 is read. With `shared` the errors of successive
    readings are correlated, as if they shared batches.
    """
    time = np.linspace(0.0, 1.0, PER_RUN * APART)
    noise, signal, read = [], [], np.arange(PER_RUN) * APART + APART // 2
    for _ in range(2):
        draws = [np.exp(-1 / memory) for memory in (20, 200)]
        rows = [lfilter([math.sqrt(1 - a * a)], [1, -a], rng.normal(size=(2, time.size + 1000))) for a in draws]
        wander = np.sum(rows, axis=0)[:, 1000:]
        noise.append(8 * (1.3 - 0.6 * time) * (1 + 0.4 * rng.uniform(-1, 1)) * np.exp(0.15 * wander[0]))
        signal.append(2 * np.exp(-1.5 * time + 0.7 * rng.uniform(-1, 1) + 0.3 * wander[1]))
    errors = rng.normal(size=(2, 2 * PER_RUN))
    if shared:
        errors = lfilter([math.sqrt(1 - 0.9**2)], [1, -0.9], errors)
    num = np.concatenate([row[read] for row in noise]) * (1 + 0.15 * errors[0])
    den = np.concatenate([row[read] for row in signal]) + 0.5 * errors[1]
    return num, den, float(np.mean(noise) / np.mean(signal))


@pytest.mark.parametrize(("shared", "covers"), [(False, True), (True, False)])
def test_the_interval_about_these_times_covers_what_drifts_wanders_and_differs(shared: bool, covers: bool) -> None:
    """Of 4,000 such streams it covered 97.9%, of plain ones 95.0%, of drifting ones 94.5%.

    The negative control are readings whose errors are not independent of each other.
    """
    rng, found = np.random.default_rng(1), 0
    for _ in range(600):
        num, den, truth = path_and_readings(rng, shared)
        interval = successive_ratio(num, den, starts=(0, PER_RUN), plan=plan_blocks(num.size, 10.0))
        assert interval.at_these_times
        found += interval.low <= truth <= interval.high
    assert (found >= binom.ppf(1e-6, 600, 0.95)) == covers, found / 600


def test_it_does_not_speak_of_other_runs() -> None:
    """The mean over all runs there could be is not in it: what two runs differ by is not in its width."""
    rng, found = np.random.default_rng(2), 0
    for _ in range(300):
        level = 8 * (1 + 0.4 * rng.uniform(-1, 1, size=2)).repeat(PER_RUN)
        num, den = level * (1 + 0.15 * rng.normal(size=2 * PER_RUN)), 1 + 0.2 * rng.normal(size=2 * PER_RUN)
        interval = successive_ratio(num, den, starts=(0, PER_RUN), plan=plan_blocks(num.size, 10.0))
        found += interval.low <= 8 <= interval.high
    assert found < 0.7 * 300
