"""What a ladder by the gain rule found: does each larger batch end where the smallest ended, and at which price?

Three numbers stand side by side for every rung. Its *price*, ∫D dτ/T of the baseline's history, was known before the
rung was trained. What it *paid* is the examples that it looked at over those of the baseline. The *examples to the same
loss* are those that it needed, over those that the baseline needed, to three levels of the training loss.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Literal

import numpy as np

from svag.lab.experiments.base import SGD
from svag.lab.experiments.data_price import DataPrice
from svag.lab.experiments.drift import PairDrift, measure_drift
from svag.lab.experiments.gain_plans import baseline_history
from svag.lab.experiments.ladder import LadderPanel
from svag.lab.experiments.ladder_drift import Fractions, steps_of
from svag.lab.experiments.runs import PanelRuns
from svag.lab.records.record import LOSS, RunRecord
from svag.lab.specs.optimizers import SgdOptimizer
from svag.lab.specs.spec import RunSpec, plan_of
from svag.noise.reading import Reading
from svag.prices.estimate import Estimate
from svag.prices.history import History
from svag.stats.means import welch
from svag.stats.samples import json_fields
from svag.theory.gain import Factors, least_spread

# The final training loss is the mean over the last part of training: at a constant rate a single moment fluctuates by
# more than recipes differ by.
LAST = 0.1

# A larger batch counts as ending where the smallest ended up to this share above its training loss.
CLOSE = 0.07

Ended = Literal["reached", "above", "diverged", "open"]
LossMetric = Literal["train_set_loss", "train_loss"]


@dataclass(frozen=True)
class GainRung:
    """One larger batch size, beside the baseline.

    Attributes:
        batch_size: of the rung.
        kappa: κ, over that of the baseline.
        price: how many times the examples of the baseline were predicted; NaN without readings of it.
        first_gain: the predicted gain at the start of training; NaN without readings.
        paid: how many times the examples of the baseline it looked at, on average over seeds; NaN without results.
        loss: final training loss over the baseline's, with its 95% interval over seeds.
        ended: "reached" where the interval of `loss` lies below 1.07, "above" where it lies above, "diverged" where a
            seed did, "open" otherwise.
        examples: factors in examples to the same training loss; None without results of both.
        drift: R, G and κN over the baseline's; None without readings of both.
        least: what theorem (iii) says the drift is at least, at equilibrium and at the gain of the window; None where
            it says nothing: it is about scale-invariant networks, weight decay, and SGD without momentum.
    """

    batch_size: int
    kappa: float
    price: float
    first_gain: float
    paid: float
    loss: Estimate
    ended: Ended
    examples: DataPrice | None
    drift: PairDrift | None
    least: float | None

    @property
    def gain(self) -> float:
        """κ over the price: the predicted gain on average over the run."""
        return self.kappa / self.price

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document; what is not known is null."""
        drift = self.drift
        numbers = {name: getattr(self, name) for name in ("kappa", "price", "gain", "first_gain", "paid", "least")}
        return {
            "batch_size": self.batch_size,
            **json_fields(numbers),
            "loss": self.loss.to_dict(),
            "ended": self.ended,
            "examples": None if self.examples is None else self.examples.to_dict(),
            "drift": None
            if drift is None
            else {
                name: found.to_dict()
                for name, found in (
                    ("weight_norm", drift.first),
                    ("gradient", drift.grad),
                    ("noise", drift.noise),
                    ("spread", drift.spread),
                )
            },
        }


@dataclass(frozen=True)
class GainRow:
    """Where one run was at one of the points of its training loss, a row for drawing.

    Attributes:
        batch_size: of the run.
        seed: its seed.
        baseline_time: baseline steps that had passed.
        gain: of the last update; 1 of the baseline itself.
        price: examples used so far over those of the baseline.
        train_loss: mean since the point before.
        examples: examples used so far.
    """

    batch_size: int
    seed: int
    baseline_time: float
    gain: float
    price: float
    train_loss: float
    examples: int


