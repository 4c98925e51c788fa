"""Measuring at frozen weights: G and N from independent batches of the training size, whole or cut into parts.

G, N and their interval come from a handful of sums over a stream of gradients, never from stored gradients. Measuring
the same batches whole and in parts tells what cutting does to BatchNorm, which normalises each part by its own
statistics.
"""

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from svag.as_json import json_fields_of
from svag.noise.batches import batch_size_of, epoch_size, gradients_of, kept_position, mean_loss, refuse_swapped, split
from svag.noise.optimizer import state_of, unwrapped, velocities
from svag.noise.parameters import inner_product, measured_parameters, precise, square_norm
from svag.noise.progress_line import ProgressLine
from svag.noise.reading import Reading
from svag.noise.undisturbed import undisturbed
from svag.printed import Printed
from svag.stats.ratios import ratio_interval
from svag.theory import domain
from svag.theory.estimators import NoiseEstimate, disjoint_parts, u_statistic

Batch = TypeVar("Batch")

# A delete-one-group jackknife: more groups give a steadier interval and take more memory.
GROUPS = 8
# Confidence level of the interval that `relative_error` describes.
_CONFIDENCE = 0.95
# An endless loader and an unreachable relative_error must still end.
_DEFAULT_CAP = 1000
# Whole and cut batches share their noise, so a few are enough for the ratio; an endless loader must still end.
MOST_BATCHES = 20


class GradientStream:
    """Sums over a stream of gradients, kept in double precision for GROUPS interleaved groups of them.

    They take the memory of GROUPS gradients, however long the stream is.
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
        """Return one nearly independent estimate per group, from leaving out one group at a time (jackknife).

        Their spread is that of `estimate` or slightly larger: the jackknife is conservative (Efron, Stein 1981). The
        list is empty while there are fewer than two gradients outside some group.
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
        sq_sum = max(sum(products[group][other] for group in groups for other in groups), 0.0)
        if self.population is None:
            return u_statistic(sum_sq, sq_sum, n)
        return disjoint_parts(
            sum_sq, sq_sum, n, part_size=self.batch_size, batch_size=self.batch_size, population=self.population
        )


def measure_noise(
    model: nn.Module,
    loss_fn: Callable[[Batch], Tensor],
    batches: Iterable[Batch],
    population: int | None = None,
    relative_error: float | None = None,
    max_batches: int | None = None,
    *,
    optimizer: Optimizer | None = None,
    parameters: Iterable[Tensor] | None = None,
    generators: Iterable[torch.Generator] = (),
    step: int | None = None,
    run: str = "",
    verbose: bool = True,
) -> Reading:
    """Measure G and N at the current weights from independent batches of equal size, and leave no trace.

    The model is used in the mode that it is in. In train mode BatchNorm is measured as it trains, so use batches of the
    training size. Parameters, `.grad`, buffers, modes, the optimizer, the global generators and the given ones are bit
    for bit what they were, also after an error. This takes the memory of a few gradients, however many batches there
    are.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.ones_(model.weight)
    >>> batches = [torch.tensor([[1.0]]), torch.tensor([[3.0]])]  # the loss w·x has the gradients 1 and 3
    >>> print(measure_noise(model, lambda x: model(x).mean(), batches))
    G = 3, N = 2 at batch size 1, R = 1 (2 gradients)

    Args:
        model: the model whose gradients are measured.
        loss_fn: takes a batch, returns its mean loss.
        batches: independent batches, all of the size the run trains with; finite, unless `max_batches` is given.
        population: number of examples in the data set, when the batches are disjoint parts of one shuffled epoch: G and
            N are then corrected for it. When not given, a `DataLoader` that goes through its data set in an epoch tells
            it, and any other batches count as drawn independently of each other.
        relative_error: stop as soon as the 95% interval of N/G reaches this far to either side, relative to N/G. The
            reading's own `relative_error` says how far it got, and `n` how many batches that took.
        max_batches: use no more batches than this; 1000 when only `relative_error` is given.
        optimizer: the optimizer of the run, from which settings and the second moment of Adam and RMSprop are read.
        parameters: measure only these.
        generators: generators that drawing the batches advances; they are restored afterwards. Those of a DataLoader
            are found automatically.
        step: effective step of the run, for the reading.
        run: name of the run, for the reading.
        verbose: show progress in a terminal or a notebook when it takes longer than two seconds.
    """
    refuse_swapped(loss_fn, batches)
    measured = list(measured_parameters(model, parameters).values())
    optimizer = None if optimizer is None else unwrapped(optimizer)
    settings = None if optimizer is None else state_of(optimizer, measured)
    wanted = None if relative_error is None else domain.positive("relative_error", relative_error)
    limit = None if max_batches is None else min(domain.whole("max_batches", max_batches, at_least=2), sys.maxsize)
    if limit is None and wanted is not None:
        limit = _DEFAULT_CAP
    population = epoch_size(batches) if population is None else population
    with (
        ProgressLine("measuring noise", verbose=verbose) as line,
        undisturbed(model, generators),
        kept_position(batches),
    ):
        stream = _stream(loss_fn, islice(batches, limit), measured, population, wanted, line)
    estimate = stream.estimate()
    buffers = [] if optimizer is None else velocities(optimizer, measured)
    return Reading(
        grad_sq=estimate.grad_sq,
        noise_trace=estimate.noise_trace,
        param_sq=float(square_norm(measured)),
        batch_size=stream.batch_size,
        n=stream.n,
        step=step,
        **({} if settings is None else settings.reading_fields()),
        population=population,
        velocity_sq=float(square_norm(buffers)) if buffers else None,
        param_dot_grad=float(inner_product(measured, stream.mean_gradient())),
        relative_error=interval_reach(stream),
        run=run,
    )


