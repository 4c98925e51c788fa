"""What the ratio N/G rules out: closeness of two equilibria, the bounds on κ, and when an SDE must fail.

- C-closeness of two equilibria, and (C,κ)-linear-scaling invariance (def:c_close, def:app_lsi, def:lsi).
- How far the batch can grow before the linear scaling rule must fail (thm:lsr_kappa_bound, thm:lsr_condition). This
  bound is a point of the curve in `svag.theory.distortion`.
- When SGD and its SDEs cannot be C-close at equilibrium (thm:eq_sde_sgd, thm:app_1st_2nd_sde).
- The gradient noise scale, the quantity that is commonly reported.
"""

import math
from dataclasses import dataclass

from svag.theory import domain


@dataclass(frozen=True)
class Equilibrium:
    """Expectations at equilibrium of the three test functions of the paper.

    Attributes:
        param_sq: R, the squared norm of the weights.
        grad_sq: G, the squared norm of the full gradient.
        noise_trace: N = Tr Σ of one batch gradient, at the batch size of the run. For an SDE, Tr(ηΣ)/η.
    """

    param_sq: float
    grad_sq: float
    noise_trace: float

    def __post_init__(self) -> None:
        domain.positive("param_sq", self.param_sq)
        domain.positive("grad_sq", self.grad_sq)
        domain.positive("noise_trace", self.noise_trace)

    @property
    def noise_to_signal(self) -> float:
        """ρ = N/G."""
        return self.noise_trace / self.grad_sq


def smallest_c2(one: Equilibrium, other: Equilibrium) -> float:
    """Square of the smallest C for which two equilibria with the same η and B are C-close (def:c_close).

    >>> smallest_c2(Equilibrium(2.0, 1.0, 1.0), Equilibrium(1.0, 1.0, 1.5))
    4.0
    """
    return smallest_lsi_c2(one, other, kappa=1.0)


def smallest_lsi_c2(base: Equilibrium, scaled: Equilibrium, kappa: float) -> float:
    """Square of the smallest C such that R, κN and G of a run and of its κ-fold scaling are within C (def:lsi).

    >>> smallest_lsi_c2(Equilibrium(1.0, 1.0, 8.0), Equilibrium(1.0, 1.0, 1.0), kappa=8.0)
    1.0
    """
    kappa = domain.scale_up(kappa)
    ratios = (
        base.param_sq / scaled.param_sq,
        base.grad_sq / scaled.grad_sq,
        base.noise_trace / (kappa * scaled.noise_trace),
    )
    return max(max(ratio, 1 / ratio) for ratio in ratios) ** 2


def is_lsi(base: Equilibrium, scaled: Equilibrium, kappa: float, c2: float = 2.0) -> bool:
    """Whether a run and its κ-fold scaling show (C,κ)-linear-scaling invariance; needs 1 < C² < κ (def:lsi).

    >>> is_lsi(Equilibrium(1.0, 1.0, 8.0), Equilibrium(1.2, 1.3, 1.0), kappa=8.0)
    True
    """
    if domain.closeness(c2) >= kappa:
        raise ValueError(f"(C,κ)-invariance is defined for C² < κ, got c2={c2} and kappa={kappa}")
    return smallest_lsi_c2(base, scaled, kappa) <= c2


def max_kappa(noise_to_signal: float, c2: float = 2.0, lr_wd: float = 0.0) -> float:
    r"""Largest factor κ on batch and learning rate that (C,κ)-linear-scaling invariance still allows.

    $$\kappa = \frac{2C^2(1+\rho) - \rho(2-\eta\lambda)}{(2-\eta\lambda) + C^2(1+\rho)\eta\lambda}
      \;\xrightarrow{\eta\lambda\to0}\; C^2 + (C^2-1)\rho$$

    where ρ = N/G is the argument `noise_to_signal`, C² is `c2` and ηλ is `lr_wd`, all of the baseline run at its own
    batch size. It is where `svag.theory.distortion` reaches C². A larger κ is refuted; a smaller one is not
    certified.

    >>> max_kappa(10.0)
    12.0
    >>> round(max_kappa(100.0, lr_wd=4e-4), 1)
    98.1

    Reference: Li, Malladi, Arora (2021), thm:lsr_kappa_bound. This is sharper than the printed C²(1+ρ), because it
    keeps the N that the last line of their proof drops.
    """
    rho, c2, x = domain.noise_to_signal(noise_to_signal), domain.closeness(c2), domain.decay_per_step(lr_wd)
    if math.isinf(rho):
        return math.inf if x == 0 else (2 * c2 - (2 - x)) / (c2 * x)
    return (2 * c2 * (1 + rho) - rho * (2 - x)) / ((2 - x) + c2 * (1 + rho) * x)


