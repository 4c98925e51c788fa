r"""How far apart the measured statistics of training are along a ladder, compared with the prediction (def:lsi).

Two rungs (B, η) and (κB, κη) are compared by averages over the same window of time, larger over smaller:

$$r = R'/R,\qquad g = G'/G,\qquad n = \kappa N'/N.$$

Their *spread* is the largest of the three over the smallest. `svag.theory.distortion` bounds it from below where a
theorem applies, and (C,κ)-linear-scaling invariance keeps it below C². Since n/g = B_simple′/B_simple, the spread
equals the distortion as long as the noise scale does not depend on the batch size.

- On an ordinary network T′/T replaces r, where T is the pull of `svag.theory.equilibrium.pull`.
- With momentum X = (1−β²)|v|² − N replaces G in the distortion; r, g and n are still compared, and X′/X too.
- Adaptive optimizers scale by the square-root rule, and κV′/V replaces r, where V = Σv̂. The distortion equals
  (κV′/V)/n if V = G + N and the noise scale is constant. That is an estimate, not a theorem.

Intervals are at 95%, from a bootstrap over blocks of readings, the blocks of all seeds together. They miss what all
blocks of a seed have in common, so they are too narrow if seeds differ by more than their blocks.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import scipy  # whose parts are imported when they are first used

from svag.arrays import FloatArray
from svag.as_json import JsonRow
from svag.lab.experiments.arms import SGD
from svag.lab.experiments.rungs import RungPrediction
from svag.lab.experiments.runs import PanelRuns
from svag.noise.reading import Reading
from svag.prices.basis import THEOREMS, Signal
from svag.prices.estimate import Estimate
from svag.prices.linear import LinearRule
from svag.stats.means import mean_deviations
from svag.stats.ratios import Interval, quotient
from svag.theory.bounds import critical_batch_size
from svag.theory.distortion import distortion
from svag.theory.equilibrium import estimated_momentum_signal, momentum_signal, pull

BLOCKS = 12
RESAMPLES = 2000
_CONFIDENCE = 0.95
_R, _G, _N, _T, _X, _V = range(6)
# Windows whose ends differ by more than this share of the examples seen are not the same part of training.
_SAME_TIME = 0.02

Fractions = tuple[float, float]
"""A window of training time, as fractions of the budget."""

Compared = Literal["R", "T", "V"]
_COLUMN: dict[Compared, int] = {"R": _R, "T": _T, "V": _V}


def steps_of(window: Fractions, steps: int) -> tuple[int, int]:
    """First effective step of a window in a run of `steps`, and the last plus 1.

    >>> steps_of((0.6, 0.8), 18_720)
    (11232, 14976)
    """
    return round(window[0] * steps), max(round(window[1] * steps), round(window[0] * steps) + 1)


def readings_in(window: Fractions, runs: PanelRuns, batch_size: int) -> list[list[Reading]]:
    """The readings of SGD at one batch size from a window of training time, seed by seed."""
    start, stop = steps_of(window, runs.steps(batch_size))
    return [
        [reading for reading in readings if reading.step is not None and start <= reading.step < stop]
        for readings in runs.readings(SGD, batch_size).values()
    ]


@dataclass(frozen=True)
class PairDrift(JsonRow):
    """Two rungs of a ladder, the larger over the smaller.

    Attributes:
        baseline: batch size of the smaller one.
        batch_size: batch size of the larger one.
        kappa: their quotient.
        first: r = R′/R; T′/T where the weight norm is not what the theorem is about; κV′/V of Adam and its kin.
        grad: g = G′/G.
        noise: n = κN′/N.
        noise_scale: B_simple′/B_simple = n/g; where it is 1, the spread is the distortion.
        spread: largest of the three over the smallest.
        distortion: D(κ) as the smaller rung predicts it.
        moving: X′/X with momentum; None without, or where X is not positive.
        second_moment_over_noise: (κV′/V)/n, which D predicts; None where V is not compared.
        below: whether the whole interval of the spread lies below that of D, which is impossible at equilibrium; with X
            instead of G if D is computed from X.
    """

    baseline: int
    batch_size: int
    kappa: float
    first: Estimate
    grad: Estimate
    noise: Estimate
    noise_scale: Estimate
    spread: Estimate
    distortion: Estimate
    moving: Estimate | None
    second_moment_over_noise: Estimate | None
    below: bool


@dataclass(frozen=True)
class Crossing(JsonRow):
    """The batch size at which the statistics of training have drifted apart by C², going up from one baseline.

    Attributes:
        baseline: batch size of the baseline.
        predicted: B* as the baseline predicts it.
        observed: the batch size at which the spread reaches C², on logarithmic scales between rungs; `math.inf` when
            it does not up to the largest rung.
        over_predicted: observed over predicted.
        strict: the batch size at which invariance in the sense of def:lsi is lost: one ratio leaves [1/C, C].
        strict_over_predicted: that batch size over B*.
    """

    baseline: int
    predicted: Estimate
    observed: Estimate
    over_predicted: Estimate
    strict: Estimate
    strict_over_predicted: Estimate


@dataclass(frozen=True)
class Drift:
    """The statistics of the theorem as a ladder measured them.

    Attributes:
        compared: which of "R", "T" and "V" is compared, together with G and κN.
        signal: the divisor of N in the distortion: "G", or with momentum "X" or "X̂".
        pairs: every rung with every larger one.
        crossings: one per baseline that has a larger rung.
    """

    compared: Compared
    signal: Signal
    pairs: tuple[PairDrift, ...]
    crossings: tuple[Crossing, ...]


@dataclass(frozen=True)
class Shortfall:
    """A pair of rungs whose spread lies below D although a theorem applies, which no equilibrium allows.

    Attributes:
        pair: the two rungs.
        balances: growth over decay of the weights at both, 1 at equilibrium; None where unknown.
        cause: the likely cause. "not_settled": the balances b and b′ make the bound D·b/b′ instead of D, which explains
            it. "other_window": the readings of the two do not cover the same part of training. Otherwise "unexplained".
    """

    pair: PairDrift
    balances: tuple[float | None, float | None]
    cause: Literal["not_settled", "other_window", "unexplained"]

    def __str__(self) -> str:
        pair, (small, large) = self.pair, (balance or math.nan for balance in self.balances)
        cause = {
            "not_settled": "the weights had not quite settled, train longer "
            f"(growth over decay {small:.2f} and {large:.2f}, 1 at equilibrium)",
            "other_window": "the readings of the two do not cover the same part of training",
            "unexplained": "the balance of the weights does not explain it, so suspect the readings",
        }[self.cause]
        where = f"from {pair.baseline} to {pair.batch_size} the spread is {pair.spread}, D is {pair.distortion}"
        return f"{where}: {cause}"


def measure_drift(
    rungs: Mapping[int, Sequence[Sequence[Reading]]],
    *,
    rng: np.random.Generator,
    c2: float = 2.0,
    compared: Compared = "R",
    signal: Signal = "G",
    lr_wd: float = 0.0,
) -> Drift | None:
    """Compare every two rungs of a ladder by R (or T, or κV), G and κN.

    Args:
        rungs: batch size → one sequence of readings per seed, all from the same window of training time.
        rng: random numbers of the bootstrap.
        c2: C².
        compared: "R" at the equilibrium of a scale-invariant network, "T" where only |x|² is stationary, "V" for Adam
            and its kin, over the readings that know it.
        signal: what N is divided by in the distortion: "G", or with momentum "X" or its estimate "X̂" from G.
        lr_wd: ηλ of the smallest rung, for "R" without momentum; 0 otherwise.

    Returns None when fewer than two rungs have two blocks with positive averages.

    >>> def readings(batch_size, grad_sq, noise):  # exact averages: intervals have no width
    ...     one = Reading(grad_sq, noise, 1.0, batch_size, n=4)
    ...     return [[one] * 24]
    >>> ladder = {32: readings(32, 1.0, 4.0), 64: readings(64, 1.0, 2.0), 256: readings(256, 1.0, 0.5)}
    >>> pair = measure_drift(ladder, rng=np.random.default_rng(0)).pairs[1]
    >>> pair.spread.value, round(pair.distortion.value, 12)  # G, κN and R are those of B = 32
    (1.0, 2.4)
    """
    means = {size: _Rung.of(size, runs, compared, signal, rng) for size, runs in sorted(rungs.items())}
    known = [rung for rung in means.values() if rung is not None]
    if len(known) < 2:
        return None
    start = known[0].batch_size
    pairs, crossings = [], []
    for index, base in enumerate(known[:-1]):
        decay = lr_wd * base.batch_size / start
        above = [_Pair(base, other, decay, compared) for other in known[index + 1 :]]
        pairs += [pair.summary() for pair in above]
        crossings.append(_crossing(base, above, c2, decay))
    return Drift(compared, signal, tuple(pairs), tuple(crossings))


def ladder_drift(runs: PanelRuns, rules: Sequence[LinearRule], window: Fractions, c2: float) -> Drift | None:
    """How far the rungs that predict something drifted apart; None when fewer than two can be compared.

    The second moment V is compared where the optimizer has one, the pull T where two predictions rest on it, the weight
    norm otherwise.
    """
    rungs = {rule.batch_size: readings_in(window, runs, rule.batch_size) for rule in rules}
    # ηλ is linear in the batch size, and known where the theorem of the paper applies
    settled = next((rule for rule in rules if rule.lr_wd), None)
    lr_wd = 0.0 if settled is None else settled.lr_wd * rules[0].batch_size / settled.batch_size
    # a theorem speaks of a pair only where both rungs rest on it; T says nothing of weights that have not settled
    compared: Compared = "T" if sum(rule.basis == "pull" for rule in rules) > 1 else "R"
    if rules and all(rule.basis == "second_moment" and rule.second_moment_ratio is not None for rule in rules):
        compared = "V"
    signals: set[Signal] = {rule.signal for rule in rules}
    drift = measure_drift(
        rungs,
        # fixed, so that a report of the same records always says the same
        rng=np.random.default_rng(0),
        c2=c2,
        compared=compared,
        # what every rung has: X̂ wherever one of them has not resolved its X
        signal=signals.pop() if len(signals) == 1 else "X̂",
        lr_wd=lr_wd if compared == "R" else 0.0,
    )
    return None if drift is None else _as_priced(drift, {rule.batch_size: rule for rule in rules})


def _as_priced(drift: Drift, rules: Mapping[int, LinearRule]) -> Drift:
    """The drift beside each baseline's own price list, which with momentum may rest on another signal."""
    own = {size: rule for size, rule in rules.items() if rule.signal != drift.signal}
    pairs = (
        replace(pair, distortion=own[pair.baseline].distortion(pair.batch_size)) if pair.baseline in own else pair
        for pair in drift.pairs
    )
    crossings = (
        replace(
            crossing,
            predicted=own[crossing.baseline].limit,
            over_predicted=_over(crossing.observed, own[crossing.baseline].limit),
            strict_over_predicted=_over(crossing.strict, own[crossing.baseline].limit),
        )
        if crossing.baseline in own
        else crossing
        for crossing in drift.crossings
    )
    return replace(drift, pairs=tuple(pairs), crossings=tuple(crossings))


