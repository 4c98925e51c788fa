"""The rungs of a ladder: the test errors of each, what it predicts for larger ones, and what that rules out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from svag.as_json import JsonRow, json_fields_of
from svag.lab.experiments.arms import SGD, ArmName, svag_arm
from svag.lab.experiments.experiment import own_metric
from svag.lab.experiments.finding import arm_result, by_seed_rows
from svag.lab.experiments.ladder import LadderPanel
from svag.lab.experiments.runs import PanelRuns
from svag.lab.experiments.sde_limit import Limit, fitted_limit
from svag.noise.reading import Reading
from svag.prices.averages import Averages
from svag.prices.basis import THEOREMS, Signal, signal_series
from svag.prices.estimate import Estimate
from svag.prices.linear import LinearRule
from svag.prices.price_list import PriceList, price_list
from svag.prices.windows import parts_of_runs
from svag.stats.means import Contrast
from svag.theory.bounds import large_run_refutes, large_run_threshold, sde_threshold

_NORMAL = 1.959964  # two-sided 95% quantile
_UNKNOWN = Estimate(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Rung(JsonRow):
    """One batch size of the ladder.

    Attributes:
        batch_size: B.
        lr: η, by the scaling rule.
        seeds: number of runs with a result.
        diverged: how many of them diverged.
        errors: final test error by seed, for a text bits per character; NaN where diverged.
        error: mean error of those that finished; NaN if none did.
        error_low: lower 95% limit of that mean over seeds; −∞ with fewer than two.
        error_high: upper limit.
        signal_to_noise: G/N, what the paper draws; a ratio of averages over all seeds; NaN without readings.
        signal_to_noise_low: lower limit of its interval.
        signal_to_noise_high: upper limit.
        balance: growth over decay of the weights, 1 at equilibrium; None when unknown.
        sde: the test error of the SDE limit, if SVAG was run here.
        sde_gap: test error of SGD minus that limit, with its 95% interval.
    """

    batch_size: int
    lr: float
    seeds: int
    diverged: int
    errors: tuple[tuple[int, float], ...]
    error: float
    error_low: float
    error_high: float
    signal_to_noise: float
    signal_to_noise_low: float
    signal_to_noise_high: float
    balance: float | None
    sde: Limit | None
    sde_gap: Estimate | None

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document; unknown numbers are null."""
        return {**super().to_dict(), "errors": by_seed_rows(self.errors, "error")}


def final_errors(panel: LadderPanel, runs: PanelRuns, arm: ArmName, size: int) -> dict[int, float]:
    """Final test error of an arm by seed; for a text its bits per character."""
    metric = own_metric([panel])
    finals = runs.finals(arm, size, metric)
    return {seed: 1 - value if metric == "test_accuracy" else value for seed, value in finals.items()}


def rung_of(
    panel: LadderPanel, runs: PanelRuns, size: int, errors: Mapping[int, float], rules: Sequence[LinearRule]
) -> Rung:
    """One batch size of a panel, from the final test error by seed and from what was measured at any batch size."""
    sgd = arm_result(SGD, errors)
    own = next((rule for rule in rules if rule.batch_size == size), None)
    rho = _UNKNOWN if own is None else own.noise_to_signal
    limit = fitted_limit({ell: final_errors(panel, runs, svag_arm(ell), size) for ell in (1, *panel.ells)})
    return Rung(
        batch_size=size,
        lr=panel.rate_at(size),
        seeds=sgd.seeds,
        diverged=sgd.diverged,
        errors=sgd.finals,
        error=sgd.mean,
        error_low=sgd.low,
        error_high=sgd.high,
        signal_to_noise=_inverse(rho.value),
        signal_to_noise_low=_inverse(rho.high),
        signal_to_noise_high=_inverse(rho.low),
        balance=None if own is None else own.balance,
        sde=None if limit is None else limit.limit,
        sde_gap=None if limit is None else _above(limit.minus_sgd()),
    )


def signal_slope(rungs: Sequence[Rung]) -> Estimate | None:
    """Slope of log G/N against log B with its 95% interval; None with fewer than two rungs whose G/N is resolved.

    It is 1 while the noise scale B_simple = B·N/G does not depend on the batch size, as the paper's figures presume.
    Rungs are weighted by the width of their intervals, which are widened if the rungs do not lie on a line.
    """
    known = [rung for rung in rungs if rung.signal_to_noise_low > 0 and math.isfinite(rung.signal_to_noise_high)]
    if len(known) < 2:
        return None
    x = np.log([rung.batch_size for rung in known])
    y = np.log([rung.signal_to_noise for rung in known])
    widths = np.log([rung.signal_to_noise_high / rung.signal_to_noise_low for rung in known])
    errors = np.maximum(widths / (2 * _NORMAL), 1e-9)  # exact numbers have intervals without a width
    weights = 1 / errors**2
    centred = x - np.average(x, weights=weights)
    power = float((weights * centred**2).sum())
    slope = float((weights * centred * y).sum()) / power
    residuals = y - np.average(y, weights=weights) - slope * centred
    excess = float((weights * residuals**2).sum()) / max(len(known) - 2, 1)
    reach = _NORMAL * math.sqrt(max(excess, 1.0) / power)
    return Estimate(slope, slope - reach, slope + reach)


