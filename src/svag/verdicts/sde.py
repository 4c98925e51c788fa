"""Does the SDE describe my SGD? The verdict from one final metric per seed and ell (thm:sde_svag).

`sde_verdict` returns an `SDEVerdict`, which carries the numbers and says what to do next. It rests on three tests: the
gap between SGD and the limit of SVAG, whether SVAG has converged in ell, and whether SGD and the largest ell diverge
equally often.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, takewhile
from typing import Literal

from numpy.typing import ArrayLike

from svag.as_json import json_fields
from svag.printed import Printed
from svag.stats.decisions import Decision, compare_rates, holm, samples_to_decide
from svag.stats.means import Contrast, contrast, fit_limit, remaining_bias, welch
from svag.theory import domain
from svag.verdicts.arms import Arm, ArmSummary, describe, read_arms

_LEVEL = 0.05
LimitSource = Literal["fit", "largest_ell", "collapsed", "plan", "none"]


@dataclass(frozen=True)
class RemainingBias:
    """How far one ell still is from the limit, estimated from a larger one.

    Attributes:
        ell: the ell in question.
        against: the larger ell, four times as large if there is one.
        value: the mean at `ell` minus the limit, in the metric's units.
        low: lower 95% limit.
        high: upper 95% limit.
        answer: "equivalent" (within half the margin, by two one-sided tests at 5%), "different" (beyond half the
            margin: the 95% interval lies outside of it) or "inconclusive".
    """

    ell: int
    against: int
    value: float
    low: float
    high: float
    answer: Decision


@dataclass(frozen=True, repr=False)
class SDEVerdict(Printed):
    """Whether the SDE describes this SGD run, in one metric.

    >>> found = sde_verdict({1: [61.0, 61.5, 61.2], 4: [61.1, 60.8, 61.3], 16: [61.0, 61.4, 61.0]}, margin=1.0)
    >>> found.answer, round(found.gap, 4)
    ('equivalent', 0.1397)

    Attributes:
        answer: "equivalent" (the gap is smaller than the margin), "different" (there is a gap) or "inconclusive".
        gap: SGD minus the SDE limit, in the metric's units: positive when SGD's metric is the larger one. NaN when an
            arm it needs has no seed that finished.
        low: lower 95% limit of the gap, −∞ when the spread is unknown.
        high: upper 95% limit, ∞ when the spread is unknown.
        margin: the margin asked for.
        converged: whether SVAG is shown to have converged in ell, to within half the margin.
        converged_at: the smallest ell > 1 for which that is shown.
        biases: how far each ell > 1 still is from the limit, if a larger one shows it; in increasing ell.
        status: what to do next.
        limit: where the SDE limit comes from: "fit", E_∞ of E_ell = E_∞ + c/ell; "largest_ell", because that line does
            not fit; "collapsed", the largest ell, because an arm collapsed and no line may pass through it; "plan", a
            combination of some ell that was chosen beforehand; "none", because there are too few numbers.
        lack_of_fit: p value of the test that the line fits; None when two ell leave nothing to test.
        p_different: p value for a gap, corrected by Holm if divergence rates were compared too.
        p_equivalent: p value for "smaller than the margin".
        p_divergence: p value of Fisher's test that SGD and the largest ell diverge equally often; None if no seed did.
        seeds_needed: seeds per ell that would probably decide an inconclusive answer; None if that is not the remedy.
        arms: seeds, divergences and mean of each ell.
    """

    answer: Decision
    gap: float
    low: float
    high: float
    margin: float
    converged: bool
    converged_at: int | None
    biases: tuple[RemainingBias, ...]
    status: str
    limit: LimitSource
    lack_of_fit: float | None
    p_different: float
    p_equivalent: float
    p_divergence: float | None
    seeds_needed: int | None
    arms: tuple[ArmSummary, ...]

    def __str__(self) -> str:
        gap = "unknown" if math.isnan(self.gap) else f"{self.gap:+.4g}"
        if math.isfinite(self.low):
            gap += f" [{self.low:+.4g}, {self.high:+.4g}]"
        found = f"{self.answer}: SGD − SDE = {gap}, margin ±{self.margin:g}"
        shown = f"converged in ell from {self.converged_at} on" if self.converged else "convergence in ell not shown"
        return f"{found}\n{describe(self.arms, 'ell')}; {self.limit_said}; {shown}\nNext: {self.status}"

    @property
    def limit_said(self) -> str:
        """Where the SDE limit comes from, in words."""
        tested = "untested" if self.lack_of_fit is None else f"lack of fit p = {self.lack_of_fit:.2g}"
        return {
            "fit": f"limit from E_∞ + c/ell ({tested})",
            "largest_ell": f"limit is the largest ell, because E_∞ + c/ell does not fit ({tested})",
            "collapsed": "limit is the largest ell, because an arm collapsed",
            "plan": "limit by the planned weights",
            "none": "spread unknown",
        }[self.limit]

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document; unknown and infinite numbers are null."""
        biases = [json_fields(vars(bias)) for bias in self.biases]
        return {**json_fields(vars(self)), "biases": biases, "arms": [arm.to_dict("ell") for arm in self.arms]}


