"""When SGD and its SDEs cannot be C-close at equilibrium (thm:eq_sde_sgd, thm:app_1st_2nd_sde)."""

from svag.theory import domain


def sde_threshold(c2: float = 2.0) -> float:
    """N/G of an SGD run below which its SDE cannot be C-close: 1/(C² − 1) (thm:eq_sde_sgd, ii).

    >>> sde_threshold(2.0), sde_threshold(3.0)
    (1.0, 0.5)
    """
    return 1 / (domain.closeness(c2) - 1)


def sgd_refutes_sde(noise_to_signal: float, c2: float = 2.0) -> bool:
    """Whether N/G of the SGD run is below 1/(C² − 1), so that its SDE cannot be C-close (thm:eq_sde_sgd, ii).

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
