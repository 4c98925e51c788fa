import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import svag
from svag.stats.means import welch
from svag.verdicts.sde import SDEVerdict

ELLS = (1, 4, 16)
# 1,000 verdicts a case; false answers are promised in at most 5% of them: the 1e-6 quantile of the binomial is 8.7%.
REPEATS = 1000
LIMIT = binom.isf(1e-6, REPEATS, 0.05) / REPEATS
Law = Callable[[int], float]


def verdicts(seed: int, law: Law, n: int, sd: float = 0.25, unequal: float = 1.0) -> list[SDEVerdict]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(REPEATS):
        arms = {ell: law(ell) + sd * unequal ** (i - 1) * rng.normal(size=n) for i, ell in enumerate(ELLS)}
        found.append(svag.sde_verdict(arms, margin=1.0))
    return found


def share(found: list[SDEVerdict], answer: str) -> float:
    return sum(one.answer == answer for one in found) / REPEATS


def covered(found: list[SDEVerdict], gap: float) -> float:
    return sum(one.low <= gap <= one.high for one in found) / REPEATS


@pytest.mark.parametrize(("n", "unequal"), [(3, 1.0), (6, 1.0), (6, 2.0)])
def test_false_answers_are_as_rare_as_promised(n: int, unequal: float) -> None:
    none = verdicts(1, lambda ell: 0.0, n, unequal=unequal)
    assert share(none, "different") < LIMIT
    assert covered(none, 0.0) > binom.ppf(1e-6, REPEATS, 0.94) / REPEATS
    edge = verdicts(2, lambda ell: 1 / ell, n, unequal=unequal)
    assert share(edge, "equivalent") < LIMIT
    assert covered(edge, 1.0) > binom.ppf(1e-6, REPEATS, 0.94) / REPEATS


def test_true_answers_are_found() -> None:
    assert share(verdicts(3, lambda ell: 0.0, 6), "equivalent") > 0.9
    assert share(verdicts(4, lambda ell: 2.0 / ell, 6), "different") > 0.9


def test_a_curve_that_is_no_line_costs_answers_but_makes_no_false_ones() -> None:
    # 1/ell² instead of 1/ell: at this spread lack of fit is noticed in every other verdict.
    found = verdicts(5, lambda ell: 1.0 / ell**2, 6, sd=0.1)
    assert share(found, "equivalent") < LIMIT
    assert {one.limit for one in found} == {"fit", "largest_ell"}


def test_the_extrapolated_limit_makes_no_false_answers_where_the_largest_ell_for_the_limit_does() -> None:
    # E_1 − E_16 is 15/16 of a gap that is just the margin: at this spread, clearly inside it.
    rng = np.random.default_rng(6)
    wrong = largest = 0
    for _ in range(REPEATS):
        arms = {ell: 1.0 / ell + 0.02 * rng.normal(size=6) for ell in ELLS}
        wrong += svag.sde_verdict(arms, margin=1.0).answer == "equivalent"
        largest += welch(arms[1], arms[16]).p_equivalent(1.0) < 0.05
    assert wrong / REPEATS < LIMIT < largest / REPEATS


def test_convergence_is_claimed_wrongly_at_most_one_time_in_twenty() -> None:
    edge = verdicts(7, lambda ell: 2.0 / ell, 6, sd=0.2)  # ell = 4 misses .5, half the margin
    assert sum(one.converged for one in edge) / REPEATS < LIMIT
    assert sum(one.converged for one in verdicts(8, lambda ell: 0.5 / ell, 6, sd=0.1)) / REPEATS > 0.9


def test_negative_control_dropping_diverged_seeds_would_call_it_equivalent() -> None:
    arms = {1: [61.0, 61.1, 60.9, 61.0, 61.05], 4: [61.0, 61.0, 61.1, 60.9, 60.95]}
    lost = [61.0, 61.1, math.nan, math.nan, math.nan]
    assert svag.sde_verdict({**arms, 16: [x for x in lost if not math.isnan(x)]}, margin=1.0).answer == "equivalent"
    found = svag.sde_verdict({**arms, 16: lost}, margin=1.0)
    assert found.answer == "inconclusive"
    assert found.p_divergence == pytest.approx(1 / 6, rel=1e-9)  # Fisher: 0 of 5 against 3 of 5
    assert [arm.diverged for arm in found.arms] == [0, 0, 3]


