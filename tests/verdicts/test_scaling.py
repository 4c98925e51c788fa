import json
import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import binom
from scipy.stats import t as student_t

import svag
from svag.arrays import FloatArray
from svag.verdicts.scaling import crossing

FOUR = np.array([16.0, 32.0, 128.0, 1024.0])


def test_the_crossing_is_linear_in_the_logarithm() -> None:
    errors = np.array([0.11, 0.10, 0.11, 0.17])  # threshold .12, a sixth of the way from 128 to 1024
    found, same = crossing(FOUR, errors, 0.2)
    assert found == same == pytest.approx(128 * 8 ** (1 / 6), rel=1e-10)


def test_the_answers_at_the_ends_of_the_ladder() -> None:
    assert crossing(FOUR, np.array([0.1, 0.1, 0.11, 0.12]), 0.25) == (1024.0, math.inf)
    assert crossing(FOUR, np.array([0.2, 0.1, 0.1, 0.1]), 0.2) == (0.0, 16.0)


def test_diverged_rungs_fail_without_a_place_to_interpolate_to() -> None:
    inf = math.inf
    assert crossing(FOUR, np.array([0.1, 0.1, inf, inf]), 0.2) == (32.0, 128.0)
    assert crossing(FOUR, np.array([inf, 0.1, 0.1, 0.1]), 0.2) == (0.0, 16.0)
    assert crossing(FOUR, np.full(4, inf), 0.2) == (0.0, 16.0)


def test_exactly_on_the_tolerance_still_passes() -> None:
    assert crossing(FOUR, np.array([0.5, 0.5, 0.5, 0.75]), 0.5) == (1024.0, math.inf)


RUNGS = (32, 64, 128, 256, 512, 1024)
FLAT_THEN_UP = np.array([0.1, 0.1, 0.1, 0.11, 0.14, 0.2])  # three equal bests: the lowest of their means is too low
# 500 ladders a case, 95% promised: the 1e-6 quantile of the binomial is .897; the plain bootstrap covers .84 to .90.
REPEATS = 500
BOUND = binom.ppf(1e-6, REPEATS, 0.95) / REPEATS


def ladder(rng: np.random.Generator, sd: Sequence[float], n: int) -> dict[int, FloatArray]:
    return {rung: e + s * rng.normal(size=n) for rung, e, s in zip(RUNGS, FLAT_THEN_UP, sd, strict=True)}


@pytest.mark.parametrize(("n", "growth"), [(3, 1.0), (3, 1.4), (8, 1.0), (5, 0.7)])
def test_the_interval_covers_the_crossing(n: int, growth: float) -> None:
    rng = np.random.default_rng(1)
    truth, _ = crossing(np.array(RUNGS, dtype=float), FLAT_THEN_UP, 0.2)
    sd = [0.004 * growth ** (i - 2.5) for i in range(6)]  # equal spreads, or growing or shrinking with the batch
    found = [svag.scaling_verdict(ladder(rng, sd, n), resamples=400) for _ in range(REPEATS)]
    assert np.mean([one.low <= truth <= one.high for one in found]) > BOUND
    assert all(one.observed is None or one.low <= one.observed <= one.high for one in found)


def test_many_equally_good_rungs_do_not_drag_the_limits_down() -> None:
    # The lowest of ten means of eight seeds is 1.5 standard errors too low on average: an interval that takes the rung
    # seen to be best for the best one covers less than .89, the 1e-6 quantile of the binomial for 400 ladders at .95.
    rng, repeats = np.random.default_rng(4), 400
    rungs, truth = 2 ** np.arange(4, 15), np.append(np.full(10, 0.1), 0.14)
    target, _ = crossing(rungs.astype(float), truth, 0.2)
    covered = 0
    for _ in range(repeats):
        errors = {int(rung): e + 0.004 * rng.normal(size=8) for rung, e in zip(rungs, truth, strict=True)}
        found = svag.scaling_verdict(errors, resamples=300)
        covered += found.low <= target <= found.high
    assert covered / repeats > binom.ppf(1e-6, repeats, 0.95) / repeats


