"""How many more examples a larger batch took to the same training loss: the measured counterpart of D.

The distortion D(κ) is also an estimate of the factor in data that κ times the batch costs (McCandlish et al.). A ladder
measures that factor directly: at several levels of the training loss, examples that the larger batch needed over those
that the baseline needed. No theorem connects the two.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from svag.arrays import FloatArray
from svag.as_json import JsonRow
from svag.lab.records.record import LOSS, RunRecord
from svag.lab.specs.fields import step_of
from svag.lab.specs.schedules import Steps
from svag.prices.estimate import Estimate
from svag.stats.means import welch

# Shares of the baseline's examples at which its loss becomes a level to be reached.
SHARES = (0.25, 0.5, 0.75)

Curve = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class DataPrice(JsonRow):
    """The factor in examples between two rungs.

    Attributes:
        baseline: batch size of the smaller rung.
        batch_size: batch size of the larger one.
        levels: training losses of the baseline at which the two are compared, decreasing.
        factors: examples of the larger rung over those of the baseline at each level; `math.inf` if the larger one does
            not get there, with a lower bound as its lower limit.
    """

    baseline: int
    batch_size: int
    levels: tuple[float, ...]
    factors: tuple[Estimate, ...]

    @property
    def reached(self) -> tuple[float, ...]:
        """The factors at the levels that the larger rung reached."""
        return tuple(factor.value for factor in self.factors if math.isfinite(factor.value))

    @property
    def at_least(self) -> float:
        """The largest bound from levels that the larger rung did not reach; 1 when it reached all of them."""
        return max((factor.low for factor in self.factors if math.isinf(factor.value)), default=1.0)

    def said(self) -> str:
        """The measured factors, or lower bounds on them, in words."""
        if not self.reached:
            return f"more than {self.at_least:.2g}×"
        low, high = f"{min(self.reached):.2g}", f"{max(self.reached):.2g}"
        more = " or more" if self.at_least > max(self.reached) else ""
        return f"{low}×{more}" if low == high else f"{low} to {high}×{more}"


def data_prices(curves: Mapping[int, Sequence[Curve]], shares: Sequence[float] = SHARES) -> tuple[DataPrice, ...]:
    """Measure the factor in examples of every rung over every smaller one, with 95% intervals over seeds.

    An interval is infinite with fewer than two seeds of each.

    >>> def falling(pace):  # loss 1/examples, reached `pace` times later
    ...     return [(e, pace / e) for e in range(100, 10_000, 100)]
    >>> (price,) = data_prices({32: [falling(1.0), falling(1.0)], 64: [falling(1.5), falling(1.5)]})
    >>> [round(factor.value, 1) for factor in price.factors]
    [1.5, 1.5, inf]

    Args:
        curves: batch size → one curve per seed: (examples seen, mean training loss up to there since the point
            before), over the same share of training and at one learning rate.
        shares: shares of the baseline's examples at which its mean loss is the level to be reached.
    """
    usable = {size: [curve for curve in seeds if len(curve) > 2] for size, seeds in sorted(curves.items())}
    sizes = [size for size, seeds in usable.items() if seeds]
    prices = []
    for index, base in enumerate(sizes[:-1]):
        levels = tuple(_level(usable[base], share) for share in shares)
        for size in sizes[index + 1 :]:
            factors = tuple(_factor(usable[base], usable[size], level) for level in levels)
            prices.append(DataPrice(base, size, levels, factors))
    return tuple(prices)


def _level(seeds: Sequence[Curve], share: float) -> float:
    """The lowest loss seen up to a share of the examples, on average over seeds."""
    losses = []
    for curve in seeds:
        examples, lowest = _falling(curve)
        losses.append(float(np.interp(share * examples[-1], examples, lowest)))
    return math.fsum(losses) / len(losses)


def _factor(base: Sequence[Curve], other: Sequence[Curve], level: float) -> Estimate:
    """Examples that the other rung needed to a level over those of the baseline."""
    needed, base_needed = (np.array([_reached(curve, level) for curve in seeds]) for seeds in (other, base))
    if not np.isfinite(base_needed).all():
        return Estimate(math.inf, 0.0, math.inf)
    if not np.isfinite(needed).all():
        longest = max(float(_falling(curve)[0][-1]) for curve in other)
        return Estimate(math.inf, longest / float(np.exp(np.log(base_needed).mean())), math.inf)
    return ratio_of_means(needed, base_needed)


def ratio_of_means(above: Sequence[float] | FloatArray, below: Sequence[float] | FloatArray) -> Estimate:
    """Ratio of the geometric means over seeds, with Welch's 95% interval of the difference of logarithms.

    The interval is unlimited with fewer than two seeds of each, and the ratio NaN without any.
    """
    logs, base_logs = np.log(np.asarray(above, float)), np.log(np.asarray(below, float))
    if not logs.size or not base_logs.size:
        return Estimate(math.nan, 0.0, math.inf)
    if min(logs.size, base_logs.size) < 2:
        return Estimate(math.exp(logs.mean() - base_logs.mean()), 0.0, math.inf)
    difference = welch(logs, base_logs)
    low, high = difference.interval()
    return Estimate(math.exp(difference.value), math.exp(low), math.exp(high))


def _reached(curve: Curve, level: float) -> float:
    """Examples at which the lowest loss so far first falls to a level, linear between points; infinite if never."""
    examples, lowest = _falling(curve)
    below = lowest <= level
    if not below.any():
        return math.inf
    at = int(below.argmax())
    if at == 0:
        return float(examples[0])
    share = (lowest[at - 1] - level) / (lowest[at - 1] - lowest[at])
    return float(examples[at - 1] + share * (examples[at] - examples[at - 1]))


def _falling(curve: Curve) -> tuple[FloatArray, FloatArray]:
    """The middle of each interval over which a loss is averaged, and the lowest loss up to there."""
    table = np.array(curve, dtype=np.float64)
    starts = np.concatenate([[0.0], table[:-1, 0]])
    return (starts + table[:, 0]) / 2, np.minimum.accumulate(table[:, 1])


def loss_curves(rungs: Mapping[int, Iterable[RunRecord]]) -> dict[int, list[Curve]]:
    """The training losses of finished runs against examples, until the learning rate of the first of them falls."""
    finished = {size: [run for run in records if run.state == "finished"] for size, records in rungs.items()}
    share = min((_held(run) for records in finished.values() for run in records), default=1.0)
    return {size: [_curve(run, size, share) for run in records] for size, records in finished.items() if records}


def _curve(run: RunRecord, size: int, share: float) -> Curve:
    # With the gain rule an effective step is one of the baseline, and its rows hold the number of examples.
    seen = {row["step"]: row["examples"] for row in run.rows if row.get("kind") == LOSS and "examples" in row}
    losses = [(step, loss) for step, loss in run.losses if step <= round(share * run.steps)]
    return [(float(seen.get(step, step * size)), loss) for step, loss in losses]


def _held(run: RunRecord) -> float:
    """The share of a run before its learning rate first falls by a step; 1 if the rate has no steps."""
    schedule = None if run.spec is None else run.spec.schedule
    return step_of(schedule.at[0], run.steps) / run.steps if isinstance(schedule, Steps) else 1.0
