"""How far the linear scaling rule, or for Adam the square-root rule, can reach.

This module bounds how far statistics of training must drift apart when the learning rate grows with the batch
(thm:lsr_kappa_bound). What a larger batch costs is a different question (`svag.prices.price_list`).
"""

from dataclasses import dataclass

from svag.as_json import JsonRow, json_fields_of
from svag.prices.basis import Basis, Ground, Signal, linear_remarks
from svag.prices.estimate import Estimate
from svag.prices.reasons import Code, Reason
from svag.prices.setting import RunSetting
from svag.printed import Printed
from svag.theory import domain
from svag.theory.bounds import critical_batch_size, sgd_refutes_sde
from svag.theory.distortion import distortion
from svag.theory.optimizers import Rule


@dataclass(frozen=True, repr=False)
class LinearRow(JsonRow, Printed):
    """What is known of the linear (Adam: square-root) rule at one batch size.

    >>> print(LinearRow("lr 1.6", "1.6", Estimate(2.5, 2.3, 2.7), ruled_out=True))
    1.6, ruled out

    Attributes:
        settings: all settings that the rule prescribes there, as "lr 1.6".
        rate: the learning rate alone, as a number or as a factor.
        distortion: the least factor by which statistics of training drift apart where a theorem applies; an estimate
            elsewhere; None below the batch size of the run.
        ruled_out: whether a theorem rules out that they stay within C².
    """

    settings: str
    rate: str
    distortion: Estimate | None
    ruled_out: bool

    def __str__(self) -> str:
        return self.rate + ", ruled out" * self.ruled_out