def test_the_interval_covers_where_a_plain_bootstrap_of_the_crossing_does_not() -> None:
    # 400 ladders: .89 is the 1e-6 quantile of the binomial at .95; the plain bootstrap covers about .8.
    rng, repeats = np.random.default_rng(2), 400
    sizes, covered, plain = np.array(RUNGS, dtype=float), 0, 0
    truth, _ = crossing(sizes, FLAT_THEN_UP, 0.2)
    for _ in range(repeats):
        errors = ladder(rng, [0.004] * 6, 10)
        found = svag.scaling_verdict(errors, resamples=200)
        covered += found.low <= truth <= found.high
        arms = np.array(list(errors.values()))
        drawn = np.take_along_axis(arms[None], rng.integers(0, 10, size=(200, 6, 10)), axis=2).mean(axis=2)
        low, high = np.quantile([crossing(sizes, means, 0.2)[0] for means in drawn], [0.025, 0.975])
        plain += low <= truth <= high
    assert plain / repeats < binom.ppf(1e-6, repeats, 0.95) / repeats < covered / repeats


def test_seeds_that_agree_to_the_last_digit_give_a_crossing_but_no_interval() -> None:
    found = svag.scaling_verdict({32: [0.1, 0.1], 128: [0.14, 0.14]})
    assert (found.answer, found.best_batch) == ("fails", 32)
    assert found.observed == pytest.approx(64.0, rel=1e-10)
    assert (found.low, found.high) == (0.0, math.inf)
    assert found.threshold == pytest.approx(0.12, rel=1e-10)


def test_a_ladder_that_never_fails_bounds_the_failure_from_below_only() -> None:
    found = svag.scaling_verdict({32: [0.1, 0.101], 64: [0.1, 0.102], 128: [0.1, 0.1]})
    assert (found.answer, found.observed, found.low, found.high) == ("never fails", None, 128.0, math.inf)
    assert found.to_dict()["high"] is None


def test_a_best_rung_that_is_not_the_smallest_is_an_answer_of_its_own() -> None:
    found = svag.scaling_verdict({32: [0.2, 0.201], 64: [0.1, 0.101], 128: [0.3, 0.301]})
    assert (found.answer, found.best_batch) == ("improves", 64)
    assert found.observed is not None
    assert found.observed == pytest.approx(64 * 2 ** (0.2 * 0.1005 / 0.2), rel=1e-10)
    assert found.observed is not None
    assert 64 < found.low < found.observed < found.high < 128


def test_error_that_improves_up_to_the_end_does_not_fail() -> None:
    """As with label noise: the smallest rung is the worst, and it used to be called the failure."""
    errors = {16: [0.3, 0.301], 64: [0.25, 0.251], 256: [0.2, 0.201]}
    found = svag.scaling_verdict(errors)
    assert (found.answer, found.observed, found.best_batch) == ("improves", None, 256)
    assert (found.low, found.high) == (256.0, math.inf)
    within = svag.scaling_verdict({**errors, 16: [0.22, 0.221], 64: [0.2, 0.201]})
    assert within.answer == "never fails"  # the control: the smallest rung is within the tolerance


@pytest.mark.parametrize(("chance", "level"), [(1.0, 0.9), (0.5, 0.45)])
def test_a_ladder_that_learned_nothing_is_not_decided(chance: float, level: float) -> None:
    errors = {32: [level, level + 0.01], 64: [level + 0.02, level], 128: [level + 0.01, level]}
    found = svag.scaling_verdict(errors, chance=chance)
    assert (found.answer, found.observed, found.low, found.high) == ("not decided", None, 0.0, math.inf)
    learned = {size: [error / 2 for error in seeds] for size, seeds in errors.items()}
    assert svag.scaling_verdict(learned, chance=chance).answer == "never fails"
    losses = {size: [4 * error for error in seeds] for size, seeds in errors.items()}
    assert svag.scaling_verdict(losses).answer == "never fails"  # losses know no chance
    diverged = svag.scaling_verdict({**errors, 256: [math.nan, math.nan]}, chance=chance)
    assert diverged.answer == "fails"  # that is seen, whatever was learned


