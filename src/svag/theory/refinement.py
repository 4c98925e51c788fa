"""How the settings of SGD change when one of its steps becomes l steps of SVAG (eq:svag_iter; momentum is ours)."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from svag.theory import domain

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
