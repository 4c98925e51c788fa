"""The optimizers: how their settings change with the batch size, and how their steps are refined.

`OptimizerKind` holds the scaling rule of a kind of optimizer, and whether the theorems cover it. A kind with a row in
`_KINDS` and no class of settings is priced by its rule and refused by SVAG. A class of settings holds the settings of
one parameter group as plain numbers, without torch; `svag.noise.optimizer` reads them from a torch optimizer and writes
them back. `scaled` is the scaling rule of the optimizer (def:lsr for SGD), `refined` gives the settings of one of the l
sub-steps of SVAG (eq:svag_iter; the limits of momentum are ours), and `without_limit` names the setting that has no
such refinement.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias, cast, get_args

from svag.printed import Printed
from svag.theory import domain
from svag.theory.adaptive import AdamSettings, RMSpropSettings, SquareRootFactors

Rule = Literal["linear", "square_root"]
Family = Literal["sgd", "second_moment", "unknown"]
MomentumLimit = Literal["underdamped", "overdamped"]

WHAT_WORKS = (
    "what works is torch.optim.SGD itself, with any schedule of a float lr, weight_decay, maximize, foreach, fused, "
    "several parameter groups, and momentum once its limit is named"
)


@dataclass(frozen=True)
class SGDSettings:
    r"""Settings of stochastic gradient descent, with torch's conventions.

    $$v \leftarrow \beta v + (1 - \tau)(\nabla L_\gamma + \lambda x), \qquad x \leftarrow x - \eta v$$

    where η is `lr`, λ is `weight_decay`, β is `momentum` and τ is `dampening`.

    >>> SGDSettings(lr=0.125, weight_decay=5e-4).scaled(4).lr
    0.5
    """

    lr: float
    weight_decay: float = 0.0
    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False

    @property
    def without_limit(self) -> str:
        """The setting for which no refinement is known, or an empty string.

        >>> SGDSettings(lr=0.1, momentum=0.9, nesterov=True).without_limit
        'nesterov=True'
        """
        if self.nesterov:
            return f"nesterov={self.nesterov}"
        return f"dampening={self.dampening}" if self.dampening else ""

    def scaled(self, kappa: float) -> "SGDSettings":
        """Return the settings at κ times the batch: κ times the learning rate, everything else the same (def:lsr).

        κ below 1 scales down. Beyond κηλ = 2 the weights diverge from weight decay alone, which is refused.
        """
        kappa = domain.positive("kappa", kappa)
        lr = domain.positive("lr", self.lr)
        weight_decay = domain.non_negative("weight_decay", self.weight_decay)
        if kappa * lr * weight_decay >= 2:
            raise ValueError(
                f"kappa × lr × weight_decay must stay below 2, got {kappa * lr * weight_decay}: weight decay would "
                "diverge"
            )
        return replace(self, lr=domain.positive("kappa × lr", kappa * lr), weight_decay=weight_decay)

    def refined(self, ell: int, momentum_limit: MomentumLimit | None = None) -> "SGDSettings":
        r"""Return the settings of one of the l sub-steps of SVAG.

        $$\text{overdamped: } \eta \to \eta/l, \qquad
          \text{underdamped: } \eta \to \eta/l,\; 1-\beta \to (1-\beta)/l,\; \tau \to 1 - 1/l$$

        where l is the argument `ell`. The limits are the SDE with η/(1 − β), and dV = (−(1 − β)V + ∇L)ds + Σ^½dW,
        dX = −ηV ds. With τ the buffer v stays in the units it has in SGD; without it, it would be l times as large and
        the rate η/l². Dividing η and 1 − β by l and leaving τ = 0 diverges, so there is no option for it.

        >>> SGDSettings(lr=0.5).refined(4).lr
        0.125
        >>> fine = SGDSettings(lr=0.5, momentum=0.5).refined(4, "overdamped")
        >>> fine.lr, fine.momentum, fine.dampening
        (0.125, 0.5, 0.0)
        >>> fine = SGDSettings(lr=0.5, momentum=0.5).refined(4, "underdamped")
        >>> fine.lr, fine.momentum, fine.dampening
        (0.125, 0.875, 0.75)
        """
        ell, eta, beta = domain.whole("ell", ell), domain.non_negative("lr", self.lr), domain.momentum(self.momentum)
        if self.without_limit:
            raise ValueError(f"{self.without_limit} has no limit: {WHAT_WORKS}")
        limits, given = get_args(MomentumLimit), cast("object", momentum_limit)  # an array has no truth value
        if given is not None and not (isinstance(given, str) and given in limits):
            raise ValueError(f"momentum_limit must be one of {', '.join(limits)}, got {domain.shown(given)}")
        if momentum_limit is None and beta != 0:
            raise ValueError(
                f"momentum={self.momentum} has two limits: say momentum_limit='underdamped' (the velocity keeps its "
                "own time scale) or 'overdamped' (the SDE with learning rate lr/(1 − momentum))"
            )
        if momentum_limit != "underdamped":
            return replace(self, lr=eta / ell, momentum=beta)
        # β + (1 − β)(1 − 1/l) is 1 − (1 − β)/l, and exactly β at l = 1
        return replace(self, lr=eta / ell, momentum=beta + (1 - beta) * (1 - 1 / ell), dampening=1 - 1 / ell)


OptimizerSettings: TypeAlias = SGDSettings | AdamSettings | RMSpropSettings
"""Every optimizer whose steps can be refined."""


def settings_from(saved: Mapping[str, Any]) -> OptimizerSettings:
    """Rebuild settings from the fields that `dataclasses.asdict` wrote; no two classes have the same fields.

    >>> settings_from({"lr": 0.5, "momentum": 0.9})
    SGDSettings(lr=0.5, weight_decay=0.0, momentum=0.9, dampening=0.0, nesterov=False)
    >>> settings_from({"lr": 0.5, "alpha": 0.9}).alpha
    0.9
    """
    settings: dict[str, Any] = {name: tuple(value) if name == "betas" else value for name, value in saved.items()}
    for kind in (SGDSettings, AdamSettings, RMSpropSettings):
        if settings.keys() <= {field.name for field in fields(kind)}:
            return kind(**settings)
    raise ValueError(f"no optimizer has the settings {', '.join(saved)}")


@dataclass(frozen=True)
class LinearScaling(Printed):
    """Hyperparameters of SGD at `kappa` times the batch."""

    kappa: float
    lr: float
    batch_size: int
    weight_decay: float


def linear_scaling(kappa: float, *, lr: float, batch_size: int, weight_decay: float = 0.0) -> LinearScaling:
    """Linear scaling rule for SGD: κ times the batch, κ times the learning rate, the same weight decay (def:lsr).

    >>> linear_scaling(4, lr=0.125, batch_size=128, weight_decay=5e-4)
    LinearScaling(kappa=4.0, lr=0.5, batch_size=512, weight_decay=0.0005)

    κ below 1 scales down. Beyond κηλ = 2 the weights diverge from weight decay alone, which is refused.
    """
    batch = domain.scaled_batch(kappa, batch_size)
    scaled = SGDSettings(lr=lr, weight_decay=weight_decay).scaled(kappa)
    return LinearScaling(float(kappa), scaled.lr, batch, scaled.weight_decay)


@dataclass(frozen=True)
class OptimizerKind:
    """The properties of a kind of optimizer that do not depend on its settings.

    Attributes:
        family: "sgd", or "second_moment" for those that divide by the root of a moving average of the squared gradient.
        rule: how its settings change with the batch; None if unknown.
        covered: whether the theorems of the paper are about it.
        average: what the rates of its moving averages are called, where the square-root rule changes them.
        decoupled: whether its weight decay is decoupled from the gradient; only such a one is scaled.
        priced: whether prices were compared with what larger batches really needed (`svag.prices.ranges`).
    """

    family: Family
    rule: Rule | None
    covered: bool = False
    average: str = "betas"
    decoupled: bool = False
    priced: bool = False

    def settings_at(
        self,
        kappa: float,
        *,
        lr: float | None,
        weight_decay: float | None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
    ) -> str:
        """The settings by the rule at κ times the batch, in words; factors for settings without a single known value.

        >>> optimizer_kind("SGD").settings_at(4, lr=0.1, weight_decay=0.0)
        'lr 0.4'
        >>> optimizer_kind("AdamW").settings_at(4, lr=None, weight_decay=0.1, betas=(0.9, 0.999), eps=1e-8)
        'lr ×2, betas (0.6, 0.996), eps 5e-09, weight decay 0.2'
        """
        if self.rule is None:
            return "no known rule"
        if self.rule == "linear":
            if not lr:
                return f"lr ×{kappa:.3g}"
            try:
                return f"lr {SGDSettings(lr=lr, weight_decay=weight_decay or 0.0).scaled(kappa).lr:.3g}"
            except ValueError:
                return f"lr {kappa * lr:.3g} (weight decay diverges)"
        factors = SquareRootFactors.at(kappa)
        said = [
            f"lr {lr * factors.lr:.3g}" if lr else f"lr ×{factors.lr:.3g}",
            f"1−{self.average} ×{factors.forgetting:.3g}" if betas is None else self._averages_at(factors, betas),
            f"eps ÷{1 / factors.eps:.3g}" if eps is None else f"eps {eps * factors.eps:.3g}",
        ]
        if weight_decay != 0 and self.decoupled:
            factor = factors.decoupled_decay
            said.append(f"weight decay {f'×{factor:.3g}' if weight_decay is None else f'{weight_decay * factor:.3g}'}")
        return ", ".join(said)

    def _averages_at(self, factors: SquareRootFactors, betas: tuple[float, float]) -> str:
        """The rates of the averages; a dash, with the reason, if an average would be shorter than one batch."""
        symbols = ("alpha",) if self.average == "alpha" else ("β₁", "β₂")
        rates, ended = [], []
        for symbol, beta in zip(symbols, betas[-len(symbols) :], strict=True):
            try:
                rates.append("0" if symbol == "β₁" and beta == 0 else f"{factors.rate(symbol, beta):.6g}")
            except ValueError:
                rates.append("–")
                ended.append(f"{factors.forgetting:.3g}·(1−{symbol})")
        said = f"alpha {rates[0]}" if symbols == ("alpha",) else f"betas ({', '.join(rates)})"
        return f"{said} as {' and '.join(ended)} ≥ 1" if ended else said


DECOUPLED = " with decoupled weight decay"
"""Behind the class of an optimizer that has it by an option; Adam with it is AdamW."""
_ADAPTIVE = OptimizerKind("second_moment", "square_root")
_KINDS = {
    "SGD": OptimizerKind("sgd", "linear", covered=True, priced=True),
    "Adam": replace(_ADAPTIVE, priced=True),
    "AdamW": replace(_ADAPTIVE, decoupled=True, priced=True),
    "NAdam": _ADAPTIVE,
    f"NAdam{DECOUPLED}": replace(_ADAPTIVE, decoupled=True),
    "RAdam": _ADAPTIVE,
    f"RAdam{DECOUPLED}": replace(_ADAPTIVE, decoupled=True),
    "RMSprop": replace(_ADAPTIVE, average="alpha"),
    "SparseAdam": _ADAPTIVE,
}
# bitsandbytes keeps the state in 8 bits, or pages it out of the device's memory; the steps are the same
_KINDS |= {
    f"{paged}{name}{bits}": _KINDS[name]
    for name in ("Adam", "AdamW", "RMSprop")
    for paged in ("", "Paged")
    for bits in ("", "8bit", "32bit")
}
_VARIANT_OF_SGD, _UNKNOWN = OptimizerKind("sgd", "linear"), OptimizerKind("unknown", None)


def optimizer_kind(name: str | None) -> OptimizerKind:
    """Return the kind of an optimizer by its name in a reading; without a name it counts as SGD.

    Variants of SGD, such as "SGD with dampening", scale like it, and the theorems do not cover them. For several
    optimizers of different kinds, such as "Muon + AdamW", no common rule is known.

    >>> optimizer_kind("RMSprop").rule, optimizer_kind("LBFGS").rule, optimizer_kind("SGD + AdamW").rule
    ('square_root', None, None)
    >>> optimizer_kind("PagedAdamW8bit") == optimizer_kind("AdamW")  # of bitsandbytes
    True
    """
    if name is None:
        return _KINDS["SGD"]
    return _KINDS.get(name, _VARIANT_OF_SGD if name.startswith("SGD") and " + " not in name else _UNKNOWN)


def refined_average(rate: float, updates: int) -> float:
    r"""Rate of an exponential average that is updated `updates` times as often: 1 − (1 − μ)^(1/updates).

    $$(1 - \mu')^{k} = 1 - \mu$$

    where μ is the argument `rate` and k is `updates`: BatchNorm's running statistics see 2l batches in the time of one
    SGD step, an average of the weights that is updated at every sub-step sees l.

    >>> refined_average(0.1, 1)
    0.1
    >>> round(refined_average(0.75, 2), 12)
    0.5
    """
    k = domain.whole("updates", updates)
    if not 0 <= domain.finite("rate", rate) <= 1:
        raise ValueError(f"rate must lie in [0, 1], got {rate}")
    if k == 1 or rate == 1:
        return rate
    return -math.expm1(math.log1p(-rate) / k)
