"""How two or more batches, or all examples, are weighted to make one noisy step, and the moments of such a step.

- SVAG (eq:svag_iter, sec:svag) weights two independent batches: the mean of the gradient is kept and its covariance is
  multiplied by ell. `svag_weights`, and `finite_population_weights` where batches are drawn without replacement;
  `copy_weights` for three or more batches.
- Noisy gradient descent (eq:noisy_gd, eq:em) weights every example by a Gaussian number, so that one pass over the data
  has exactly the covariance of a batch: `noise_amplitude`.
- `svag_step_moments` and `sde_step_moments` are the moments of one step of SVAG and of its SDE (lem:D, lem:Dtil), as
  tensors over the parameters.
"""

import math
from dataclasses import dataclass
from itertools import permutations
from typing import Literal, get_args

import numpy as np

from svag.arrays import FloatArray
from svag.theory import domain

IndependentSampling = Literal["without_replacement", "with_replacement"]
Sampling = Literal[IndependentSampling, "shuffle"]


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


def copy_weights(ell: float, copies: int = 3) -> tuple[float, ...]:
    r"""Weights of several independent batches that do what the two of SVAG do (the remark after lem:D).

    $$w = \tfrac1n + r,\;\tfrac1n,\;\dots,\;\tfrac1n - r, \qquad r = \sqrt{(l - 1/n)/2}$$

    where l is the argument `ell` and n is `copies`. The mean is kept (Σw = 1) and the covariance amplified (Σw² = l).
    These two do not make a first-order approximation of the SDE from three copies on, since Σw³ may then grow like
    l^(3/2) and skewed noise leaves an error of 1/√l. Opposite offsets ±r cancel in Σw³ = 1/n² + 3(l − 1/n)/n.

    >>> copy_weights(5, copies=2) == svag_weights(5)
    True
    >>> [round(weight, 9) for weight in copy_weights(1 / 3 + 8)]  # 1/3 + 2, 1/3, 1/3 − 2
    [2.333333333, 0.333333333, -1.666666667]
    """
    share = 1 / domain.whole("copies", copies, at_least=2)
    if domain.positive("ell", ell) < share:
        raise ValueError(f"ell must be at least 1/copies = {share:g}, got {ell}: the weights would not be real")
    offset = math.sqrt((ell - share) / 2)
    return tuple(share + shift for shift in (offset, *[0.0] * (copies - 2), -offset))


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


def pair_cost(ell: int, split: int = 1) -> float:
    """Batches of B that one effective step of SVAG looks at: 2l/m, and one where the second weight is 0 (SGD).

    >>> pair_cost(1), pair_cost(4), pair_cost(4, split=2)
    (1.0, 8.0, 4.0)
    """
    _, second = svag_weights(ell, split)
    return 2 * ell / split if second else 1.0


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


def noise_amplitude(
    batch_size: float,
    dataset_size: int,
    *,
    sampling: IndependentSampling = "without_replacement",
    refine: int = 1,
) -> float:
    r"""Amplitude α of the weights 1/n + α(z_i − z̄), z ~ N(0, I), that make a full pass a noisy gradient.

    $$\alpha = \sqrt{\frac{s}{nB}}\;\Bigl[\sqrt{\tfrac{n-B}{n-1}}\text{ without replacement}\Bigr]$$

    where B is the argument `batch_size`, n is `dataset_size` and s is `refine`: the covariance of the weighted gradient
    is then s times that of a batch of B. Infinite B has no noise.

    >>> noise_amplitude(4, 16, sampling="with_replacement")
    0.125
    >>> noise_amplitude(4, 16, sampling="with_replacement", refine=4)
    0.25
    >>> noise_amplitude(math.inf, 16), noise_amplitude(16, 16)
    (0.0, 0.0)
    """
    n, s = domain.whole("dataset_size", dataset_size, at_least=2), domain.whole("refine", refine)
    domain.one_of("sampling", sampling, get_args(IndependentSampling))
    if domain.number("batch_size", batch_size) == math.inf:
        return 0.0
    B = domain.whole("batch_size", batch_size)
    if sampling == "with_replacement":
        return math.sqrt(s / (n * B))
    if n < B:
        raise ValueError(f"batch_size must not exceed dataset_size={n} without replacement, got {batch_size}")
    return math.sqrt(s / (n * B) * (n - B) / (n - 1))


@dataclass(frozen=True)
class StepMoments:
    """E Δ, E Δ⊗Δ and E Δ⊗Δ⊗Δ of the increment Δ of one step."""

    first: FloatArray
    second: FloatArray
    third: FloatArray


def svag_step_moments(
    grad: FloatArray, covariance: FloatArray, skewness: FloatArray, *, lr: float, ell: float = 1.0, split: int = 1
) -> StepMoments:
    r"""Exact moments of one SVAG step Δ = −(η/l)(a∇L_γ1 + b∇L_γ2) from those of one batch gradient (lem:D).

    $$E\Delta = -h\nabla L,\quad E\Delta^{\otimes2} = h^2(l\Sigma + \nabla L^{\otimes2}),\quad
      E\Delta^{\otimes3} = -h^3\bigl(c_3\Lambda + 3l\,\mathrm{sym}(\nabla L\otimes\Sigma) + \nabla L^{\otimes3}\bigr)$$

    where h = η/l, η is the argument `lr`, ∇L is `grad`, Σ is `covariance`, Λ (the third central moment) is `skewness`
    and c₃ = (3lm − m²)/2 with m = `split`. (The paper's display lacks the sign and the factor l.)

    >>> one = svag_step_moments(np.ones(1), np.eye(1), np.ones((1, 1, 1)), lr=1.0, ell=2.0)
    >>> one.first, one.second, one.third  # −1/2, (2 + 1)/4, −(5/2 + 6 + 1)/8
    (array([-0.5]), array([[0.75]]), array([[[-1.1875]]]))
    """
    h = domain.positive("lr", lr) / domain.positive("ell", ell)
    c2, c3 = cumulant_factor(2, ell, split), cumulant_factor(3, ell, split)
    return StepMoments(
        first=-h * grad,
        second=h**2 * (c2 * covariance + outer(grad, grad)),
        third=-(h**3) * (c3 * skewness + 3 * c2 * symmetrise(outer(grad, covariance)) + outer(grad, outer(grad, grad))),
    )


def sde_step_moments(grad: FloatArray, covariance: FloatArray, *, lr: float, ell: float = 1.0) -> StepMoments:
    """Leading terms of the moments of the SDE's increment over a time η/l; the rest is O(1/l²) (lem:Dtil).

    >>> sde_step_moments(np.ones(1), np.eye(1), lr=1.0, ell=2.0).second
    array([[0.5]])
    """
    h = domain.positive("lr", lr) / domain.positive("ell", ell)
    return StepMoments(first=-h * grad, second=h * lr * covariance, third=np.zeros((grad.size,) * 3))


def outer(one: FloatArray, other: FloatArray) -> FloatArray:
    """Tensor product ⊗."""
    return np.multiply.outer(one, other)


def symmetrise(tensor: FloatArray) -> FloatArray:
    """Average of a tensor over all permutations of its indices."""
    orders = list(permutations(range(tensor.ndim)))
    return np.asarray(sum(np.transpose(tensor, order) for order in orders) / len(orders), dtype=np.float64)