def sde_verdict(
    finals_by_ell: Mapping[int, ArrayLike],
    margin: float,
    *,
    limit_weights: Mapping[int, float] | None = None,
    bias: float = 0.0,
    extrapolate: bool = True,
    optimizer: str = "SGD",
) -> SDEVerdict:
    r"""Decide whether SGD ends where its SDE ends, from the final metric of a few seeds of SVAG at several ell.

    $$E_l = E_\infty + c/l,\qquad \text{gap} = E_1 - E_\infty = c$$

    where E_l are the metrics of `finals_by_ell[l]`; l = 1 is SGD and E_∞ the SDE (thm:sde_svag: the error of SVAG is of
    order 1/l). "equivalent": the two one-sided tests at 5% place the gap inside ±`margin`. "different": otherwise, and
    the 95% interval leaves out 0. The gap is SGD *minus* the SDE limit.

    >>> print(sde_verdict({1: [61.0, 61.5, 61.2], 4: [61.1, 60.8, 61.3], 16: [61.0, 61.4, 61.0]}, margin=1.0))
    equivalent: SGD − SDE = +0.1397 [-0.4322, +0.7116], margin ±1
    3, 3, 3 seeds at ell = 1, 4, 16; limit from E_∞ + c/ell (lack of fit p = 0.65); convergence in ell not shown
    Next: more seeds may show that SVAG has converged in ell. To within this margin, SGD ends where its SDE ends.

    Converged at l: the remaining bias (r/(r − 1))(E_l − E_rl) is inside ±margin/2 by the same two tests, for this and
    every larger ell that can be tested; r = 4 where there is such a pair, otherwise the ratio to the next ell. If the
    line does not fit (5%), the limit is the largest ell, and the interval is widened by what that may still miss:
    margin/2 if converged, otherwise as much as the last move in ell, in which case nothing can be equivalent.

    A diverged seed (NaN) is an outcome: rates of divergence of SGD and of the largest ell are compared by Fisher's
    test (with Holm's correction beside the gap of the survivors), and survivors alone never make the answer
    "equivalent".

    Args:
        finals_by_ell: ell → one final metric per seed; all at one `split`, and with the seeds of SGD under ell = 1.
        margin: the largest gap that would not matter to you, in the metric's units.
        limit_weights: ell → weight of its mean in the SDE limit, where a plan has fixed the estimate beforehand; then
            nothing is fitted.
        bias: the possible error of that limit, by which the interval is widened.
        extrapolate: False if the line must not be used, because an arm collapsed: then the limit is the largest ell.
        optimizer: name of the optimizer under ell = 1, for the sentences of `status`.
    """
    domain.positive("margin", margin)
    arms = read_arms("finals_by_ell", finals_by_ell, "ell")
    if arms[0].key != 1:
        raise ValueError(f"finals_by_ell lacks ell=1, which is SGD itself; got ell = {[arm.key for arm in arms]}")
    if len(arms) == 1:
        raise ValueError("finals_by_ell holds only ell=1, which is SGD: run SVAG too, best at ell=4 and ell=16")
    if limit_weights is not None:
        if not isinstance(limit_weights, Mapping):
            raise TypeError(f"limit_weights must map ell to a weight, got a {type(limit_weights).__name__}")
        limit_weights = {
            ell: domain.finite("a weight of limit_weights", weight) for ell, weight in limit_weights.items()
        }
    if not isinstance(extrapolate, bool):
        raise TypeError(f"extrapolate must be True or False, got a {type(extrapolate).__name__}")
    found = _weigh(arms, float(margin), limit_weights, domain.non_negative("bias", bias), extrapolate=extrapolate)
    low, high = found.gap.interval() if found.measured else (-math.inf, math.inf)
    return SDEVerdict(
        answer=found.answer,
        gap=found.gap.estimate.value,
        low=low,
        high=high,
        margin=found.margin,
        converged=found.converged_at is not None,
        converged_at=found.converged_at,
        biases=tuple(found.biases),
        status=_next_step(found, optimizer),
        limit=found.gap.limit,
        lack_of_fit=found.gap.lack_of_fit,
        p_different=found.p_gap,
        p_equivalent=found.p_equivalent,
        p_divergence=found.p_rates,
        seeds_needed=found.seeds_needed,
        arms=tuple(arm.summary() for arm in arms),
    )


