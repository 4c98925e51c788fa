"""Streams of readings whose N/G is known exactly."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from svag import Reading
from svag.arrays import FloatArray
from svag.theory.estimators import disjoint_parts

GRAD_SQ = 1.0


@dataclass(frozen=True)
class Stream:
    """Isotropic Gaussian gradients with G = 1 and N = ρ at the full batch, cut into parts."""

    ratio: float
    dimension: int
    batch_size: int
    parts: int
    steps: int

    def sums(self, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Σ|g_i|² and |Σg_i|² of each step, by their exact laws: a noncentral and a central χ², independent."""
        k, d = self.parts, self.dimension
        variance = self.ratio / d
        mean_sq = variance * rng.noncentral_chisquare(d, GRAD_SQ / variance, self.steps)
        spread = k * variance * rng.chisquare(d * (k - 1), self.steps)
        return spread + k * mean_sq, k**2 * mean_sq

    def readings(self, rng: np.random.Generator) -> list[Reading]:
        """One reading a step."""
        sum_sq, sq_sum = self.sums(rng)
        part_size = self.batch_size / self.parts
        found = []
        for one, other in zip(sum_sq.tolist(), sq_sum.tolist(), strict=True):
            estimate = disjoint_parts(one, other, self.parts, part_size=part_size, batch_size=self.batch_size)
            found.append(make(estimate.grad_sq, estimate.noise_trace, batch_size=self.batch_size, n=self.parts))
        return found


def make(grad_sq: float, noise_trace: float, **changes: object) -> Reading:
    fields: dict[str, Any] = {"param_sq": 1.0, "batch_size": 64, "n": 2}
    return Reading(grad_sq, noise_trace, **fields | changes)


def settled(count: int = 400, seed: int = 0, /, **changes: object) -> list[Reading]:
    """G = 1, N = 10 with 10% scatter, at equilibrium for lr=0.5, weight_decay=1e-3 unless changed."""
    rng = np.random.default_rng(seed)
    lr, decay = 0.5, 1e-3
    param_sq = lr * 11.0 / ((2 - lr * decay) * decay)
    setting: dict[str, object] = {
        "param_sq": param_sq,
        "lr": lr,
        "weight_decay": decay,
        "momentum": 0.0,
        "optimizer": "SGD",
        "param_dot_grad": 0.0,
    } | changes
    scatter = 1 + 0.1 * rng.standard_normal((count, 2))
    return [make(float(g), float(10 * n), **({"step": 2500 + k} | setting)) for k, (g, n) in enumerate(scatter)]
