"""Ranks that work together, and the messages that they exchange.

Ranks share every batch (`Group`, by `process_group=`), every parameter (`Shards`, by `fully_shard`), or are averaged by
torch itself (`DataParallelParts`, by DistributedDataParallel). Gradients of a group travel as one vector that always
has the same layout: the order of summation, hence every bit, does not depend on when a run was started or continued.
DistributedDataParallel regroups its buckets after the first step instead.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import ReferenceType, ref

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.distributed import ProcessGroup
from torch.nn.parallel import DistributedDataParallel

from svag.noise.parameters import (
    LARGE_SCALE,
    NormsOf,
    by_device,
    gradient_sums,
    refuse_stale,
    row_count,
    sum_squares,
    total,
)
from svag.noise.pending import StepSums, sums_of_weights


class LostMessage(RuntimeError):  # noqa: N818  # what it means is for the receiver to say
    """A message failed because another rank ended or does not answer; the text is torch's."""


@dataclass(frozen=True)
class Averaged:
    """What arrived together with the averaged gradient, as 0-d tensors not yet synchronised.

    Attributes:
        loss: the mean loss over the examples of all ranks.
        weight: the sum of the weights of all ranks, their number of examples.
        parts: the sum of the parts of all ranks.
    """

    loss: Tensor
    weight: Tensor
    parts: Tensor


class Group:
    """The ranks of a torch process group; without one, this rank alone, and messages return what they are given.

    >>> Group(None).size
    1

    Attributes:
        rank: which of the ranks this one is.
        size: how many there are.
    """

    def __init__(self, process_group: ProcessGroup | None, model: nn.Module | None = None) -> None:
        """Take part in `process_group`; a `model` that averages its gradients by itself is refused."""
        self._reference: ReferenceType[ProcessGroup] | None = None
        self.rank, self.size = 0, 1
        if process_group is None:
            return
        if not isinstance(process_group, ProcessGroup):
            given = repr(process_group[:40]) if isinstance(process_group, str) else f"a {type(process_group).__name__}"
            raise TypeError(
                f"process_group must be a torch.distributed process group, got {given}: give "
                "torch.distributed.group.WORLD, on every rank that is one of its members"
            )
        if isinstance(model, DistributedDataParallel):
            raise ValueError(
                "DistributedDataParallel averages the gradients by itself: leave out process_group, or give the model "
                "without its wrapper"
            )
        # weak: a group that is kept beyond destroy_process_group() keeps its threads, which sometimes abort the
        # interpreter at its end
        self._reference = ref(process_group)
        self.rank, self.size = dist.get_rank(process_group), dist.get_world_size(process_group)

    @property
    def process_group(self) -> ProcessGroup | None:
        """Torch's own group; None for one rank."""
        found = None if self._reference is None else self._reference()
        if found is None and self.size > 1:
            raise RuntimeError("the process group was destroyed: take all steps before destroy_process_group()")
        return found

    def total(self, number: Tensor) -> Tensor:
        """Sum of a tensor over the ranks."""
        if self.size == 1:
            return number
        number = number.clone()
        with delivered():
            dist.all_reduce(number, group=self.process_group)
        return number

    def gathered(self, numbers: Sequence[int], device: torch.device) -> list[list[int]]:
        """The whole numbers of every rank, in the order of the ranks; it waits for the device."""
        mine = torch.tensor(numbers, dtype=torch.int64, device=device)
        found = [torch.empty_like(mine) for _ in range(self.size)] if self.size > 1 else [mine]
        if self.size > 1:
            with delivered():
                dist.all_gather(found, mine, group=self.process_group)
        return [row.tolist() for row in found]

    def of_first(self, number: int, device: torch.device) -> int:
        """Send the first rank's number to all ranks, and return it."""
        return self.gathered([number], device)[0][0]

    def average_gradients(
        self, parameters: Sequence[nn.Parameter], loss: Tensor, weight: float, parts: int = 1
    ) -> Averaged:
        """Put the weighted mean over the ranks into `.grad`, in one message that also carries the loss.

        With the number of a rank's examples as its `weight`, the mean over ranks of means over their shares is the mean
        over the whole batch. A parameter that only some ranks used gets its gradient on all of them.
        """
        return self._combined(parameters, loss, weight, parts, mean=True)

    def add_gradients(self, parameters: Sequence[nn.Parameter], loss: Tensor) -> Tensor:
        """Put the sum over the ranks into `.grad`, and return the sum of the losses."""
        return self._combined(parameters, loss, 1.0, 1, mean=False).loss

    def _combined(
        self, parameters: Sequence[nn.Parameter], loss: Tensor, weight: float, parts: int, *, mean: bool
    ) -> Averaged:
        if self.size == 1:
            return Averaged(loss, torch.tensor(float(weight)), torch.tensor(float(parts)))
        present = [parameter.grad is not None for parameter in parameters]
        pieces = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        # in single precision at least, also for a model in half precision: numbers of examples must stay exact
        numbers = pieces[0].new_tensor(
            [weight, parts, *present], dtype=torch.promote_types(pieces[0].dtype, torch.float32)
        )
        flat = torch.cat([*(piece.reshape(-1) for piece in pieces), loss.to(numbers).reshape(1), numbers])
        averaged = flat[: len(flat) - len(numbers)]
        if mean:
            averaged *= weight
        with delivered():
            dist.all_reduce(flat, group=self.process_group)
        total, counted, used = flat[len(averaged) :].split([1, 1, len(present)])
        if mean:
            averaged /= total.clamp(min=torch.finfo(total.dtype).tiny)  # 0 where no rank has an example
        *gradients, shared = averaged.split([*(piece.numel() for piece in pieces), 1])
        if not all(present):
            present = (used > 0).tolist()
        for parameter, piece, gradient, wanted in zip(parameters, pieces, gradients, present, strict=True):
            if wanted:
                parameter.grad = piece.copy_(gradient.view_as(piece))
        # copies, which do not keep the whole vector alive
        return Averaged(shared[0].to(loss.dtype, copy=True), total[0].clone(), counted[0].clone())


