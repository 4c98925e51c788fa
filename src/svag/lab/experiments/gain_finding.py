"""The gain rule on a ladder: plans for the larger batches, whether each ends where the smallest did, and its price.

There are three numbers for every rung. Its *price*, ∫D dτ/T of the baseline's history, was known before the rung was
trained. What it *paid* is its number of examples over that of the baseline. Its *examples to the same loss* are the
examples that it needed over those that the baseline needed, to three levels of the training loss.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Literal

import numpy as np

from svag.as_json import json_fields_of, json_value
from svag.lab.experiments.arms import SGD
from svag.lab.experiments.data_price import SHARES, DataPrice, ratio_of_means
from svag.lab.experiments.drift import Fractions, PairDrift, measure_drift, readings_in, steps_of
from svag.lab.experiments.ladder import Ladder, LadderPanel
from svag.lab.experiments.runs import PanelRuns, gather
from svag.lab.experiments.wording import Tone
from svag.lab.records.record import LOSS, RunRecord
from svag.lab.specs.fields import SpecError
from svag.lab.specs.optimizers import SgdOptimizer
from svag.lab.specs.spec import RunSpec, plan_of
from svag.noise.reading import Reading
from svag.prices.estimate import Estimate
from svag.prices.history import History, run_history
from svag.prices.plan import GainPlan
from svag.theory.gain import Factors, least_spread

# The final training loss is the mean over the last part of training: at a constant rate a single moment fluctuates by
# more than recipes differ by.
LAST = 0.1

# A larger batch counts as ending where the smallest did if its training loss is at most this share higher.
CLOSE = 0.07

Ended = Literal["reached", "above", "diverged", "open"]
LossMetric = Literal["train_set_loss", "train_loss"]
_TONES: dict[Ended, Tone] = {"reached": "yes", "above": "no", "diverged": "no", "open": "open"}


def baseline_history(panel: LadderPanel, runs: PanelRuns) -> History | None:
    """N/G along the runs at the smallest batch size, all seeds together; None without readings."""
    size = panel.sizes[0]
    readings = runs.pooled_readings(SGD, size)
    return run_history(readings, runs.steps(size)) if readings else None


def baseline_prices(ladder: Ladder, records: Sequence[RunRecord]) -> dict[int, float]:
    """The price in examples of each larger batch size of the first panel, as the smallest batch size predicts it.

    Args:
        ladder: a ladder by the gain rule.
        records: the records of its smallest batch size, in any order.
    """
    panel, runs = ladder.panels[0], gather(ladder, records, "train_loss")[0][0]
    history = baseline_history(panel, runs)
    return {} if history is None else {size: history.examples(size) for size in panel.sizes[1:]}


def plans_from(ladder: Ladder, records: Sequence[RunRecord]) -> tuple[LadderPanel, ...]:
    """The panels of a ladder with a plan for every rung.

    A plan depends only on the runs at the smallest batch size. It is written into `experiment.json` with the ladder,
    and kept from then on.

    Args:
        ladder: a ladder whose runs at the smallest batch size have ended.
        records: the records of those runs, in any order; others are ignored.
    """
    gathered, _ = gather(ladder, records, "train_loss")
    return tuple(_planned(panel, runs) for panel, runs in zip(ladder.panels, gathered, strict=True))


def _planned(panel: LadderPanel, runs: PanelRuns) -> LadderPanel:
    if not panel.unplanned:
        return panel
    size = panel.sizes[0]
    history = baseline_history(panel, runs)
    if history is None:
        if any(run.state == "diverged" for run in runs.of(SGD, size).values()):
            raise SpecError("lr", f"training at batch size {size} diverged, and no gain can be planned: lower it")
        raise SpecError("probe", "is needed to plan the larger batches: leave it out, or use {kind: in_run}")
    try:
        new = [(larger, history.plan(larger).phases) for larger in panel.unplanned]
    except ValueError as error:  # an npz file that has fewer examples
        raise SpecError("batch_sizes", str(error)) from None
    return panel.model_copy(update={"plans": tuple(sorted((*panel.plans, *new)))})


@dataclass(frozen=True)
class GainRung:
    """One larger batch size, compared with the baseline.

    Attributes:
        batch_size: batch size of the rung.
        kappa: κ, that batch size over the baseline's.
        price: predicted examples over those of the baseline; NaN without readings of the baseline.
        first_gain: the predicted gain at the start of training; NaN without readings.
        paid: examples used over those of the baseline, on average over seeds; NaN without results.
        loss: final training loss over the baseline's, with its 95% interval over seeds.
        ended: "reached" where the interval of `loss` lies below 1.07, "above" where it lies above, "diverged" where a
            seed did, "open" otherwise.
        examples: factors in examples to the same training loss; None without results of both.
        prices_so_far: the price up to each of `SHARES` of the baseline's steps, as planned or as it was paid on line.
        drift: R, G and κN over the baseline's; None without readings of both.
        least: the least drift that theorem (iii) allows, at equilibrium and at the gain of the window; None where it
            does not apply: it is about scale-invariant networks, weight decay, and SGD without momentum.
    """

    batch_size: int
    kappa: float
    price: float
    first_gain: float
    paid: float
    loss: Estimate
    ended: Ended
    examples: DataPrice | None
    prices_so_far: tuple[float, ...]
    drift: PairDrift | None
    least: float | None

    @property
    def gain(self) -> float:
        """κ over the price: the predicted gain on average over the run."""
        return self.kappa / self.price

    @property
    def finished(self) -> bool:
        """Whether there is a final training loss to compare."""
        return math.isfinite(self.loss.value)

    def loss_said(self) -> str:
        """The final training loss over the baseline's, with the interval where there is one."""
        loss = self.loss
        return f"{loss.value:.3f}" + (f" [{loss.low:.3f}, {loss.high:.3f}]" if math.isfinite(loss.high) else "")

    def said(self, baseline: int) -> str:
        """Price, examples and loss beside those of the baseline."""
        parts = []
        if math.isfinite(self.price):
            parts.append(f"price {self.price:.2f}× the examples, gain {self.gain:.2f} ({self.first_gain:.2f} at first)")
        if math.isfinite(self.paid):
            parts.append(f"paid {self.paid:.2f}×")
        if self.finished:
            parts.append(f"final training loss {self.loss_said()} times that of {baseline}")
        if self.examples is not None:
            parts.append(f"same loss after {self.examples.said()} the examples")
        if self.ended == "diverged":
            parts.append("diverged")
        return "; ".join(parts) or "no result yet"

    def drift_said(self, drift: PairDrift) -> str:
        """How far the statistics of training moved."""
        norm, grad, noise = drift.first.value, drift.grad.value, drift.noise.value
        least = "" if self.least is None else f"; at least {self.least:.2f} by the theorem, at equilibrium"
        return f"{drift.spread} (weight norm {norm:.2f}, gradient {grad:.2f}, noise {noise:.2f}{least})"

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document; what is not known is null."""
        numbers = ("batch_size", "kappa", "price", "gain", "first_gain", "paid", "least", "loss", "ended", "examples")
        names = {"weight_norm": "first", "gradient": "grad", "noise": "noise", "spread": "spread"}
        drift = None
        if self.drift is not None:
            drift = {name: json_value(getattr(self.drift, field)) for name, field in names.items()}
        return {**json_fields_of(self, *numbers), "drift": drift}


@dataclass(frozen=True)
class GainRow:
    """The state of a run at one of the points of its training loss, as a row for drawing.

    Attributes:
        batch_size: batch size of the run.
        seed: its seed.
        baseline_time: baseline steps that had passed.
        gain: gain of the last update; 1 for the baseline itself.
        price: examples used so far over those of the baseline.
        train_loss: mean training loss since the point before.
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
        measured: whether the gain was measured while training rather than planned.
        loss_metric: which training loss is compared at the end: that of the whole training set where it was evaluated,
            or the mean over the last tenth of training.
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

    @property
    def finished(self) -> list[GainRung]:
        """The rungs with a final training loss."""
        return [rung for rung in self.rungs if rung.finished]

    @property
    def tone(self) -> Tone:
        """Yes if every larger batch reached the loss of the smallest; no if one is known not to."""
        tones = {_TONES[rung.ended] for rung in self.rungs if rung.finished or rung.ended == "diverged"}
        return "no" if "no" in tones else "yes" if tones == {"yes"} else "open"

    def headline(self) -> str | None:
        """The largest batch size that has a result, beside the smallest; None without a result."""
        if not self.finished:
            return None
        last = self.finished[-1]
        predicted = f" (predicted {last.price:.2f})" if math.isfinite(last.price) else ""
        return (
            f"Batch size {last.batch_size} ended at {last.loss_said()} times the training loss of batch size "
            f"{self.baseline}, with {last.paid:.2f} times its examples{predicted}."
        )

    def numbers(self) -> Iterator[tuple[str, str]]:
        """Price, examples, loss and drift of every larger batch size."""
        for rung in self.rungs:
            yield f"batch size {rung.batch_size}", rung.said(self.baseline)
        for rung in self.rungs:
            if rung.drift is not None:
                yield f"drift at {rung.batch_size}", rung.drift_said(rung.drift)

    def to_dict(self) -> dict[str, object]:
        """Return the finding for a JSON document, without the rows."""
        return json_fields_of(self, "baseline", "measured", "loss_metric", "rungs", "history")


