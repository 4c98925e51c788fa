"""Poisson gradients: linear scaling holds for every batch size and the Itô SDE never does (sec:counterexample).

The gradient of one example is Poisson with mean 1, whatever the weights. Here η is the learning rate *per example*: a
batch of B uses Bη. After T examples every law is known, and none depends on B.
"""

from dataclasses import dataclass

import numpy as np

from svag.exact.laws import DiscreteLaw, NormalLaw, combine, poisson_law
from svag.exact.processes import Ito, Ladder, Process, Svag
from svag.theory import domain
from svag.theory.weights import svag_weights


@dataclass(frozen=True)
class PoissonProblem:
    """SGD from 0 over `examples` examples (the T of the paper) at the per-example learning rate `lr`."""

    lr: float
    examples: float

    def __post_init__(self) -> None:
        domain.positive("lr", self.lr)
        domain.positive("examples", self.examples)

    def law(self, process: Svag | Ladder) -> DiscreteLaw:
        """Law of the last iterate: −ηZ for the ladder, −(ηm/l)(aP₁ + bP₂) with P_i ~ Poi(lT/m) for SVAG(l, m)."""
        if isinstance(process, Ladder):
            count = poisson_law(self.examples)
            return DiscreteLaw(-self.lr * count.points[::-1], count.probabilities[::-1])
        ell, m = process.ell, process.split
        a, b = svag_weights(ell, m)
        step = -self.lr * m / ell
        count = poisson_law(ell * self.examples / m)
        unused = DiscreteLaw(np.zeros(1), np.ones(1))
        return combine(count, count if b else unused, step * a, step * b)

    def sde_law(self) -> NormalLaw:
        """Law of the Itô SDE, and of NGD at every batch size: N(−ηT, η²T)."""
        return NormalLaw(-self.lr * self.examples, self.lr * float(np.sqrt(self.examples)))

    def cumulant(self, j: int, process: Process | Ito) -> float:
        """The j-th cumulant in closed form: (−η)^j T f_j / l^(j−1), f_j the factor of the process."""
        if isinstance(process, Ito):
            factor = 1.0 if j <= 2 else 0.0
        else:
            factor = process.cumulant_factor(j) / process.ell ** (j - 1)
        return (-self.lr) ** j * self.examples * factor
