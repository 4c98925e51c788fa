"""Extrapolation weights, the optimal deal of samples, and plans that keep what they promise."""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from scipy import special, stats

from svag.paper.exact.affine import AffineProblem
from svag.paper.exact.processes import Ito, Svag
from svag.paper.verify.beds import EFFECTIVE_STEPS, SKEWED
from svag.stats.allocation import (
    Allocation,
    Level,
    allocate,
    chance_of_equivalence,
    cheapest,
    extrapolation_weights,
    plan_equivalence,
    plan_gap,
)
from svag.stats.means import contrast
from svag.theory.weights import pair_cost
from svag.verdicts.sde import sde_verdict


@pytest.mark.parametrize("x", [(0.3,), (1.0, 0.25), (0.5, 0.125, 1 / 48), (1.0, 1 / 2, 1 / 3, 1 / 16)])
def test_weights_solve_the_vandermonde_system_and_leave_the_product_of_the_next_power(x: tuple[float, ...]) -> None:
    powers = np.vander(x, increasing=True).T
    weights = extrapolation_weights(x)
    np.testing.assert_allclose(weights, np.linalg.solve(powers, np.eye(len(x))[0]), rtol=1e-10)
    left = np.dot(weights, np.power(x, len(x)))
    assert left == pytest.approx((-1) ** (len(x) - 1) * math.prod(x), rel=1e-10)


@pytest.mark.parametrize("x", [(), (0.5, 0.5), (0.0, 0.5), (-1.0,)])
def test_weights_need_different_positive_places(x: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"^x\b"):
        extrapolation_weights(x)


LEVELS = (Level(1.0, 1.0, 0.7), Level(0.25, 8.0, 0.5), Level(1 / 16, 32.0, 0.4))


def test_no_other_deal_buys_the_variance_for_less() -> None:
    weights = extrapolation_weights([level.x for level in LEVELS])
    plan = allocate(LEVELS, weights, variance=0.03)
    assert plan.variance == pytest.approx(0.03, rel=1e-12)
    product_of_both = sum(abs(w) * one.spread * one.cost**0.5 for w, one in zip(weights, LEVELS, strict=True)) ** 2
    assert plan.cost == pytest.approx(product_of_both / 0.03, rel=1e-12)
    rng = np.random.default_rng(0)
    for _ in range(200):
        moved = np.array(plan.samples) * np.exp(0.2 * rng.standard_normal(3))
        other = Allocation(LEVELS, weights, tuple(moved))
        assert other.cost * other.variance > plan.cost * plan.variance


def test_whole_samples_are_rounded_up_and_no_further() -> None:
    plan = Allocation(LEVELS, (1.0, 1.0, 1.0), (2.0 + 1e-12, 2.5, 0.1))
    assert plan.whole().samples == (2.0, 3.0, 1.0)
    assert plan.whole([4, 1, 2]).samples == (4.0, 3.0, 2.0)
    assert plan.whole().variance <= plan.variance


def square(chosen: Sequence[Level], weights: Sequence[float]) -> float:
    """The bias where E(x) = E(0) + x − 2x²."""
    return sum(w * (one.x - 2 * one.x**2) for w, one in zip(weights, chosen, strict=True))


def test_the_cheapest_plan_lies_on_both_sides_of_a_search_over_all_whole_numbers() -> None:
    error, best = 0.35, math.inf
    for counts in product(range(13), repeat=3):
        chosen = [level for level, n in zip(LEVELS, counts, strict=True) if n]
        samples = tuple(float(n) for n in counts if n)
        if chosen:
            weights = extrapolation_weights([level.x for level in chosen])
            plan = Allocation(tuple(chosen), weights, samples, square(chosen, weights))
            best = min(best, plan.cost if plan.error <= error else math.inf)
    smooth, whole = (cheapest(LEVELS, error, square, whole=whole) for whole in (False, True))
    assert smooth is not None
    assert whole is not None
    assert smooth.cost <= best <= whole.cost
    assert smooth.error == pytest.approx(error, rel=1e-12)
    assert whole.error <= error
    assert whole.cost <= smooth.whole().cost


def test_an_error_below_every_bias_is_out_of_reach() -> None:
    assert cheapest(LEVELS[:1], 0.5, square) is None
    assert cheapest(LEVELS[:1], 1.5, square) is not None


