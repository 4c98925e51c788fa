"""A stream of gradients at one point: G, N and their interval from a handful of sums, never from stored gradients."""

from collections.abc import Sequence

import torch
from torch import Tensor

from svag.noise.measured import precise, square_norm
from svag.theory.estimators import NoiseEstimate, disjoint_parts, u_statistic

# A delete-one-group jackknife: more groups give a steadier interval and take more memory.
GROUPS = 8


class GradientStream:
    """Sums over a stream of gradients, kept in double precision for GROUPS interleaved groups of them.

    Memory is that of GROUPS gradients, however long the stream.
    """

    def __init__(self, batch_size: int, population: int | None = None) -> None:
        self.batch_size = batch_size
        self.population = population
        self.counts = [0] * GROUPS
        self._sums: list[list[Tensor]] = []
        self._squares: list[Tensor] = []

    @property
    def n(self) -> int:
        """How many gradients were added."""
        return sum(self.counts)

    def add(self, gradients: Sequence[Tensor]) -> Tensor:
        """Add one gradient; return its square as a 0-d tensor."""
        group = self.n % GROUPS
        square = square_norm([gradient.to(precise(gradient.device)) for gradient in gradients])
        if group == len(self._sums):
            self._sums.append([gradient.to(precise(gradient.device), copy=True) for gradient in gradients])
            self._squares.append(square)
        else:
            for total, gradient in zip(self._sums[group], gradients, strict=True):
                total += gradient
            self._squares[group] = self._squares[group] + square
        self.counts[group] += 1
        return square

    def estimate(self) -> NoiseEstimate:
        """G and N from all gradients so far."""
        products, squares = self._products()
        return self._estimate(products, squares, list(range(len(squares))))

    def pseudo_values(self) -> list[NoiseEstimate]:
        """As many nearly independent estimates as there are groups, from leaving out one group at a time.

        Their spread is that of `estimate`, or a little more: the jackknife errs on the wide side (Efron, Stein 1981).
        It needs two gradients beside every group: an empty list until there are.
        """
        groups = range(len(self._sums))
        if self.n - max(self.counts) < 2:
            return []
        products, squares = self._products()
        whole, values = self._estimate(products, squares, list(groups)), []
        for group in groups:
            rest = self._estimate(products, squares, [other for other in groups if other != group])
            share = self.n / self.counts[group]
            values.append(
                NoiseEstimate(
                    share * whole.grad_sq - (share - 1) * rest.grad_sq,
                    share * whole.noise_trace - (share - 1) * rest.noise_trace,
                )
            )
        return values

    def mean_gradient(self) -> list[Tensor]:
        """Average of all gradients so far."""
        return [torch.stack(list(group)).sum(dim=0) / self.n for group in zip(*self._sums, strict=True)]

    def _products(self) -> tuple[list[list[float]], list[float]]:
        """Inner products of the group sums with each other, and the sums of squares within the groups."""
        size = len(self._sums)
        gram = torch.zeros(size, size, dtype=torch.float64)
        for parts in zip(*self._sums, strict=True):
            rows = torch.stack([part.reshape(-1) for part in parts])
            gram += (rows @ rows.T).cpu()
        return gram.tolist(), [float(square) for square in self._squares]

    def _estimate(self, products: list[list[float]], squares: list[float], groups: list[int]) -> NoiseEstimate:
        n = sum(self.counts[group] for group in groups)
        sum_sq = sum(squares[group] for group in groups)
        sq_sum = max(sum(products[one][other] for one in groups for other in groups), 0.0)
        if self.population is None:
            return u_statistic(sum_sq, sq_sum, n)
        return disjoint_parts(
            sum_sq, sq_sum, n, part_size=self.batch_size, batch_size=self.batch_size, population=self.population
        )
