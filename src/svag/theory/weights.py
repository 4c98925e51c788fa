"""The two weights of SVAG and what they do to the cumulants of the gradient (eq:svag_iter, sec:svag)."""

import math

from svag.theory import domain


def svag_weights(ell: float, split: int = 1) -> tuple[float, float]:
    r"""Weights of the two independent batches of one SVAG step.

    $$a, b = \tfrac12\bigl(1 \pm \sqrt{2l/m - 1}\bigr)$$

    where l is the argument `ell` and m is `split`. Both batches have B/m examples. The mean of the gradient is kept
    (a + b = 1) and its covariance becomes l times that of a batch of B: m (a² + b²) = l.

    >>> svag_weights(1)
    (1.0, 0.0)
    >>> svag_weights(5)
    (2.0, -1.0)
    >>> svag_weights(1, split=2)  # one batch in two halves
    (0.5, 0.5)

    Args:
        ell: SVAG's refinement; 1 is SGD, large values approach the Itô SDE. Any real number of at least `split` / 2.
        split: into how many parts the batch of the SGD run is cut; 1 is the paper's SVAG.

    Reference: Li, Malladi, Arora (2021), eq:svag_iter; `split` is ours.
    """
    return _weights(_square_sum(ell, split), f"ell={ell}, split={split}")


def finite_population_weights(ell: float, split: int, *, batch_size: int, population: int) -> tuple[float, float]:
    """Weights of split SVAG when every batch is drawn without replacement from `population` examples.

    A batch of B/m then has m (n − B/m)/(n − B) times the covariance of a batch of B, not m times: a² + b² is divided
    by the surplus so that the covariance of the step is l times that of a batch of B again.

    >>> finite_population_weights(5, 1, batch_size=10, population=100)
    (2.0, -1.0)
    >>> a, b = finite_population_weights(4, 2, batch_size=10, population=100)
    >>> round((a**2 + b**2) * (100 - 5) / (100 - 10), 12)  # l/m
    2.0
    """
    batch_size = domain.whole("batch_size", batch_size)
    domain.population(population, batch_size)
    surplus = (population - batch_size / domain.whole("split", split)) / (population - batch_size)
    return _weights(
        _square_sum(ell, split) / surplus,
        f"ell={ell}, split={split}, batch_size={batch_size}, population={population}",
    )


def power_sum(p: int, ell: float, split: int = 1) -> float:
    """Return a^p + b^p for the weights of SVAG, from a + b = 1 and ab = (1 − l/m)/2 by Newton's recursion.

    >>> [power_sum(p, ell=3) for p in (1, 2, 3, 4)]  # 1, l, (3l − 1)/2, (l² + 2l − 1)/2
    [1.0, 3.0, 4.0, 7.0]
    """
    product = (1 - _square_sum(ell, split)) / 2
    previous, current = 2.0, 1.0
    for _ in range(domain.whole("p", p) - 1):
        previous, current = current, current - product * previous
    return current


def cumulant_factor(j: int, ell: float, split: int = 1) -> float:
    """By what factor one SVAG step multiplies the j-th cumulant of the gradient of a batch of B: m^(j−1) (a^j + b^j).

    >>> cumulant_factor(1, ell=4), cumulant_factor(2, ell=4)  # the mean is kept, the covariance amplified
    (1.0, 4.0)
    >>> cumulant_factor(3, ell=4, split=2)  # (3lm − m²)/2
    10.0
    """
    return float(split ** (j - 1)) * power_sum(j, ell, split)


def _square_sum(ell: float, split: int) -> float:
    """Return l/m = a² + b², or refuse an (ell, split) that has no real weights."""
    domain.positive("ell", ell)
    if domain.whole("split", split) > 2 * ell:
        raise ValueError(f"ell must be at least split/2 = {split / 2}, got ell={ell}: the weights would not be real")
    return ell / split


def _weights(square_sum: float, where: str) -> tuple[float, float]:
    discriminant = 2 * square_sum - 1
    if discriminant < 0:
        raise ValueError(f"no real weights have this covariance ({where}): raise ell or lower split")
    root = math.sqrt(discriminant)
    return (1 + root) / 2, (1 - root) / 2