@dataclass(frozen=True, repr=False)
class LinearRule(Printed):
    """What is known of the linear scaling rule (Adam: the square-root rule) from one run.

    >>> from svag import Reading, price_list
    >>> readings = [
    ...     Reading(g, n, param_sq=2752.0, batch_size=128, n=4, lr=0.5, weight_decay=1e-3)
    ...     for g, n in [(0.9, 9.0), (0.9, 11.0), (1.1, 9.0), (1.1, 11.0)] * 100
    ... ]
    >>> rule = price_list(readings).linear
    >>> rule.basis, rule.proved, round(rule.limit.value), rule.ruled_out(4096), rule.ruled_out(1024)
    ('weight_norm', True, 1528, True, False)
    >>> print(rule.distortion(2048))
    2.37 [2.37, 2.37]

    Attributes:
        setting: what the run used.
        limit: B*, the batch size at which the distortion reaches C²; the largest that ηλ allows, or infinite, when the
            average signal is not positive.
        basis: theorems: "weight_norm" (scale-invariant network at equilibrium), "pull" (any network, stationary |x|²);
            estimates: "gradient", "momentum", "second_moment".
        rule: "linear", "square_root", or None when no rule is known for the optimizer.
        signal: what N was divided by: "G", with momentum "X" or "X̂".
        noise_to_signal: N over that signal.
        measured: N/X with momentum while X is not resolved and X̂ stands in for it; None otherwise.
        proved: whether a theorem applies and the noise is resolved; otherwise nothing is ruled out.
        resolved: whether the interval of the limit is bounded on both sides and has its stated confidence.
        window_only: not resolved, but bounded: it covers only the average over this window of these runs.
        one_sided: whether only a lower limit is known, because the signal is not resolved.
        sde_ruled_out: whether N/G shows that the run is not C-close to its SDE (thm:eq_sde_sgd).
        reasons: why `proved` is what it is, the most important first.
        c2: C², the factor by which statistics of training may change.
        lr_wd: ηλ where the distortion depends on it, 0 elsewhere.
        balance: growth over decay of the weights, 1 at equilibrium; None when unknown.
        pull_share: pull of the loss on the weights over that of weight decay, 0 if scale invariant; None when unknown.
        excess: E = 2λR/(η_eff N), above C² when the run is not C-close to its SDE; None when unknown.
        second_moment_ratio: V over G + N of Adam and its kin, 1 where v has settled; None when V is unknown.
    """

    setting: RunSetting
    limit: Estimate
    basis: Basis
    rule: Rule | None
    signal: Signal
    noise_to_signal: Estimate
    measured: Estimate | None
    proved: bool
    resolved: bool
    window_only: bool
    one_sided: bool
    sde_ruled_out: bool
    reasons: tuple[Reason, ...]
    c2: float
    lr_wd: float
    balance: float | None
    pull_share: float | None
    excess: float | None
    second_moment_ratio: float | None

    @classmethod
    def of(cls, ground: Ground, c2: float) -> "LinearRule":
        """Conclude from averages and from what they rest on."""
        known, averages, ratio = ground.ratio, ground.ratio.averages, ground.ratio.estimate
        setting = RunSetting.of(averages)
        limit = ratio.mapped(lambda rho: critical_batch_size(setting.batch_size, rho, c2, ground.lr_wd))
        proved = known.resolved and ground.theorem
        against_sde = ground.basis == "weight_norm" and known.resolved and sgd_refutes_sde(ratio.high, c2)
        reasons = [*known.doubts(limit), *ground.reasons]
        if proved:
            tested = averages.param_dot_grad is not None
            reasons.append(Reason(Code.PROVED, {"basis": ground.basis, "invariance_tested": tested}))
        if against_sde:
            reasons.append(Reason(Code.SDE_RULED_OUT, {"signal": ground.signal, "high": ratio.high, "c2": c2}))
        return cls(
            setting=setting,
            limit=limit,
            basis=ground.basis,
            rule=setting.kind.rule,
            signal=ground.signal,
            noise_to_signal=ratio,
            measured=None if ground.measured is None else ground.measured.estimate,
            proved=proved,
            resolved=known.resolved,
            window_only=known.window_only,
            one_sided=known.one_sided,
            sde_ruled_out=against_sde,
            reasons=(*reasons, *linear_remarks(ground)),
            c2=c2,
            lr_wd=ground.lr_wd,
            balance=averages.balance,
            pull_share=averages.share,
            excess=averages.excess,
            second_moment_ratio=averages.second_moment_ratio,
        )

    @property
    def batch_size(self) -> int:
        """B of the run."""
        return self.setting.batch_size

    def distortion(self, batch_size: float) -> Estimate:
        """D at `batch_size` by this rule, with its sampling interval; the batch must not be below that of the run."""
        kappa = domain.positive("batch_size", batch_size) / self.batch_size
        return self.noise_to_signal.mapped(lambda ratio: distortion(ratio, kappa, self.lr_wd))

    def ruled_out(self, batch_size: float) -> bool:
        """Whether a theorem rules out scaling to `batch_size`: it lies above the whole interval of the limit.

        False promises nothing.
        """
        return self.proved and domain.positive("batch_size", batch_size) > self.limit.high

    def at(self, batch_size: int) -> LinearRow:
        """What is known at one batch size, for the price list."""
        kappa = batch_size / self.batch_size
        return LinearRow(
            self.setting.linear_settings(kappa),
            self.setting.linear_rate(kappa),
            self.distortion(batch_size) if kappa >= 1 else None,
            self.ruled_out(batch_size),
        )

    def to_dict(self) -> dict[str, object]:
        """Return everything for a JSON document; infinity is null."""
        return {
            **json_fields_of(self, "limit", "basis", "rule", "signal", "noise_to_signal", "measured"),
            **json_fields_of(self, "proved", "resolved", "window_only", "sde_ruled_out", "c2", "lr_wd"),
            **json_fields_of(self, "balance", "pull_share", "excess", "second_moment_ratio", "reasons"),
        }

    def __repr__(self) -> str:
        proved = "proved" if self.proved else "not proved"
        return f"<svag.LinearRule from batch size {self.batch_size}: B* = {self.limit}, by {self.basis}, {proved}>"

    def __str__(self) -> str:
        from svag.prices.wording import linear_text  # which imports this module for its types

        return linear_text(self)
