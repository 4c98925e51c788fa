r"""Distortion: the bound on linear scaling as a curve over batch sizes (around thm:lsr_kappa_bound; ours).

Two runs along the linear rule, (B, η) and (κB, κη), are compared by averages over the same window of time. With
ρ = N/G of the smaller run and the ratios, larger run over smaller,

$$g = \frac{G'}{G},\qquad n = \frac{\kappa N'}{N},\qquad
  q = \frac{\kappa(G'+N')}{G+N} = \frac{\kappa g+\rho n}{1+\rho},$$

it is plain algebra that the largest of q, g and n is at least D(κ) = (κ + ρ)/(1 + ρ) times the smallest. That becomes
a statement about training where q is decided by the law of the weights:

- scale-invariant loss, coupled weight decay, equilibrium: q = r(2 − κηλ)/(2 − ηλ) with r = R′/R, so that R, G and κN
  drift apart by at least D·(2 − ηλ)/(2 − κηλ); the theorem of the paper is where that exceeds C²;
- any loss, stationary |x|², T > 0: q = T′/T with the pull T of `svag.theory.equilibrium.pull`, so that T, G and κN
  drift apart by at least D.

Adam and its kin divide by the root of v, whose sum V settles at G + N up to the lag of its average, so that q = κV′/V.
By the square-root rule, which presumes κV′ = V, D is then how much larger the second moment comes out at unchanged G
and κN, and C-closeness names V, G and κN. That is exact where v follows the squared gradient (`svag verify
ours:square_root_rule`), and an estimate on networks.

Elsewhere, for example on a quadratic far from its minimum, D says nothing about how far the two runs differ. It is then
the noise-scale estimate of McCandlish et al. and of AdaScale: (κB + B_simple)/(B + B_simple), and κ over the gain.
"""

import math

from svag.theory import domain


def distortion(noise_to_signal: float, kappa: float, lr_wd: float = 0.0) -> float:
    r"""Least factor by which statistics of training drift apart at κ times the batch and the learning rate.

    $$D(\kappa) = \frac{\kappa+\rho}{1+\rho}\cdot\frac{2-\eta\lambda}{2-\kappa\eta\lambda}$$

    where κ is the argument `kappa`, ρ = N/G of the smaller run is `noise_to_signal` and ηλ is `lr_wd`. Give `lr_wd` for
    R, G and κN of a scale-invariant network at equilibrium; leave it 0 otherwise. D reaches C² at
    `svag.theory.max_kappa`. It is infinite from κηλ = 2 on, where weight decay alone makes the weights diverge.

    >>> distortion(8.0, 4.0)  # (4 + 8)/(1 + 8)
    1.3333333333333333
    >>> distortion(0.0, 4.0)  # no noise: the whole factor
    4.0
    >>> distortion(10.0, 12.0)  # max_kappa(10.0) is 12: D = C² = 2
    2.0

    Reference: Li, Malladi, Arora (2021), thm:lsr_kappa_bound, read as a curve; McCandlish et al. (2018) and Johnson et
    al. (2020, AdaScale) have the same number as a heuristic.
    """
    rho, kappa, x = domain.noise_to_signal(noise_to_signal), domain.scale_up(kappa), domain.decay_per_step(lr_wd)
    if kappa * x >= 2:
        return math.inf
    growth = 1.0 if math.isinf(rho) else (kappa + rho) / (1 + rho)
    return growth * (2 - x) / (2 - kappa * x)


def step_ratio(noise_to_signal: float, kappa: float, grad_ratio: float, noise_ratio: float) -> float:
    """Return q = κ(G′ + N′)/(G + N) = (κg + ρn)/(1 + ρ): by how much E|ĝ|² per example seen has changed.

    `grad_ratio` is g = G′/G and `noise_ratio` is n = κN′/N, larger run over smaller; ρ is that of the smaller one.

    >>> step_ratio(8.0, 4.0, grad_ratio=1.0, noise_ratio=1.0) == distortion(8.0, 4.0)
    True
    """
    rho = domain.noise_to_signal(noise_to_signal)
    g, n = domain.positive("grad_ratio", grad_ratio), domain.positive("noise_ratio", noise_ratio)
    return (domain.scale_up(kappa) * g + rho * n) / (1 + rho)


def spread(*ratios: float) -> float:
    """Largest over smallest of some positive ratios: how far two runs have drifted apart.

    >>> spread(0.5, 1.0, 2.0)
    4.0
    """
    checked = [domain.positive("ratio", ratio) for ratio in ratios]
    return max(checked) / min(checked)