def _stream(
    loss_fn: Callable[[Batch], Tensor],
    batches: Iterable[Batch],
    measured: Sequence[nn.Parameter],
    population: int | None,
    relative_error: float | None,
    line: ProgressLine,
) -> GradientStream:
    stream: GradientStream | None = None
    for number, batch in enumerate(batches, start=1):
        size = batch_size_of(batch)
        if stream is None:
            stream = GradientStream(size, population)
        elif size != stream.batch_size:
            raise ValueError(
                f"all batches must have the size of the first ({stream.batch_size}), batch {number} has {size}: use "
                "drop_last=True"
            )
        if not bool(torch.isfinite(stream.add(gradients_of(mean_loss(loss_fn, batch), measured)))):
            raise ValueError(f"batch {number} gave gradients that are not finite: the run has diverged or overflowed")
        line.say(f"{stream.n} batches")
        # looked at only when all groups have the same size
        if (
            relative_error is not None
            and stream.n % GROUPS == 0
            and (interval_reach(stream) or math.inf) <= relative_error
        ):
            break
    if stream is None or stream.n < 2:
        raise ValueError(f"at least 2 batches are needed, got {0 if stream is None else 1}")
    return stream


def interval_reach(stream: GradientStream) -> float | None:
    """How far the 95% interval of N/G reaches to its wider side, over N/G; None when G is not resolved."""
    values = stream.pseudo_values()
    if not values:
        return None
    found = ratio_interval(
        [value.noise_trace for value in values],
        [value.grad_sq for value in values],
        confidence=_CONFIDENCE,
        independent=True,
    )
    if found.kind != "bounded" or found.value <= 0:
        return None
    return max(found.high - found.value, found.value - found.low) / found.value


@dataclass(frozen=True, repr=False)
class PartsComparison(Printed):
    """The same batches at the same weights, measured whole and in parts.

    Attributes:
        whole: the frozen reading: what the run sees when it is not probed.
        parts: the frozen reading in parts, which is what the readings of an in-run probe estimate.
    """

    whole: Reading
    parts: Reading

    @property
    def ratio(self) -> float | None:
        """N/G in parts over N/G whole: 1 without BatchNorm, up to rounding; None if either G is not resolved."""
        if min(self.whole.grad_sq, self.parts.grad_sq, self.whole.noise_trace) <= 0:
            return None
        whole = self.whole.noise_trace / self.whole.grad_sq
        return self.parts.noise_trace / self.parts.grad_sq / whole

    def to_dict(self) -> dict[str, Any]:
        """Both readings and the ratio, as JSON values."""
        return json_fields_of(self, "whole", "parts", "ratio")

    def __str__(self) -> str:
        ratio = "not resolved: give more batches" if self.ratio is None else f"{self.ratio:.3g}"
        return f"whole: {self.whole}\nparts: {self.parts}\nN/G in parts over N/G whole: {ratio}"


def compare_parts(
    model: nn.Module,
    loss_fn: Callable[[Batch], Tensor],
    batches: Iterable[Batch],
    parts: int = 4,
    *,
    max_batches: int | None = None,
    parameters: Iterable[Tensor] | None = None,
) -> PartsComparison:
    """Measure independent batches whole and cut into `parts`, at frozen weights and without a trace.

    With BatchNorm, N/G from parts of 16 examples is off by about 10% on ordinary networks and several-fold on an
    over-fitted one.

    Args:
        model: the model, in the mode in which it trains.
        loss_fn: takes a batch, whole or a part, returns its mean loss.
        batches: independent batches of the training size; all are kept in memory.
        parts: number of parts into which each is cut.
        max_batches: use no more of them than this.
        parameters: measure only these.
    """
    if parts < 2:
        raise ValueError(f"parts must be at least 2, got {parts}: a whole batch is what the parts are compared with")
    refuse_swapped(loss_fn, batches)
    measured = None if parameters is None else list(parameters)
    with undisturbed(model), kept_position(batches):
        kept = list(islice(batches, max_batches))

    def in_parts(batch: Batch) -> Tensor:
        return torch.stack([mean_loss(loss_fn, part) for part in split(batch, parts)]).mean()

    whole = measure_noise(model, loss_fn, kept, parameters=measured, verbose=False)
    cut = measure_noise(model, in_parts, kept, parameters=measured, verbose=False)
    return PartsComparison(whole, replace(cut, approximate=True))
