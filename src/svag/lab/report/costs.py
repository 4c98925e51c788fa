"""The costs of the larger batches of a ladder in data and time, predicted and measured."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile, zip_longest
from statistics import fmean, geometric_mean
from typing import Literal

from svag.lab.experiments.data_price import SHARES
from svag.lab.experiments.experiment import Metric
from svag.lab.experiments.gain_finding import loss_points
from svag.lab.experiments.ladder_finding import LadderPanelFinding
from svag.lab.experiments.wording import is_optimizer, judged_by, value
from svag.lab.records.record import RunRecord
from svag.lab.report.content import Row, Table
from svag.prices.estimate import Estimate
from svag.prices.wording import examples_said

UNKNOWN = Estimate(math.nan, 0.0, math.inf)

Forecast = Literal["price", "distortion"]
"""What stands beside the measured factors: the price of these runs, or D, that of the gain rule's learning rate."""
COLUMN: dict[Forecast, str] = {"price": "examples predicted", "distortion": "D (gain rule)"}
_FORECAST: dict[Forecast, str] = {"price": "{} predicted", "distortion": "{} by the gain rule"}


@dataclass(frozen=True)
class RungCost:
    """What one larger batch size needed to reach the training loss of the smallest.

    Attributes:
        batch_size: of the larger runs.
        lr: their learning rate, by the gain rule on average over the run.
        predicted: how many times as many examples were predicted; by the gain rule with the range of the price list,
            by another rule the distortion D with its sampling interval. NaN where nothing was predicted.
        ranged: whether that interval is the range of the price list, outside of which a price counts as wrong.
        measured: how many times as many examples it took: geometric mean, least and most of the levels of the training
            loss that were reached. NaN where none was. The gain grows along a run, and with it the price falls; so by
            the gain rule, each level is compared with the price up to there, and scaled to that of the whole run.
        at_least: the largest factor after which a level had still not been reached; 0 if all were. Runs of equal length
            cannot reach the last levels, so this matters only if it exceeds the factors measured at other levels.
        time: how many times as long that took, at the speed of the fastest seed of each; NaN where unknown.
        loss: final training loss over that of the smallest batch, with its 95% interval; only by the gain rule.
        error: final test error, of a text bits per character; NaN where no run finished.
    """

    batch_size: int
    lr: float
    predicted: Estimate
    ranged: bool
    measured: Estimate
    at_least: float
    time: float
    loss: Estimate | None
    error: float

    @property
    def reached(self) -> bool:
        """Whether the larger batch reached the training loss, so that `measured` is more than a lower bound."""
        return math.isfinite(self.measured.value) and self.at_least <= self.measured.high

    @property
    def inside(self) -> bool:
        """Whether the measured price is known to lie inside the range of the predicted one."""
        return self.ranged and self.predicted.has_range and self.reached and not self.outside

    @property
    def outside(self) -> bool:
        """Whether the measured price is known to lie outside the range of the predicted one."""
        least = self.measured.value if self.reached else self.at_least
        return self.ranged and (least > self.predicted.high or self.measured.value < self.predicted.low)


@dataclass(frozen=True)
class Moment:
    """The runs of one batch size at one point of their loss curve, on average over seeds.

    Attributes:
        batch_size: of the runs.
        examples: number of examples seen.
        seconds: time that this took at the speed of the fastest seed; NaN if unknown.
        baseline_time: steps of the smallest batch that had passed; the same as its own steps without the gain rule.
        gain: baseline steps per update since the point before; NaN for the first, and without the gain rule.
        loss: mean training loss since the point before.
        low: the loss of the lowest seed.
        high: the loss of the highest seed.
        seeds: how many were still training.
    """

    batch_size: int
    examples: float
    seconds: float
    baseline_time: float
    gain: float
    loss: float
    low: float
    high: float
    seeds: int


@dataclass(frozen=True)
class LadderCosts:
    """What the batch sizes of one ladder cost.

    Attributes:
        baseline: the smallest batch size.
        lr: its learning rate.
        examples: number of examples of one of its runs; NaN if unknown.
        seconds: duration of one of its runs; NaN if unknown.
        error: final test error, of a text bits per character; NaN where no run finished.
        metric: the metric from which the error is computed.
        rungs: the larger batch sizes that have results.
        moments: training loss along the runs of all of them.
        forecast: what `predicted` is: by the gain rule the price of these runs; by another rule D.
    """

    baseline: int
    lr: float
    examples: float
    seconds: float
    error: float
    metric: Metric
    rungs: tuple[RungCost, ...]
    moments: tuple[Moment, ...]
    forecast: Forecast = "price"

    @property
    def best(self) -> RungCost | None:
        """The fastest rung that reached the loss, or the largest if speeds are unknown; None if none did."""
        reached = [rung for rung in self.rungs if rung.reached]
        timed = [rung for rung in reached if math.isfinite(rung.time)]
        if timed:
            return min(timed, key=lambda rung: rung.time)
        return reached[-1] if reached else None


