"""What a comparison of SGD with its SDE knows beside the verdict on the final metric.

Whether the curves differ anywhere in training, whether the two are C-close at equilibrium (def:c_close), whether SGD's
own noise rules that out (thm:eq_sde_sgd), and why they end apart: two routes from one to the other, each in two steps
(fig:diagram).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from svag.arrays import FloatArray
from svag.lab.experiments import wording
from svag.lab.experiments.base import SGD, Metric
from svag.lab.experiments.evidence import SMOOTHED, LimitEstimate, fitted_limit
from svag.lab.records.record import RunRecord
from svag.noise.reading import Reading
from svag.prices.averages import Averages
from svag.prices.basis import BALANCED
from svag.prices.price_list import price_list
from svag.prices.windows import choose_window
from svag.stats.curves import compare_curves, gap_band, running_means
from svag.stats.means import Contrast, contrast, welch
from svag.stats.ratios import Interval, quotient
from svag.stats.samples import json_fields
from svag.stats.series import integrated_autocorrelation_time, plan_blocks
from svag.theory.bounds import Equilibrium, sde_threshold, smallest_c2

_CONFIDENCE, _SGD = 0.95, str(SGD)


@dataclass(frozen=True)
class CurveGap:
    """SGD against SVAG over the whole of training.

    Attributes:
        ell: which SVAG.
        p_value: of the test that the labels SGD and SVAG do not matter, at all times at once.
        smallest_p: the smallest that so many seeds can reach.
        max_t: the largest |t| over time; infinite where the two groups do not overlap and have no spread.
        at_step: the effective step of that largest |t|.
        gap: mean of SGD minus mean of SVAG there, in the metric's units.
        low: lower 95% limit of the gap, which holds at all steps at once, and so at this one though it was chosen;
            −∞ when the seeds are too few.
        high: upper limit.
        until_step: the last effective step compared; earlier than the end if a seed diverged.
        times: evaluations compared.
        diverged: seeds that diverged, in both arms.
        reach: the largest distance from 0 of any 95% limit of the gap between the trajectories, which are means of
            `SMOOTHED` evaluations in a row: they are known to be within this of each other at all steps at once.
        apart: how far apart the trajectories surely are at some step; 0 where the limits include 0 at all of them.
    """

    ell: int
    p_value: float
    smallest_p: float
    max_t: float
    at_step: int
    gap: float
    low: float
    high: float
    until_step: int
    times: int
    diverged: int
    reach: float
    apart: float

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document; an infinite t is null, and so is an infinite limit."""
        return json_fields(asdict(self))

    def said(self, metric: Metric, optimizer: str = _SGD) -> str:
        """The test, and where the two are furthest apart."""
        limits = ""
        if math.isfinite(self.low):
            limits = f" {wording.interval(self.low, self.high, metric)}, 95% at all steps at once"
        lost = f", before {wording.count(self.diverged, 'seed')} diverged" if self.diverged else ""
        weak = "; more seeds are needed for a p below 0.05" if self.smallest_p >= 0.05 else ""
        return (
            f"p = {self.p_value:.2g}, {optimizer} against SVAG ell={self.ell} up to effective step "
            f"{self.until_step:,}{lost}; "
            f"furthest apart at {self.at_step:,}, by {wording.difference(self.gap, metric)}{limits}; "
            f"{self.smallest_p:.2g} is the smallest p possible{weak}"
        )