def test_two_questions_are_corrected_by_holm() -> None:
    noise = np.array([-0.1, 0.0, 0.1])
    arms = {1: 0.2 + noise, 4: noise, 16: noise}
    alone = svag.sde_verdict(arms, margin=0.1)
    assert 0.025 < alone.p_different < 0.05
    assert alone.answer == "different"
    both = svag.sde_verdict({**arms, 4: np.append(noise, math.nan)}, margin=0.1)  # now rates are compared too
    assert both.p_different == pytest.approx(2 * alone.p_different, rel=1e-9)
    assert both.answer == "inconclusive"


def test_divergence_alone_can_make_the_difference() -> None:
    arms = {1: [61.0, 61.1, 60.9, 61.0, 61.05], 4: [61.0, 61.0, 61.1, 60.9, 60.95], 16: [math.nan] * 5}
    found = svag.sde_verdict(arms, margin=1.0)
    assert found.answer == "different"
    assert found.p_divergence == pytest.approx(2 / 252, rel=1e-9)


def test_the_sign_is_sgd_minus_sde_and_the_limit_is_extrapolated() -> None:
    noise = np.array([-1e-3, 0.0, 1e-3])
    found = svag.sde_verdict({ell: 5.0 + 3.0 / ell + noise for ell in ELLS}, margin=0.5)
    assert found.gap == pytest.approx(3.0, rel=1e-10)
    assert found.answer == "different"
    assert found.low < 3.0 < found.high
    assert found.limit == "fit"
    small = svag.sde_verdict({ell: 5.0 + 0.3 / ell + noise for ell in ELLS}, margin=1.0)
    assert (small.answer, small.converged, small.converged_at) == ("equivalent", True, 4)


def test_lack_of_fit_falls_back_to_the_largest_ell_and_allows_for_what_it_misses() -> None:
    noise = np.array([-0.02, 0.0, 0.02, 0.01])
    converged = svag.sde_verdict({1: 3.0 + noise, 4: noise, 16: noise[::-1]}, margin=1.0)
    assert (converged.limit, converged.answer) == ("largest_ell", "different")
    assert converged.gap == pytest.approx(3.0)
    assert converged.high - converged.gap > 0.5  # half the margin
    not_converged = svag.sde_verdict({1: 3.0 + noise, 4: 3.5 + noise, 16: noise}, margin=1.0)
    assert (not_converged.limit, not_converged.answer) == ("largest_ell", "inconclusive")


def test_a_gap_larger_than_the_last_move_in_ell_is_a_difference_without_convergence() -> None:
    """SGD 7 below the largest ell, which itself still moves by 0.8: whatever the limit is, SGD is not there."""
    noise = np.array([-0.1, 0.0, 0.1, 0.05, -0.05])
    found = svag.sde_verdict({1: 73.6 + noise, 4: 80.0 + noise, 16: 80.8 + noise}, margin=0.5)
    assert (found.limit, found.converged, found.answer) == ("largest_ell", False, "different")
    assert found.low < found.gap - 0.8
    assert -7.2 + 0.8 < found.high < 0


def test_the_last_move_is_that_from_a_quarter_of_the_largest_ell() -> None:
    """SGD 30 below: an ell between a quarter of the largest and the largest takes nothing from what the others show."""
    noise = np.array([-0.1, 0.0, 0.1, 0.05, -0.05])
    arms = {1: 35 + noise, 4: 60 + noise, 16: 65 + noise}
    without = svag.sde_verdict(arms, margin=0.5)
    found = svag.sde_verdict(arms | {8: 64 + noise}, margin=0.5)
    assert (found.limit, found.converged, found.answer) == ("largest_ell", False, "different")
    assert (found.low, found.high) == pytest.approx((without.low, without.high), rel=1e-12)
    close = svag.sde_verdict({ell: arm for ell, arm in (arms | {8: 64 + noise}).items() if ell != 4}, margin=0.5)
    assert (close.answer, close.low) == ("inconclusive", -math.inf)  # 8 and 16 alone are too close together


def test_returning_curves_are_not_called_different_before_they_converge() -> None:
    """No gap at all: the error at ell falls like 1/ell from 4 on, and SGD happens to sit at the limit."""
    noise = np.array([-0.1, 0.0, 0.1, 0.05, -0.05])
    found = svag.sde_verdict({1: noise, 4: 5.0 + noise, 16: 1.25 + noise}, margin=0.5)
    assert (found.limit, found.answer) == ("largest_ell", "inconclusive")