@dataclass(frozen=True)
class _Gap:
    """SGD minus the SDE limit; `limit` and `lack_of_fit` are those of the verdict.

    Attributes:
        estimate: the estimate, with infinite error when there are too few numbers.
        allowance: the possible error of the limit itself: 0 when it is fitted; its bias when it was planned; when it is
            the largest ell, margin/2 if SVAG has converged, and otherwise as much as it moved from the ell before
            (unknown if that was closer than a factor 4).
        seeds: seeds of the smallest arm used.
    """

    estimate: Contrast
    limit: LimitSource
    lack_of_fit: float | None
    allowance: float
    seeds: int

    def interval(self) -> tuple[float, float]:
        """95% interval, widened by the allowance."""
        low, high = self.estimate.interval()
        return low - self.allowance, high + self.allowance


@dataclass(frozen=True, eq=False)
class _Evidence:
    """Everything that the answer and the next step are decided on.

    Attributes:
        arms: the outcomes, in increasing ell.
        biases: how far each ell > 1 that can be tested still is from the limit; in increasing ell.
        converged_at: smallest ell that has converged.
        p_gap: p value for a gap, after Holm; 1 when there is no estimate.
        p_rates: Fisher's p value for unequal divergence, before Holm; None when no seed diverged.
        p_divergence: the same after Holm; 1 when no seed diverged.
    """

    arms: Sequence[Arm]
    margin: float
    gap: _Gap
    biases: Sequence[RemainingBias]
    converged_at: int | None
    p_gap: float
    p_rates: float | None
    p_divergence: float

    @property
    def measured(self) -> bool:
        """Whether there are enough numbers to estimate the gap."""
        return self.gap.limit != "none"

    @property
    def unused(self) -> str:
        """The ell with fewer than two finished seeds: they have no spread and do not enter the estimate."""
        return ", ".join(str(arm.key) for arm in self.arms if arm.finite.size < 2)

    @property
    def trusted(self) -> bool:
        """Whether the limit can be taken for the SDE: every ell was used, and the line fits or was not needed."""
        converged = self.gap.limit in {"largest_ell", "collapsed"} and self.converged_at is not None
        return not self.unused and (self.gap.limit in {"fit", "plan"} or converged)

    @property
    def p_equivalent(self) -> float:
        """P value for a gap inside the margin; 1 when there is no estimate."""
        return self.gap.estimate.p_equivalent(self.margin - self.gap.allowance) if self.measured else 1.0

    @property
    def answer(self) -> Decision:
        """Equivalent only if the limit is trusted and all seeds finished; different also if divergence rates differ."""
        if self.trusted and self.p_rates is None and self.p_equivalent < _LEVEL:
            return "equivalent"
        if self.p_gap < _LEVEL or self.p_divergence < _LEVEL:
            return "different"
        return "inconclusive"

    @cached_property
    def seeds_needed(self) -> int | None:
        """Seeds per ell that would probably decide an inconclusive answer, if more seeds are the remedy."""
        gap = self.gap.estimate
        if self.answer != "inconclusive" or not self.trusted or self.p_rates is not None or gap.error == 0:
            return None
        return samples_to_decide(gap.value, gap.error, gap.freedom, self.gap.seeds, self.margin - self.gap.allowance)