def curve_gap(sgd: Sequence[RunRecord], svag: Sequence[RunRecord], ell: int, metric: Metric) -> CurveGap | None:
    """Compare the curves where all of them are finite; None without three runs, or when they share no evaluation.

    The evaluation before the first step is left out: it knows only the seed.
    """
    groups = [[dict(run.curve(metric)) for run in runs] for runs in (sgd, svag)]
    if not all(groups) or sum(map(len, groups)) < 3:
        return None
    steps = sorted(set.intersection(*(set(curve) for group in groups for curve in group)) - {0})
    finite = [step for step in steps if all(math.isfinite(curve[step]) for group in groups for curve in group)]
    if not finite:
        return None
    one, other = ([[curve[step] for step in finite] for curve in group] for group in groups)
    test = compare_curves(np.array(one), np.array(other))
    band = gap_band(np.array(one), np.array(other))
    smooth = gap_band(*(running_means(rows, SMOOTHED) for rows in (one, other)))
    return CurveGap(
        ell=ell,
        p_value=test.p_value,
        smallest_p=test.smallest_p,
        max_t=test.max_t,
        at_step=finite[test.index],
        gap=float(band.gap[test.index]),
        low=float(band.low[test.index]),
        high=float(band.high[test.index]),
        until_step=finite[-1],
        times=len(finite),
        diverged=sum(run.state == "diverged" for run in [*sgd, *svag]),
        reach=float(np.maximum(-smooth.low, smooth.high).max()),
        apart=max(float(np.maximum(smooth.low, -smooth.high).max()), 0.0),
    )