class Shards:
    """The ranks over which `torch.distributed.fsdp.fully_shard` spreads every parameter and its gradient.

    Along the dimension of the mesh that shards, every entry is on exactly one rank, so the sums of the ranks add up to
    the sum over all entries. Along the other dimension of a two-dimensional mesh (HSDP) all ranks hold the same
    entries.

    Attributes:
        ranks: how many ranks average their gradients, along both dimensions.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        """Find the mesh of these parameters, or refuse what is not sharded along one dimension of it."""
        from torch.distributed.tensor import DTensor, Replicate, Shard

        found = set()
        for name, parameter in parameters.items():
            placements = parameter.placements if isinstance(parameter, DTensor) else ()
            sharded = [number for number, placement in enumerate(placements) if isinstance(placement, Shard)]
            copied = [placement for placement in placements if isinstance(placement, Replicate)]
            if len(sharded) != 1 or len(copied) != len(placements) - 1:
                how = ", ".join(map(repr, placements)) or "not sharded"
                raise TypeError(
                    f"parameter {name} is {how}: of a sharded model, parameters that fully_shard spreads over one "
                    "dimension of the mesh can be measured; leave the others out with parameters="
                )
            assert isinstance(parameter, DTensor)
            found.add((parameter.device_mesh, sharded[0]))
        if len(found) > 1:
            raise TypeError(
                f"the parameters live on {len(found)} different meshes, which cannot be measured together: choose "
                "those of one mesh with parameters="
            )
        self._mesh, self._dimension = found.pop()
        self.ranks: int = self._mesh.size()

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that writes."""
        return dist.get_rank() == int(self._mesh.mesh.min())

    def of_first(self, number: int, device: torch.device) -> int:
        """Send the number of the rank that writes to all ranks, and return it."""
        found = torch.tensor([number if self.is_first else 0], device=device)
        for dimension in range(self._mesh.ndim):
            with delivered():
                dist.all_reduce(found, group=self._mesh.get_group(dimension))
        return int(found)

    def total(self, number: Tensor) -> Tensor:
        """Sum of a tensor over the shards."""
        number = number.clone()
        with delivered():
            dist.all_reduce(number, group=self._mesh.get_group(self._dimension))
        return number