def _over(observed: Estimate, predicted: Estimate) -> Estimate:
    if not (math.isfinite(observed.value) and math.isfinite(predicted.value)):
        return Estimate(math.inf, 0.0, math.inf)
    ratio = quotient(Interval(**vars(observed)), Interval(**vars(predicted)))
    return Estimate(ratio.value, ratio.low, ratio.high)


def covered(pair: PairDrift, predictions: Sequence[RungPrediction]) -> bool:
    """Whether a theorem says of this pair that its spread is at least D: both of its rungs rest on one."""
    basis = {prediction.batch_size: prediction.linear.basis for prediction in predictions}
    return {basis.get(pair.baseline), basis.get(pair.batch_size)} <= THEOREMS


def shortfalls(drift: Drift, predictions: Sequence[RungPrediction]) -> tuple[Shortfall, ...]:
    """The pairs whose spread lies below D although a theorem applies, each with the likely cause."""
    by_size = {prediction.batch_size: prediction for prediction in predictions}
    return tuple(
        _shortfall(pair, by_size[pair.baseline], by_size[pair.batch_size])
        for pair in drift.pairs
        if pair.below and covered(pair, predictions)
    )


def _shortfall(pair: PairDrift, smaller: RungPrediction, larger: RungPrediction) -> Shortfall:
    small, large = smaller.linear.balance, larger.linear.balance
    if small and large and pair.distortion.low * small / large <= pair.spread.high:
        return Shortfall(pair, (small, large), "not_settled")
    windows = [[step * rung.batch_size for step in rung.price_list.window] for rung in (smaller, larger)]
    (start, stop), (other_start, other_stop) = windows
    apart = max(abs(start - other_start), abs(stop - other_stop))
    same_time = apart <= _SAME_TIME * max(stop, other_stop)
    return Shortfall(pair, (small, large), "unexplained" if same_time else "other_window")


