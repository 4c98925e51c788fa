"""The certificates for SGD with momentum, where G alone no longer decides (ours; see thm:eq_sde_sgd for β = 0)."""

from svag.theory import domain


def effective_lr(lr: float, momentum: float) -> float:
    """Learning rate of the SDE that SGD with momentum approximates: η/(1 − β).

    >>> round(effective_lr(0.1, momentum=0.9), 12)
    1.0
    """
    return domain.positive("lr", lr) / (1 - domain.momentum(momentum))


def momentum_excess(
    param_sq: float, noise_trace: float, *, lr: float, weight_decay: float, momentum: float = 0.0
) -> float:
    """Return D = 2λR / (η_eff N): how far the weights outgrow what the SDE's equilibrium allows.

    The SDE has D = 1. D > C² means that SGD and the SDE are not C-close; no G is needed.

    >>> round(momentum_excess(8.0, 1.0, lr=0.1, weight_decay=0.125, momentum=0.5), 12)
    10.0
    """
    decay = 2 * domain.positive("weight_decay", weight_decay) * domain.positive("param_sq", param_sq)
    return decay / (effective_lr(lr, momentum) * domain.positive("noise_trace", noise_trace))


def effective_noise_to_signal(excess: float) -> float:
    """ρ_eff = 1/(D − 1), which takes the place of N/G in `max_kappa` for a run with momentum.

    It is N/X with X = (1 − β²)E|v|² − N, v the velocity buffer; for β = 0, X is G up to a term in ηλ.

    >>> effective_noise_to_signal(1.25)
    4.0
    """
    if domain.finite("excess", excess) <= 1:
        raise ValueError(
            f"D = 2λR/(η_eff N) must exceed 1 to bound the scaling, got {excess}: no signal beside the noise"
        )
    return 1 / (excess - 1)
