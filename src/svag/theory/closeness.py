"""C-closeness of two equilibria and (C,κ)-linear-scaling invariance (def:c_close, def:app_lsi, def:lsi)."""

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
