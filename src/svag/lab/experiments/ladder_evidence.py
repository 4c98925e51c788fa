"""What the rungs of a ladder came to: test errors, what each predicts, and which theorems fire (fig:lsr_acc_gnr)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from svag.lab.experiments.base import SGD, ArmName, own_metric, svag_arm
from svag.lab.experiments.evidence import Limit, LimitEstimate, fitted_limit
from svag.lab.experiments.ladder import LadderPanel
from svag.lab.experiments.runs import PanelRuns
from svag.noise.reading import Reading
from svag.prices.averages import Averages
from svag.prices.basis import THEOREMS, Signal, signal_series
from svag.prices.estimate import Estimate
from svag.prices.linear import LinearRule
from svag.prices.price_list import PriceList, price_list
from svag.prices.reasons import Code
from svag.prices.windows import parts_of_runs
from svag.stats.means import Contrast, contrast
from svag.stats.ratios import Interval, quotient
from svag.stats.samples import json_fields
from svag.theory.bounds import (
    critical_batch_size,
    large_run_refutes,
    large_run_threshold,
    sde_threshold,
)
from svag.theory.distortion import distortion
from svag.verdicts.scaling import ScalingVerdict

_NORMAL = 1.959964  # two-sided 95% quantile


@dataclass(frozen=True)
class Rung:
    """One batch size of the ladder.

    Attributes:
        batch_size: B.
        lr: η, by the scaling rule.
        seeds: runs with a result.
        diverged: how many of them diverged.
        errors: final test error by seed, of a text bits per character; NaN where diverged.
        error: mean of those that finished; NaN if none did.
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
        flat = json_fields({**asdict(self), "errors": None, "sde": None, "sde_gap": None})
        errors = [json_fields({"seed": seed, "error": error}) for seed, error in self.errors]
        limit, gap = self.sde, self.sde_gap
        sde = {"sde": None if limit is None else limit.to_dict(), "sde_gap": None if gap is None else gap.to_dict()}
        return {**flat, "errors": errors, **sde}


def final_errors(panel: LadderPanel, runs: PanelRuns, arm: ArmName, size: int) -> dict[int, float]:
    """Final test error of an arm by seed; of a text its bits per character."""
    metric = own_metric([panel])
    finals = runs.finals(arm, size, metric)
    return {seed: 1 - value if metric == "test_accuracy" else value for seed, value in finals.items()}


def rung_of(
    panel: LadderPanel, runs: PanelRuns, size: int, errors: Mapping[int, float], found: Sequence[LinearRule]
) -> Rung:
    """One batch size of a panel, from the final test error by seed and from what was measured at any batch size."""
    values = np.array([error for error in errors.values() if math.isfinite(error)])
    low, high = contrast([values], [1.0]).interval() if values.size > 1 else (-math.inf, math.inf)
    reading = next((one for one in found if one.batch_size == size), None)
    rho = Estimate(math.nan, math.nan, math.nan) if reading is None else reading.noise_to_signal
    limit = _sde_limit(panel, runs, size, errors)
    return Rung(
        batch_size=size,
        lr=panel.rate_at(size),
        seeds=len(errors),
        diverged=len(errors) - values.size,
        errors=tuple(sorted(errors.items())),
        error=float(values.mean()) if values.size else math.nan,
        error_low=low,
        error_high=high,
        signal_to_noise=_inverse(rho.value),
        signal_to_noise_low=_inverse(rho.high),
        signal_to_noise_high=_inverse(rho.low),
        balance=None if reading is None else reading.balance,
        sde=None if limit is None else limit.limit,
        sde_gap=None if limit is None else _above(limit.minus_arm(1)),
    )


def signal_slope(rungs: Sequence[Rung]) -> Estimate | None:
    """Slope of log G/N against log B with its 95% interval; None with fewer than two rungs whose G/N is resolved.

    It is 1 while the noise scale B_simple = B·N/G does not depend on the batch size, as the paper's figures presume.
    Rungs count by the width of their intervals, which is taken to be wider where they do not lie on a line.
    """
    known = [one for one in rungs if one.signal_to_noise_low > 0 and math.isfinite(one.signal_to_noise_high)]
    if len(known) < 2:
        return None
    x = np.log([one.batch_size for one in known])
    y = np.log([one.signal_to_noise for one in known])
    widths = np.log([one.signal_to_noise_high / one.signal_to_noise_low for one in known])
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