def _weigh(
    arms: Sequence[Arm], margin: float, limit_weights: Mapping[int, float] | None, bias: float, *, extrapolate: bool
) -> _Evidence:
    """Test everything: `arms` in increasing ell, the first of them SGD."""
    several = [arm for arm in arms if arm.key > 1 and arm.finite.size > 1]
    # The factor r/(r − 1) multiplies the noise: 4/3 from l and 4l, 2 from l and 2l.
    fourfold = [(arm, other) for arm in several for other in several if other.key == 4 * arm.key]
    biases = [_bias(arm, other, margin) for arm, other in fourfold or pairwise(several)]
    converged_at = _converged_at(biases)
    gap = _gap(arms, None if converged_at is None else margin / 2, extrapolate=extrapolate)
    if limit_weights is not None and gap.limit != "none":
        gap = _planned_gap(arms, limit_weights, bias)
    p_rates = None
    if any(arm.diverged for arm in arms):
        p_rates = compare_rates(arms[0].diverged, arms[0].seeds, arms[-1].diverged, arms[-1].seeds)
    p_gap = None if gap.limit == "none" else gap.estimate.p_different(beyond=gap.allowance)
    asked = [p for p in (p_gap, p_rates) if p is not None]
    adjusted = holm(asked) if asked else []
    return _Evidence(
        arms=arms,
        margin=margin,
        gap=gap,
        biases=biases,
        converged_at=converged_at,
        p_gap=1.0 if p_gap is None else adjusted[0],
        p_rates=p_rates,
        p_divergence=1.0 if p_rates is None else adjusted[-1],
    )


def _bias(arm: Arm, larger: Arm, margin: float) -> RemainingBias:
    """Whether the remaining bias of an arm is within half the margin, beyond it, or neither is shown."""
    bias = remaining_bias(1 / arm.key, 1 / larger.key, arm.finite, larger.finite)
    answer: Decision = "inconclusive"
    if bias.error > 0 and bias.p_equivalent(margin / 2) < _LEVEL:
        answer = "equivalent"
    elif bias.error > 0 and bias.p_different(beyond=margin / 2) < _LEVEL:
        answer = "different"
    return RemainingBias(arm.key, larger.key, bias.value, *bias.interval(), answer)


def _converged_at(biases: Sequence[RemainingBias]) -> int | None:
    """Smallest ell that has converged together with all larger ones: a fixed sequence of tests needs no correction."""
    converged = takewhile(lambda bias: bias.answer == "equivalent", reversed(biases))
    return min((bias.ell for bias in converged), default=None)


def _gap(arms: Sequence[Arm], still_missing: float | None, *, extrapolate: bool) -> _Gap:
    """`still_missing` is the possible bias of the largest ell if SVAG has converged."""
    used = [arm for arm in arms if arm.finite.size > 1]
    if len(used) < 2 or used[0].key != 1 or not any(arm.has_spread for arm in used):
        value = arms[0].summary().mean - arms[-1].summary().mean
        return _Gap(Contrast(value, math.inf, 1.0), "none", None, 0.0, 1)
    seeds = min(arm.finite.size for arm in used)
    fit = fit_limit([1 / arm.key for arm in used], [arm.finite for arm in used])
    if extrapolate and (fit.lack_of_fit is None or fit.lack_of_fit >= _LEVEL):
        return _Gap(fit.slope, "fit", fit.lack_of_fit, 0.0, seeds)
    if still_missing is None:
        # From l to 4l an error of order 1/l falls to a quarter: what is left is less than that move. A shorter step in
        # l would leave more than it moved, by an unknown amount while the line does not fit.
        before = _a_quarter_of_the_largest(used)
        move = None if before is None else welch(before.finite, used[-1].finite)
        still_missing = math.inf if move is None else max(map(abs, move.interval()))
    source: LimitSource = "largest_ell" if extrapolate else "collapsed"
    return _Gap(welch(used[0].finite, used[-1].finite), source, fit.lack_of_fit, still_missing, seeds)


def _a_quarter_of_the_largest(arms: Sequence[Arm]) -> Arm | None:
    """The SVAG arm with the largest ell that is at most a quarter of the largest of all."""
    return max((arm for arm in arms if 1 < arm.key <= arms[-1].key / 4), key=lambda arm: arm.key, default=None)