def test_an_inconclusive_answer_says_how_many_seeds_would_decide() -> None:
    found = svag.sde_verdict({1: [1.0, 0.2, 0.5], 4: [0.1, 0.6, 0.9], 16: [0.3, 0.7, 0.2]}, margin=0.5)
    assert found.answer == "inconclusive"
    assert found.seeds_needed is not None
    assert found.seeds_needed == 11
    hopeless = svag.sde_verdict({1: [1.0, 0.2, 0.5], 4: [0.1, 0.6, 0.9], 16: [0.3, 0.7, 0.2]}, margin=0.01)
    assert hopeless.seeds_needed is None or hopeless.seeds_needed > 50


@pytest.mark.parametrize(
    "arms",
    [
        {1: [61.0], 4: [60.0], 16: [61.0]},
        {1: [61.0, 61.2], 4: [60.0]},
        {1: [61.0, math.nan], 4: [60.0, 61.0]},
        {1: [61.0] * 3, 4: [60.0] * 3},
        {1: [0.1] * 3, 4: [0.1] * 3, 16: [0.1] * 3},
        {1: [math.nan] * 3, 4: [math.nan] * 3},
    ],
)
def test_too_little_to_judge_is_inconclusive(arms: dict[int, list[float]]) -> None:
    found = svag.sde_verdict(arms, margin=0.5)
    assert found.answer == "inconclusive"
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["low"] is None


def test_one_arm_without_spread_is_judged() -> None:
    found = svag.sde_verdict({1: [61.0] * 3, 4: [61.0, 61.1, 60.9], 16: [61.05, 61.0, 60.9]}, margin=1.0)
    assert found.answer == "equivalent"


def test_two_arms_are_enough_for_a_gap_but_not_for_convergence() -> None:
    noise = np.array([-1e-3, 0.0, 1e-3])
    found = svag.sde_verdict({1: 16.0 + noise, 16: 1.0 + noise}, margin=0.5)
    assert found.gap == pytest.approx(16.0)  # 15 · 16/15
    assert not found.converged