def _sde_limit(panel: LadderPanel, runs: PanelRuns, size: int, errors: Mapping[int, float]) -> LimitEstimate | None:
    finals = {1: np.array(list(errors.values()))}
    for ell in panel.ells:
        found = final_errors(panel, runs, svag_arm(ell), size)
        if ell > 1 and found:
            finals[ell] = np.array(list(found.values()))
    return fitted_limit(finals) if len(finals) > 1 else None


# A baseline predicts from this N/G on. B* = C²B + (C² − 1)·B·N/G is at least C²B whatever was measured: below N/G = 1
# more than two thirds of it, at C² = 2, would be the baseline's own batch size and not its noise.
PREDICTS_FROM = 1.0


@dataclass(frozen=True)
class RungPrediction:
    """What one rung, taken as the baseline, predicts.

    Attributes:
        found: the price list from the readings of all its seeds.
        by_seed: from those of each seed.
        sizes: the larger rungs.
        rise: N/G (with momentum N/X or N/X̂) in the last part of the run over that in the first; None when unknown.
        usable: whether it predicts: `linear.resolved`, or `linear.window_only`, as its rungs are compared over the
            same window of the same seeds; and N/G is at least `PREDICTS_FROM`.
        status: why not, or what to think of the prediction.
        over_observed: B* over the batch size at which test error was seen to fail, which no theorem connects; None when
            it did not.
        over_observed_low: lower 95% limit, both uncertainties included.
        over_observed_high: upper limit, `math.inf` where unbounded.
    """

    found: PriceList
    by_seed: tuple[tuple[int, PriceList], ...]
    sizes: tuple[int, ...]
    rise: float | None
    usable: bool
    status: str
    over_observed: float | None
    over_observed_low: float | None
    over_observed_high: float | None

    @property
    def linear(self) -> LinearRule:
        """What the readings say of the linear (square-root) rule, which the rungs of a ladder follow."""
        return self.found.linear

    @property
    def batch_size(self) -> int:
        """B of the baseline."""
        return self.found.batch_size

    @property
    def theorem(self) -> bool:
        """Whether a theorem carries the prediction; otherwise it is an estimate."""
        return self.linear.basis in THEOREMS and not self.linear.window_only

    def curve(self, last: float, points: int = 40) -> tuple[tuple[float, Estimate], ...]:
        """D between the baseline and a larger batch size, equally spaced on a logarithmic scale."""
        sizes = np.geomspace(self.batch_size, last, points).tolist()
        return tuple((size, self.linear.distortion(max(size, self.batch_size))) for size in sizes)

    def to_dict(self) -> dict[str, object]:
        """Return a row for a JSON document: the prediction, its interval and what to think of it."""
        rule = self.linear
        return json_fields(
            {
                "batch_size": rule.batch_size,
                "sharp": rule.limit.value,
                "low": rule.limit.low,
                "high": rule.limit.high,
                **_triple("noise_to_signal", rule.noise_to_signal),
                "b_simple": self.found.noise_scale.value,
                "basis": rule.basis,
                "balance": rule.balance,
                "second_moment_ratio": rule.second_moment_ratio,
                "readings": self.found.readings,
                "distortion": _rows(rule, self.sizes),
                "ok": rule.proved,
                "window_only": rule.window_only,
                "usable": self.usable,
                "status": self.status,
                "over_observed": self.over_observed,
                "over_observed_low": self.over_observed_low,
                "over_observed_high": self.over_observed_high,
                "by_seed": [{"seed": seed, **_seed_row(one)} for seed, one in self.by_seed],
            }
        )


def _rows(rule: LinearRule, sizes: Sequence[int]) -> list[dict[str, object]]:
    """D of the linear rule at larger batch sizes."""
    rows = []
    for size in sizes:
        found = rule.at(size)
        assert found.distortion is not None
        rows.append(
            json_fields(
                {
                    "batch_size": size,
                    "kappa": size / rule.batch_size,
                    "settings": found.settings,
                    "distortion": found.distortion.value,
                    "low": found.distortion.low,
                    "high": found.distortion.high,
                    "refuted": found.ruled_out,
                    "time": None,
                }
            )
        )
    return rows


def _triple(name: str, found: Estimate) -> dict[str, object]:
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}


