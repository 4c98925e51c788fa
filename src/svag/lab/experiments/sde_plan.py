"""Which ell and how many seeds find the SDE's value to a given accuracy, for the fewest examples (`--within`)."""

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from svag.lab.experiments import wording
from svag.lab.experiments.arms import svag_arm
from svag.lab.experiments.experiment import Metric
from svag.lab.records.record import RunRecord
from svag.lab.specs.fields import Count, Positive, SpecError
from svag.theory.weights import pair_cost

if TYPE_CHECKING:
    from svag.lab.experiments.compare import Compare

# The pilot of a planned comparison: seeds of SGD and of one cheap SVAG arm, which the plan then uses too.
PILOT_ELL, PILOT_SEEDS = 4, 4


class SdePlan(BaseModel):
    """How to find the SDE's value to a given accuracy for the fewest examples; `str` describes it.

    Attributes:
        metric: what is compared.
        within: the desired accuracy, in units of the metric: the margin of the comparison.
        ells: the ell of each arm; 1 is SGD.
        seeds: number of seeds of each arm.
        weights: weight of the mean of each arm in the SDE limit; 0 for arms that are not in it.
        split: into how many parts SVAG cuts its batches.
        spread: standard deviation over seeds in the pilot.
        constant: how far SGD may be from its SDE, by the pilot: its estimate plus one standard error.
        bias: error that may remain in the limit if no coefficient of E_∞ + c₁/l + c₂/l² + … is above `constant`.
        chance: probability of the answer "equivalent" if there is no gap.
        examples: examples that all runs use, including the pilot.
        plain_ell: the ell at which plain SVAG achieves the same with the fewest examples.
        plain_seeds: number of seeds of SGD, and of that SVAG.
        plain_examples: examples that those runs would use.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    metric: Metric
    within: Positive
    ells: tuple[Count, ...]
    seeds: tuple[Count, ...]
    weights: tuple[float, ...]
    split: Count
    spread: float
    constant: float
    bias: float
    chance: float
    examples: int
    plain_ell: Count
    plain_seeds: tuple[Count, Count]
    plain_examples: int

    @property
    def limit_weights(self) -> dict[int, float]:
        """The arms in the limit."""
        return {ell: weight for ell, weight in zip(self.ells, self.weights, strict=True) if weight}

    @property
    def saving(self) -> float:
        """Examples for plain SVAG over those of this plan."""
        return self.plain_examples / self.examples

    def said(self) -> str:
        """The cost, compared with that of plain SVAG."""
        plain = f"plain SVAG at ell={self.plain_ell} would take {self.plain_examples:,}"
        return f"{self.examples:,} examples; {plain}, {self.saving:.2g} times as many"

    def __str__(self) -> str:
        arms = ", ".join(f"{n} of {svag_arm(ell)}" for ell, n in zip(self.ells, self.seeds, strict=True))
        terms = " + ".join(f"{weight:.3f}·E_{ell}" for ell, weight in self.limit_weights.items()).replace("-", "−")
        spread, constant = (wording.size(number, self.metric) for number in (self.spread, self.constant))
        cut = f", batches cut in {self.split}" if self.split > 1 else ""
        lines = (
            f"Plan: the SDE's {wording.UNITS[self.metric]} to ±{wording.size(self.within, self.metric)}",
            f"  pilot: spread {spread}, SGD at most {constant} from its SDE",
            f"  seeds: {arms}{cut}",
            f"  SDE limit: {terms}, which may still miss {wording.size(self.bias, self.metric)}",
            f'  chance of "equivalent" if there is no gap: {self.chance:.2f}',
            f"  cost: {self.said()}",
        )
        return "\n".join(lines)


# The ell that a plan may choose from, and the power it aims at: the chance is computed to within .02 of the truth.
_MENU = (4, 8, 16, 32, 64, 128, 256)
_PLAIN_MENU = (2, *_MENU, 512, 1024, 2048, 4096)
_POWER = 0.82


def plan_within(pilot: "Compare", records: Sequence[RunRecord], within: float) -> "Compare":
    """Plan a comparison that finds the gap, and the SDE's value, to within a given accuracy, from the runs of a pilot.

    The arms are SGD, the SVAG of the pilot, and what the cheapest extrapolation from at most three ell needs. There are
    enough seeds that "equivalent" is the answer with probability .8 if there is no gap, averaged over what the true
    spread may be after a pilot this short. The spread is taken to be the same in all arms.

    Args:
        pilot: a pilot from `Compare.pilot`.
        records: its records, all ended.
        within: the margin: percentage points of an accuracy, otherwise in units of the metric.
    """
    import numpy as np

    from svag.lab.experiments.runs import gather
    from svag.stats.allocation import Level, chance_of_equivalence, plan_gap  # loads scipy, which a plan alone does not
    from svag.stats.means import remaining_bias

    (panel,), metric = pilot.panels, pilot.metric
    margin = within / 100 if wording.is_share(metric) else within
    if not (math.isfinite(margin) and margin > 0):
        raise SpecError("--within", f"must be a positive number, got {within:g}")
    (runs,), _ = gather(pilot, records, metric)
    size = panel.base.batch_size
    sgd, svag = (np.array(list(runs.finals(svag_arm(ell), size, metric).values())) for ell in (1, PILOT_ELL))
    if runs.missing or not np.isfinite([*sgd, *svag]).all():
        raise SpecError("--within", "a plan needs a pilot in which every seed finishes: lower the learning rate")
    gap, freedom = remaining_bias(1.0, 1 / PILOT_ELL, sgd, svag), sgd.size + svag.size - 2
    constant = abs(gap.value) + gap.error
    spread = math.sqrt((float(sgd.var(ddof=1)) * (sgd.size - 1) + float(svag.var(ddof=1)) * (svag.size - 1)) / freedom)
    if spread == 0:
        raise SpecError(
            "--within", f"the seeds of the pilot agree to the last digit of {metric}: choose another metric"
        )

    def level(ell: int, split: int) -> Level:
        return Level(1 / ell, pair_cost(ell, split), spread)

    first, cut = level(1, 1), [level(ell, panel.split) for ell in _MENU]
    cheapest = partial(plan_gap, first, margin=margin, constant=constant, power=_POWER, pilot_freedom=freedom)
    best = cheapest(menu=cut, begun={first: PILOT_SEEDS, cut[0]: PILOT_SEEDS}, most=3)
    plain = cheapest(menu=[level(ell, 1) for ell in _PLAIN_MENU], begun={first: PILOT_SEEDS}, most=1)
    if best is None or plain is None:
        raise SpecError(
            "--within",
            f"is out of reach at {within:g}: the spread of the pilot is {wording.value(spread, metric)}, and SGD may "
            f"be {wording.value(constant, metric)} from its SDE; widen it",
        )
    examples = size * next(iter(runs.results.values())).steps  # of one run of SGD
    plan = SdePlan(
        metric=metric,
        within=margin,
        ells=tuple(round(1 / level.x) for level in best.levels),
        seeds=tuple(map(round, best.samples)),
        weights=tuple((level == first) - weight for level, weight in zip(best.levels, best.weights, strict=True)),
        split=panel.split,
        spread=spread,
        constant=constant,
        bias=best.bias,
        chance=chance_of_equivalence(best, margin, pilot_freedom=freedom),
        examples=round(examples * best.cost),
        plain_ell=round(1 / plain.levels[-1].x),
        plain_seeds=(round(plain.samples[0]), round(plain.samples[1])),
        plain_examples=round(examples * plain.cost),
    )
    return pilot.with_plan(plan)