@dataclass(frozen=True, eq=False)
class _Rung:
    """Averages at one batch size, the estimate first and then the bootstrap draws.

    Attributes:
        batch_size: B.
        first: R, or T or V in its place.
        grad: G.
        noise: N.
        moving: X.
        signal: what N is divided by in the distortion.
    """

    batch_size: int
    first: FloatArray
    grad: FloatArray
    noise: FloatArray
    moving: FloatArray
    signal: FloatArray

    @classmethod
    def of(
        cls,
        size: int,
        runs: Sequence[Sequence[Reading]],
        compared: Compared,
        signal: Signal,
        rng: np.random.Generator,
    ) -> "_Rung | None":
        known = runs
        if compared == "V":
            known = [[reading for reading in run if reading.second_moment is not None] for run in runs]
        cut = [blocks for run in known if (blocks := _blocks(run))]
        if not cut:
            return None
        blocks, weights = np.moveaxis(np.array(cut), 2, 0)  # each: seed, block, quantity
        centre = blocks.mean(axis=(0, 1))
        scatter = _scatter(blocks, weights, centre)
        means = np.vstack([centre, centre + mean_deviations(scatter, RESAMPLES, 0.95, len(scatter) - 1, rng)])
        first, grad, noise, moving = (means[:, column] for column in (_COLUMN[compared], _G, _N, _X))
        if not (first[0] > 0 and grad[0] > 0 and noise[0] > 0):
            return None
        momentum = next(reading.momentum for run in runs for reading in run) or 0.0
        signals = {"G": grad, "X": moving, "X̂": grad * estimated_momentum_signal(1.0, momentum)}
        return cls(size, first, grad, noise, moving, signals[signal])

    @cached_property
    def noise_to_signal(self) -> FloatArray:
        # if the signal is unknown or not positive, N/G has no upper limit
        noise = np.maximum(self.noise, 0.0)  # in a draw from few blocks it may be below 0
        return np.divide(noise, self.signal, out=np.full_like(noise, math.inf), where=self.signal > 0)