def _seed_row(found: PriceList) -> dict[str, object]:
    """What one seed says of the linear rule, flat; the keys of these rows are those of version 0.1.0."""
    rule, setting = found.linear, found.setting
    parts = {reason.code: reason.values.get("ratio") for reason in found.reasons}
    ratios = [parts[code] for code in (Code.PARTS_FAR, Code.PARTS_NEAR) if code in parts]
    sizes = [price.batch_size for price in found.prices()]
    row: dict[str, object] = {
        "critical_batch": rule.limit.value,
        "low": rule.limit.low,
        "high": rule.limit.high,
        "ok": rule.proved,
        "resolved": rule.resolved,
        "window_only": rule.window_only,
        "basis": rule.basis,
        "rule": rule.rule,
        "status": str(rule.reasons[0]),
        "kappa": rule.limit.value / rule.batch_size,
        **_triple("noise_to_signal", rule.noise_to_signal),
        "signal": rule.signal,
        "b_simple": found.noise_scale.value,
        "gain_limit": 1 + found.noise_to_signal.value,
        "batch_size": rule.batch_size,
        "c2": rule.c2,
        "confidence": found.confidence,
        "readings": found.readings,
        "sde_refuted": rule.sde_ruled_out,
        "balance": rule.balance,
        "pull_share": rule.pull_share,
        "excess": rule.excess,
        "approximate": bool(ratios) or Code.PARTS_UNCHECKED in parts,
        "parts_ratio": ratios[0] if ratios else None,
        "lr_wd": rule.lr_wd,
        "second_moment_ratio": rule.second_moment_ratio,
        "eps": setting.eps,
        "lr": setting.lr,
        "weight_decay": setting.weight_decay,
        "optimizer": setting.optimizer,
        "population": setting.population,
    }
    bound = None if rule.measured is None else _bound(rule, rule.measured, sizes)
    return {
        **json_fields(row),
        "notes": [str(one) for one in (*rule.reasons[1:], *(one for one in found.reasons if one not in rule.reasons))],
        "window": list(found.window),
        "betas": None if setting.betas is None else list(setting.betas),
        "history": [
            {
                "start": phase.start,
                "stop": phase.end,
                "noise_to_signal": phase.noise_to_signal.to_dict(),
                "critical_batch": phase.noise_to_signal.mapped(
                    lambda ratio: critical_batch_size(rule.batch_size, ratio, rule.c2)
                ).to_dict(),
            }
            for phase in found.history.phases
        ],
        "prices": _rows(rule, sizes),
        "price_bound": bound,
    }


def _bound(rule: LinearRule, measured: Estimate, sizes: Sequence[int]) -> list[dict[str, object]]:
    """With momentum, while X is not resolved: the rows at the upper limits of D that X allows."""
    rows = _rows(rule, sizes)
    for row, size in zip(rows, sizes, strict=True):
        least, most = (distortion(ratio, size / rule.batch_size, rule.lr_wd) for ratio in (measured.high, measured.low))
        row |= json_fields({"distortion": most, "low": least, "high": most})
    return rows


# A run is cut into this many parts, or into fewer so that each gets this many readings.
_PARTS = 5
_READINGS_A_PART = 40


