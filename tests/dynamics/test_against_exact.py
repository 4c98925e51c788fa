"""The torch steppers against exact/: moments after several steps on an affine problem, by enumeration."""

import math
from collections import Counter
from itertools import combinations_with_replacement, product
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from numpy.polynomial.hermite_e import hermegauss
from torch import Tensor, nn

import svag
from svag.paper.exact import processes
from svag.paper.exact.affine import AffineProblem
from svag.paper.exact.noise import Atoms

if TYPE_CHECKING:
    from svag.arrays import FloatArray

SLOPES, INTERCEPTS = (1.0, 2.5), (-0.4, 0.9)
LR, START, DEGREE = 0.3, 0.7, 4
Row = tuple[float, float]


class Line(nn.Module):
    """Example i has the gradient aᵢx − bᵢ."""

    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.tensor(START, dtype=torch.float64))

    def losses(self, batch: Tensor) -> Tensor:
        return batch[:, 0] * self.x.square() / 2 - batch[:, 1] * self.x

    def loss(self, batch: Tensor) -> Tensor:
        return self.losses(batch).mean()

    def put(self, x: float) -> None:
        with torch.no_grad():
            self.x.fill_(x)


def rows(indices: tuple[int, ...]) -> Tensor:
    return torch.tensor([(SLOPES[i], INTERCEPTS[i]) for i in indices], dtype=torch.float64)


def moments(law: dict[float, float]) -> "FloatArray":
    return np.array([sum(p * x**degree for x, p in law.items()) for degree in range(DEGREE + 1)])


@pytest.mark.parametrize(
    ("ell", "split", "batch_size", "steps"), [(1, 1, 2, 4), (2, 1, 1, 2), (3, 1, 1, 1), (2, 2, 2, 2), (3, 2, 2, 1)]
)
def test_svag(ell: int, split: int, batch_size: int, steps: int) -> None:
    """Every sequence of pairs of batches drawn with replacement from two examples."""
    part = batch_size // split
    batches = {
        batch: math.factorial(part) / math.prod(math.factorial(k) for k in Counter(batch).values()) / 2**part
        for batch in combinations_with_replacement((0, 1), part)
    }
    model = Line()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    law = {START: 1.0}
    with svag.SVAG(model, optimizer, ell=ell, split=split) as sim:
        for _ in range(steps * ell):
            following: dict[float, float] = {}
            for (x, p), (one, q1), (two, q2) in product(law.items(), batches.items(), batches.items()):
                model.put(x)
                sim.substep(model.loss, rows(one), rows(two))
                following[model.x.item()] = following.get(model.x.item(), 0.0) + p * q1 * q2
            law = following
    problem = AffineProblem(Atoms(SLOPES, INTERCEPTS, (0.5, 0.5)), lr=LR, batch_size=batch_size, start=START)
    expected = problem.moments(processes.Svag(ell, split), steps, DEGREE)[-1]
    np.testing.assert_allclose(moments(law), expected, rtol=1e-10)
    if ell > 1:  # negative control: another process is not this one
        other = problem.moments(processes.EulerMaruyama(ell), steps, DEGREE)[-1]
        assert np.abs(other - expected).max() > 1e-6


@pytest.mark.parametrize(("refine", "steps"), [(1, 3), (3, 1)])
def test_noisy_gd(refine: int, steps: int) -> None:
    """Gaussian noise by Gauss–Hermite nodes, four a dimension: exact for the polynomials of degree 4 that arise."""
    nodes, weights = hermegauss(4)
    draws = [
        (torch.tensor([u, v], dtype=torch.float64), wu * wv / (2 * math.pi))
        for (u, wu), (v, wv) in product(zip(nodes, weights, strict=True), repeat=2)
    ]
    model = Line()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    ngd = svag.NoisyGD(
        model,
        optimizer,
        batch_size=2,
        dataset_size=2,
        sampling="with_replacement",
        refine=refine,
        generator=torch.Generator(),
    )
    law = {START: 1.0}
    for _ in range(steps * refine):
        following: dict[float, float] = {}
        for (x, p), (z, q) in product(law.items(), draws):
            model.put(x)
            ngd._step(model.losses, [rows((0, 1))], z)
            following[model.x.item()] = following.get(model.x.item(), 0.0) + p * q
        law = following
    problem = AffineProblem(Atoms(SLOPES, INTERCEPTS, (0.5, 0.5)), lr=LR, batch_size=2, start=START)
    expected = problem.moments(processes.EulerMaruyama(refine), steps, DEGREE)[-1]
    np.testing.assert_allclose(moments(law), expected, rtol=1e-10)