@dataclass(frozen=True)
class ClosenessRatio:
    """One test function: its average under SGD over that under SVAG; infinite limits where an average is unresolved."""

    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Closeness:
    """How close SGD and SVAG at a large ell are over the last window of one learning rate.

    Attributes:
        ell: which SVAG stands for the SDE.
        ratios: of R, G and N, each SGD over SVAG; N is that of a batch of the same size B in both.
        c2: the square of the smallest C for which they are C-close; infinite when G is not resolved.
        c2_low: they are not C-close for any C² below this, at 95% for the three together.
        sgd_balance: growth over decay of SGD's weights, 1 at equilibrium; None when unknown.
        svag_balance: the same of SVAG's.
        readings: how many of SGD's and of SVAG's were averaged.
    """

    ell: int
    ratios: tuple[ClosenessRatio, ...]
    c2: float
    c2_low: float
    sgd_balance: float | None
    svag_balance: float | None
    readings: tuple[int, int]

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document; infinity is null."""
        flat = json_fields({**asdict(self), "ratios": None})
        return {**flat, "ratios": [json_fields(asdict(one)) for one in self.ratios], "readings": list(self.readings)}

    @property
    def where(self) -> str:
        """Whether this was at equilibrium, which def:c_close is about."""
        balances = [balance for balance in (self.sgd_balance, self.svag_balance) if balance is not None]
        if any(abs(balance - 1) > BALANCED for balance in balances):
            return "before equilibrium"
        return "at equilibrium" if len(balances) == 2 else "(equilibrium not tested)"

    def rows(self, optimizer: str = _SGD) -> Iterator[tuple[str, str]]:
        """What is said of it: the ratios, and how far both were at equilibrium."""
        ratios = ", ".join(
            f"{one.name} {wording.plain(one.value)} [{wording.plain(one.low)}, {wording.plain(one.high)}]"
            for one in self.ratios
        )
        smallest = f"smallest C² = {wording.plain(self.c2)}, at least {wording.plain(self.c2_low)}"
        yield "C-closeness", f"{optimizer} over SVAG ell={self.ell} {self.where}: {ratios}; {smallest}"
        balances = ((optimizer, self.sgd_balance), (f"SVAG ell={self.ell}", self.svag_balance))
        known = [f"{name} {balance:.3g}" for name, balance in balances if balance is not None]
        if known:
            yield "equilibrium", f"growth over decay of |x|², 1 at equilibrium: {', '.join(known)}"


def equilibrium_closeness(sgd: Sequence[Reading], svag: Sequence[Reading], ell: int) -> Closeness | None:
    """Compare the averages over the default window of all seeds; None when they cannot be averaged or compared.

    Each interval is at 1 − 5%/3, so that the three hold together.
    """
    if not sgd or not svag or sgd[0].batch_size != svag[0].batch_size:
        return None
    try:
        one, other = (Averages.over(choose_window(readings).readings) for readings in (sgd, svag))
    except ValueError:  # readings of several settings
        return None
    if one.rate_varies or other.rate_varies:
        return None
    rows = (("R", one.param_sq, other.param_sq), ("G", one.grad_sq, other.grad_sq), ("N", one.noise, other.noise))
    ratios = tuple(_ratio(name, ours, theirs) for name, ours, theirs in rows)
    known = all(math.isfinite(ratio.value) for ratio in ratios)
    return Closeness(
        ell=ell,
        ratios=ratios,
        c2=smallest_c2(_equilibrium(one), _equilibrium(other)) if known else math.inf,
        c2_low=max(max(ratio.low, 1 / ratio.high, 1.0) ** 2 for ratio in ratios),
        sgd_balance=one.balance,
        svag_balance=other.balance,
        readings=(len(one.readings), len(other.readings)),
    )


def _equilibrium(found: Averages) -> Equilibrium:
    return Equilibrium(float(found.param_sq.mean()), float(found.grad_sq.mean()), float(found.noise.mean()))


def _ratio(name: str, ours: FloatArray, theirs: FloatArray) -> ClosenessRatio:
    one, other = _average(ours), _average(theirs)
    if one is None or other is None:
        return ClosenessRatio(name, math.inf, 0.0, math.inf)
    found = quotient(one, other)
    return ClosenessRatio(name, found.value, found.low, found.high)


def _average(series: FloatArray) -> Interval | None:
    """Mean and interval from block means that respect autocorrelation; None when the mean is not positive."""
    mean = float(series.mean())
    if mean <= 0:
        return None
    plan = plan_blocks(series.size, integrated_autocorrelation_time(series) if series.size > 1 else 1.0)
    if plan.blocks < 2:
        return Interval(mean, 0.0, math.inf)
    low, high = contrast([plan.means(series)], [1.0]).interval(1 - (1 - _CONFIDENCE) / 3)
    return Interval(mean, max(min(low, mean), 0.0), max(high, mean))


@dataclass(frozen=True)
class OwnNoise:
    """What SGD's own readings say about its SDE, without a run of the SDE (thm:eq_sde_sgd).

    Attributes:
        noise_to_signal: N/G of SGD, as in `svag.price_list(…).linear`.
        low: lower end of its 95% interval.
        high: upper end.
        c2: C².
        sde_refuted: whether the whole interval is below 1/(C² − 1), at the equilibrium of a scale-invariant network.
    """

    noise_to_signal: float
    low: float
    high: float
    c2: float
    sde_refuted: bool

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document; infinity is null."""
        return json_fields(asdict(self))

    def rows(self, optimizer: str = _SGD) -> Iterator[tuple[str, str]]:
        """That the SDE is ruled out, or nothing: an N/G above the threshold does not confirm it."""
        if self.sde_refuted:
            limits = f"[{wording.plain(self.low)}, {wording.plain(self.high)}]"
            below = f"it is below {wording.plain(sde_threshold(self.c2))} (C² = {wording.plain(self.c2)})"
            found = f"N/G = {wording.plain(self.noise_to_signal)} {limits}"
            yield f"{optimizer}'s own noise", f"{found} alone shows that {optimizer} is not C-close to its SDE: {below}"


def own_noise(sgd: Sequence[Reading]) -> OwnNoise | None:
    """N/G of SGD over the default window of all seeds; None without readings, or when they cannot be averaged."""
    try:
        found = price_list(sgd).linear
    except ValueError:  # no readings, or of several settings
        return None
    ratio = found.noise_to_signal
    return OwnNoise(ratio.value, ratio.low, ratio.high, found.c2, found.sde_ruled_out)