@dataclass(frozen=True, eq=False)
class _Pair:
    """Two rungs, draw by draw; `lr_wd` is ηλ of the smaller one."""

    base: _Rung
    other: _Rung
    lr_wd: float
    compared: Compared

    @property
    def kappa(self) -> float:
        return self.other.batch_size / self.base.batch_size

    @cached_property
    def ratios(self) -> FloatArray:
        """r (or what stands for it), g and n, a column each; NaN in the draws where an average is not positive."""
        return self._ratios(self.other.grad / self.base.grad)

    def _ratios(self, signal: FloatArray) -> FloatArray:
        first, noise = self.other.first / self.base.first, self.kappa * self.other.noise / self.base.noise
        if self.compared == "V":
            first = self.kappa * first
        table = np.column_stack([first, signal, noise])
        return np.where(table > 0, table, math.nan)

    @cached_property
    def spread(self) -> FloatArray:
        return _spread(self.ratios)

    @cached_property
    def bounded(self) -> FloatArray:
        """Spread of the statistics in the theorem, with the signal from which D is computed."""
        return _spread(self._ratios(self.other.signal / self.base.signal))

    @cached_property
    def strict(self) -> FloatArray:
        """The smallest C² in the sense of def:lsi: the square of the largest factor between one of the three and 1."""
        return np.asarray(np.exp(2 * np.abs(np.log(self.ratios)).max(axis=1)))

    def distortion(self) -> Estimate:
        """D falls as N/G grows, so its limits come from those of N/G in reverse order."""
        rho = _estimate(self.base.noise_to_signal)
        value, low, high = (distortion(ratio, self.kappa, self.lr_wd) for ratio in (rho.value, rho.high, rho.low))
        return Estimate(value, low, high)

    def summary(self) -> PairDrift:
        first, grad, noise = (_estimate(column) for column in self.ratios.T)
        moving, predicted = self.other.moving / self.base.moving, self.distortion()
        over = _estimate(self.ratios[:, 0] / self.ratios[:, 2]) if self.compared == "V" else None
        return PairDrift(
            baseline=self.base.batch_size,
            batch_size=self.other.batch_size,
            kappa=self.kappa,
            first=first,
            grad=grad,
            noise=noise,
            noise_scale=_estimate(self.ratios[:, 2] / self.ratios[:, 1]),
            spread=_estimate(self.spread),
            distortion=predicted,
            moving=_estimate(moving) if self.base.moving[0] > 0 and self.other.moving[0] > 0 else None,
            second_moment_over_noise=over,
            below=_estimate(self.bounded).high < predicted.low,
        )


def _spread(ratios: FloatArray) -> FloatArray:
    return np.asarray(ratios.max(axis=1) / ratios.min(axis=1))


