"""How an optimizer's settings change: with the batch size, and when one step becomes l steps of SVAG.

How hyperparameters change with the batch: the linear rule (def:lsr) and the square-root rule.

How the settings of SGD change when one of its steps becomes l steps of SVAG (eq:svag_iter; momentum is ours).
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from svag.theory import domain


@dataclass(frozen=True)
class LinearScaling:
    """Hyperparameters of SGD at `kappa` times the batch."""

    kappa: float
    lr: float
    batch_size: int
    weight_decay: float


@dataclass(frozen=True)
class SquareRootScaling:
    """Hyperparameters of Adam at `kappa` times the batch."""

    kappa: float
    lr: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float


def linear_scaling(kappa: float, *, lr: float, batch_size: int, weight_decay: float = 0.0) -> LinearScaling:
    """Linear scaling rule for SGD: κ times the batch, κ times the learning rate, the same weight decay (def:lsr).

    >>> linear_scaling(4, lr=0.125, batch_size=128, weight_decay=5e-4)
    LinearScaling(kappa=4.0, lr=0.5, batch_size=512, weight_decay=0.0005)

    κ below 1 scales down. Beyond κηλ = 2 the weights diverge from weight decay alone, which is refused.
    """
    kappa = domain.positive("kappa", kappa)
    lr, weight_decay = domain.positive("lr", lr), domain.non_negative("weight_decay", weight_decay)
    batch = kappa * domain.whole("batch_size", batch_size)
    if round(batch) < 1 or not math.isclose(batch, round(batch), rel_tol=1e-9):
        raise ValueError(f"kappa × batch_size must be a whole number, got {kappa} × {batch_size} = {batch}")
    if kappa * lr * weight_decay >= 2:
        raise ValueError(
            f"kappa × lr × weight_decay must stay below 2, got {kappa * lr * weight_decay}: weight decay would diverge"
        )
    return LinearScaling(kappa, kappa * lr, round(batch), weight_decay)


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
    root = math.sqrt(kappa)
    return SquareRootScaling(
        kappa,
        domain.positive("lr", lr) * root,
        (_scaled_beta("betas[0]", betas[0], kappa), _scaled_beta("betas[1]", betas[1], kappa)),
        domain.non_negative("eps", eps) / root,
        domain.non_negative("weight_decay", weight_decay) * root,
    )


def _scaled_beta(name: str, beta: float, kappa: float) -> float:
    if not 0 <= domain.finite(name, beta) < 1:
        raise ValueError(f"{name} must lie in [0, 1), got {beta}")
    forget = kappa * (1 - beta)
    if forget > 1 - 1e-12:  # 10 × (1 − 0.9) is just below 1 in floating point
        raise ValueError(f"kappa × (1 − {name}) must stay below 1, got {kappa} × {1 - beta:.4g}: scale by less")
    return 1 - forget


MomentumLimit = Literal["underdamped", "overdamped"]


@dataclass(frozen=True)
class RefinedSGD:
    """Settings of torch.optim.SGD for one of the l steps."""

    lr: float
    momentum: float
    dampening: float


def refined_sgd(
    ell: int, *, lr: float, momentum: float = 0.0, momentum_limit: MomentumLimit | None = None
) -> RefinedSGD:
    r"""Settings of one of l steps of SVAG, for SGD with v ← βv + (1 − τ)g, x ← x − ηv.

    $$\text{overdamped: } \eta \to \eta/l, \qquad
      \text{underdamped: } \eta \to \eta/l,\; 1-\beta \to (1-\beta)/l,\; \tau \to 1 - 1/l$$

    where l is the argument `ell`, η is `lr`, β is `momentum` and τ is torch's dampening. The limits are the SDE with
    η/(1 − β), and dV = (−(1 − β)V + ∇L)ds + Σ^½dW, dX = −ηV ds. With τ the buffer v stays in the units it has in SGD;
    without it, it would be l times as large and the rate η/l². Dividing η and 1 − β by l and leaving τ = 0 diverges:
    it cannot be asked for.

    >>> refined_sgd(4, lr=0.5)
    RefinedSGD(lr=0.125, momentum=0.0, dampening=0.0)
    >>> refined_sgd(4, lr=0.5, momentum=0.5, momentum_limit="overdamped")
    RefinedSGD(lr=0.125, momentum=0.5, dampening=0.0)
    >>> refined_sgd(4, lr=0.5, momentum=0.5, momentum_limit="underdamped")
    RefinedSGD(lr=0.125, momentum=0.875, dampening=0.75)
    """
    ell, eta, beta = domain.whole("ell", ell), domain.non_negative("lr", lr), domain.momentum(momentum)
    if momentum_limit is None and beta != 0:
        raise ValueError(
            f"momentum={momentum} has two limits: say momentum_limit='underdamped' (the velocity keeps its own time "
            "scale) or 'overdamped' (the SDE with learning rate lr/(1 − momentum))"
        )
    if momentum_limit is None or momentum_limit == "overdamped":
        return RefinedSGD(lr=eta / ell, momentum=beta, dampening=0.0)
    if momentum_limit != "underdamped":
        raise ValueError(f"momentum_limit must be one of {', '.join(get_args(MomentumLimit))}, got {momentum_limit!r}")
    # β + (1 − β)(1 − 1/l) is 1 − (1 − β)/l, and exactly β at l = 1
    return RefinedSGD(lr=eta / ell, momentum=beta + (1 - beta) * (1 - 1 / ell), dampening=1 - 1 / ell)


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