def critical_batch_size(batch_size: float, noise_to_signal: float, c2: float = 2.0, lr_wd: float = 0.0) -> float:
    """Batch size B* = κB beyond which training statistics must change by more than a factor of C².

    The batch is scaled from `batch_size` by the linear rule; κ is `max_kappa`, and `noise_to_signal` is N/G at
    `batch_size`.

    >>> critical_batch_size(128, 10.0)  # C²B + (C² − 1) B_simple
    1536.0
    """
    return domain.positive("batch_size", batch_size) * max_kappa(noise_to_signal, c2, lr_wd)


def large_run_threshold(kappa: float, c2: float = 2.0) -> float:
    """N/G of a run at κ times the batch below which that run is not linear-scaling invariant (thm:lsr_condition).

    It needs no baseline: (1 − 1/κ)/(C² − 1) − 1/κ. It is not positive, and so never fires, for κ ≤ C².

    >>> large_run_threshold(2.0), large_run_threshold(16.0)
    (0.0, 0.875)
    """
    kappa, c2 = domain.scale_up(kappa), domain.closeness(c2)
    return (1 - 1 / kappa) / (c2 - 1) - 1 / kappa


def large_run_refutes(noise_to_signal: float, kappa: float, c2: float = 2.0) -> bool:
    """Whether N/G of a run at κ times the batch alone refutes (C,κ)-linear-scaling invariance (thm:lsr_condition).

    It needs no baseline run. Valid at the equilibrium of a scale-invariant network with weight decay.

    >>> large_run_refutes(0.5, kappa=16.0), large_run_refutes(1.0, kappa=16.0)
    (True, False)
    """
    return domain.noise_to_signal(noise_to_signal) < large_run_threshold(kappa, c2)


def sde_threshold(c2: float = 2.0) -> float:
    """N/G of an SGD run below which its SDE cannot be C-close: 1/(C² − 1) (thm:eq_sde_sgd, ii).

    >>> sde_threshold(2.0), sde_threshold(3.0)
    (1.0, 0.5)
    """
    return 1 / (domain.closeness(c2) - 1)


def sgd_refutes_sde(noise_to_signal: float, c2: float = 2.0) -> bool:
    """Whether N/G of the SGD run is below 1/(C² − 1), so that its SDE cannot be C-close (thm:eq_sde_sgd, ii).

    It needs no run of the SDE. Valid at the equilibrium of a scale-invariant network with weight decay.

    >>> sgd_refutes_sde(0.9), sgd_refutes_sde(1.0)
    (True, False)
    """
    return domain.noise_to_signal(noise_to_signal) < sde_threshold(c2)


def max_lr_of_sde(sde_noise_to_signal: float, c2: float = 2.0) -> float:
    """Learning rate above which SGD cannot be C-close to the SDE: (C² − 1) N̄/Ḡ (thm:eq_sde_sgd, i).

    `sde_noise_to_signal` is N̄/Ḡ with N̄ = Tr(ηΣ): it contains the learning rate and is not N/G.

    >>> max_lr_of_sde(0.4)
    0.4
    """
    return (domain.closeness(c2) - 1) * domain.noise_to_signal(sde_noise_to_signal)


def max_lr_of_second_order_sde(sde_noise_to_signal: float, c2: float = 2.0, lr_wd: float = 0.0) -> float:
    """Learning rate above which the 1st- and the 2nd-order SDE are not C-close: (N̄/Ḡ)(C²(1 + ηλ/2) − 1).

    It holds for N̄/Ḡ of either SDE (thm:app_1st_2nd_sde): use the smaller one.

    >>> max_lr_of_second_order_sde(0.5, lr_wd=0.5)
    0.75
    """
    lr_wd = domain.decay_per_step(lr_wd)
    return domain.noise_to_signal(sde_noise_to_signal) * (domain.closeness(c2) * (1 + lr_wd / 2) - 1)


def b_simple(batch_size: float, noise_to_signal: float, population: int | None = None) -> float:
    """Gradient noise scale of McCandlish et al.: B_simple = B·N/G with N the with-replacement trace.

    When N was measured on batches drawn without replacement, give the number of examples as `population`: the trace
    is then divided by 1 − B/n.

    >>> b_simple(128, 10.0)
    1280.0
    >>> b_simple(100, 10.0, population=1000)
    1111.111111111111
    """
    scale = domain.positive("batch_size", batch_size) * domain.noise_to_signal(noise_to_signal)
    if population is None:
        return scale
    domain.population(population, batch_size)
    return scale / (1 - batch_size / population)
