"""What goes wrong when SVAG's second batch is the previous step's first one: the amplification is lost.

The pair (weights, last example) is a Markov chain, so its moments are exact too. This is not an algorithm of the paper
but a mistake worth catching: the noise a·ξ_k + b·ξ_{k−1} of consecutive steps nearly cancels, because a + b = 1.
"""

import numpy as np
from numpy.polynomial import Polynomial

from svag.arrays import FloatArray
from svag.exact.affine import AffineProblem
from svag.exact.noise import Atoms
from svag.theory.weights import svag_weights


def reused_batch_moments(problem: AffineProblem, ell: int, steps: int, degree: int) -> FloatArray:
    """Moments, as `AffineProblem.moments`, of x ← x − (η/l)(a g_k + b g_{k−1}) with one example a batch."""
    noise = problem.noise
    if not isinstance(noise, Atoms) or problem.batch_size != 1:
        raise ValueError("reuse is followed exactly for batches of one example out of finitely many")
    a, b = svag_weights(ell)
    h, atoms = problem.lr / ell, len(noise.slopes)
    step = np.zeros((atoms, degree + 1, atoms, degree + 1))
    for new, fresh in enumerate(noise.gradients):
        for old, reused in enumerate(noise.gradients):
            move = Polynomial([0.0, 1.0]) - h * (a * fresh + b * reused)
            for p in range(degree + 1):
                step[new, p, old, : p + 1] = (noise.probabilities[new] * move**p).coef[: p + 1]
    state = np.multiply.outer(np.array(noise.probabilities), problem.start ** np.arange(degree + 1.0))
    orbit = [state.sum(axis=0)]
    for _ in range(steps * ell):
        state = np.einsum("npoq,oq->np", step, state)
        orbit.append(state.sum(axis=0))
    return np.array(orbit)