class Bed:
    """E x³ under SVAG(ell, split) on skewed noise, exactly."""

    degree = 3

    def __init__(self, problem: AffineProblem = SKEWED) -> None:
        self.problem = problem
        self.limit = float(problem.limit_moments(Ito(), EFFECTIVE_STEPS, self.degree)[-1, self.degree])

    def moments(self, ell: int, split: int) -> tuple[float, float]:
        found = self.problem.moments(Svag(ell, split), EFFECTIVE_STEPS, 2 * self.degree)[-1]
        return float(found[self.degree]), float(found[2 * self.degree])

    def level(self, ell: int, split: int) -> Level:
        mean, second = self.moments(ell, split)
        return Level(1 / ell, pair_cost(ell, split), math.sqrt(second - mean**2))

    def plan(self, ells: Sequence[int], split: int, most: int, error: float) -> Allocation:
        def bias(chosen: Sequence[Level], weights: Sequence[float]) -> float:
            means = [self.moments(round(1 / level.x), split)[0] for level in chosen]
            return float(np.dot(weights, means)) - self.limit

        found = cheapest([self.level(ell, split) for ell in ells], error, bias, most=most)
        assert found is not None
        return found


def test_on_an_exact_bed_split_and_extrapolation_are_eight_times_cheaper_than_plain_svag() -> None:
    bed = Bed()
    constant = 1024 * abs(bed.moments(1024, 1)[0] - bed.limit)
    error = 3**0.5 * constant / 256
    plain = bed.plan((64, 128, 192, 256, 384, 512), 1, 1, error)
    assert 1 / plain.levels[0].x == 256  # what the target was made from
    assert plain.bias**2 == pytest.approx(error**2 / 3, rel=0.02)
    both = bed.plan((4, 8, 16, 32), 2, 2, error)
    assert plain.cost > 8 * both.cost
    # The same runs without the weights miss the target, however many they are.
    means = [bed.moments(round(1 / level.x), 2)[0] for level in both.levels]
    assert abs(np.mean(means) - bed.limit) > 5 * error
    assert abs(np.dot(both.weights, means) - bed.limit) < error


def test_what_a_step_costs() -> None:
    assert [pair_cost(1), pair_cost(2), pair_cost(16)] == [1, 4, 32]
    assert [pair_cost(1, 2), pair_cost(16, 4), pair_cost(4, 8)] == [1, 8, 1]


def equivalent(plan: Allocation, margin: float, repeats: int, rng: np.random.Generator, truth: float = 1.0) -> float:
    """Share of experiments whose 90% interval, widened by the bias, lies inside the margin; spreads are × `truth`."""
    value, variance, below = np.zeros(repeats), np.zeros(repeats), np.zeros(repeats)
    for level, weight, count in zip(plan.levels, plan.weights, plan.samples, strict=True):
        if weight:
            n = int(count)
            drawn = truth * level.spread * rng.standard_normal((repeats, n))
            term = weight**2 * drawn.var(axis=1, ddof=1) / n
            value, variance, below = value + weight * drawn.mean(axis=1), variance + term, below + term**2 / (n - 1)
    reach = special.stdtrit(variance**2 / below, 0.95) * np.sqrt(variance)
    return float((np.abs(value + plan.bias) + reach < margin - plan.bias).mean())


@pytest.mark.parametrize(("seeds", "known", "error"), [(3, 0.31, 0.04), (5, 0.76, 0.01), (6, 0.88, 0.01)])
def test_the_chance_is_that_of_a_plain_comparison(seeds: int, known: float, error: float) -> None:
    """The known chances are Welch's at a spread of half the margin; the shared formula is too kind to three seeds."""
    level, other = Level(1.0, 1.0, 0.5), Level(0.5, 1.0, 0.5)
    plan = Allocation((level, other), (1.0, -1.0), (float(seeds), float(seeds)))
    assert chance_of_equivalence(plan, 1.0) == pytest.approx(known, abs=error)