@dataclass(frozen=True)
class GainFinding:
    """What a panel by the gain rule found.

    Attributes:
        baseline: the smallest batch size.
        measured: whether the gain was measured while training, and not planned.
        loss_metric: which training loss is compared at the end: of the whole training set where it was evaluated, or
            the mean over the last tenth of training.
        rungs: the larger batch sizes.
        history: N/G along the runs of the baseline; None without readings.
        rows: gain, price and training loss along all runs.
    """

    baseline: int
    measured: bool
    loss_metric: LossMetric
    rungs: tuple[GainRung, ...]
    history: History | None
    rows: tuple[GainRow, ...]

    def rates(self, baseline: RunSpec) -> dict[int, float]:
        """The learning rate of each rung that has a result, at its gain on average over the run.

        Args:
            baseline: the run at the smallest batch size.
        """
        rule = baseline.optimizer.rule
        return {
            rung.batch_size: baseline.lr * Factors.at(rung.kappa / rung.paid, rule, decoupled=False).lr
            for rung in self.rungs
            if math.isfinite(rung.paid)
        }

    def to_dict(self) -> dict[str, object]:
        """Return the finding for a JSON document, without the rows."""
        return {
            "baseline": self.baseline,
            "measured": self.measured,
            "loss_metric": self.loss_metric,
            "rungs": [rung.to_dict() for rung in self.rungs],
            "history": None if self.history is None else self.history.to_dict(),
        }


def find_gains(panel: LadderPanel, runs: PanelRuns, data: Sequence[DataPrice], window: Fractions | None) -> GainFinding:
    """Compare every larger rung of a panel with the smallest.

    Args:
        panel: whose rule is gain.
        runs: of the panel.
        data: the measured factors in examples between its rungs.
        window: fractions of the budget over which R, G and κN are averaged; None without readings.
    """
    base, history = panel.sizes[0], baseline_history(panel, runs)
    metric = _loss_metric([run for size in panel.sizes for run in runs.of(SGD, size).values()])
    drifts = {} if window is None else _drifts(panel, runs, window)
    prices = {price.batch_size: price for price in data if price.baseline == base}
    planned = {spec.batch_size: plan for _, spec in panel.arms() if (plan := plan_of(spec)) is not None}
    small, found = runs.of(SGD, base), []
    steps = max((run.steps for run in small.values()), default=0)
    for size in panel.sizes[1:]:
        plan = planned.get(size) or (None if history is None else history.plan(size))
        price = math.nan if plan is None or not steps else plan.price(steps)
        large = runs.of(SGD, size)
        loss = _ratio(_finals(large, metric), _finals(small, metric))
        drift = drifts.get(size)
        found.append(
            GainRung(
                batch_size=size,
                kappa=size / base,
                price=price,
                first_gain=math.nan if plan is None else plan.gain_at(0),
                paid=_paid(large.values(), steps * base),
                loss=loss,
                ended=_ended(loss, large.values()),
                examples=prices.get(size),
                drift=drift,
                least=None if drift is None else _least(panel, runs, size, window),
            )
        )
    rows = tuple(row for size in panel.sizes for seed, run in runs.of(SGD, size).items() for row in _rows(run, seed))
    return GainFinding(base, panel.measured, metric, tuple(found), history, rows)


def _loss_metric(runs: Sequence[RunRecord]) -> LossMetric:
    finished = [run for run in runs if run.state == "finished"]
    known = all("train_set_loss" in run.final for run in finished)
    return "train_set_loss" if finished and known else "train_loss"


def _finals(runs: Mapping[int, RunRecord], metric: LossMetric) -> list[float]:
    finished = [run for run in runs.values() if run.state == "finished"]
    found = (final_loss(run) if metric == "train_loss" else float(run.final[metric]) for run in finished)
    return [loss for loss in found if loss > 0]


def final_loss(run: RunRecord) -> float:
    """Mean training loss over the last tenth of a run, in baseline time; NaN where no loss was logged."""
    rows = _rows(run, 0)
    end = rows[-1].baseline_time if rows else 0.0
    # A row is the mean since the one before: those that begin in the last tenth count, at least the last one.
    starts = [0.0, *(row.baseline_time for row in rows)]
    late = [(row, start) for row, start in zip(rows, starts, strict=False) if start >= (1 - LAST) * end * (1 - 1e-9)]
    late = late or list(zip(rows, starts, strict=False))[-1:]
    spans = [row.baseline_time - start for row, start in late]
    total = fsum(row.train_loss * span for (row, _), span in zip(late, spans, strict=True))
    return total / fsum(spans) if late and fsum(spans) > 0 else math.nan


