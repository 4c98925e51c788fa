"""What is known of every optimizer: how its settings change with the batch size, and how its steps are refined.

`OptimizerKind` says of every kind of optimizer by which rule it scales and whether the theorems cover it. A class of
settings holds the settings of one parameter group as plain numbers, without torch; `svag.noise.optimizer` reads
them from a torch optimizer and writes them back. `scaled` is the scaling rule of the optimizer (def:lsr for SGD),
`refined` gives the settings of one of the l sub-steps of SVAG (eq:svag_iter; the limits of momentum are ours), and
`without_limit` names the setting that has no such refinement.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

from svag.theory import domain

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
        return replace(self, lr=kappa * lr, weight_decay=weight_decay)

    def refined(self, ell: int, momentum_limit: MomentumLimit | None = None) -> "SGDSettings":
        r"""Return the settings of one of the l sub-steps of SVAG.

        $$\text{overdamped: } \eta \to \eta/l, \qquad
          \text{underdamped: } \eta \to \eta/l,\; 1-\beta \to (1-\beta)/l,\; \tau \to 1 - 1/l$$

        where l is the argument `ell`. The limits are the SDE with η/(1 − β), and dV = (−(1 − β)V + ∇L)ds + Σ^½dW,
        dX = −ηV ds. With τ the buffer v stays in the units it has in SGD; without it, it would be l times as large and
        the rate η/l². Dividing η and 1 − β by l and leaving τ = 0 diverges: it cannot be asked for.

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
        if momentum_limit is None and beta != 0:
            raise ValueError(
                f"momentum={self.momentum} has two limits: say momentum_limit='underdamped' (the velocity keeps its "
                "own time scale) or 'overdamped' (the SDE with learning rate lr/(1 − momentum))"
            )
        if momentum_limit is None or momentum_limit == "overdamped":
            return replace(self, lr=eta / ell, momentum=beta)
        if momentum_limit != "underdamped":
            raise ValueError(
                f"momentum_limit must be one of {', '.join(get_args(MomentumLimit))}, got {momentum_limit!r}"
            )
        # β + (1 − β)(1 − 1/l) is 1 − (1 − β)/l, and exactly β at l = 1
        return replace(self, lr=eta / ell, momentum=beta + (1 - beta) * (1 - 1 / ell), dampening=1 - 1 / ell)


OptimizerSettings: TypeAlias = SGDSettings
"""Every optimizer that has a class here."""


def settings_from(fields: Mapping[str, Any]) -> OptimizerSettings:
    """Rebuild settings from the fields that `dataclasses.asdict` wrote.

    >>> settings_from({"lr": 0.5, "momentum": 0.9})
    SGDSettings(lr=0.5, weight_decay=0.0, momentum=0.9, dampening=0.0, nesterov=False)
    """
    return SGDSettings(**fields)


@dataclass(frozen=True)
class LinearScaling:
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
    kappa = domain.positive("kappa", kappa)
    batch = kappa * domain.whole("batch_size", batch_size)
    if round(batch) < 1 or not math.isclose(batch, round(batch), rel_tol=1e-9):
        raise ValueError(f"kappa × batch_size must be a whole number, got {kappa} × {batch_size} = {batch}")
    scaled = SGDSettings(lr=lr, weight_decay=weight_decay).scaled(kappa)
    return LinearScaling(kappa, scaled.lr, round(batch), scaled.weight_decay)


@dataclass(frozen=True)
class SquareRootScaling:
    """Hyperparameters of Adam at `kappa` times the batch."""

    kappa: float
    lr: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float


def square_root_scaling(
    kappa: float, *, lr: float, betas: tuple[float, float], eps: float, weight_decay: float
) -> SquareRootScaling:
    r"""Square-root scaling rule for Adam: lr·√κ, 1−β → κ(1−β), eps/√κ, decoupled weight decay·√κ.

    >>> square_root_scaling(4, lr=0.001, betas=(0.875, 0.984375), eps=1e-8, weight_decay=0.01)
    SquareRootScaling(kappa=4.0, lr=0.002, betas=(0.5, 0.9375), eps=5e-09, weight_decay=0.02)

    The linear rule has no limit for adaptive optimizers. `weight_decay` is the decoupled one of AdamW; coupled L2 stays
    as it is. Reference: Malladi, Lyu, Panigrahi, Arora (2022).
    """
    kappa = domain.positive("kappa", kappa)
    factors = _square_root_factors(kappa)
    return SquareRootScaling(
        kappa,
        domain.positive("lr", lr) * factors.lr,
        (_scaled_beta("betas[0]", betas[0], factors), _scaled_beta("betas[1]", betas[1], factors)),
        domain.non_negative("eps", eps) / factors.eps_divisor,
        domain.non_negative("weight_decay", weight_decay) * factors.decoupled_decay,
    )


