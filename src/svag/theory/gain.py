r"""The gain rule: the learning rate at which a larger batch costs what the distortion says (ours; after AdaScale).

D(κ) = (κ + ρ)/(1 + ρ) is the factor in examples when the learning rate is multiplied by the *gain* κ/D, not by κ. At
any weights where G and the noise of one example are unchanged, one step at m·η with m = κ/D has the drift of m steps of
the smaller batch and their mean square: m(G + N/κ) = G + N. So one step counts as m baseline steps. The diffusion of
the path falls D-fold.

**Theorem** (`svag verify ours:gain_rule`). Two runs of SGD, (B, η) and (κB, mη), each with stationary |x|². With
ρ = N/G of the smaller run and the ratios, larger run over smaller, g = G′/G and n = κN′/N,

$$\frac{R'}{R} = \mu A, \qquad \mu = \frac{mD}{\kappa}\cdot\frac{2-\eta\lambda}{2-m\eta\lambda}, \qquad
  A = \frac{\kappa g+\rho n}{\kappa+\rho}$$

for a scale-invariant loss with coupled weight decay. A lies between g and n, so R, G and κN drift apart by at least
max(μ, 1/μ). Only at the rate m* where μ = 1, which is κ/D up to ηλ, is there no such bound; that R, G and κN stay as
they were is possible there, and not implied: they drift apart by B_simple′/B_simple = n/g, or its inverse. m = κ is the
bound of `svag.theory.distortion` on the linear rule.

A stationary quadratic shows the limits of this. In one dimension 1 + ρ, which the gain never exceeds, is the largest
stable factor on the rate, and κ/D keeps E x² at any κ. With several curvatures 1 + ρ lies beyond that limit: beyond
some κ, a gain planned from the smaller batch's N/G makes the steepest direction diverge, which only a gain measured
during the run notices.

Three processes share the formulas, each with its own arguments:

- any loss: the pull T of `svag.theory.equilibrium.pull`, formed with each run's own rate, takes the place of R, without
  the factor in ηλ (`lr_wd=0`);
- momentum: R stays, X of `svag.theory.equilibrium.momentum_signal` takes the place of G, and N/X that of ρ, with
  `lr_wd=0`. So the bound vanishes at κ/D of N/X. The gain rule uses the plain N/G there, which is right about data and
  makes R, X and κN drift apart by at least the ratio of the two distortions;
- Adam and its kin with the rate √m·η: the sum V of the second moments takes the place of R as m·V′/V, with `lr_wd=0`.
"""

import math
from dataclasses import dataclass
from typing import get_args

from svag.printed import Printed
from svag.theory import domain
from svag.theory.adaptive import SquareRootFactors
from svag.theory.optimizers import Rule


def gain(noise_to_signal: float, kappa: float) -> float:
    r"""Factor on the learning rate at κ times the batch: how many steps of the smaller batch one step is worth.

    $$\text{gain} = \frac{\kappa}{D} = \frac{\kappa(1+\rho)}{\kappa+\rho}$$

    where ρ = N/G of the smaller batch is the argument `noise_to_signal` and κ is `kappa`, which may be below 1. The
    price in examples is κ over the gain. The gain lies between 1 and κ and never exceeds 1 + ρ.

    >>> gain(8.0, 4.0)  # 4·9/12
    3.0
    >>> gain(0.0, 4.0), gain(float("inf"), 4.0)  # no noise: a larger batch gains nothing; nothing but noise: κ
    (1.0, 4.0)
    >>> gain(8.0, 0.5)
    0.5294117647058824

    Reference: Johnson et al. (2020, AdaScale), whose gain this is; McCandlish et al. (2018).
    """
    rho, kappa = domain.noise_to_signal(noise_to_signal), domain.positive("kappa", kappa)
    if math.isinf(rho):
        return kappa
    return kappa * (1 + rho) / (kappa + rho)