def _crossing(base: _Rung, above: Sequence[_Pair], c2: float, lr_wd: float) -> Crossing:
    sizes = np.array([base.batch_size, *(pair.other.batch_size for pair in above)], dtype=float)
    predicted = np.array([critical_batch_size(base.batch_size, rho, c2, lr_wd=lr_wd) for rho in base.noise_to_signal])
    observed = _first_above(sizes, np.column_stack([pair.spread for pair in above]), c2)
    strict = _first_above(sizes, np.column_stack([pair.strict for pair in above]), c2)
    with np.errstate(invalid="ignore"):
        over, strict_over = observed / predicted, strict / predicted
    return Crossing(
        baseline=base.batch_size,
        predicted=_estimate(predicted),
        observed=_estimate(observed),
        over_predicted=_estimate(over),
        strict=_estimate(strict),
        strict_over_predicted=_estimate(strict_over),
    )


def _first_above(sizes: FloatArray, values: FloatArray, level: float) -> FloatArray:
    """Where each row of `values`, which starts from 1 at the first size, first exceeds a level; log–log between sizes.

    An unknown value (NaN) counts as above, because an average that is not positive has changed without bound.
    """
    logs = np.log(np.column_stack([np.ones(len(values)), values]))
    logs = np.where(np.isnan(logs), math.inf, logs)
    target = math.log(level)
    beyond = logs > target
    at = beyond.argmax(axis=1)
    rows = np.arange(len(logs))
    low, high = logs[rows, at - 1], logs[rows, at]
    left, right = np.log(sizes[at - 1]), np.log(sizes[at])
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):  # in rows that never exceed it
        share = np.where(np.isinf(high), 0.0, (target - low) / (high - low))
        return np.where(beyond.any(axis=1), np.exp(left + share * (right - left)), math.inf)


def _estimate(draws: FloatArray) -> Estimate:
    r"""The estimate is the first draw; the others give its bias-corrected percentile interval.

    A spread is a maximum over a minimum, so noise tends to widen it: the draws tend to lie above the estimate, just as
    the estimate tends to lie above the truth. With z₀ = Φ⁻¹(share of draws below the estimate) the percentiles are
    taken at Φ(2z₀ ± z), which corrects for both.

    Reference: Efron (1981), the bias-corrected percentile method.
    """
    value, others = float(draws[0]), np.where(np.isnan(draws[1:]), math.inf, draws[1:])
    below = (np.count_nonzero(others < value) + 0.5 * np.count_nonzero(others == value)) / others.size
    shift = 2 * scipy.special.ndtri(min(max(below, 1 / others.size), 1 - 1 / others.size))
    limits = scipy.special.ndtr(shift + scipy.special.ndtri([(1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2]))
    low, high = np.quantile(others, limits, method="inverted_cdf")
    return Estimate(value, min(float(low), value), max(float(high), value))


def _blocks(run: Sequence[Reading]) -> list[tuple[FloatArray, FloatArray]]:
    """Consecutive blocks of one run: R, G, N, T, X and V times their weights, and the weights, 1 on average over a run.

    R and T are weighted by η, the others by η².
    """
    if len(run) < BLOCKS:
        return []
    rates = np.array([1.0 if reading.lr is None else reading.lr for reading in run])
    weights = np.array([rates, rates**2, rates**2, rates, rates**2, rates**2]).T
    weights = weights / weights.mean(axis=0)
    rows = [(r.param_sq, r.grad_sq, r.noise_trace, _pull(r), _moving(r), r.second_moment) for r in run]
    parts = zip(np.array_split(weights * np.array(rows, float), BLOCKS), np.array_split(weights, BLOCKS), strict=True)
    return [(values.mean(axis=0), weight.mean(axis=0)) for values, weight in parts]


def _scatter(blocks: FloatArray, weights: FloatArray, centre: FloatArray) -> FloatArray:
    """Weighted deviations of the blocks from the average, from which the bootstrap draws.

    Under a changing rate blocks differ by design, so those of S seeds are compared place by place; this makes their
    scatter too small by √(S/(S−1)), which is corrected.
    """
    apart, seeds = blocks - weights * centre, len(blocks)
    if seeds > 1 and np.ptp(weights) > 1e-6:  # beyond rounding
        apart = (apart - apart.mean(axis=0)) * math.sqrt(seeds / (seeds - 1))
    return apart.reshape(-1, apart.shape[-1])


def _pull(reading: Reading) -> float:
    if reading.lr is None or reading.weight_decay is None or reading.param_dot_grad is None:
        return math.nan
    return pull(reading.param_sq, reading.param_dot_grad, lr=reading.lr, weight_decay=reading.weight_decay)


def _moving(reading: Reading) -> float:
    if not reading.momentum or reading.velocity_sq is None:
        return math.nan
    return momentum_signal(reading.velocity_sq, reading.noise_trace, reading.momentum)