def _planned_gap(arms: Sequence[Arm], weights: Mapping[int, float], bias: float) -> _Gap:
    """SGD minus the planned combination; `none` while one of its arms has no spread to show."""
    used = [arm for arm in arms if arm.key == 1 or weights.get(arm.key)]
    if set(weights) - {arm.key for arm in used} or any(arm.finite.size < 2 for arm in used):
        return _Gap(Contrast(math.nan, math.inf, 1.0), "none", None, 0.0, 1)
    estimate = contrast([arm.finite for arm in used], [(arm.key == 1) - weights.get(arm.key, 0.0) for arm in used])
    return _Gap(estimate, "plan", None, bias, min(arm.finite.size for arm in used))


def _next_step(found: _Evidence, optimizer: str) -> str:
    """What to do after the comparison, the most useful step first."""
    same = ", ".join(str(arm.key) for arm in found.arms if arm.finite.size > 1 and not arm.has_spread)
    doubt = f" Check that the seed reaches the runs at ell = {same}: they agree to the last digit."
    return _step(found, optimizer) + (doubt if same and found.measured else "")


def _step(found: _Evidence, optimizer: str) -> str:
    before, largest, unused = _a_quarter_of_the_largest(found.arms), found.arms[-1].key, found.unused
    if found.p_divergence < _LEVEL:
        return (
            f"nothing more to run: {optimizer} and its SDE do not diverge equally often; "
            "a smaller learning rate may help."
        )
    if not found.measured:
        return _too_little(found)
    if unused:
        return f"run more seeds at ell = {unused}, which fewer than two seeds finished: they are not in the estimate."
    if not found.trusted:
        if found.answer == "different" and before is not None:
            return (
                f"add ell={4 * largest} if you want to know the SDE's value: SVAG has not converged in ell, but even "
                f"if it moves as far again as from ell={before.key} to {largest}, {optimizer} does not end there."
            )
        line = "an arm collapsed" if found.gap.limit == "collapsed" else "E_∞ + c/ell does not fit"
        return (
            f"add ell={4 * largest}: {line} and SVAG has not converged in ell, "
            "so its largest ell does not stand for the SDE."
        )
    if found.answer == "inconclusive":
        return _undecided(found)
    meaning = {
        "equivalent": f"To within this margin, {optimizer} ends where its SDE ends",
        "different": f"{optimizer} does not end where its SDE ends; a smaller learning rate brings them closer",
    }[found.answer]
    return f"{_convergence(found)}. {meaning}."


def _too_little(found: _Evidence) -> str:
    if not any(arm.finite.size for arm in found.arms):
        return "lower the learning rate: every seed diverged."
    if unused := found.unused:
        return f"run more seeds, for example 5: at ell = {unused} fewer than two finished, so there is no spread."
    return (
        "check that the seed reaches the run: all seeds of an ell agree to the last digit, so there is no spread to "
        "judge the gap by; if that is right, take a metric that varies, such as the loss."
    )


def _undecided(found: _Evidence) -> str:
    if found.p_rates is not None:
        return (
            "lower the learning rate until every seed finishes, or run at least 5 seeds per ell to compare how often "
            "they diverge: diverged seeds are outcomes, and the survivors alone cannot show equivalence."
        )
    if found.seeds_needed is None:
        return (
            f"widen the margin (±{found.margin:g}) or average the metric over the last evaluations: more than 200 "
            "seeds per ell would be needed to decide."
        )
    more = found.seeds_needed - found.gap.seeds
    return (
        f"run {more} more seed{'' if more == 1 else 's'} per ell: that would probably decide this, "
        "if gap and spread stay as they are."
    )


def _convergence(found: _Evidence) -> str:
    largest = found.arms[-1].key
    if found.converged_at is not None or found.gap.limit == "plan":  # a plan already allows for the bias of its ell
        return "nothing more to run"
    if not found.biases:
        return f"add ell={largest // 4 if largest >= 16 else 4 * largest} to see whether SVAG has converged in ell"
    if abs(found.biases[-1].value) < found.margin / 2:
        return "more seeds may show that SVAG has converged in ell"
    return f"add ell={4 * largest}, because SVAG has not converged in ell"