@dataclass(frozen=True)
class Factors(Printed):
    """Factors on the settings of an optimizer; settings without a factor stay as they are.

    Momentum, betas and coupled weight decay are never multiplied.

    Attributes:
        lr: factor on the learning rate.
        weight_decay: factor on the weight decay.
        eps: factor on eps.

    >>> Factors.at(4.0, "linear")
    Factors(lr=4.0, weight_decay=1.0, eps=1.0)
    >>> print(Factors.at(4.0, "square_root", decoupled=True))
    lr × 2, weight decay × 2, eps × 0.5
    """

    lr: float
    weight_decay: float = 1.0
    eps: float = 1.0

    @classmethod
    def at(cls, gain: float, rule: Rule, decoupled: bool = False) -> "Factors":
        """Return the factors for a gain, by the rule of the optimizer.

        - "linear" (SGD): the learning rate times the gain.
        - "square_root" (Adam and its kin): learning rate and decoupled weight decay times √gain, eps over √gain.

        `decoupled` says whether the weight decay is decoupled from the gradient, as in AdamW. A coupled one is part of
        the gradient and stays as it is.

        >>> Factors.at(4.0, "square_root")
        Factors(lr=2.0, weight_decay=1.0, eps=0.5)
        """
        gain = domain.positive("gain", gain)
        domain.one_of("rule", rule, get_args(Rule))
        if rule == "linear":
            return cls(lr=gain)
        root = SquareRootFactors.at(gain)
        return cls(lr=root.lr, weight_decay=root.decoupled_decay if decoupled else 1.0, eps=root.eps)

    def __str__(self) -> str:
        named = {"weight decay": self.weight_decay, "eps": self.eps}
        said = [f"{name} × {factor:.3g}" for name, factor in named.items() if factor != 1]
        return ", ".join([f"lr × {self.lr:.3g}", *said])


@dataclass(frozen=True)
class GainScaling(Printed):
    """Hyperparameters at `kappa` times the batch by the gain rule, and what they cost.

    Attributes:
        kappa: factor on the batch size.
        gain: how many steps of the smaller batch one step is worth.
        examples: how many times as many examples the same training takes: κ/gain.
        steps: factor on every number of steps in the schedule: 1/gain.
        lr: learning rate.
        batch_size: batch size.
        weight_decay: weight decay.
        eps: eps, or None where none was given.
    """

    kappa: float
    gain: float
    examples: float
    steps: float
    lr: float
    batch_size: int
    weight_decay: float
    eps: float | None

    def __str__(self) -> str:
        settings = [f"lr {self.lr:.3g}"]
        settings += [f"weight decay {self.weight_decay:.3g}"] if self.weight_decay else []
        settings += [] if self.eps is None else [f"eps {self.eps:.3g}"]
        cost = f"{self.examples:.3g}× the examples in {self.steps:.3g}× the steps"
        return f"Batch {self.batch_size}: {', '.join(settings)}; {cost}."


def gain_scaling(
    noise_to_signal: float,
    kappa: float,
    *,
    lr: float,
    batch_size: int,
    weight_decay: float = 0.0,
    eps: float | None = None,
    rule: Rule = "linear",
    decoupled: bool = False,
) -> GainScaling:
    """Gain rule: κ times the batch, the optimizer's own scaling rule at κ/D instead of κ, D times the examples.

    SGD (`rule="linear"`) takes κ/D times the learning rate and keeps momentum and weight decay. Adam and its kin
    (`rule="square_root"`) take √(κ/D) times the learning rate, eps over √(κ/D) and, if `decoupled`, √(κ/D) times the
    weight decay; betas are kept.

    >>> print(gain_scaling(8.0, 4, lr=0.125, batch_size=128, weight_decay=5e-4))
    Batch 512: lr 0.375, weight decay 0.0005; 1.33× the examples in 0.333× the steps.
    >>> gain_scaling(8.0, 16, lr=0.5, batch_size=8, eps=1e-8, rule="square_root").lr  # 0.5·√6
    1.224744871391589

    `noise_to_signal` is N/G at `batch_size`. A gain for which weight decay alone makes the weights diverge is refused.
    """
    made = gain(noise_to_signal, kappa)
    batch = domain.scaled_batch(kappa, batch_size)
    factors = Factors.at(made, rule, decoupled)
    rate = domain.positive("gain × lr", domain.positive("lr", lr) * factors.lr)
    decay = domain.non_negative("weight_decay", weight_decay) * factors.weight_decay
    # coupled decay of an adaptive optimizer is divided by √v, so ηλ alone is not a decay rate
    if (rule == "linear" or decoupled) and rate * decay >= 2:
        raise ValueError(f"gain × lr × weight_decay must stay below 2, got {rate * decay}: weight decay would diverge")
    softening = None if eps is None else domain.non_negative("eps", eps) * factors.eps
    return GainScaling(float(kappa), made, kappa / made, 1 / made, rate, batch, decay, softening)


