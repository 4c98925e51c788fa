"""The shipped `SVAG` and `NoisyGD` stepped by enumeration against the formulas: checks of `svag verify` (lem:D).

The network is a linear map with a quartic loss, in double precision, and the data set has three examples, so that all
pairs of batches can be stepped and nothing is sampled.
"""

from itertools import product

import numpy as np
import torch
from torch import Tensor, nn

from svag.arrays import FloatArray
from svag.dynamics.noisy_gd import NoisyGD
from svag.dynamics.svag import SVAG
from svag.paper.verify.check import Check, claims, raw_moments, relative_error
from svag.theory.weights import noise_amplitude, svag_step_moments

LR = 0.3
_Batch = tuple[Tensor, Tensor]


class TinyProblem:
    """Three examples, two weights; `loss` is the mean over a batch, `losses` one number each."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(3, 2, generator=generator, dtype=torch.float64)
        self.y = torch.randn(3, generator=generator, dtype=torch.float64)
        self.model = nn.Linear(2, 1, bias=False, dtype=torch.float64)
        self.start = torch.randn(1, 2, generator=generator, dtype=torch.float64)
        self.reset()

    def reset(self) -> None:
        """Put the weights back to their start."""
        with torch.no_grad():
            self.model.weight.copy_(self.start)

    def batch(self, *chosen: int) -> _Batch:
        """These examples."""
        return self.x[list(chosen)], self.y[list(chosen)]

    def losses(self, batch: _Batch) -> Tensor:
        """(⟨w, x⟩ − y)² + (⟨w, x⟩ − y)⁴ of each example."""
        residual: Tensor = self.model(batch[0]).squeeze(1) - batch[1]
        return residual**2 + residual**4

    def loss(self, batch: _Batch) -> Tensor:
        """Their mean."""
        return self.losses(batch).mean()

    def moved(self) -> FloatArray:
        """How far the weights are from their start."""
        return np.asarray((self.model.weight.detach() - self.start).flatten().numpy(), dtype=np.float64).copy()

    def gradients(self) -> FloatArray:
        """The gradient of each example at the start, by autograd."""
        self.reset()
        rows = [torch.autograd.grad(self.loss(self.batch(i)), self.model.weight)[0].flatten().numpy() for i in range(3)]
        return np.array(rows)


def dynamics_checks(seed: int = 0) -> list[Check]:
    """Step both through every batch; giving SVAG one batch twice is the negative control.

    >>> [check.passed for check in dynamics_checks()]
    [True, True, True, True, True, True, True]
    """
    problem = TinyProblem(seed)
    claim, control = claims("lem:D")
    moments = [f"svag.SVAG: moment ({order}) of a sub-step over all pairs (relative)" for order in ("i", "ii", "iii")]
    # the first moment does not tell one batch twice from two batches
    twice = list(zip(moments, _svag(problem, ell=3, repeated=True), strict=True))[1:]
    return [
        *(claim.at_most(*moment, 1e-12) for moment in zip(moments, _svag(problem, ell=3), strict=True)),
        *_noisy_gd(problem),
        *(control.at_least(f"the same batch twice: {said}", error, 1e-6) for said, error in twice),
    ]


def _svag(problem: TinyProblem, ell: int, *, repeated: bool = False) -> list[float]:
    """Errors of the moments of one sub-step over all pairs of examples, against lem:D (relative)."""
    each = problem.gradients()
    mean = each.mean(axis=0)
    _, covariance, skewness = raw_moments(each - mean)
    stated = svag_step_moments(mean, covariance, skewness, lr=LR, ell=ell)
    moves = []
    with SVAG(problem.model, torch.optim.SGD(problem.model.parameters(), lr=LR), ell=ell) as sim:
        for first, second in product(range(3), repeat=2):
            problem.reset()
            sim.substep(problem.loss, problem.batch(first), problem.batch(first if repeated else second))
            moves.append(problem.moved())
    expected = (stated.first, stated.second, stated.third)
    return [relative_error(*pair) for pair in zip(raw_moments(np.array(moves)), expected, strict=True)]


def _noisy_gd(problem: TinyProblem, refine: int = 4, batch_size: int = 2) -> list[Check]:
    """One step of NoisyGD from known noise, and the covariance that this noise gives."""
    each, seed = problem.gradients(), 7
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=LR)
    ngd = NoisyGD(
        problem.model,
        optimizer,
        batch_size=batch_size,
        dataset_size=3,
        refine=refine,
        generator=torch.Generator().manual_seed(seed),
    )
    ngd.step(problem.losses, [problem.batch(0, 1, 2)])
    # the noise is linear in z: with the same z the step is known, and all steps have the covariance of its factor
    z = torch.randn(3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).numpy()
    alpha = noise_amplitude(batch_size, 3, refine=refine)
    step = -LR / refine * ((1 / 3 + alpha * (z - z.mean())) @ each)
    factor = alpha * (np.eye(3) - 1 / 3) @ each
    pairs = np.array([(each[i] + each[j]) / 2 for i, j in ((0, 1), (0, 2), (1, 2))])
    covariance = np.cov(pairs.T, bias=True)
    moved = problem.moved()
    claim, _ = claims("eq:noisy_gd")
    return [
        claim.at_most("svag.NoisyGD: one step from known noise (relative)", relative_error(moved, step), 1e-12),
        claim.at_most(
            "and the covariance of its noise, against all batches of 2 of 3 (relative)",
            relative_error(factor.T @ factor, refine * covariance),
            1e-12,
        ),
    ]
