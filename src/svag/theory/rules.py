"""How hyperparameters change with the batch: the linear rule (def:lsr) and the square-root rule."""

import math
from dataclasses import dataclass

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