def ladder_costs(panel: LadderPanelFinding, records: Iterable[RunRecord]) -> LadderCosts:
    """Compare data and time of every larger batch size of a panel with the smallest.

    Args:
        panel: what the ladder found.
        records: of its runs, and perhaps of others.
    """
    by_path = {str(record.path): record for record in records}
    runs: dict[int, list[RunRecord]] = {rung.batch_size: [] for rung in panel.rungs}
    for row in panel.runs:
        if is_optimizer(row.arm) and row.path in by_path:
            runs[row.batch_size].append(by_path[row.path])
    first = panel.rungs[0]
    paces = {size: _seconds_per_example(seeds) for size, seeds in runs.items()}
    measured = {price.batch_size: price for price in panel.data if price.baseline == first.batch_size}
    gains = {} if panel.gain is None else {rung.batch_size: rung for rung in panel.gain.rungs}
    moments = {size: _moments(size, seeds, paces[size]) for size, seeds in runs.items()}
    rungs = []
    for rung in panel.rungs[1:]:
        size, price, gain = rung.batch_size, measured.get(rung.batch_size), gains.get(rung.batch_size)
        if price is None and gain is None:
            continue
        predicted, ranged = _predicted(panel, size)
        scales = [1.0] * len(SHARES)
        if gain is not None and math.isfinite(predicted.value) and gain.prices_so_far:
            scales = [predicted.value / so_far for so_far in gain.prices_so_far]
        levels = [] if price is None else list(zip(price.factors, scales, strict=True))
        reached = [level.value * scale for level, scale in levels if math.isfinite(level.value)]
        at_least = max((level.low * scale for level, scale in levels if math.isinf(level.value)), default=0.0)
        factor = Estimate(geometric_mean(reached), min(reached), max(reached)) if reached else UNKNOWN
        time = factor.value * paces[size] / paces[first.batch_size]
        loss = None if gain is None else gain.loss
        rungs.append(RungCost(size, rung.lr, predicted, ranged, factor, at_least, time, loss, rung.error))
    done = [record for record in runs[first.batch_size] if record.outcome.get("examples")]
    examples = fmean(record.outcome["examples"] for record in done) if done else math.nan
    return LadderCosts(
        baseline=first.batch_size,
        lr=first.lr,
        examples=examples,
        seconds=examples * paces[first.batch_size],
        error=first.error,
        metric=panel.metric,
        rungs=tuple(rungs),
        moments=tuple(moment for own in moments.values() for moment in own),
        forecast="distortion" if panel.gain is None else "price",
    )


def _predicted(panel: LadderPanelFinding, size: int) -> tuple[Estimate, bool]:
    """The predicted factor in examples, and whether its interval is the range of the price list."""
    of_first = [prediction for prediction in panel.predictions if prediction.batch_size == panel.rungs[0].batch_size]
    if panel.gain is None:
        usable = [prediction for prediction in of_first if prediction.usable]
        return (usable[0].linear.distortion(size), False) if usable else (UNKNOWN, False)
    planned = next(rung.price for rung in panel.gain.rungs if rung.batch_size == size)
    if not of_first or not of_first[0].price_list.usable:
        return Estimate(planned, 0.0, math.inf), False
    listed = of_first[0].price_list.prices([size])[0].examples
    # the plan was made from all or some of these readings, and the range is a factor on any price
    return listed.mapped(lambda price: price * planned / listed.value), True


def _seconds_per_example(runs: Sequence[RunRecord]) -> float:
    """Seconds per example of the fastest seed: others may have waited for a busy core or a sleeping machine."""
    timed = [run.outcome for run in runs if run.outcome.get("seconds") and run.outcome.get("examples")]
    return min((outcome["seconds"] / outcome["examples"] for outcome in timed), default=math.nan)