def _inverse(ratio: float) -> float:
    return math.inf if ratio == 0 else 1 / ratio


def _above(below: Contrast) -> Estimate:
    """The same difference the other way round."""
    low, high = below.interval()
    return Estimate(-below.value, -high, -low)


# Smallest N/G from which a baseline predicts. B* = C²B + (C² − 1)·B·N/G is at least C²B for any measurement: below N/G
# = 1, more than two thirds of it (at C² = 2) would be the baseline's batch size rather than its noise.
PREDICTS_FROM = 1.0


@dataclass(frozen=True)
class RungPrediction:
    """What one rung, taken as the baseline, predicts.

    Attributes:
        price_list: the price list from the readings of all its seeds.
        by_seed: the price list of each seed.
        sizes: the larger rungs.
        rise: N/G (with momentum N/X or N/X̂) in the last part of the run over that in the first; None when unknown.
        usable: whether it predicts: N/G is at least `PREDICTS_FROM`, and `linear` is `resolved` or `window_only`, which
            is enough because rungs are compared over the same window of the same seeds.
        status: how reliable the prediction is, or why there is none.
    """

    price_list: PriceList
    by_seed: tuple[tuple[int, PriceList], ...]
    sizes: tuple[int, ...]
    rise: float | None
    usable: bool
    status: str

    @property
    def linear(self) -> LinearRule:
        """The conclusions about the linear (square-root) rule, which the rungs of a ladder follow."""
        return self.price_list.linear

    @property
    def batch_size(self) -> int:
        """B of the baseline."""
        return self.price_list.batch_size

    @property
    def silent(self) -> bool:
        """Whether N/G is too small for a prediction."""
        return self.linear.noise_to_signal.value < PREDICTS_FROM

    @property
    def theorem(self) -> bool:
        """Whether the prediction rests on a theorem; otherwise it is an estimate."""
        return self.linear.basis in THEOREMS and not self.linear.window_only

    def curve(self, last: float, points: int = 40) -> tuple[tuple[float, Estimate], ...]:
        """D between the baseline and a larger batch size, equally spaced on a logarithmic scale."""
        sizes = np.geomspace(self.batch_size, last, points).tolist()
        return tuple((size, self.linear.distortion(max(size, self.batch_size))) for size in sizes)

    def to_dict(self) -> dict[str, object]:
        """Return a row for a JSON document: the price list, the linear rule at the larger rungs, and every seed."""
        return {
            **self.price_list.to_dict(),
            **json_fields_of(self, "usable", "status"),
            "distortion": [{"batch_size": size, **self.linear.at(size).to_dict()} for size in self.sizes],
            "by_seed": [{"seed": seed, **own.to_dict()} for seed, own in self.by_seed],
        }


# A run is cut into this many parts, or into fewer so that each gets this many readings.
_PARTS = 5
_READINGS_A_PART = 40