def _ratio(large: Sequence[float], small: Sequence[float]) -> Estimate:
    """Ratio of geometric means with Welch's 95% interval; unlimited with fewer than two seeds of each."""
    if not large or not small:
        return Estimate(math.nan, 0.0, math.inf)
    logs = np.log(np.array(large)), np.log(np.array(small))
    if min(len(large), len(small)) < 2:
        return Estimate(math.exp(logs[0].mean() - logs[1].mean()), 0.0, math.inf)
    found = welch(*logs)
    low, high = found.interval()
    return Estimate(math.exp(found.value), math.exp(low), math.exp(high))


def _ended(loss: Estimate, runs: Iterable[RunRecord]) -> Ended:
    if any(run.state == "diverged" for run in runs):
        return "diverged"
    if loss.high <= 1 + CLOSE:
        return "reached"
    return "above" if loss.low > 1 + CLOSE else "open"


def _paid(runs: Iterable[RunRecord], examples: int) -> float:
    """Examples of the finished runs over those of the baseline, on average over seeds."""
    seen = [run.outcome["examples"] for run in runs if run.state == "finished" and run.outcome.get("examples")]
    return fsum(seen) / len(seen) / examples if seen and examples else math.nan


def _drifts(panel: LadderPanel, runs: PanelRuns, window: Fractions) -> dict[int, PairDrift]:
    """R, G and κN of every larger rung over the baseline's, in one window of baseline time."""
    rungs = {}
    for size in panel.sizes:
        if seeds := runs.readings(SGD, size):
            start, stop = steps_of(window, max(run.steps for run in runs.of(SGD, size).values()))
            rungs[size] = [_between(readings, start, stop) for readings in seeds.values()]
    if panel.sizes[0] not in rungs:
        return {}
    # fixed, so that a report of the same records always says the same
    drift = measure_drift(rungs, rng=np.random.default_rng(0))
    pairs = () if drift is None else drift.pairs
    return {pair.batch_size: pair for pair in pairs if pair.baseline == panel.sizes[0]}


def _between(readings: Sequence[Reading], start: int, stop: int) -> list[Reading]:
    return [one for one in readings if one.step is not None and start <= one.step < stop]


def _least(panel: LadderPanel, runs: PanelRuns, size: int, window: Fractions | None) -> float | None:
    """What theorem (iii) says of plain SGD: how far R, G and κN are apart at least, at the gain of the window."""
    base = panel.baseline
    plain = isinstance(base.optimizer, SgdOptimizer) and not base.optimizer.momentum
    if window is None or not (plain and base.model.scale_invariant and base.weight_decay > 0):
        return None
    small, large = runs.of(SGD, base.batch_size), runs.of(SGD, size)
    steps = max((run.steps for run in small.values()), default=0)
    start, stop = steps_of(window, steps)
    readings = [one for seed in runs.readings(SGD, base.batch_size).values() for one in _between(seed, start, stop)]
    noise, signal = fsum(one.noise_trace for one in readings), fsum(one.grad_sq for one in readings)
    gains = [found for run in large.values() if (found := _gain_between(_rows(run, 0), start, stop)) is not None]
    if not gains or signal <= 0 or noise <= 0:
        return None
    lr_wd = base.lr * base.weight_decay
    return least_spread(noise / signal, size / base.batch_size, fsum(gains) / len(gains), lr_wd)


def _gain_between(rows: Sequence[GainRow], start: int, stop: int) -> float | None:
    """Baseline steps over updates, between the first and the last point in a window of baseline time."""
    inside = [row for row in rows if start <= row.baseline_time <= stop]
    if len(inside) < 2 or inside[-1].examples == inside[0].examples:
        return None
    first, last = inside[0], inside[-1]
    return (last.baseline_time - first.baseline_time) * last.batch_size / (last.examples - first.examples)


def _rows(run: RunRecord, seed: int) -> list[GainRow]:
    """The points of the training loss of a run; of the baseline, whose steps are the time, gain and price are 1."""
    if run.spec is None:
        return []
    size, found = run.spec.batch_size, []
    for row in run.rows:
        if row.get("kind") == LOSS:
            time, seen = row.get("baseline_time", row["step"]), row.get("examples", row["step"] * size)
            gain, price = row.get("gain", 1.0), row.get("price", 1.0)
            found.append(GainRow(size, seed, float(time), float(gain), float(price), row["train_loss"], int(seen)))
    return found