class DataParallelParts:
    """Collects the sums of a step over the micro-batches of all ranks of a DistributedDataParallel model.

    Hooks on the leaves see what a backward pass on this rank is about to add to `.grad`, before the ranks are averaged.
    No gradient is copied, closing a step costs one message of five numbers, and `remove` takes the hooks off. Backward
    passes before the first `micro_batch()` of a step count as one part; in a step without `micro_batch()`, the ranks
    are the parts.

    Args:
        model: the wrapped model.
        parameters: those that are measured, by name.
    """

    def __init__(self, model: DistributedDataParallel, parameters: Mapping[str, nn.Parameter]) -> None:
        self._model, self._parameters = model, list(parameters.values())
        self._listening = True
        self._fresh_seen = False
        # one number per row of every parameter; rows of unused parameters stay 0
        self._norms: list[Tensor] = []
        self._norms_of: dict[int, NormsOf] = {}
        for parameters_there in by_device(self._parameters):
            counts = [row_count(parameter) for parameter in parameters_there]
            kind = max((p.dtype for p in parameters_there), key=lambda dtype: dtype.itemsize)
            norms = torch.zeros(
                sum(counts), dtype=torch.promote_types(kind, torch.float32), device=parameters_there[0].device
            )
            self._norms.append(norms)
            for parameter, room in zip(parameters_there, norms.split(counts), strict=True):
                self._norms_of[id(parameter)] = NormsOf(parameter, room)
        self._parts: list[Tensor] = []
        self._weights: list[float | None] = []
        self._seen: set[int] = set()
        self._reductions: dict[int, int] = {}
        self._scale, self._reduced, self._twice = 1.0, False, False
        self._damping = 1.0  # factor on gradients before they are squared, as a hook does not know the scale
        self._before: Tensor | None = None
        # autograd nodes, and the hooks on them, exist only while there is a reference to them
        self._nodes = [get_gradient_edge(parameter).node for parameter in self._parameters]
        self._handles = [
            node.register_prehook(self._hook(parameter))
            for node, parameter in zip(self._nodes, self._parameters, strict=True)
        ]

    def listen(self, measured: bool) -> None:
        """Let the hooks do nothing in a step that is not measured."""
        self._listening = measured

    def micro_batch(self, scale: float, weight: float | None = None) -> None:
        """Record a micro-batch that was back-propagated on this rank, with its loss multiplied by `scale`."""
        if not self._seen:
            raise ValueError("there is no gradient yet: call micro_batch() after backward()")
        if self._twice:
            self.forget()
            raise ValueError(
                "a parameter got two gradients in one micro-batch: call micro_batch() after every backward(), and "
                "checkpoint activations with use_reentrant=False"
            )
        if not self._parts:
            before, self._before = self._before, None
            refuse_stale(before)
        self._parts.append(total([sum_squares(norms) for norms in self._norms]) / (scale * self._damping) ** 2)
        self._damping = 2.0 ** -round(math.log2(scale)) if scale > LARGE_SCALE else 1.0
        self._weights.append(weight)
        self._scale = scale
        self._begin_part()

    def close(self, loss: Tensor | None = None, examples: int | None = None) -> StepSums:
        """Return the sums of the step and start the next one."""
        try:
            if self._seen:
                self.micro_batch(self._scale)
            if not self._parts or not self._reduced:
                raise ValueError("no gradient was reduced in this step: its last backward() must be outside no_sync()")
            reductions = max(self._reductions.values(), default=0)
            if len(self._parts) == 1 and reductions > 1 and self._fresh_seen:
                raise ValueError(
                    f"gradients were reduced {reductions} times in one step: call micro_batch() after every "
                    "backward(), or accumulate under no_sync() and reduce once, at the last one"
                )
            return self._sums(loss)
        finally:
            self.forget()

    def skip(self, loss: Tensor, weight: float) -> Tensor:
        """End a step that is not measured."""
        self.forget()
        return loss

    def whole(self, number: Tensor) -> Tensor:
        """Return the number itself: every rank holds all parameters."""
        return number

    def forget(self) -> None:
        """Drop what was recorded since the last step."""
        self._parts, self._weights, self._scale, self._reduced = [], [], 1.0, False
        self._reductions.clear()
        self._begin_part()

    def remove(self) -> None:
        """Stop recording, and take the hooks off the model."""
        self.forget()
        for handle in self._handles:
            handle.remove()
        self._handles, self._nodes = [], []

    def _begin_part(self) -> None:
        self._seen.clear()
        self._twice = False
        for norms in self._norms:
            norms.zero_()

    def _hook(self, parameter: nn.Parameter) -> Callable[[Sequence[Tensor]], None]:
        # the model must not keep an abandoned probe alive
        me = ref(self)

        def notice(gradients: Sequence[Tensor | None]) -> None:
            recorder = me()
            if recorder is not None and recorder._listening and gradients[0] is not None:
                recorder._notice(parameter, gradients[0].detach())

        return notice

    def _notice(self, parameter: nn.Parameter, gradient: Tensor) -> None:
        """A backward pass is about to add `gradient` to `.grad`."""
        me, before = id(parameter), parameter.grad
        if not self._seen and not self._parts:
            self._before = None if before is None else torch.linalg.vector_norm(before)
        if before is None:
            # the first pass of a step: passes before it belong to a step that was not closed
            self._fresh_seen, self._reductions[me] = True, 0
            if me in self._seen and not self._parts:
                self._begin_part()
                self._before = None
        elif not self._parts:
            gradient = before + gradient
        elif me in self._seen:
            self._twice = True
        self._seen.add(me)
        self._reduced = self._model.require_backward_grad_sync
        self._reductions[me] = self._reductions.get(me, 0) + self._reduced
        self._norms_of[me].put(gradient if self._damping == 1 else gradient * self._damping)

    def _sums(self, loss: Tensor | None) -> StepSums:
        group, parts, scale = self._model.process_group, len(self._parts), self._scale
        ranks = dist.get_world_size(group)
        weights = sums_of_weights(self._weights, whole=False)
        # every loss was divided by the number of the rank's parts, or weighted, and .grad is the mean over the ranks
        times = parts if weights is None else 1 / ranks
        own = torch.stack(self._parts).sum() * times**2
        square, param_sq, product = gradient_sums(self._parameters, scale)
        # all ranks hold the same averaged gradient, but a rank that adds up in another order, for example on another
        # processor, could get another last bit of G, and a learning rate may depend on it
        message = torch.stack([own, square.to(own), *own.new_tensor([parts, *(weights or (0.0, 0.0))])])
        with delivered():
            dist.all_reduce(message, group=group)
        sq_sum = message[1] / ranks * (message[2] if weights is None else 1) ** 2
        return StepSums(
            product=product,
            norms=torch.stack([param_sq, sq_sum, message[0]]).sqrt(),
            parts=message[2],
            own_parts=parts,
            scaled=scale != 1.0,
            loss=loss,
            weights=None if weights is None else message[3:],
            expected=parts * ranks,
        )


@contextmanager
def delivered() -> Iterator[None]:
    """Distinguish failed messages from the other errors that torch reports in the same way."""
    try:
        yield
    except RuntimeError as error:
        raise LostMessage(str(error)) from error
