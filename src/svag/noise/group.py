"""The ranks that share every batch (`process_group=`), and the messages that they exchange.

Gradients travel as one vector that always has the same layout: the order of summation, hence every bit, does not depend
on when a run was started or continued. DistributedDataParallel regroups its buckets after the first step instead.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import ReferenceType, ref

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.nn.parallel import DistributedDataParallel


class LostMessage(RuntimeError):  # noqa: N818  # what it means is for the receiver to say
    """A message did not get through, because another rank ended or does not answer; in torch's own words."""


@dataclass(frozen=True)
class Averaged:
    """What arrived together with the averaged gradient, as 0-d tensors that nobody has waited for yet.

    Attributes:
        loss: the mean loss over the examples of all ranks.
        weight: the sum of the weights of all ranks, their number of examples.
        parts: the sum of the parts of all ranks.
    """

    loss: Tensor
    weight: Tensor
    parts: Tensor


class Group:
    """The ranks of a torch process group; without one, this rank alone, and every message is the identity.

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
            raise TypeError(
                f"process_group must be a torch.distributed process group, got {process_group!r}: give "
                "torch.distributed.group.WORLD, on every rank that is one of its members"
            )
        if isinstance(model, DistributedDataParallel):
            raise ValueError(
                "DistributedDataParallel averages the gradients by itself: leave out process_group, or give the model "
                "without its wrapper"
            )
        # torch itself keeps a group until it is destroyed; whoever keeps it longer keeps its threads, which now and
        # then abort the interpreter at its end
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

    def average_gradients(
        self, parameters: Sequence[nn.Parameter], loss: Tensor, weight: float, parts: int = 1
    ) -> Averaged:
        """Put the weighted mean over the ranks into `.grad`, in one message that takes the loss along.

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


@contextmanager
def delivered() -> Iterator[None]:
    """Tell a message that did not get through from the other errors that torch reports in the same way."""
    try:
        yield
    except RuntimeError as error:
        raise LostMessage(str(error)) from error
