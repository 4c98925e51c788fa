"""What a step adds to `.grad`, part by part, as the sums from which its reading is made.

The parts of a step are the micro-batches of one rank (`MicroBatches`), the micro-batches of several ranks that share
the batch (`SharedParts`), or the ranks of a DistributedDataParallel model (`DataParallelRanks`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # it is there, and DDP checks for it
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from svag.noise.group import Group
from svag.noise.parameters import (
    by_device,
    flat_norms,
    flat_product,
    flatten,
    inner_product,
    precise,
    square_norm,
    total,
)


@dataclass(frozen=True)
class StepSums:
    """Sums over the parts' gradients g_i of one step, as 0-d tensors that nobody has waited for yet.

    Attributes:
        sum_sq: Σ|g_i|².
        sq_sum: |Σg_i|².
        param_sq: R = |x|².
        param_dot_grad: ⟨x, Σg_i/n⟩.
        parts: their number n; a tensor where ranks have counted them together.
        own_parts: how many of them this rank had.
        scaled: a GradScaler was at work, so that an overflow is part of the plan.
        loss: the mean loss of the step, where it was given.
    """

    sum_sq: Tensor
    sq_sum: Tensor
    param_sq: Tensor
    param_dot_grad: Tensor
    parts: int | Tensor
    own_parts: int
    scaled: bool
    loss: Tensor | None


class Recorder(Protocol):
    """Writes down the norms of the parts of a step."""

    def micro_batch(self, scale: float) -> None:
        """One micro-batch has been back-propagated, with its loss multiplied by `scale`."""
        ...

    def close(self, loss: Tensor | None = None, examples: int | None = None) -> StepSums:
        """Return the sums of the step and start the next one; `loss` and `examples` are those of this rank."""
        ...

    def skip(self) -> None:
        """End a step that is not measured."""
        ...

    def forget(self) -> None:
        """Drop what was recorded since the last step."""
        ...

    def remove(self) -> None:
        """Stop recording."""
        ...


class MicroBatches:
    """Collects the sums of a step from `.grad`, which is only read, never changed.

    A part's gradient is what `.grad` gained since the part before. That takes two vectors of the size of the gradient
    and a few operations, however many parameters there are.

    Args:
        parameters: those that are measured, by name.
        at_least: so many parts a step must have; one gradient alone cannot tell signal from noise.
    """

    def __init__(self, parameters: dict[str, nn.Parameter], at_least: int = 2) -> None:
        self._devices = by_device(parameters.values())
        self._at_least = at_least
        self._gained: list[Tensor] = []
        self._norms: list[list[Tensor]] = [[] for _ in self._devices]
        self.parts, self.scale = 0, 1.0

    def micro_batch(self, scale: float) -> None:
        """One micro-batch has been back-propagated, with its loss multiplied by `scale`."""
        gradients = [[parameter.grad for parameter in group] for group in self._devices]
        if all(gradient is None for group in gradients for gradient in group):
            raise ValueError("there is no gradient yet: call micro_batch() after backward()")
        gained = [flatten(_filled(group, found)) for group, found in zip(self._devices, gradients, strict=True)]
        if self._gained:
            # the older vector is not needed any more and takes the difference
            parts = [torch.sub(now, before, out=before) for now, before in zip(gained, self._gained, strict=True)]
        else:
            parts = gained
        # squared and added up only when the step is closed: a probe should cost few operations per micro-batch
        for norms, part in zip(self._norms, parts, strict=True):
            norms.append(flat_norms(part) / scale if scale != 1.0 else flat_norms(part))
        self._gained, self.parts, self.scale = gained, self.parts + 1, scale

    def close(self, loss: Tensor | None = None, examples: int | None = None) -> StepSums:
        """Return the sums of the step and start the next one."""
        gained, norms, parts, scale = self._gained, self._norms, self.parts, self.scale
        self.forget()
        if parts < self._at_least:
            raise ValueError(
                f"a step needs at least {self._at_least} micro-batches, got {parts}: call micro_batch() after each "
                "one's backward()"
            )
        weights = [flatten(group) for group in self._devices]
        of_parts, of_all, of_weights = zip(*map(_squares, norms, gained, weights), strict=True)
        product = total([flat_product(one, other) for one, other in zip(weights, gained, strict=True)])
        return StepSums(
            # each loss was divided by their number, so that .grad is the mean of the parts' gradients
            sum_sq=total(of_parts) * parts**2,
            sq_sum=total(of_all) * (parts / scale) ** 2,
            param_sq=total(of_weights),
            param_dot_grad=product if scale == 1.0 else product / scale,
            parts=parts,
            own_parts=parts,
            scaled=scale != 1.0,
            loss=loss,
        )

    def skip(self) -> None:
        """End a step that is not measured."""
        self.forget()

    def forget(self) -> None:
        """Drop what was recorded since the last step."""
        self._gained, self._norms = [], [[] for _ in self._devices]
        self.parts, self.scale = 0, 1.0

    def remove(self) -> None:
        """Stop recording: nothing was attached to the model."""
        self.forget()


def _squares(norms: list[Tensor], gained: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Σ|g_i|², |Σg_i|² and |x|² on one device, squared together."""
    rows = [*norms, flat_norms(gained), flat_norms(weights)]
    squares = torch.cat(rows).to(precise(gained.device)).square_()
    size = len(norms[0])
    return squares[: -2 * size].sum(), squares[-2 * size : -size].sum(), squares[-size:].sum()


