"""The Rayleigh quotient: a scale-invariant loss whose G, N and R are known at every weight (lem:sc, thm:eq_sde_sgd).

L_i(x) = ⟨a_i, x⟩²/|x|² for finitely many vectors a_i. `simulate` runs thousands of chains on it at once and records the
exact G, N and R along their paths. Arrays hold one row of weights a chain. A batch gradient is a weighted sum of
per-example gradients, so each process only says how to draw the weights of the examples (`example_weights`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from svag.arrays import FloatArray
from svag.paper.exact.processes import EulerMaruyama, Svag
from svag.theory.bounds import Equilibrium
from svag.theory.weights import noise_amplitude, svag_weights


@dataclass(frozen=True)
class RayleighProblem:
    """The loss ⟨a_i, x⟩²/|x|² of each row a_i of `examples` (n × d)."""

    examples: FloatArray

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


@dataclass(frozen=True)
class Momentum:
    """SGD with the momentum buffer of torch.optim.SGD: v ← βv + g + λx, x ← x − ηv."""

    beta: float

    @property
    def ell(self) -> int:
        """Momentum is not refined here."""
        return 1


@dataclass(frozen=True)
class SecondOrderEuler:
    """Euler–Maruyama at η/ell of the second-order SDE, drift −∇(L′ + (η/4)|∇L′|²) (eq:app_2nd_sde_wd)."""

    ell: int


ChainProcess: TypeAlias = Svag | EulerMaruyama | SecondOrderEuler | Momentum
Draw: TypeAlias = Callable[[np.random.Generator], FloatArray]


@dataclass(frozen=True)
class Paths:
    """The last weights, and R, G, N (and |v|² with momentum) at every effective step: one column a chain.

    Averages over time have one value a chain. Chains are independent, so their spread gives the standard error.
    """

    weights: FloatArray
    param_sq: FloatArray
    grad_sq: FloatArray
    noise_trace: FloatArray
    velocity_sq: FloatArray

    def means(self, start: int) -> "Paths":
        """Averages over time from effective step `start` on."""
        columns = (self.param_sq, self.grad_sq, self.noise_trace, self.velocity_sq)
        return Paths(self.weights, *(rows[start:].mean(axis=0) for rows in columns))

    def equilibrium(self) -> Equilibrium:
        """R, G and N on average over chains too."""
        return Equilibrium(float(self.param_sq.mean()), float(self.grad_sq.mean()), float(self.noise_trace.mean()))


def simulate(
    problem: RayleighProblem,
    process: ChainProcess,
    *,
    lr: float,
    weight_decay: float,
    batch_size: int,
    steps: int,
    start: FloatArray,
    rng: np.random.Generator,
) -> Paths:
    """Run one chain a row of `start` for `steps` effective steps."""
    h = lr / process.ell
    beta = process.beta if isinstance(process, Momentum) else 0.0
    draw = example_weights(process, len(problem.examples), batch_size, len(start))
    x, velocity = start.copy(), np.zeros_like(start)
    record = np.empty((4, steps + 1, len(start)))
    for step in range(steps + 1):
        record[:, step] = (
            param_sq(x), problem.grad_sq(x), problem.noise_trace(x, batch_size), param_sq(velocity)
        )  # fmt: skip
        for _ in range(process.ell if step < steps else 0):
            gradient = problem.weighted_gradient(x, draw(rng)) + weight_decay * x
            if isinstance(process, SecondOrderEuler):
                full = problem.gradient(x) + weight_decay * x
                gradient += lr / 2 * (problem.hessian_product(x, full) + weight_decay * full)
            velocity = beta * velocity + gradient
            x -= h * velocity
    return Paths(x, *record)


def example_weights(process: ChainProcess, n: int, batch_size: int, chains: int) -> Draw:
    """How to draw the weight of every example in one step of the process."""

    def counts(rng: np.random.Generator) -> FloatArray:
        return np.asarray(rng.multinomial(batch_size, np.full(n, 1 / n), size=chains) / batch_size, dtype=np.float64)

    def gaussian(rng: np.random.Generator) -> FloatArray:
        z = rng.standard_normal((chains, n))
        scale = noise_amplitude(batch_size, n, sampling="with_replacement", refine=process.ell)
        return np.asarray(1 / n + scale * (z - z.mean(axis=1, keepdims=True)), dtype=np.float64)

    if isinstance(process, EulerMaruyama | SecondOrderEuler):
        return gaussian
    if isinstance(process, Momentum) or process.ell == process.split == 1:
        return counts
    if process.split != 1:
        raise ValueError("split SVAG is not simulated here: a batch of B/split may not be whole; use split=1")
    a, b = svag_weights(process.ell)
    return lambda rng: a * counts(rng) + b * counts(rng)