def _rise(readings: Sequence[Reading], signal: Signal) -> float | None:
    """N over its signal in the last part of the run over that in the first, of those parts that have one."""
    count = min(_PARTS, len(readings) // _READINGS_A_PART)
    ratios = []
    for part in parts_of_runs(readings, count) if count > 1 else []:
        try:
            averages = Averages.over(part)
        except ValueError:  # a setting changed within this part
            continue
        series = signal_series(averages, signal) if averages.readings else None
        interval = None if series is None else averages.ratio(series, 0.95)
        if interval is not None and interval.kind != "empty":
            ratios.append(interval.value)
    return ratios[-1] / ratios[0] if len(ratios) > 1 and ratios[0] > 0 else None


def predictions_of(
    runs: PanelRuns,
    baselines: Sequence[int],
    sizes: Sequence[int],
    c2: float,
    windows: Mapping[int, tuple[int, int]],
) -> tuple[tuple[RungPrediction, ...], str]:
    """One prediction per baseline, from the readings of all its seeds together; or why there is none.

    Args:
        runs: the runs of the panel.
        baselines: the rungs that predict.
        sizes: all rungs.
        c2: C².
        windows: batch size → effective steps over which to average; chosen by the readings where none is given.
    """
    predictions = []
    problem = "add a probe to the base spec, probe: {kind: in_run}: without readings nothing can be predicted."
    for size in baselines:
        readings, window = runs.readings(SGD, size), windows.get(size)
        if not readings:
            continue
        pooled = runs.pooled_readings(SGD, size)
        try:
            together = price_list(pooled, c2, window=window)
            by_seed = tuple((seed, price_list(own, c2, window=window)) for seed, own in readings.items())
            rise = _rise(pooled, together.linear.signal)
            predictions.append(_prediction(together, by_seed, rise, sizes))
        except ValueError as error:
            problem = f"at B={size}, {error}."
    return tuple(predictions), problem


def _prediction(
    together: PriceList,
    by_seed: tuple[tuple[int, PriceList], ...],
    rise: float | None,
    sizes: Sequence[int],
) -> RungPrediction:
    rule = together.linear
    enough = rule.noise_to_signal.value >= PREDICTS_FROM
    ratio = f"N/{rule.signal} = {rule.noise_to_signal.value:.3g} is below {PREDICTS_FROM:g}"
    return RungPrediction(
        price_list=together,
        by_seed=by_seed,
        sizes=tuple(size for size in sizes if size > rule.batch_size),
        rise=rise,
        usable=(rule.resolved or rule.window_only) and enough,
        status=str(rule.reasons[0]) if enough else f"{ratio}: B* would be little more than C²B, whatever was measured.",
    )


@dataclass(frozen=True)
class PredictionRange(JsonRow):
    """The smallest and the largest B* of the baselines that predict, and which baselines these are."""

    smallest: float
    smallest_from: int
    largest: float
    largest_from: int


def predicted_range(predictions: Sequence[RungPrediction]) -> PredictionRange | None:
    """The range of the usable predictions; None without a usable one."""
    values = [(prediction.linear.limit.value, prediction.batch_size) for prediction in predictions if prediction.usable]
    return PredictionRange(*min(values), *max(values)) if values else None


@dataclass(frozen=True)
class Certificate(JsonRow):
    """A theorem whose condition is met: something that the measured N/G rules out.

    Attributes:
        kind: "baseline": linear scaling from `baseline` to `batch_size` (thm:lsr_kappa_bound); "large_run": the same,
            from N/G at `batch_size` alone (thm:lsr_condition); "sde": SGD at `batch_size` is not C-close to its SDE
            (thm:eq_sde_sgd).
        batch_size: the run that is ruled out.
        baseline: the smaller batch size; None for "sde".
        measured: the end of the interval that decided: B* for "baseline", N/G otherwise.
        threshold: what it was compared with.
    """

    kind: Literal["baseline", "large_run", "sde"]
    batch_size: int
    baseline: int | None
    measured: float
    threshold: float


def certificates(rules: Sequence[LinearRule], batch_sizes: Sequence[int]) -> tuple[Certificate, ...]:
    """All certificates: baselines against larger rungs, large runs on their own, SGD against its SDE.

    Only rules that are `proved` count, and only when the whole interval is on the other side of the threshold.
    """
    baselines, large_runs, against_sde = [], [], []
    for rule in (rule for rule in rules if rule.proved):
        size, ratio, c2 = rule.batch_size, rule.noise_to_signal.high, rule.c2
        for other in batch_sizes:
            if other > size and rule.ruled_out(other):
                baselines.append(Certificate("baseline", other, size, rule.limit.high, other))
            if other < size and large_run_refutes(ratio, size / other, c2):
                threshold = large_run_threshold(size / other, c2)
                large_runs.append(Certificate("large_run", size, other, ratio, threshold))
        if rule.sde_ruled_out:
            against_sde.append(Certificate("sde", size, None, ratio, sde_threshold(c2)))
    return (*baselines, *large_runs, *against_sde)


def ruled_out(fired: Sequence[Certificate]) -> dict[int, str]:
    """What the measured N/G rules out at each batch size, naming the baselines from which it does."""
    said = {}
    for size in sorted({certificate.batch_size for certificate in fired}):
        own = [certificate for certificate in fired if certificate.batch_size == size]
        baselines = sorted({certificate.baseline for certificate in own if certificate.baseline is not None})
        claims = [f"linear scaling from {', '.join(map(str, baselines))}"] if baselines else []
        claims += ["C-closeness of SGD and its SDE"] if any(certificate.kind == "sde" for certificate in own) else []
        said[size] = " and ".join(claims)
    return said
