"""The two looser forms in which the paper states its bound on κ (thm:lsr_kappa_bound).

`svag.theory.max_kappa` is the sharp form, C² + (C² − 1)ρ up to ηλ. The theorem as printed drops an N from the last line
of its proof, and the figures draw an approximation of that. Both are needed only to compare with the paper.
"""

from svag.theory import domain


def printed_max_kappa(noise_to_signal: float, c2: float = 2.0) -> float:
    """Largest κ by the theorem as printed: C²(1 + ρ) with ρ = N/G.

    >>> printed_max_kappa(10.0)
    22.0
    """
    return domain.closeness(c2) * (1 + domain.noise_to_signal(noise_to_signal))


def plotted_max_kappa(noise_to_signal: float, c2: float = 2.0) -> float:
    """Largest κ as the paper's figures draw it, where G/N of the larger batch would reach C²: C²ρ.

    >>> plotted_max_kappa(10.0)
    20.0
    """
    return domain.closeness(c2) * domain.noise_to_signal(noise_to_signal)