def test_diverged_seeds_are_failures_and_dropping_them_would_hide_it() -> None:
    good = {32: [0.1, 0.101, 0.099], 64: [0.1, 0.1, 0.102]}
    found = svag.scaling_verdict({**good, 128: [math.nan] * 3})
    assert (found.answer, found.observed, found.low, found.high) == ("fails", math.sqrt(64 * 128), 64.0, 128.0)
    some = svag.scaling_verdict({**good, 128: [0.1, 0.101, math.nan]})
    assert (some.answer, some.low, some.high) == ("fails", 64.0, math.inf)  # one in three may have been bad luck
    assert [arm.diverged for arm in some.arms] == [0, 0, 1]
    dropped = svag.scaling_verdict({**good, 128: [0.1, 0.101]})
    assert dropped.answer == "never fails"  # the negative control


def test_ladders_that_diverge_at_the_start_or_everywhere() -> None:
    found = svag.scaling_verdict({32: [math.nan] * 3, 64: [0.1, 0.1, 0.2]})
    assert (found.answer, found.high) == ("fails from the start", 32.0)
    everywhere = svag.scaling_verdict({32: [math.nan] * 3, 64: [math.nan] * 3})
    assert (everywhere.answer, everywhere.best_batch) == ("fails from the start", None)
    assert json.loads(json.dumps(everywhere.to_dict(), allow_nan=False))["threshold"] is None
    between = svag.scaling_verdict({32: [0.1, 0.101], 64: [math.nan] * 3, 128: [0.1, 0.101]})
    assert (between.answer, between.low, between.high) == ("fails", 32.0, 64.0)


def test_one_seed_gives_a_number_without_an_interval() -> None:
    found = svag.scaling_verdict({32: [0.1], 128: [0.14]})
    assert found.observed == pytest.approx(64.0)
    assert (found.low, found.high) == (0.0, math.inf)


def test_the_bootstrap_is_reproducible_and_its_randomness_an_argument() -> None:
    errors = {32: [0.1, 0.101, 0.105], 64: [0.11, 0.113, 0.11], 128: [0.15, 0.155, 0.16]}
    assert svag.scaling_verdict(errors) == svag.scaling_verdict(errors)
    other = svag.scaling_verdict(errors, generator=np.random.default_rng(7))
    assert other.high != svag.scaling_verdict(errors).high
    assert other.observed == svag.scaling_verdict(errors).observed


def test_units_do_not_matter() -> None:
    errors = {32: [0.1, 0.11, 0.105], 64: [0.12, 0.13, 0.1], 128: [0.15, 0.2, 0.16]}
    per_cent = {rung: [100 * e for e in seeds] for rung, seeds in errors.items()}
    one, other = svag.scaling_verdict(errors), svag.scaling_verdict(per_cent)
    assert (one.observed, one.low, one.high) == pytest.approx((other.observed, other.low, other.high), rel=1e-9)