@pytest.mark.parametrize(
    ("arms", "margin", "sentence"),
    [
        ({1: [1.0, 2.0], 4: [1.0, 2.0]}, 0.0, r"^margin\b.*got 0.0"),
        ({1: [1.0, 2.0], 4: [1.0, 2.0]}, -0.5, r"^margin\b.*got -0.5"),
        ({1: [1.0, 2.0], 4: [1.0, 2.0]}, math.nan, r"^margin\b"),
        ({}, 0.5, r"^finals_by_ell\b"),
        ({1: [1.0, 2.0]}, 0.5, r"^finals_by_ell\b.*ell=1"),
        ({4: [1.0, 2.0], 16: [1.0, 2.0]}, 0.5, r"^finals_by_ell\b.*ell=1"),
        ({4: [1.0, 2.0]}, 0.5, r"^finals_by_ell\b.*ell=1"),
    ],
)
def test_what_cannot_be_compared_is_refused(arms: dict[int, list[float]], margin: float, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        svag.sde_verdict(arms, margin=margin)


@pytest.mark.parametrize("weights", [2.0, [1.0], {4: "x"}, {4: math.nan}])
def test_a_plan_that_weighs_nothing_is_refused(weights: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="limit_weights"):
        svag.sde_verdict({1: [1.0, 2.0], 4: [1.0, 2.0]}, margin=1.0, limit_weights=weights)


def test_only_the_user_knows_the_margin() -> None:
    with pytest.raises(TypeError, match="margin"):
        svag.sde_verdict({1: [1.0, 2.0], 4: [1.0, 2.0]})  # type: ignore[call-arg]


def test_three_readable_lines_and_json_for_every_kind_of_answer() -> None:
    rng = np.random.default_rng(9)
    tables = [
        {ell: c / ell + s * rng.normal(size=4) for ell in ELLS} for c in (0.0, 0.3, 3.0) for s in (0.01, 0.4, 3.0)
    ]
    tables += [{1: np.array([math.nan, 1.0, 2.0, 3.0]), 4: np.array([1.0, 2.0, math.inf, 3.0])}]
    for table in tables:
        found = svag.sde_verdict(table, margin=0.5)
        lines = str(found).splitlines()
        assert len(lines) == 3
        assert lines[0].startswith(found.answer)
        assert lines[2] == f"Next: {found.status}"
        assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["answer"] == found.answer


def test_the_order_of_arms_and_seeds_does_not_matter() -> None:
    arms = {1: [61.0, 61.5, 61.2], 4: [61.1, 60.8, 61.3], 16: [61.0, 61.4, 61.0]}
    turned = {ell: arms[ell][::-1] for ell in (16, 1, 4)}
    assert svag.sde_verdict(turned, margin=1.0).gap == pytest.approx(svag.sde_verdict(arms, margin=1.0).gap, rel=1e-12)


@pytest.mark.parametrize("ells", [(1, 12, 16), (1, 6, 8), (1, 3, 4), (1, 2, 4), (1, 8, 16)])
def test_ells_that_are_close_together_cannot_show_a_difference_before_convergence(ells: tuple[int, ...]) -> None:
    """No gap: SGD sits at the limit and the error elsewhere is 10/ell, so that the line does not fit."""
    noise = np.array([-0.1, 0.0, 0.1, 0.05, -0.05])
    found = svag.sde_verdict({ell: (0.0 if ell == 1 else 10 / ell) + noise for ell in ells}, margin=1.0)
    assert (found.limit, found.answer) == ("largest_ell", "inconclusive")
    assert f"ell={4 * ells[-1]}:" in found.status


def test_an_ell_with_one_seed_blocks_equivalence() -> None:
    finals = {1: [1.0, 1.1, 0.9, 1.0, 1.05], 4: [1.0, 1.02, 0.95, 1.1, 1.0], 16: [7.0]}
    found = svag.sde_verdict(finals, margin=0.5)
    assert found.answer == "inconclusive"


def test_two_ells_leave_the_line_untested() -> None:
    found = svag.sde_verdict({1: [1.0, 1.1, 0.9], 4: [1.0, 1.02, 0.95]}, margin=0.5)
    assert found.lack_of_fit is None
    assert "untested" in str(found)


def test_convergence_is_tested_from_l_and_4l_where_there_are_such() -> None:
    noise = np.array([-0.3, 0.0, 0.3])
    found = svag.sde_verdict({ell: 10 + 3 / ell + noise for ell in (1, 2, 4, 8, 16)}, margin=8.0)
    assert [(one.ell, one.against) for one in found.biases] == [(2, 8), (4, 16)]
    assert [one.value for one in found.biases] == pytest.approx([3 / 2, 3 / 4])  # exact, since the law is c/l
    assert [one.answer for one in found.biases] == ["equivalent", "equivalent"]
    assert (found.converged, found.converged_at) == (True, 2)
    low, high = found.biases[0].low, found.biases[0].high
    assert (low + high) / 2 == pytest.approx(3 / 2)
    assert high - low == pytest.approx(2 * 2.7764 * 4 / 3 * 0.3 * (2 / 3) ** 0.5, rel=1e-4)  # t₄, two means of three
    near = svag.sde_verdict({ell: 10 + 3 / ell + noise for ell in (1, 2, 4)}, margin=8.0)
    assert [(one.ell, one.against) for one in near.biases] == [(2, 4)]
    far = svag.sde_verdict({ell: 10 + 30 / ell + noise for ell in (1, 4, 16)}, margin=1.0)
    assert ([one.answer for one in far.biases], far.converged_at) == (["different"], None)


def test_no_line_passes_through_an_arm_that_collapsed() -> None:
    noise = np.array([-0.3, 0.0, 0.3])
    arms = {1: 35 + noise, 4: 65 + noise, 8: 66 + noise, 16: 66 + noise}
    found = svag.sde_verdict(arms, margin=8.0, extrapolate=False)
    assert (found.limit, found.answer) == ("collapsed", "different")
    assert found.gap == pytest.approx(-31)
    two = {ell: arms[ell] for ell in (1, 4)}
    assert svag.sde_verdict(two, margin=8.0).gap == pytest.approx(-40), "extrapolated beyond every arm"
    alone = svag.sde_verdict(two, margin=8.0, extrapolate=False)
    assert (alone.limit, alone.answer, alone.low) == ("collapsed", "inconclusive", -math.inf)


def test_the_status_names_the_optimizer_it_was_told() -> None:
    arms = {1: [61.0, 61.5, 61.2], 4: [61.1, 60.8, 61.3], 16: [61.0, 61.4, 61.0]}
    plain, named = svag.sde_verdict(arms, margin=1.0), svag.sde_verdict(arms, margin=1.0, optimizer="Adam")
    assert named.status == plain.status.replace("SGD", "Adam") != plain.status


NOISE = np.array([-1e-3, 0.0, 1e-3])
WIDER = np.array([-0.1, 0.0, 0.1, 0.05, -0.05])
CLOSE: dict[int, Any] = {1: [61.0, 61.1, 60.9, 61.0, 61.05], 4: [61.0, 61.0, 61.1, 60.9, 60.95]}
APART = "SGD does not end where its SDE ends; a smaller learning rate brings them closer."
NEXT: list[tuple[dict[int, Any], float, str]] = [
    (
        {**CLOSE, 16: [math.nan] * 5},
        1.0,
        "nothing more to run: SGD and its SDE do not diverge equally often; a smaller learning rate may help.",
    ),
    ({1: [math.nan] * 3, 4: [math.nan] * 3}, 0.5, "lower the learning rate: every seed diverged."),
    (
        {1: [61.0, 61.2], 4: [60.0], 16: [61.0]},
        0.5,
        "run more seeds, for example 5: at ell = 4, 16 fewer than two finished, so there is no spread.",
    ),
    (
        {1: [61.0] * 3, 4: [60.0] * 3},
        0.5,
        (
            "check that the seed reaches the run: all seeds of an ell agree to the last digit, so there is no spread "
            "to judge the gap by; if that is right, take a metric that varies, such as the loss."
        ),
    ),
    (
        {1: [1.0, 1.1, 0.9, 1.0, 1.05], 4: [1.0, 1.02, 0.95, 1.1, 1.0], 16: [7.0]},
        0.5,
        "run more seeds at ell = 16, which fewer than two seeds finished: they are not in the estimate.",
    ),
    (
        {1: 73.6 + WIDER, 4: 80.0 + WIDER, 16: 80.8 + WIDER},
        0.5,
        (
            "add ell=64 if you want to know the SDE's value: SVAG has not converged in ell, but even if it moves as "
            "far again as from ell=4 to 16, SGD does not end there."
        ),
    ),
    (
        {1: 3.0 + WIDER / 5, 4: 3.5 + WIDER / 5, 16: WIDER / 5},
        1.0,
        (
            "add ell=64: E_∞ + c/ell does not fit and SVAG has not converged in ell, so its largest ell does not stand "
            "for the SDE."
        ),
    ),
    (
        {**CLOSE, 16: [61.0, 61.1, math.nan, math.nan, math.nan]},
        1.0,
        (
            "lower the learning rate until every seed finishes, or run at least 5 seeds per ell to compare how often "
            "they diverge: diverged seeds are outcomes, and the survivors alone cannot show equivalence."
        ),
    ),
    (
        {1: [1.0, 0.2, 0.5], 4: [0.1, 0.6, 0.9], 16: [0.3, 0.7, 0.2]},
        0.5,
        "run 8 more seeds per ell: that would probably decide this, if gap and spread stay as they are.",
    ),
    (
        {ell: 5 + 0.3 / ell + NOISE for ell in (1, 4, 16)},
        1.0,
        "nothing more to run. To within this margin, SGD ends where its SDE ends.",
    ),
    ({1: 16 + NOISE, 16: 1 + NOISE}, 0.5, f"add ell=4 to see whether SVAG has converged in ell. {APART}"),
    ({1: 16 + NOISE, 4: 4 + NOISE}, 0.5, f"add ell=16 to see whether SVAG has converged in ell. {APART}"),
    (
        {ell: 5 + 3 / ell + NOISE for ell in (1, 4, 16)},
        0.5,
        f"add ell=64, because SVAG has not converged in ell. {APART}",
    ),
    (
        {1: [61.0, 61.5, 61.2], 4: [61.1, 60.8, 61.3], 16: [61.0, 61.4, 61.0]},
        1.0,
        "more seeds may show that SVAG has converged in ell. To within this margin, SGD ends where its SDE ends.",
    ),
    (
        {1: [61.0] * 3, 4: [61.0, 61.1, 60.9], 16: [61.05, 61.0, 60.9]},
        1.0,
        (
            "nothing more to run. To within this margin, SGD ends where its SDE ends. Check that the seed reaches the "
            "runs at ell = 1: they agree to the last digit."
        ),
    ),
]


@pytest.mark.parametrize(("arms", "margin", "status"), NEXT)
def test_every_next_step_renders(arms: dict[int, Any], margin: float, status: str) -> None:
    assert svag.sde_verdict(arms, margin=margin).status == status


def test_a_collapsed_arm_is_the_reason_that_is_named() -> None:
    arms = {1: 35 + 300 * NOISE, 4: 65 + 300 * NOISE}
    assert svag.sde_verdict(arms, margin=8.0, extrapolate=False).status == (
        "add ell=16: an arm collapsed and SVAG has not converged in ell, so its largest ell does not stand for the SDE."
    )