def _rise(readings: Sequence[Reading], signal: Signal) -> float | None:
    """N over its signal in the last part of the run over that in the first, of those parts that have one."""
    count = min(_PARTS, len(readings) // _READINGS_A_PART)
    ratios = []
    for part in parts_of_runs(readings, count) if count > 1 else []:
        try:
            found = Averages.over(part)
        except ValueError:  # a setting changed within this part
            continue
        series = signal_series(found, signal) if found.readings else None
        interval = None if series is None else found.ratio(series, 0.95)
        if interval is not None and interval.kind != "empty":
            ratios.append(interval.value)
    return ratios[-1] / ratios[0] if len(ratios) > 1 and ratios[0] > 0 else None


Pooled = tuple[PriceList, tuple[tuple[int, PriceList], ...], float | None]


def pooled(
    runs: PanelRuns, sizes: Sequence[int], c2: float, windows: Mapping[int, tuple[int, int]]
) -> tuple[list[Pooled], str]:
    """One prediction per batch size from the readings of all seeds together, and one per seed; or why there is none.

    Args:
        runs: of the panel.
        sizes: the rungs.
        c2: C².
        windows: batch size → effective steps over which to average; chosen by the readings where none is given.
    """
    found: list[Pooled] = []
    problem = "add a probe to the base spec, probe: {kind: in_run}: without readings nothing can be predicted."
    for size in sizes:
        readings, window = runs.readings(SGD, size), windows.get(size)
        if not readings:
            continue
        try:
            every = [one for seed in readings.values() for one in seed]
            together = price_list(every, c2, window=window)
            own = tuple((seed, price_list(mine, c2, window=window)) for seed, mine in readings.items())
            found.append((together, own, _rise(every, together.linear.signal)))
        except ValueError as error:
            problem = f"at B={size}, {error}."
    return found, problem


def prediction_of(
    found: PriceList,
    by_seed: tuple[tuple[int, PriceList], ...],
    rise: float | None,
    sizes: Sequence[int],
    scaling: ScalingVerdict | None,
) -> RungPrediction:
    """What a rung predicts for the larger ones, with the failure of test error beside it."""
    one = found.linear
    enough = one.noise_to_signal.value >= PREDICTS_FROM
    ratio = f"N/{one.signal} = {one.noise_to_signal.value:.3g} is below {PREDICTS_FROM:g}"
    over = _over_observed(one, scaling)
    return RungPrediction(
        found=found,
        by_seed=by_seed,
        sizes=tuple(size for size in sizes if size > one.batch_size),
        rise=rise,
        usable=(one.resolved or one.window_only) and enough,
        status=str(one.reasons[0]) if enough else f"{ratio}: B* would be little more than C²B, whatever was measured.",
        over_observed=None if over is None else over.value,
        over_observed_low=None if over is None else over.low,
        over_observed_high=None if over is None else over.high,
    )


def _over_observed(one: LinearRule, scaling: ScalingVerdict | None) -> Interval | None:
    """B* over where test error failed; None when the ladder gives no such failure, or only a bound on it."""
    if scaling is None or scaling.observed is None or scaling.answer != "fails" or math.isinf(one.limit.value):
        return None
    # the interval is a test inverted, and may leave out the estimate
    low, high = min(scaling.low, scaling.observed), max(scaling.high, scaling.observed)
    return quotient(Interval(**vars(one.limit)), Interval(scaling.observed, low, high))


@dataclass(frozen=True)
class PredictionRange:
    """The smallest and the largest B* of the baselines that predict, and which baselines these are."""

    smallest: float
    smallest_from: int
    largest: float
    largest_from: int


def predicted_range(predictions: Sequence[RungPrediction]) -> PredictionRange | None:
    """The range of the usable predictions; None without a usable one."""
    values = [(one.linear.limit.value, one.batch_size) for one in predictions if one.usable]
    return PredictionRange(*min(values), *max(values)) if values else None


@dataclass(frozen=True)
class Certificate:
    """A theorem that fired: something that the measured N/G rules out.

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


def certificates(found: Sequence[LinearRule], batch_sizes: Sequence[int]) -> tuple[Certificate, ...]:
    """All that fired: baselines against larger rungs, large runs on their own, SGD against its SDE.

    Only rules that are `proved` count, and only when the whole interval is on the other side of the threshold.
    """
    sure = [one for one in found if one.proved]
    return (
        *(one for run in sure for one in _baseline(run, batch_sizes)),
        *(one for run in sure for one in _large_run(run, batch_sizes)),
        *(one for run in sure for one in _sde(run)),
    )


def _baseline(run: LinearRule, batch_sizes: Sequence[int]) -> Iterator[Certificate]:
    for size in batch_sizes:
        if size > run.batch_size and run.ruled_out(size):
            yield Certificate("baseline", size, run.batch_size, run.limit.high, size)


def _large_run(run: LinearRule, batch_sizes: Sequence[int]) -> Iterator[Certificate]:
    for size in batch_sizes:
        kappa = run.batch_size / size
        if kappa > 1 and large_run_refutes(run.noise_to_signal.high, kappa, run.c2):
            threshold = large_run_threshold(kappa, run.c2)
            yield Certificate("large_run", run.batch_size, size, run.noise_to_signal.high, threshold)


def _sde(run: LinearRule) -> Iterator[Certificate]:
    if run.sde_ruled_out:
        yield Certificate("sde", run.batch_size, None, run.noise_to_signal.high, sde_threshold(run.c2))


def ruled_out(fired: Sequence[Certificate]) -> dict[int, str]:
    """What the measured N/G rules out at each batch size, naming the baselines from which it does."""
    said = {}
    for size in sorted({one.batch_size for one in fired}):
        of_size = [one for one in fired if one.batch_size == size]
        baselines = sorted({one.baseline for one in of_size if one.baseline is not None})
        claims = [f"linear scaling from {', '.join(map(str, baselines))}"] if baselines else []
        claims += ["C-closeness of SGD and its SDE"] if any(one.kind == "sde" for one in of_size) else []
        said[size] = " and ".join(claims)
    return said