@pytest.mark.parametrize(
    ("errors", "tolerance", "sentence"),
    [
        ({}, 0.2, r"^errors_by_batch\b"),
        ({32: [0.1]}, 0.2, r"^errors_by_batch\b"),
        ({32: [0.1], 64: [-0.1]}, 0.2, r"^errors_by_batch\[64\] .*-0\.1\b"),
        ({32: [0.0], 64: [0.1]}, 0.2, "error is 0"),
        ({32: [0.1], 64: [0.1]}, 0.0, r"^tolerance\b"),
        ({32: [0.1], 64: [0.1]}, math.nan, r"^tolerance\b"),
    ],
)
def test_what_is_no_ladder_is_refused(errors: dict[int, list[float]], tolerance: float, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        svag.scaling_verdict(errors, tolerance=tolerance)


def test_three_readable_lines_and_json_for_every_kind_of_answer() -> None:
    rng = np.random.default_rng(3)
    for errors in (
        ladder(rng, [0.002] * 6, 3),
        ladder(rng, [0.02] * 6, 2),
        {32: [0.1, 0.2], 64: [0.1, math.nan]},
        {32: [0.3, 0.3], 64: [0.1, 0.11]},
        {32: [math.nan], 64: [math.nan]},
    ):
        found = svag.scaling_verdict(errors)
        lines = str(found).splitlines()
        assert len(lines) == 3
        assert lines[0].startswith(found.answer)
        assert lines[2] == f"Next: {found.status}"
        json.dumps(found.to_dict(), allow_nan=False)


def test_the_limit_above_is_where_a_two_sample_t_test_rejects() -> None:
    # With a best rung without spread the excess is linear between the rungs, so the limit is known in closed form:
    # w (e₁ − e₀ − t s/√n) = τ e₀ at the weight w of the failing rung, with two spreads of 6 seeds in Student's t.
    seeds = np.array([-1.27, -0.64, -0.2, 0.2, 0.64, 1.27])  # normal scores: the bootstrap mean is nearly normal
    errors = 0.14 + 0.01 * seeds
    q = student_t.ppf(0.975, 10) * errors.std(ddof=1) / math.sqrt(6)
    weight = 0.2 * 0.1 / (0.04 - q)
    found = svag.scaling_verdict({64: [0.1] * 6, 1024: errors}, resamples=40_000)
    assert found.high == pytest.approx(64 * 16**weight, rel=0.02)


NAN = math.nan
NEXT: list[tuple[dict[int, list[float]], str]] = [
    (
        {32: [0.9, 0.91], 64: [0.92, 0.9], 128: [0.91, 0.9]},
        "train longer, or change the learning rate: no batch size learned enough for a failure to be seen.",
    ),
    (
        {32: [0.1], 128: [0.14]},
        "run more seeds, 3 or more, at batch size 32, 128: one seed shows no spread, so there is no interval.",
    ),
    (
        {32: [0.1, 0.1], 128: [0.14, 0.14]},
        "check that the seed reaches the runs: all seeds agree to the last digit, so there is no interval.",
    ),
    ({32: [NAN] * 3, 64: [NAN] * 3}, "lower the learning rate: every batch size has seeds that diverged."),
    (
        {32: [NAN] * 3, 64: [0.1, 0.1, 0.2]},
        "start the ladder lower, or from the best batch size, 64, with its own learning rate.",
    ),
    (
        {32: [0.1, 0.12, 0.11], 64: [0.12, 0.1, 0.11], 128: [0.115, 0.105, 0.125]},
        "add seeds: at this spread, batch sizes of the ladder may still fail.",
    ),
    (
        {32: [0.1, 0.101], 64: [0.1, 0.102], 128: [0.1, 0.1]},
        "add batch sizes above 128, or accept that this ladder shows no failure.",
    ),
    (
        {32: [0.1, 0.11, 0.105], 64: [0.12, 0.13, 0.1], 128: [0.15, 0.2, 0.16]},
        "add seeds at batch sizes 64 and 128: the interval reaches beyond them.",
    ),
    # the limits of the failure are close together in the last, and not in this one
    (
        {32: [0.094, 0.1, 0.106], 64: [0.0945, 0.1005, 0.1065], 128: [0.134, 0.14, 0.146]},
        "add batch sizes between 64 and 128 to locate the failure more closely.",
    ),
    (
        {32: [0.096, 0.1, 0.104], 64: [0.0965, 0.1005, 0.1045], 128: [0.136, 0.14, 0.144]},
        "nothing more to run: the failure is located to within the spacing of the ladder.",
    ),
]


@pytest.mark.parametrize(("errors", "status"), NEXT)
def test_every_next_step_renders(errors: dict[int, list[float]], status: str) -> None:
    assert svag.scaling_verdict(errors).status == status


@pytest.mark.parametrize(
    ("errors", "first"),
    [
        (
            {32: [0.2, 0.201], 64: [0.1, 0.101], 128: [0.3, 0.301]},
            "improves up to batch size 64, then fails at batch size 68.6",
        ),
        ({16: [0.3, 0.301], 64: [0.25, 0.251], 256: [0.2, 0.201]}, "improves up to batch size 256, never fails"),
        ({32: [0.9, 0.91], 64: [0.92, 0.9], 128: [0.91, 0.9]}, "not decided; interval [0, ∞)"),
    ],
)
def test_every_answer_that_is_not_its_code_renders(errors: dict[int, list[float]], first: str) -> None:
    assert str(svag.scaling_verdict(errors)).startswith(first)