def find_gains(panel: LadderPanel, runs: PanelRuns, data: Sequence[DataPrice], window: Fractions | None) -> GainFinding:
    """Compare every larger rung of a panel with the smallest.

    Args:
        panel: a panel whose rule is gain.
        runs: its runs.
        data: the measured factors in examples between its rungs.
        window: fractions of the budget over which R, G and κN are averaged; None without readings.
    """
    base, history = panel.sizes[0], baseline_history(panel, runs)
    metric = _loss_metric([run for size in panel.sizes for run in runs.of(SGD, size).values()])
    drifts = {} if window is None else _drifts(panel, runs, window)
    prices = {price.batch_size: price for price in data if price.baseline == base}
    planned = {spec.batch_size: plan for _, spec in panel.arms() if (plan := plan_of(spec)) is not None}
    small, steps, rungs = runs.of(SGD, base), runs.steps(base), []
    rows = {base: [row for seed, run in small.items() for row in loss_points(run, seed)]}
    for size in panel.sizes[1:]:
        plan = planned.get(size) or (None if history is None else history.plan(size))
        large = runs.of(SGD, size)
        rows[size] = [row for seed, run in large.items() for row in loss_points(run, seed)]
        loss = ratio_of_means(_finals(large, metric), _finals(small, metric))
        rungs.append(
            GainRung(
                batch_size=size,
                kappa=size / base,
                price=math.nan if plan is None or not steps else plan.price(steps),
                first_gain=math.nan if plan is None else plan.gain_at(0),
                paid=_paid(large.values(), steps * base),
                loss=loss,
                ended=_ended(loss, large.values()),
                examples=prices.get(size),
                prices_so_far=_prices_so_far(planned.get(size), rows[size], steps),
                drift=drifts.get(size),
                least=_least(panel, runs, size, window) if window is not None and size in drifts else None,
            )
        )
    every = tuple(row for size in panel.sizes for row in rows[size])
    return GainFinding(base, panel.measured, metric, tuple(rungs), history, every)


