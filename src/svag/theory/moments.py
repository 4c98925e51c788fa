"""Moments of one step of SVAG and of one step of the SDE (lem:D, lem:Dtil), as tensors over the parameters."""

from dataclasses import dataclass
from itertools import permutations

import numpy as np

from svag.arrays import FloatArray
from svag.theory import domain
from svag.theory.weights import cumulant_factor


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
