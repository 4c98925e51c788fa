r"""Adam, AdamW and RMSprop: their settings, the square-root rule for the batch, and the sub-steps of SVAG.

All three divide by the root of a moving average v of the squared gradient. At κ times the batch the noise of a gradient
is √κ times smaller, and so is √v where noise dominates. The rule that keeps the SDE is therefore

$$\eta \to \eta\sqrt{\kappa}, \quad 1-\beta \to \kappa(1-\beta), \quad \epsilon \to \epsilon/\sqrt{\kappa}, \quad
  \lambda \to \lambda\sqrt{\kappa} \text{ (decoupled)}$$

Coupled L2 stays as it is, because it is part of the gradient, and β₁ = 0 stays 0: without an average of the gradient
there is no time scale to keep. One sub-step of SVAG(l) is the rule at κ = 1/l. Reference: Malladi, Lyu, Panigrahi,
Arora (2022), who write ℓ for √l.
"""

import math
from dataclasses import dataclass, replace
from typing import Self

from svag.printed import Printed
from svag.theory import domain

WHAT_REFINES = (
    "what works is torch.optim.Adam and AdamW with any first beta and a second one above 0, torch.optim.RMSprop with a "
    "warm second moment, float settings, foreach and fused, and several parameter groups"
)


@dataclass(frozen=True)
class SquareRootFactors:
    """Factors of the rule for the learning rate, 1 − β, eps and decoupled weight decay at κ times the batch.

    >>> SquareRootFactors.at(4)
    SquareRootFactors(lr=2.0, forgetting=4.0, eps=0.5, decoupled_decay=2.0)
    """

    lr: float
    forgetting: float
    eps: float
    decoupled_decay: float

    @classmethod
    def at(cls, kappa: float) -> "SquareRootFactors":
        """Return the factors at κ times the batch; κ below 1 scales down."""
        kappa = domain.positive("kappa", kappa)
        root = math.sqrt(kappa)
        return cls(lr=root, forgetting=kappa, eps=1 / root, decoupled_decay=root)

    def rate(self, name: str, beta: float) -> float:
        """Return β with 1 − β multiplied, or refuse a κ that leaves no average: κ(1 − β) ≥ 1."""
        if not 0 <= domain.finite(name, beta) < 1:
            raise ValueError(f"{name} must lie in [0, 1), got {beta}")
        # β − (κ − 1)(1 − β) is 1 − κ(1 − β), and exactly β at κ = 1
        scaled = beta - (self.forgetting - 1) * (1 - beta)
        if scaled < 1e-12 and self.forgetting != 1:  # 10 × (1 − 0.9) is just below 1 in floating point
            raise ValueError(
                f"kappa × (1 − {name}) must stay below 1, got {self.forgetting:.4g} × {1 - beta:.4g}: scale by less"
            )
        return scaled


def step_shortfall(distortion: float) -> float:
    r"""Share by which steps under the square-root rule are too short if v is D times too large.

    $$1 - 1/\sqrt{D}$$

    >>> round(step_shortfall(1.26), 2)
    0.11
    """
    if not distortion >= 1:
        raise ValueError(f"distortion must be at least 1, got {distortion}")
    return 1 - 1 / math.sqrt(distortion)


def distortion_with_eps(distortion: float, eps_to_root: float) -> float:
    r"""Distortion of a coordinate whose ε is not small against √v: ε does not grow with the batch, and so softens D.

    $$D_\epsilon = \left(\frac{\sqrt{D v} + \epsilon}{\sqrt{v} + \epsilon}\right)^2$$

    where D is the argument `distortion` and ε/√v, at the smaller batch, is `eps_to_root`. It tends to 1 for ε ≫ √v.

    >>> distortion_with_eps(4.0, 0.0), distortion_with_eps(4.0, 1.0)
    (4.0, 2.25)
    """
    if not distortion >= 1:
        raise ValueError(f"distortion must be at least 1, got {distortion}")
    ratio = domain.non_negative("eps_to_root", eps_to_root)
    return ((math.sqrt(distortion) + ratio) / (1 + ratio)) ** 2