@pytest.mark.parametrize("spread", [0.3, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("bias", [0.0, 0.1])
def test_planned_samples_give_the_power_and_one_less_does_not(spread: float, bias: float) -> None:
    levels = [Level(1 / ell, max(1, ell), spread) for ell in (1, 4, 16)]
    weights = [1.0, *(-w for w in extrapolation_weights([1 / 4, 1 / 16]))]
    plan = plan_equivalence(levels, weights, 1.0, bias=bias, at_least=[4, 4, 3])
    assert plan is not None
    assert chance_of_equivalence(plan, 1.0) >= 0.8
    for i, fewest in enumerate((4, 4, 3)):
        if plan.samples[i] > fewest:
            less = tuple(n - (j == i) for j, n in enumerate(plan.samples))
            assert chance_of_equivalence(Allocation(plan.levels, plan.weights, less, bias), 1.0) < 0.8
    # The formula against experiments: 20,000 of them have a standard error of .003.
    share = equivalent(plan, 1.0, 20_000, np.random.default_rng(1))
    assert abs(chance_of_equivalence(plan, 1.0) - share) < 0.02


def test_a_bias_that_fills_the_margin_cannot_be_planned_away() -> None:
    levels = [Level(1.0, 1.0, 0.5), Level(0.25, 8.0, 0.5)]
    assert plan_equivalence(levels, [1.0, -1.0], 1.0, bias=1.0, at_least=[2, 2]) is None
    assert plan_equivalence(levels, [1.0, -1.0], 1.0, bias=0.4, at_least=[2, 2]) is not None
    assert plan_gap(levels[0], levels[1:], 1.0, constant=4.0, begun={}) is None


def test_a_large_gap_is_extrapolated_and_a_small_one_is_not() -> None:
    menu = [Level(1 / ell, ell, 0.5) for ell in (4, 8, 16, 32, 64, 128, 256)]
    first = Level(1.0, 1.0, 0.5)
    near, far = (plan_gap(first, menu, 1.0, constant, begun={first: 4, menu[0]: 4}) for constant in (0.5, 60.0))
    assert near is not None
    assert far is not None
    assert sum(w != 0 for w in near.weights) == 2  # SGD and one ell
    assert sum(w != 0 for w in far.weights) > 2
    plain = plan_gap(first, menu, 1.0, 60.0, begun={first: 4}, most=1)
    assert plain is not None
    assert plain.cost > 3 * far.cost


@pytest.mark.slow
def test_from_pilot_to_verdict_the_answer_is_equivalent_in_four_of_five_experiments_without_a_gap() -> None:
    """200 pilots of 4 + 4 seeds, each with the experiment that it plans: the pilot's seeds are the first ones of it.

    With P = .8 fewer than 142 of 200 would come out with a probability of .1%; as many seeds as compare takes by
    default, 5 an arm, give far fewer.
    """
    rng, answers, default, wrong, narrow = np.random.default_rng(19), 0, 0, 0, 0
    margin, spread, repeats = 1.0, 0.6, 200
    for _ in range(repeats):
        drawn = {ell: spread * rng.standard_normal(600) for ell in (1, 4, 16, 64)}
        sgd, svag = drawn[1][:4], drawn[4][:4]
        found = math.sqrt((sgd.var(ddof=1) + svag.var(ddof=1)) / 2)
        gap = abs(sgd.mean() - svag.mean()) * 4 / 3
        constant = gap + 4 / 3 * math.sqrt((sgd.var(ddof=1) + svag.var(ddof=1)) / 4)
        first, *menu = (Level(1 / ell, max(1, ell), found) for ell in drawn)
        begun = {first: 4, menu[0]: 4}
        plan = plan_gap(first, menu, margin, constant, begun=begun, power=0.82, pilot_freedom=6)
        assert plan is not None
        ells = [round(1 / level.x) for level in plan.levels]
        finals = {ell: drawn[ell][: int(n)] for ell, n in zip(ells, plan.samples, strict=True)}
        weights = {ell: -w for ell, w in zip(ells, plan.weights, strict=True) if ell > 1 and w}
        verdict = sde_verdict(finals, margin, limit_weights=weights, bias=plan.bias)
        answers += verdict.answer == "equivalent"
        low, high = contrast([finals[ell] for ell in weights], list(weights.values())).interval()
        narrow += (high - low) / 2 + plan.bias <= margin
        apart = {**finals, 1: finals[1] + margin}
        wrong += sde_verdict(apart, margin, limit_weights=weights, bias=plan.bias).answer == "equivalent"
        default += sde_verdict({ell: drawn[ell][:5] for ell in (1, 4, 16)}, margin).answer == "equivalent"
    assert stats.binom.cdf(141, repeats, 0.8) < 1e-3
    assert answers >= 142
    assert narrow >= 142, "the 95% interval of the limit itself is as narrow as asked"
    assert default < 0.7 * repeats
    assert wrong <= 20  # more have a probability of .1% if a gap of the margin is "equivalent" in one of 20