@dataclass(frozen=True)
class Term:
    """One step of a route, with its 95% interval."""

    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Decomposition:
    """A difference as the sum of two.

    Attributes:
        route: "gaussian", the paper's (eq:noise_decomposition); "ladder", over the coupled ladder (def:glsr).
        terms: the two steps.
        total: what they add up to.
        excess: the first step minus the second: of the sign of the total where the first is most of it.
        seeds: how many entered.
        left_out: seeds that diverged in an arm and are not in it.
    """

    route: Literal["gaussian", "ladder"]
    terms: tuple[Term, Term]
    total: Term
    excess: Term
    seeds: int
    left_out: int

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document; unknown limits are null."""
        terms = [json_fields(asdict(term)) for term in self.terms]
        sums = {name: json_fields(asdict(getattr(self, name))) for name in ("total", "excess")}
        return {**json_fields(asdict(self)), "terms": terms, **sums}

    def said(self, metric: Metric) -> str:
        """The total and its two steps."""
        steps = ", ".join(
            f"{term.name} = {wording.difference(term.value, metric)} {wording.interval(term.low, term.high, metric)}"
            for term in self.terms
        )
        lost = f"; {self.left_out} diverged left out" if self.left_out else ""
        total = f"{self.total.name} = {wording.difference(self.total.value, metric)}"
        return f"{total}: {steps} ({wording.count(self.seeds, 'seed')}{lost})"


def gaussian_route(
    sgd: Mapping[int, float], ngd: Mapping[int, float], svag: Mapping[int, Mapping[int, float]]
) -> Decomposition | None:
    """Discretisation (SDE − NGD) plus non-Gaussian noise (NGD − SGD), the SDE fitted to SVAG (eq:noise_decomposition).

    None with fewer than two finished seeds of SGD, of NGD, or of every SVAG.

    Args:
        sgd: final metric by seed.
        ngd: the same of NGD.
        svag: ell → the same of SVAG.
    """
    ours, gaussian = _finite(sgd), _finite(ngd)
    limit = fitted_limit({1: ours, **{ell: _finite(finals) for ell, finals in svag.items()}})
    if ours.size < 2 or gaussian.size < 2 or limit is None:
        return None
    return Decomposition(
        "gaussian",
        (
            _term("discretisation SDE − NGD", limit.minus(gaussian)),
            _term("non-Gaussian noise NGD − SGD", welch(gaussian, ours)),
        ),
        _term("SDE − SGD", limit.minus_arm(1)),
        _term("discretisation − non-Gaussian noise", _excess(limit, gaussian)),
        min(ours.size, gaussian.size),
        sum(not math.isfinite(value) for finals in (sgd, ngd, *svag.values()) for value in finals.values()),
    )


def _excess(limit: LimitEstimate, ngd: FloatArray) -> Contrast:
    """(SDE − NGD) − (NGD − SGD), where the SDE's value is itself made of SGD and SVAG."""
    weights = [weight + (ell == 1) for ell, weight in zip(limit.groups, limit.weights, strict=True)]
    return contrast([*limit.groups.values(), ngd], [*weights, -2.0])


def ladder_route(
    sgd: Mapping[int, float], ladder: Mapping[int, float], svag: Mapping[int, float], parts: int, ell: int
) -> Decomposition | None:
    """[SGD − ladder] + [ladder − SVAG], seed by seed: the ladder takes SGD's own draws, so its bracket is narrow.

    None with fewer than two seeds that finished in all three arms.
    """
    shared = [seed for seed in sgd if seed in ladder and seed in svag]
    rows = [(sgd[seed], ladder[seed], svag[seed]) for seed in shared]
    finite = np.array([row for row in rows if all(map(math.isfinite, row))])
    if len(finite) < 2:
        return None
    ours, rung, refined = finite.T
    return Decomposition(
        "ladder",
        (
            _term(f"SGD − ladder of {parts}", contrast([ours - rung], [1.0])),
            _term(f"ladder of {parts} − SVAG ell={ell}", contrast([rung - refined], [1.0])),
        ),
        _term(f"SGD − SVAG ell={ell}", contrast([ours - refined], [1.0])),
        _term("first − second", contrast([ours - 2 * rung + refined], [1.0])),
        len(finite),
        len(shared) - len(finite),
    )


def _finite(finals: Mapping[int, float]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.array([value for value in finals.values() if math.isfinite(value)])


def _term(name: str, estimate: Contrast) -> Term:
    return Term(name, estimate.value, *estimate.interval())
