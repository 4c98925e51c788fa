"""A tiny nonlinear network in double precision, and helpers to look at it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from svag.arrays import FloatArray

Batch = tuple[Tensor, Tensor]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@dataclass(frozen=True)
class Problem:
    """A model, its data, and the mean and per-example losses of a batch."""

    model: nn.Module
    x: Tensor
    y: Tensor

    def batch(self, indices: Iterable[int]) -> Batch:
        return self.x[list(indices)], self.y[list(indices)]

    def losses(self, batch: Batch) -> Tensor:
        x, y = batch
        output: Tensor = self.model(x)
        return (output.squeeze(1) - y).square()

    def loss(self, batch: Batch) -> Tensor:
        return self.losses(batch).mean()

    def get(self) -> FloatArray:
        return torch.cat([p.detach().flatten() for p in self.model.parameters()]).numpy().copy()

    def set(self, values: FloatArray) -> None:
        nn.utils.vector_to_parameters(torch.from_numpy(values.copy()), self.model.parameters())

    def gradient(self, indices: Iterable[int]) -> FloatArray:
        """∇L of one batch, made without the library under test."""
        grads = torch.autograd.grad(self.loss(self.batch(indices)), list(self.model.parameters()))
        return torch.cat([g.flatten() for g in grads]).numpy()


@pytest.fixture
def problem() -> Callable[[int], Problem]:
    """A network with 9 parameters and any number of examples, the same every time."""

    def make(n: int) -> Problem:
        generator = torch.Generator().manual_seed(3)
        model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1)).double()
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.randn(p.shape, generator=generator, dtype=torch.float64))
        x = torch.randn(n, 2, generator=generator, dtype=torch.float64)
        y = torch.randn(n, generator=generator, dtype=torch.float64)
        return Problem(model, x, y)

    return make


@dataclass(frozen=True)
class Law:
    """Mean, covariance and third central moment of a vector with finitely many values."""

    mean: FloatArray
    covariance: FloatArray
    skewness: FloatArray


@pytest.fixture
def law() -> Callable[[list[FloatArray], list[float]], Law]:
    def of(values: list[FloatArray], probabilities: list[float]) -> Law:
        v, p = np.array(values), np.array(probabilities)
        mean = p @ v
        centred = v - mean
        return Law(
            mean,
            np.einsum("k,ki,kj->ij", p, centred, centred),
            np.einsum("k,ki,kj,kl->ijl", p, centred, centred, centred),
        )

    return of
