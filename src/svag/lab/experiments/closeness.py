"""Are SGD and its SDE C-close at equilibrium? Decided by runs of SVAG (def:c_close) or SGD's noise (thm:eq_sde_sgd)."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from svag.arrays import FloatArray
from svag.as_json import JsonRow
from svag.lab.experiments import wording
from svag.lab.experiments.decomposition import Term
from svag.noise.reading import Reading
from svag.prices.averages import Averages
from svag.prices.basis import BALANCED
from svag.prices.price_list import price_list
from svag.prices.windows import choose_window
from svag.stats.means import contrast
from svag.stats.ratios import Interval, quotient
from svag.stats.series import integrated_autocorrelation_time, plan_blocks
from svag.theory.bounds import Equilibrium, sde_threshold, smallest_c2

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Closeness(JsonRow):
    """How close SGD and SVAG at a large ell are over the last window of one learning rate.

    Attributes:
        ell: the ell of the SVAG that stands for the SDE.
        ratios: ratios of R, G and N, each SGD over SVAG; N is that of a batch of the same size B in both. Limits are
            infinite if an average is unresolved.
        c2: the square of the smallest C for which they are C-close; infinite when G is not resolved.
        c2_low: they are not C-close for any C² below this, at 95% for the three together.
        sgd_balance: growth over decay of SGD's weights, 1 at equilibrium; None when unknown.
        svag_balance: the same for SVAG.
        readings: number of readings averaged, of SGD and of SVAG.
    """

    ell: int
    ratios: tuple[Term, ...]
    c2: float
    c2_low: float
    sgd_balance: float | None
    svag_balance: float | None
    readings: tuple[int, int]

    @property
    def where(self) -> str:
        """Whether both were at equilibrium, as def:c_close requires."""
        balances = [balance for balance in (self.sgd_balance, self.svag_balance) if balance is not None]
        if any(abs(balance - 1) > BALANCED for balance in balances):
            return "before equilibrium"
        return "at equilibrium" if len(balances) == 2 else "(equilibrium not tested)"

    def rows(self, optimizer: str) -> Iterator[tuple[str, str]]:
        """The ratios and the balances, in words."""
        ratios = ", ".join(
            f"{ratio.name} {wording.plain(ratio.value)} [{wording.plain(ratio.low)}, {wording.plain(ratio.high)}]"
            for ratio in self.ratios
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
        ours, theirs = (Averages.over(choose_window(readings).readings) for readings in (sgd, svag))
    except ValueError:  # readings of several settings
        return None
    if ours.rate_varies or theirs.rate_varies:
        return None
    ratios = (
        _ratio("R", ours.param_sq, theirs.param_sq),
        _ratio("G", ours.grad_sq, theirs.grad_sq),
        _ratio("N", ours.noise, theirs.noise),
    )
    known = all(math.isfinite(ratio.value) for ratio in ratios)
    return Closeness(
        ell=ell,
        ratios=ratios,
        c2=smallest_c2(_equilibrium(ours), _equilibrium(theirs)) if known else math.inf,
        c2_low=max(max(ratio.low, 1 / ratio.high, 1.0) ** 2 for ratio in ratios),
        sgd_balance=ours.balance,
        svag_balance=theirs.balance,
        readings=(len(ours.readings), len(theirs.readings)),
    )


def _equilibrium(averages: Averages) -> Equilibrium:
    return Equilibrium(float(averages.param_sq.mean()), float(averages.grad_sq.mean()), float(averages.noise.mean()))


def _ratio(name: str, ours: FloatArray, theirs: FloatArray) -> Term:
    above, below = _average(ours), _average(theirs)
    if above is None or below is None:
        return Term(name, math.inf, 0.0, math.inf)
    ratio = quotient(above, below)
    return Term(name, ratio.value, ratio.low, ratio.high)


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
class OwnNoise(JsonRow):
    """What SGD's own readings imply about its SDE, without simulating the SDE (thm:eq_sde_sgd).

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

    def rows(self, optimizer: str) -> Iterator[tuple[str, str]]:
        """A sentence if the SDE is ruled out, otherwise empty: an N/G above the threshold does not confirm the SDE."""
        if self.sde_refuted:
            limits = f"[{wording.plain(self.low)}, {wording.plain(self.high)}]"
            below = f"it is below {wording.plain(sde_threshold(self.c2))} (C² = {wording.plain(self.c2)})"
            ratio = f"N/G = {wording.plain(self.noise_to_signal)} {limits}"
            yield f"{optimizer}'s own noise", f"{ratio} alone shows that {optimizer} is not C-close to its SDE: {below}"


def own_noise(sgd: Sequence[Reading]) -> OwnNoise | None:
    """N/G of SGD over the default window of all seeds; None without readings, or when they cannot be averaged."""
    try:
        rule = price_list(sgd).linear
    except ValueError:  # no readings, or readings of several settings
        return None
    ratio = rule.noise_to_signal
    return OwnNoise(ratio.value, ratio.low, ratio.high, rule.c2, rule.sde_ruled_out)
