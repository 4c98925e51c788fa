"""What a ladder measured of the theorem's own statistics, and of the price in examples (def:lsi, thm:lsr_kappa_bound).

All rungs are averaged over one window of training time, as fractions of the budget: what settles last at one batch size
decides for all of them. The training loss is compared before the learning rate first falls.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from svag.lab.experiments.base import SGD
from svag.lab.experiments.data_price import Curve, DataPrice, data_prices
from svag.lab.experiments.drift import Compared, Crossing, Drift, PairDrift, measure_drift
from svag.lab.experiments.ladder_evidence import RungPrediction
from svag.lab.experiments.runs import PanelRuns
from svag.lab.records.record import LOSS, RunRecord
from svag.lab.specs.fields import step_of
from svag.lab.specs.schedules import Steps
from svag.noise.reading import Reading
from svag.prices.basis import THEOREMS, Signal
from svag.prices.estimate import Estimate
from svag.prices.linear import LinearRule
from svag.prices.price_list import PriceList
from svag.prices.windows import choose_window
from svag.stats.ratios import Interval, quotient

Fractions = tuple[float, float]

# Windows whose ends differ by more than this share of the examples seen are not the same part of training.
_SAME_TIME = 0.02


def shared_window(runs: PanelRuns, sizes: Sequence[int]) -> Fractions | None:
    """The window of training time over which all rungs are averaged; None without readings, or if they share none.

    Each rung's own window is that of `svag.price_list`; the shared one starts where the last of them does.
    """
    own = []
    for size in sizes:
        readings = [reading for seed in runs.readings(SGD, size).values() for reading in seed]
        if readings:
            chosen, steps = choose_window(readings), _steps(runs, size)
            own.append((chosen.start / steps, chosen.stop / steps))
    if not own:
        return None
    start, stop = max(start for start, _ in own), min(stop for _, stop in own)
    return (start, stop) if start < stop else None


def steps_of(window: Fractions, steps: int) -> tuple[int, int]:
    """First effective step of a window in a run of `steps`, and the last plus 1.

    >>> steps_of((0.6, 0.8), 18_720)
    (11232, 14976)
    """
    return round(window[0] * steps), max(round(window[1] * steps), round(window[0] * steps) + 1)


def steps_at(runs: PanelRuns, size: int, window: Fractions) -> tuple[int, int]:
    """A window of training time in effective steps of SGD at one batch size."""
    return steps_of(window, _steps(runs, size))


def _steps(runs: PanelRuns, size: int) -> int:
    return max(record.steps for record in runs.of(SGD, size).values())


def drift_of(
    runs: PanelRuns, predictions: Sequence[RungPrediction], window: Fractions | None, c2: float
) -> Drift | None:
    """How far the rungs that predict something drifted apart; None when fewer than two can be compared.

    The second moment V is compared where the optimizer has one, the pull T where two predictions rest on it, the weight
    norm otherwise; what they mean where no theorem applies is for the reader of the basis to say.
    """
    if window is None or not predictions:
        return None
    found = [one.linear for one in predictions]
    rungs = {one.batch_size: _within(runs, one.batch_size, window) for one in predictions}
    # ηλ is linear in the batch size, and known where the theorem of the paper applies
    settled = next((one for one in found if one.lr_wd), None)
    lr_wd = 0.0 if settled is None else settled.lr_wd * found[0].batch_size / settled.batch_size
    # a theorem speaks of a pair only where both rungs rest on it; T says nothing of weights that have not settled
    compared: Compared = "T" if sum(one.basis == "pull" for one in found) > 1 else "R"
    if all(one.basis == "second_moment" and one.second_moment_ratio is not None for one in found):
        compared = "V"
    drift = measure_drift(
        rungs,
        # fixed, so that a report of the same records always says the same
        rng=np.random.default_rng(0),
        c2=c2,
        compared=compared,
        signal=_signal([one.signal for one in found]),
        lr_wd=lr_wd if compared == "R" else 0.0,
    )
    return None if drift is None else _as_priced(drift, {one.batch_size: one for one in found})


def _as_priced(drift: Drift, found: Mapping[int, LinearRule]) -> Drift:
    """The drift beside each baseline's own price list, which with momentum may rest on another signal."""

    def own(baseline: int) -> LinearRule | None:
        return found[baseline] if found[baseline].signal != drift.signal else None

    def pair_of(pair: PairDrift) -> PairDrift:
        priced = own(pair.baseline)
        return pair if priced is None else replace(pair, distortion=priced.distortion(pair.batch_size))

    def crossing_of(crossing: Crossing) -> Crossing:
        priced = own(crossing.baseline)
        if priced is None:
            return crossing
        return replace(
            crossing,
            predicted=priced.limit,
            over_predicted=_over(crossing.observed, priced.limit),
            strict_over_predicted=_over(crossing.strict, priced.limit),
        )

    return replace(drift, pairs=tuple(map(pair_of, drift.pairs)), crossings=tuple(map(crossing_of, drift.crossings)))


