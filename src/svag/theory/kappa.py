"""How far the batch can grow before the linear scaling rule must fail (thm:lsr_kappa_bound, thm:lsr_condition)."""

import math
from typing import Literal, get_args

from svag.theory import domain

Form = Literal["sharp", "printed", "plotted"]


def max_kappa(noise_to_signal: float, c2: float = 2.0, form: Form = "sharp", lr_wd: float = 0.0) -> float:
    r"""Largest factor κ on batch and learning rate that (C,κ)-linear-scaling invariance still allows.

    $$\kappa_{\text{sharp}} = \frac{2C^2(1+\rho) - \rho(2-\eta\lambda)}{(2-\eta\lambda) + C^2(1+\rho)\eta\lambda}
      \;\xrightarrow{\eta\lambda\to0}\; C^2 + (C^2-1)\rho$$

    where ρ = N/G is the argument `noise_to_signal`, C² is `c2` and ηλ is `lr_wd`, all of the baseline run at its own
    batch size. The paper prints C²(1+ρ) and draws C²ρ in its figures; neither depends on ηλ. A larger κ is refuted; a
    smaller one is not thereby certified.

    >>> max_kappa(10.0)
    12.0
    >>> max_kappa(10.0, form="printed"), max_kappa(10.0, form="plotted")
    (22.0, 20.0)
    >>> round(max_kappa(100.0, lr_wd=4e-4), 1)
    98.1

    Reference: Li, Malladi, Arora (2021), thm:lsr_kappa_bound; the sharp form keeps the N that the last line of their
    proof drops.
    """
    rho, c2, x = domain.noise_to_signal(noise_to_signal), domain.closeness(c2), domain.decay_per_step(lr_wd)
    if form == "printed":
        return c2 * (1 + rho)
    if form == "plotted":
        return c2 * rho
    if form != "sharp":
        raise ValueError(f"form must be one of {', '.join(get_args(Form))}, got {form!r}")
    if math.isinf(rho):
        return math.inf if x == 0 else (2 * c2 - (2 - x)) / (c2 * x)
    return (2 * c2 * (1 + rho) - rho * (2 - x)) / ((2 - x) + c2 * (1 + rho) * x)


def critical_batch_size(
    batch_size: float, noise_to_signal: float, c2: float = 2.0, form: Form = "sharp", lr_wd: float = 0.0
) -> float:
    """Batch size B* = κB beyond which the linear scaling rule cannot hold, from a run at `batch_size`.

    κ is `max_kappa`, and `noise_to_signal` is N/G at that same `batch_size`.

    >>> critical_batch_size(128, 10.0)  # C²B + (C² − 1) B_simple
    1536.0
    """
    return domain.positive("batch_size", batch_size) * max_kappa(noise_to_signal, c2, form, lr_wd)


def large_run_threshold(kappa: float, c2: float = 2.0) -> float:
    """N/G of a run at κ times the batch below which that run is not linear-scaling invariant (thm:lsr_condition).

    It needs no baseline: (1 − 1/κ)/(C² − 1) − 1/κ. It is not positive, and so never fires, for κ ≤ C².

    >>> large_run_threshold(2.0), large_run_threshold(16.0)
    (0.0, 0.875)
    """
    kappa, c2 = domain.scale_up(kappa), domain.closeness(c2)
    return (1 - 1 / kappa) / (c2 - 1) - 1 / kappa


def large_run_refutes(noise_to_signal: float, kappa: float, c2: float = 2.0) -> bool:
    """Whether N/G of the run at κ times the batch, alone, refutes (C,κ)-linear-scaling invariance (thm:lsr_condition).

    >>> large_run_refutes(0.5, kappa=16.0), large_run_refutes(1.0, kappa=16.0)
    (True, False)
    """
    return domain.noise_to_signal(noise_to_signal) < large_run_threshold(kappa, c2)
