r"""The gain rule: the learning rate at κ times the batch that the price D belongs to.

At unchanged G and κN the rate m·η with m = κ/D keeps the drift and the mean square step per baseline time:
m(G + N/κ) = G + N.
"""

import math
from dataclasses import dataclass
from typing import Literal

from svag.theory import domain

GainScalingRule = Literal["linear", "square_root"]


def gain(noise_to_signal: float, kappa: float) -> float:
    r"""Baseline steps that one step at κ times the batch is worth.

    $$\frac{\kappa}{D} = \frac{\kappa(1+\rho)}{\kappa+\rho}$$

    where ρ is the argument `noise_to_signal` and κ is `kappa`. It lies between 1 (no noise) and κ (only noise).

    >>> gain(8.0, 4.0)  # 4·9/12
    3.0
    >>> gain(0.0, 4.0), gain(math.inf, 4.0)
    (1.0, 4.0)
    """
    rho, kappa = domain.noise_to_signal(noise_to_signal), domain.positive("kappa", kappa)
    return kappa if math.isinf(rho) else kappa * (1 + rho) / (kappa + rho)


@dataclass(frozen=True)
class Factors:
    """What the gain rule multiplies the settings of the baseline by.

    >>> Factors.at(4.0, "square_root", decoupled=True)
    Factors(lr=2.0, weight_decay=2.0, eps=0.5)

    Attributes:
        lr: factor of the learning rate.
        weight_decay: factor of the weight decay; 1 where it is coupled to the gradient.
        eps: factor of eps of Adam and its kin; 1 for SGD.
    """

    lr: float
    weight_decay: float = 1.0
    eps: float = 1.0

    @classmethod
    def at(cls, gain: float, rule: GainScalingRule, decoupled: bool = False) -> "Factors":
        """Return the factors of one gain, for SGD ("linear") or for Adam and its kin ("square_root")."""
        gain = domain.positive("gain", gain)
        domain.one_of("rule", rule, ("linear", "square_root"))
        if rule == "linear":
            return cls(lr=gain)
        root = math.sqrt(gain)
        return cls(lr=root, weight_decay=root if decoupled else 1.0, eps=1 / root)