def balanced_gain(noise_to_signal: float, kappa: float, lr_wd: float = 0.0) -> float:
    r"""Return m*, the only factor on the learning rate at which R, G and κN may all stay as they were.

    $$m^* = \frac{2\kappa}{D(2-\eta\lambda)+\kappa\eta\lambda}$$

    where ηλ of the smaller run is the argument `lr_wd`. It is the `gain` for ηλ = 0.

    >>> balanced_gain(8.0, 4.0), balanced_gain(8.0, 4.0, lr_wd=0.5)  # 8/(4/3·1.5 + 2)
    (3.0, 2.0)
    """
    x = domain.decay_per_step(lr_wd)
    return 2 / ((2 - x) / gain(noise_to_signal, kappa) + x)


def rate_excess(noise_to_signal: float, kappa: float, rate_factor: float, lr_wd: float = 0.0) -> float:
    r"""Return μ, by how much a rate is too large to leave R, G and κN as they were: 1 at `balanced_gain`.

    $$\mu = \frac{mD}{\kappa}\cdot\frac{2-\eta\lambda}{2-m\eta\lambda}$$

    where m is the argument `rate_factor` and ηλ of the smaller run is `lr_wd`. Leave `lr_wd` at 0 for T of any loss,
    for momentum and for Adam. It is infinite from mηλ = 2 on.

    >>> rate_excess(8.0, 4.0, rate_factor=4.0)  # the linear rule: D
    1.3333333333333333
    >>> rate_excess(8.0, 4.0, rate_factor=2.0, lr_wd=0.5)  # 2/3·1.5/1
    1.0
    """
    m, x = domain.positive("rate_factor", rate_factor), domain.decay_per_step(lr_wd)
    if m * x >= 2:
        return math.inf
    return m / gain(noise_to_signal, kappa) * (2 - x) / (2 - m * x)


def norm_ratio(
    noise_to_signal: float,
    kappa: float,
    rate_factor: float,
    *,
    grad_ratio: float,
    noise_ratio: float,
    lr_wd: float = 0.0,
) -> float:
    r"""Return R′/R = μA of two stationary runs, (B, η) and (κB, mη).

    $$A = \frac{\kappa g+\rho n}{\kappa+\rho}$$

    where g = G′/G is the argument `grad_ratio`, n = κN′/N is `noise_ratio`, and μ is `rate_excess`. With `lr_wd=0` it
    is T′/T of any loss; with N/X and X′/X it is R′/R of runs with momentum; for Adam at √m times the rate, mV′/V.

    >>> norm_ratio(8.0, 4.0, 3.0, grad_ratio=1.0, noise_ratio=1.0)  # the gain rule keeps R where G and κN are kept
    1.0
    >>> norm_ratio(8.0, 4.0, 4.0, grad_ratio=1.5, noise_ratio=0.75)  # 4/3·(6 + 6)/12
    1.3333333333333333
    """
    rho, g, n = (
        float(noise_to_signal),
        domain.positive("grad_ratio", grad_ratio),
        domain.positive("noise_ratio", noise_ratio),
    )
    mu = rate_excess(noise_to_signal, kappa, rate_factor, lr_wd)
    return mu * (n if math.isinf(rho) else (kappa * g + rho * n) / (kappa + rho))


def least_spread(noise_to_signal: float, kappa: float, rate_factor: float, lr_wd: float = 0.0) -> float:
    """Return max(μ, 1/μ), the least factor by which R, G and κN drift apart at κ times the batch and m times the rate.

    The arguments are those of `rate_excess`. At m = κ it is `svag.theory.distortion`.

    >>> least_spread(8.0, 4.0, 4.0), least_spread(8.0, 4.0, 3.0), least_spread(8.0, 4.0, 1.5)
    (1.3333333333333333, 1.0, 2.0)

    With momentum the gain of the plain N/G = 8 where N/X = 80 moves them apart by the ratio of the distortions:

    >>> round(least_spread(80.0, 4.0, gain(8.0, 4.0)), 4)  # (12/9)/(84/81)
    1.2857
    """
    mu = rate_excess(noise_to_signal, kappa, rate_factor, lr_wd)
    return max(mu, 1 / mu)