def _filled(parameters: list[nn.Parameter], gradients: list[Tensor | None]) -> list[Tensor]:
    return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, gradients, strict=True)]


class SharedParts:
    """Collects the sums of a step whose parts are spread over the ranks of a process group.

    Closing the step averages `.grad` over the ranks, in one message, and adds up Σ|g_i|² in double precision, in
    another one of a single number. Ranks may have different numbers of parts; all parts must have the same size.

    Args:
        parameters: those that are measured, by name.
        trained: all whose gradients are averaged.
        group: the ranks.
    """

    def __init__(self, parameters: dict[str, nn.Parameter], trained: Sequence[nn.Parameter], group: Group) -> None:
        self._mine = MicroBatches(parameters, at_least=1)
        self._parameters, self._trained, self._group = list(parameters.values()), trained, group

    def micro_batch(self, scale: float) -> None:
        """One micro-batch has been back-propagated on this rank, with its loss multiplied by `scale`."""
        self._mine.micro_batch(scale)

    def close(self, loss: Tensor | None = None, examples: int | None = None) -> StepSums:
        """Average `.grad` over the ranks, return the sums of the step and start the next one."""
        scale, mine = self._mine.scale, self._mine.close()
        shared = self._group.average_gradients(
            self._trained,
            loss=torch.zeros(()) if loss is None else loss,
            weight=mine.own_parts if examples is None else examples,
            parts=mine.own_parts,
        )
        pairs = [(parameter, parameter.grad) for parameter in self._parameters if parameter.grad is not None]
        gradients = [gradient for _, gradient in pairs]
        return StepSums(
            sum_sq=self._group.total(mine.sum_sq),
            sq_sum=square_norm(gradients) * (shared.parts / scale) ** 2,
            param_sq=mine.param_sq,
            param_dot_grad=inner_product([parameter for parameter, _ in pairs], gradients) / scale,
            parts=shared.parts,
            own_parts=mine.own_parts,
            scaled=mine.scaled,
            loss=None if loss is None else shared.loss,
        )

    def skip(self) -> None:
        """Average `.grad` over the ranks, so that a step that is not measured can be taken all the same."""
        parts = self._mine.parts
        self.forget()
        self._group.average_gradients(self._trained, torch.zeros(()), weight=parts)

    def forget(self) -> None:
        """Drop what was recorded since the last step, without a message."""
        self._mine.forget()

    def remove(self) -> None:
        """Stop recording: nothing was attached to the model."""
        self.forget()