def _moments(size: int, runs: Sequence[RunRecord], pace: float) -> list[Moment]:
    """Average the n-th points of all seeds: they are taken at the same moments of training."""
    moments: list[Moment] = []
    # a loss that is not finite ends its curve
    curves = [takewhile(lambda point: math.isfinite(point.train_loss), loss_points(run)) for run in runs]
    for points in zip_longest(*curves):
        there = [point for point in points if point is not None]
        examples, time = fmean(point.examples for point in there), fmean(point.baseline_time for point in there)
        losses = [point.train_loss for point in there]
        before = moments[-1] if moments else None
        gain = math.nan
        if before is not None and examples > before.examples:
            gain = (time - before.baseline_time) * size / (examples - before.examples)
        low, high = min(losses), max(losses)
        moments.append(Moment(size, examples, examples * pace, time, gain, fmean(losses), low, high, len(there)))
    return moments


# --- in words


def headline(costs: LadderCosts) -> str:
    """The cost of the fastest batch, in data and time; empty if nothing was compared."""
    best, base = costs.best, costs.baseline
    if best is None:
        rung = next((rung for rung in costs.rungs if rung.at_least), None)
        if rung is None:
            return ""
        within = f"{times(rung.at_least)} its examples"
        return f"Batch size {rung.batch_size} did not reach the training loss of batch size {base} within {within}."
    priced = _FORECAST[costs.forecast].format(times(best.predicted.value))
    known = f" ({priced})" if math.isfinite(best.predicted.value) else ""
    needed = f"{times(best.measured.value)} the examples{known}"
    if best.time >= 1:
        return (
            f"No larger batch was faster than batch size {base}: for its training loss, batch size {best.batch_size} "
            f"needed {needed} and {times(best.time)} the time."
        )
    time = f" in {times(best.time)} the time" if math.isfinite(best.time) else ""
    return f"Batch size {best.batch_size} reached the training loss of batch size {base} with {needed}{time}."


def cost_table(name: str, costs: LadderCosts) -> Table:
    """The costs as a formatted table; ⚠ marks a price outside its range."""
    judged = judged_by(costs.metric)
    small: Row = {
        "batch size": str(costs.baseline),
        COLUMN[costs.forecast]: "",
        "examples measured": f"{costs.examples:,.0f}" if math.isfinite(costs.examples) else "",
        "time": duration(costs.seconds) if math.isfinite(costs.seconds) else "",
        "final loss": "",
        judged: _error(costs.error, costs.metric),
        "learning rate": _rate(costs.lr),
    }
    rows = [small, *({**_row(rung, costs.forecast), judged: _error(rung.error, costs.metric)} for rung in costs.rungs)]
    outside = frozenset(number for number, rung in enumerate(costs.rungs, 1) if rung.outside)
    kept = [column for column in small if any(row[column] for row in rows)]
    return Table(name, "costs", [{column: row[column] for column in kept} for row in rows], outside)


def _row(rung: RungCost, forecast: Forecast) -> Row:
    measured = _measured(rung)
    ended = math.nan if rung.loss is None else rung.loss.value
    return {
        "batch size": str(rung.batch_size),
        COLUMN[forecast]: examples_said(rung.predicted) if math.isfinite(rung.predicted.value) else "",
        "examples measured": f"{measured} ⚠" if rung.outside else measured,
        "time": times(rung.time) if rung.reached and math.isfinite(rung.time) else "",
        "final loss": times(ended) if math.isfinite(ended) else "",
        "learning rate": _rate(rung.lr),
    }


def _measured(rung: RungCost) -> str:
    if rung.reached:
        return times(rung.measured.value)
    return f"> {times(rung.at_least)}" if rung.at_least else ""


def outside_said(costs: LadderCosts) -> tuple[tuple[str, str], ...]:
    """The prices outside their range, as a row below the table; none if all were inside."""
    wrong = [
        f"batch size {rung.batch_size} took {_measured(rung)} the examples, "
        f"predicted {rung.predicted.low:.2f} to {rung.predicted.high:.2f}×"
        for rung in costs.rungs
        if rung.outside
    ]
    return (("⚠ outside the range", "; ".join(wrong)),) if wrong else ()


def times(factor: float) -> str:
    """A factor.

    >>> times(1.494), times(0.0123), times(31.6)
    ('1.49×', '0.012×', '32×')
    """
    return f"{factor:.2f}×" if 0.1 <= factor < 10 else f"{factor:.2g}×"


def _error(error: float, metric: Metric) -> str:
    return value(error, metric) if math.isfinite(error) else ""


def _rate(lr: float) -> str:
    return f"{lr:.3g}" if math.isfinite(lr) else ""


def duration(seconds: float) -> str:
    """A number of seconds as a readable duration.

    >>> duration(12.5), duration(90), duration(4000), duration(7199)
    ('12 s', '1 min 30 s', '1 h 7 min', '2 h 0 min')
    """
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    hours, minutes = divmod(round(whole / 60), 60)
    return f"{hours} h {minutes} min"