@dataclass(frozen=True)
class _SquareRootFactors:
    """By what the square-root rule multiplies the learning rate, 1 − β and decoupled weight decay, and divides eps."""

    lr: float
    forgetting: float
    eps_divisor: float
    decoupled_decay: float


def _square_root_factors(kappa: float) -> _SquareRootFactors:
    root = math.sqrt(kappa)
    return _SquareRootFactors(lr=root, forgetting=kappa, eps_divisor=root, decoupled_decay=root)


def _scaled_beta(name: str, beta: float, factors: _SquareRootFactors) -> float:
    if not 0 <= domain.finite(name, beta) < 1:
        raise ValueError(f"{name} must lie in [0, 1), got {beta}")
    kappa = factors.forgetting
    forget = kappa * (1 - beta)
    if forget > 1 - 1e-12:  # 10 × (1 − 0.9) is just below 1 in floating point
        raise ValueError(f"kappa × (1 − {name}) must stay below 1, got {kappa} × {1 - beta:.4g}: scale by less")
    return 1 - forget


@dataclass(frozen=True)
class OptimizerKind:
    """What is known of a kind of optimizer, whatever its settings.

    Attributes:
        family: "sgd", or "second_moment" for those that divide by the root of a moving average of the squared gradient.
        rule: how its settings change with the batch; None when that is not known.
        covered: whether the theorems of the paper are about it.
        average: what the rates of its moving averages are called, where the square-root rule changes them.
        decoupled: whether its weight decay is decoupled from the gradient; only such a one is scaled.
    """

    family: Family
    rule: Rule | None
    covered: bool = False
    average: str = "betas"
    decoupled: bool = False

    def settings_at(self, kappa: float, *, lr: float | None, weight_decay: float | None) -> str:
        """Say what the rule asks for at κ times the batch; factors where the learning rate is not one number.

        >>> optimizer_kind("SGD").settings_at(4, lr=0.1, weight_decay=0.0)
        'lr 0.4'
        >>> optimizer_kind("AdamW").settings_at(4, lr=None, weight_decay=0.1)
        'lr ×2, 1−betas ×4, eps ÷2, weight decay ×2'
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
        factors = _square_root_factors(kappa)
        rate = f"lr {lr * factors.lr:.3g}" if lr else f"lr ×{factors.lr:.3g}"
        decay = f", weight decay ×{factors.decoupled_decay:.3g}" if self.decoupled and weight_decay != 0 else ""
        return f"{rate}, 1−{self.average} ×{factors.forgetting:.3g}, eps ÷{factors.eps_divisor:.3g}{decay}"


_ADAM = OptimizerKind("second_moment", "square_root")
_KINDS = {
    "SGD": OptimizerKind("sgd", "linear", covered=True),
    "Adam": _ADAM,
    "AdamW": replace(_ADAM, decoupled=True),
    "NAdam": _ADAM,
    "RAdam": _ADAM,
    "RMSprop": replace(_ADAM, average="alpha"),
    "SparseAdam": _ADAM,
}


def optimizer_kind(name: str | None) -> OptimizerKind:
    """Return what is known of an optimizer by the name that a reading gives it; one without a name is taken for SGD.

    Variants of SGD, such as "SGD with dampening", scale like it, and the theorems do not cover them.

    >>> optimizer_kind("RMSprop").rule, optimizer_kind("LBFGS").rule
    ('square_root', None)
    """
    if name is None:
        return _KINDS["SGD"]
    variant_of_sgd = replace(_KINDS["SGD"], covered=False)
    return _KINDS.get(name, variant_of_sgd if name.startswith("SGD") else OptimizerKind("unknown", None))


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