def _prices_so_far(plan: GainPlan | None, rows: Iterable[GainRow], steps: int) -> tuple[float, ...]:
    """Examples up to each of `SHARES` of training over the baseline's: of the plan, or the mean over seeds on line."""
    if plan is not None and steps:
        return tuple(plan.price(round(share * steps)) for share in SHARES)
    seeds: dict[int, list[GainRow]] = {}
    for row in rows:
        seeds.setdefault(row.seed, []).append(row)
    bills = [([row.baseline_time for row in own], [row.price for row in own]) for own in seeds.values()]
    return tuple(
        fsum(float(np.interp(share * steps, *bill)) for bill in bills) / len(bills) for share in SHARES if bills
    )


def _loss_metric(runs: Sequence[RunRecord]) -> LossMetric:
    finished = [run for run in runs if run.state == "finished"]
    known = all("train_set_loss" in run.final for run in finished)
    return "train_set_loss" if finished and known else "train_loss"


def _finals(runs: Mapping[int, RunRecord], metric: LossMetric) -> list[float]:
    finished = [run for run in runs.values() if run.state == "finished"]
    losses = (final_loss(run) if metric == "train_loss" else float(run.final[metric]) for run in finished)
    return [loss for loss in losses if loss > 0]


def final_loss(run: RunRecord) -> float:
    """Mean training loss over the last tenth of a run, in baseline time; NaN where no loss was logged."""
    rows = loss_points(run, 0)
    end = rows[-1].baseline_time if rows else 0.0
    # A row is the mean since the one before: those that begin in the last tenth count, at least the last one.
    starts = [0.0, *(row.baseline_time for row in rows)]
    late = [(row, start) for row, start in zip(rows, starts, strict=False) if start >= (1 - LAST) * end * (1 - 1e-9)]
    late = late or list(zip(rows, starts, strict=False))[-1:]
    spans = [row.baseline_time - start for row, start in late]
    total = fsum(row.train_loss * span for (row, _), span in zip(late, spans, strict=True))
    return total / fsum(spans) if late and fsum(spans) > 0 else math.nan


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
    rungs = {size: seeds for size in panel.sizes if (seeds := readings_in(window, runs, size))}
    if panel.sizes[0] not in rungs:
        return {}
    # fixed, so that reports of the same records are identical
    drift = measure_drift(rungs, rng=np.random.default_rng(0))
    pairs = () if drift is None else drift.pairs
    return {pair.batch_size: pair for pair in pairs if pair.baseline == panel.sizes[0]}