def _over(observed: Estimate, predicted: Estimate) -> Estimate:
    if not (math.isfinite(observed.value) and math.isfinite(predicted.value)):
        return Estimate(math.inf, 0.0, math.inf)
    over = quotient(Interval(**vars(observed)), Interval(**vars(predicted)))
    return Estimate(over.value, over.low, over.high)


def _signal(signals: Sequence[Signal]) -> Signal:
    """What every rung has: X̂ wherever one of them has not resolved its X."""
    return signals[0] if len(set(signals)) == 1 else "X̂"


def _within(runs: PanelRuns, size: int, window: Fractions) -> list[list[Reading]]:
    start, stop = steps_at(runs, size, window)
    seeds = runs.readings(SGD, size).values()
    return [[one for one in seed if one.step is not None and start <= one.step < stop] for seed in seeds]


def covered(pair: PairDrift, predictions: Sequence[RungPrediction]) -> bool:
    """Whether a theorem says of this pair that its spread is at least D: both of its rungs rest on one."""
    basis = {one.batch_size: one.linear.basis for one in predictions}
    return {basis.get(pair.baseline), basis.get(pair.batch_size)} <= THEOREMS


def shortfalls(drift: Drift, predictions: Sequence[RungPrediction]) -> tuple[str, ...]:
    """A sentence for every pair whose spread lies below D although a theorem applies: which cause is likely.

    At equilibrium that cannot be. With growth over decay of the weights b at the smaller rung and b′ at the larger one
    instead of 1, the bound is D·b/b′: where this explains the gap, the weights had not settled.
    """
    by_size = {one.batch_size: one for one in predictions}
    said = []
    for pair in drift.pairs:
        if not (pair.below and covered(pair, predictions)):
            continue
        baseline, larger = by_size[pair.baseline], by_size[pair.batch_size]
        small, large = baseline.linear, larger.linear
        where = f"from {pair.baseline} to {pair.batch_size} the spread is {pair.spread}, D is {pair.distortion}"
        if small.balance and large.balance and pair.distortion.low * small.balance / large.balance <= pair.spread.high:
            cause = "the weights had not quite settled, train longer"
            cause += f" (growth over decay {small.balance:.2f} and {large.balance:.2f}, 1 at equilibrium)"
        elif not _same_time(baseline.found, larger.found):
            cause = "the readings of the two do not cover the same part of training"
        else:
            cause = "the balance of the weights does not explain it, so suspect the readings"
        said.append(f"{where}: {cause}")
    return tuple(said)


def _same_time(one: PriceList, other: PriceList) -> bool:
    """Whether two windows begin and end after as many examples, to within a share of them."""
    starts, stops = zip(*([step * run.batch_size for step in run.window] for run in (one, other)), strict=True)
    return all(abs(a - b) <= _SAME_TIME * max(stops) for a, b in (starts, stops))


def data_of(runs: PanelRuns, sizes: Sequence[int]) -> tuple[DataPrice, ...]:
    """The measured factor in examples between any two rungs, before the learning rate first falls."""
    return data_prices(loss_curves({size: list(runs.of(SGD, size).values()) for size in sizes}))


def loss_curves(rungs: Mapping[int, Sequence[RunRecord]]) -> dict[int, list[Curve]]:
    """The training losses of finished runs against examples, over the part that all of them had one rate for."""
    finished = {size: [run for run in records if run.state == "finished"] for size, records in rungs.items()}
    share = min((_held(run) for records in finished.values() for run in records), default=1.0)
    return {size: [_curve(run, size, share) for run in records] for size, records in finished.items() if records}


def _curve(run: RunRecord, size: int, share: float) -> Curve:
    # an effective step of the gain rule is the baseline's, and its rows say how many examples that took
    seen = {row["step"]: row["examples"] for row in run.rows if row.get("kind") == LOSS and "examples" in row}
    losses = [(step, loss) for step, loss in run.losses if step <= round(share * run.steps)]
    return [(float(seen.get(step, step * size)), loss) for step, loss in losses]


def _held(run: RunRecord) -> float:
    """The share of a run before its learning rate first falls by a step; all of it where the rate has no steps."""
    schedule = None if run.spec is None else run.spec.schedule
    return step_of(schedule.at[0], run.steps) / run.steps if isinstance(schedule, Steps) else 1.0
