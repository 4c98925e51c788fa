"""The Rayleigh quotient: a scale-invariant loss whose G, N and R are known at every weight (lem:sc, thm:eq_sde_sgd).

L_i(x) = ⟨a_i, x⟩²/|x|² for finitely many vectors a_i. Every method takes one row of weights a chain. A batch gradient
is a weighted sum of per-example gradients, so one product with the weights of all examples serves every process.
"""

from dataclasses import dataclass

import numpy as np

from svag.arrays import FloatArray


@dataclass(frozen=True)
class RayleighProblem:
    """The loss ⟨a_i, x⟩²/|x|² of each row a_i of `examples` (n × d)."""

    examples: FloatArray

    def __post_init__(self) -> None:
        if self.examples.ndim != 2 or len(self.examples) < 2:
            raise ValueError(f"examples must be a table of at least two rows, got shape {self.examples.shape}")

    def losses(self, x: FloatArray) -> FloatArray:
        """L_i(x): chains × examples."""
        losses: FloatArray = (x @ self.examples.T) ** 2 / param_sq(x)[:, None]
        return losses

    def weighted_gradient(self, x: FloatArray, weights: FloatArray) -> FloatArray:
        """Σ_i w_i ∇L_i(x), with ∇L_i = 2(⟨a_i, x⟩a_i − L_i x)/|x|²; `weights` is chains × examples."""
        projections, r = x @ self.examples.T, param_sq(x)[:, None]
        pulled = (weights * projections) @ self.examples
        loss = (weights * projections**2).sum(axis=1, keepdims=True) / r
        gradient: FloatArray = 2 * (pulled - loss * x) / r
        return gradient

    def gradient(self, x: FloatArray) -> FloatArray:
        """∇L(x), the mean over all examples."""
        n = len(self.examples)
        return self.weighted_gradient(x, np.full((1, n), 1 / n))

    def hessian_product(self, x: FloatArray, v: FloatArray) -> FloatArray:
        """∇²L(x) v = 2(Av − Lv − ⟨∇L, v⟩x)/|x|² − 2(⟨x, v⟩/|x|²)∇L, with A the mean of a_i a_iᵀ."""
        r, gradient = param_sq(x)[:, None], self.gradient(x)
        loss = self.losses(x).mean(axis=1, keepdims=True)
        stretched = (v @ self.examples.T) @ self.examples / len(self.examples)
        product: FloatArray = 2 * (stretched - loss * v - _dot(gradient, v) * x - _dot(x, v) * gradient) / r
        return product

    def grad_sq(self, x: FloatArray) -> FloatArray:
        """G(x) = |∇L(x)|²."""
        return param_sq(self.gradient(x))

    def noise_trace(self, x: FloatArray, batch_size: float) -> FloatArray:
        """N(x) = Tr Σ of a batch drawn with replacement: (mean |∇L_i|² − |∇L|²)/B."""
        projections, r = x @ self.examples.T, param_sq(x)[:, None]
        lengths = (self.examples**2).sum(axis=1)
        second = (4 * (projections**2 * lengths - projections**4 / r) / r**2).mean(axis=1)
        return np.asarray((second - self.grad_sq(x)) / batch_size, dtype=np.float64)


def param_sq(x: FloatArray) -> FloatArray:
    """R(x) = |x|² of every row."""
    return np.asarray((x**2).sum(axis=1), dtype=np.float64)


def _dot(x: FloatArray, y: FloatArray) -> FloatArray:
    return np.asarray((x * y).sum(axis=1, keepdims=True), dtype=np.float64)