def _least(panel: LadderPanel, runs: PanelRuns, size: int, window: Fractions) -> float | None:
    """The least spread of R, G and κN that theorem (iii) allows plain SGD at the gain of the window."""
    base = panel.baseline
    start, stop = steps_of(window, runs.steps(base.batch_size))
    readings = [reading for seed in readings_in(window, runs, base.batch_size) for reading in seed]
    large = runs.of(SGD, size).values()
    gains = [gain for run in large if (gain := gain_between(loss_points(run), start, stop)) is not None]
    return least_drift(base, size / base.batch_size, readings, gains)


def least_drift(base: RunSpec, kappa: float, readings: Sequence[Reading], factors: Sequence[float]) -> float | None:
    """The least spread of R, G and κN that theorem (iii) allows between a baseline and κ times its batch.

    None where the theorem does not apply: it is about plain SGD, a scale-invariant loss and coupled weight decay.

    Args:
        base: the baseline.
        kappa: κ.
        readings: of the baseline.
        factors: learning rate of the larger runs over that of the baseline.
    """
    plain = isinstance(base.optimizer, SgdOptimizer) and not base.optimizer.momentum
    noise, signal = fsum(reading.noise_trace for reading in readings), fsum(reading.grad_sq for reading in readings)
    if not (plain and base.model.scale_invariant and base.weight_decay and factors and min(noise, signal) > 0):
        return None
    return least_spread(noise / signal, kappa, fsum(factors) / len(factors), base.lr * base.weight_decay)


def gain_between(rows: Sequence[GainRow], start: float, stop: float) -> float | None:
    """Baseline steps over updates, between the first and the last point in a window of baseline time."""
    inside = [row for row in rows if start <= row.baseline_time <= stop]
    if len(inside) < 2 or inside[-1].examples == inside[0].examples:
        return None
    first, last = inside[0], inside[-1]
    return (last.baseline_time - first.baseline_time) * last.batch_size / (last.examples - first.examples)


def loss_points(run: RunRecord, seed: int = 0) -> list[GainRow]:
    """The points of the training loss of a run; for the baseline, whose steps are the time, gain and price are 1."""
    if run.spec is None:
        return []
    logged = {row["step"]: row for row in run.rows if row.get("kind") == LOSS}
    size, points = run.spec.batch_size, []
    for step, loss in run.losses:
        row = logged.get(step, {})
        time, seen = row.get("baseline_time", step), row.get("examples", step * size)
        gain, price = row.get("gain", 1.0), row.get("price", 1.0)
        points.append(GainRow(size, seed, float(time), float(gain), float(price), loss, int(seen)))
    return points