class DataParallelRanks:
    """Collects the sums of a step over the ranks of a DistributedDataParallel model, whose mean is `.grad`.

    A communication hook sees what a rank has accumulated just before it is reduced, and then reduces it as
    DistributedDataParallel does by itself. Closing a step costs one all-reduce of one number.
    """

    def __init__(self, model: DistributedDataParallel, parameters: dict[str, nn.Parameter]) -> None:
        self.group = model.process_group
        self._parameters = list(parameters.values())
        self._ids = {id(parameter) for parameter in self._parameters}
        self._active, self._fresh_seen = True, False
        self._squares: list[Tensor] = []
        self._reductions, self._scale = 0, 1.0
        try:
            model.register_comm_hook(self, _record_and_reduce)
        except RuntimeError as error:
            raise ValueError(
                "this DistributedDataParallel model already has a communication hook, and it takes only one, for ever: "
                "keep using the first probe, make it before any other hook, or measure with svag.measure_noise"
            ) from error
        self._node = get_gradient_edge(self._parameters[0]).node  # it lives as long as we hold it
        self._handle = self._node.register_prehook(self._notice)

    def micro_batch(self, scale: float) -> None:
        """Note the scale; the parts are the ranks, however many micro-batches each of them accumulates."""
        self._scale = scale

    def close(self, loss: Tensor | None = None, examples: int | None = None) -> StepSums:
        """Return the sums of the step and start the next one."""
        squares, reductions, scale = self._squares, self._reductions, self._scale
        self.forget()
        if not squares:
            raise ValueError("no gradient was reduced in this step: its last backward() must be outside no_sync()")
        if reductions > 1 and self._fresh_seen:
            raise ValueError(
                f"gradients were reduced {reductions} times in one step: accumulate under no_sync() and reduce once, "
                "at the last backward()"
            )
        ranks = dist.get_world_size(self.group)
        sum_sq = total(squares) / scale**2
        dist.all_reduce(sum_sq, group=self.group)
        pairs = [(parameter, parameter.grad) for parameter in self._parameters if parameter.grad is not None]
        gradients = [gradient for _, gradient in pairs]
        return StepSums(
            sum_sq=sum_sq,
            sq_sum=square_norm(gradients) * (ranks / scale) ** 2,
            param_sq=square_norm(self._parameters),
            param_dot_grad=inner_product([parameter for parameter, _ in pairs], gradients) / scale,
            parts=ranks,
            own_parts=ranks,
            scaled=scale != 1.0,
            loss=loss,
        )

    def skip(self) -> None:
        """End a step that is not measured."""
        self.forget()

    def forget(self) -> None:
        """Drop what was recorded since the last step."""
        self._squares = []
        self._reductions, self._scale = 0, 1.0

    def remove(self) -> None:
        """Stop recording; the communication hook cannot be taken off, and goes on reducing as usual."""
        self._active = False
        self._handle.remove()

    def record(self, bucket: GradBucket) -> None:
        """Keep the square of one bucket; the first bucket of a backward pass starts anew."""
        if not self._active:
            return
        if bucket.index() == 0:
            self._squares, self._reductions = [], self._reductions + 1
        pairs = zip(bucket.parameters(), bucket.gradients(), strict=True)
        measured = [gradient for parameter, gradient in pairs if id(parameter) in self._ids]
        if measured:
            self._squares.append(square_norm(measured))

    def _notice(self, gradients: Sequence[Tensor]) -> None:
        # `.grad` is None in the first backward of a step: reductions before it belong to a step nobody closed
        if self._parameters[0].grad is None:
            self._fresh_seen, self._reductions = True, 0


def _record_and_reduce(ranks: DataParallelRanks, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    ranks.record(bucket)
    return allreduce_hook(ranks.group, bucket)