@dataclass(frozen=True)
class AdamSettings:
    r"""Settings of Adam, or of AdamW if `decoupled`, with torch's conventions.

    $$m \leftarrow \beta_1 m + (1-\beta_1)g, \quad v \leftarrow \beta_2 v + (1-\beta_2)g^2, \quad
      x \leftarrow x - \eta\,\hat m/(\sqrt{\hat v} + \epsilon)$$

    with bias-corrected m̂ and v̂. Coupled weight decay adds λx to g; a decoupled one multiplies x by 1 − ηλ instead.

    >>> AdamSettings(lr=0.001, betas=(0.875, 0.984375), eps=1e-8).scaled(4)
    AdamSettings(lr=0.002, betas=(0.5, 0.9375), eps=5e-09, weight_decay=0.0, decoupled=False, amsgrad=False)
    """

    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False
    amsgrad: bool = False

    @property
    def without_limit(self) -> str:
        """The setting for which no refinement is known, or an empty string.

        >>> AdamSettings(lr=0.001, amsgrad=True).without_limit
        'amsgrad=True'
        """
        # without an average v = g², so only the sign of the gradient remains
        return "amsgrad=True" if self.amsgrad else "betas[1]=0" if self.betas[1] == 0 else ""

    def scaled(self, kappa: float) -> Self:
        """Return the settings at κ times the batch, by the square-root rule; β₁ = 0 stays 0.

        >>> AdamSettings(lr=0.001, betas=(0.0, 0.984375)).scaled(4).betas
        (0.0, 0.9375)
        """
        factors = SquareRootFactors.at(kappa)
        try:
            first, second = self.betas
        except (TypeError, ValueError):
            raise ValueError(f"betas must be two numbers, got {domain.shown(self.betas)}") from None
        decay = domain.non_negative("weight_decay", self.weight_decay)
        return replace(
            self,
            lr=domain.non_negative("lr", self.lr) * factors.lr,
            betas=(
                0.0 if domain.finite("betas[0]", first) == 0 else factors.rate("betas[0]", first),
                factors.rate("betas[1]", second),
            ),
            eps=domain.non_negative("eps", self.eps) * factors.eps,
            weight_decay=decay * factors.decoupled_decay if self.decoupled else decay,
        )

    def refined(self, ell: int) -> Self:
        r"""Return the settings of one of the l sub-steps of SVAG: the rule at κ = 1/l.

        $$\eta/\sqrt{l}, \quad 1-\beta \to (1-\beta)/l, \quad \epsilon\sqrt{l}, \quad
          \lambda/\sqrt{l} \text{ (decoupled)}$$

        where l is the argument `ell`. The gradient's noise is amplified l times, so v is l times as large as in Adam.

        >>> AdamSettings(lr=0.5, betas=(0.5, 0.75), eps=0.125, weight_decay=0.5, decoupled=True).refined(4)
        AdamSettings(lr=0.25, betas=(0.875, 0.9375), eps=0.25, weight_decay=0.25, decoupled=True, amsgrad=False)
        """
        if self.without_limit:
            raise ValueError(f"{self.without_limit} has no limit: {WHAT_REFINES}")
        return self.scaled(1 / domain.whole("ell", ell))


@dataclass(frozen=True)
class RMSpropSettings:
    r"""Settings of RMSprop, with torch's conventions: `alpha` is the rate of the average of the squared gradient.

    $$v \leftarrow \alpha v + (1-\alpha)g^2, \qquad x \leftarrow x - \eta g/(\sqrt{v} + \epsilon)$$

    There is no bias correction, so v begins at 0 and the first steps are long. Weight decay is coupled.

    >>> RMSpropSettings(lr=0.001, alpha=0.984375, eps=1e-8).scaled(4).alpha
    0.9375
    """

    lr: float
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False

    @property
    def without_limit(self) -> str:
        """The setting for which no refinement is known, or an empty string.

        >>> RMSpropSettings(lr=0.001, centered=True).without_limit
        'centered=True'
        """
        if self.momentum:
            return f"momentum={self.momentum}"
        return "centered=True" if self.centered else "alpha=0" if self.alpha == 0 else ""

    def scaled(self, kappa: float) -> Self:
        """Return the settings at κ times the batch, by the square-root rule."""
        factors = SquareRootFactors.at(kappa)
        return replace(
            self,
            lr=domain.non_negative("lr", self.lr) * factors.lr,
            alpha=factors.rate("alpha", self.alpha),
            eps=domain.non_negative("eps", self.eps) * factors.eps,
        )

    def refined(self, ell: int) -> Self:
        """Return the settings of one of the l sub-steps of SVAG: the rule at κ = 1/l.

        >>> RMSpropSettings(lr=0.5, alpha=0.75, eps=0.125).refined(4).alpha
        0.9375
        """
        if self.without_limit:
            raise ValueError(f"{self.without_limit} has no limit: {WHAT_REFINES}")
        return self.scaled(1 / domain.whole("ell", ell))


@dataclass(frozen=True)
class SquareRootScaling(Printed):
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
    as it is, and so does β₁ = 0. Reference: Malladi, Lyu, Panigrahi, Arora (2022).
    """
    kappa = domain.positive("kappa", kappa)
    adamw = AdamSettings(domain.positive("lr", lr), betas, eps, weight_decay, decoupled=True).scaled(kappa)
    return SquareRootScaling(kappa, adamw.lr, adamw.betas, adamw.eps, adamw.weight_decay)
