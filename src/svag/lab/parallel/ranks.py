"""The processes of a run: whose examples are whose, and the few messages that they exchange."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import Store  # type: ignore[attr-defined]  # it is there

from svag.lab.parallel.lost import Elsewhere, kind_of, lost

T = TypeVar("T")

# Dead processes are noticed at once; this is for those that live and do not answer.
PATIENCE = timedelta(minutes=10)
# Who is not the first to speak waits so long for the first to have spoken.
_COURTESY = timedelta(seconds=30)


@dataclass(frozen=True, eq=False)
class Ranks:
    """The processes that share a run; alone, every message is the identity.

    >>> Ranks(rank=1, size=2).share(9), Ranks(rank=1, size=2).weight(9)
    (slice(4, 9, None), 1.1111111111111112)

    Attributes:
        rank: which of them this one is; 0 is the one that writes.
        size: how many there are.
        store: where they meet; it outlives each of them.
    """

    rank: int = 0
    size: int = 1
    store: Store | None = None

    def share(self, count: int) -> slice:
        """Which of `count` examples, or parts, are this rank's: consecutive ones, as many as others' or one more."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def count(self, count: int) -> int:
        """How many of `count` are this rank's."""
        share = self.share(count)
        return int(share.stop - share.start)

    def weight(self, count: int) -> float:
        """What makes the mean over ranks, of means over shares, the mean over all: exactly 1 for equal shares."""
        return self.size * self.count(count) / count

    def total(self, number: Tensor) -> Tensor:
        """Sum of a tensor over the ranks."""
        if self.size == 1:
            return number
        number = number.clone()
        with _delivered():
            dist.all_reduce(number)
        return number

    def mean(self, number: Tensor) -> Tensor:
        """Mean of a tensor over the ranks."""
        return number if self.size == 1 else self.total(number) / self.size

    def average_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Put into `.grad` its mean over the ranks, in one message.

        One vector, always of the same layout: the order of summation, hence every bit, does not depend on when the run
        was started. A parameter that only some ranks used gets its gradient on all of them.
        """
        if self.size == 1:
            return
        present = [parameter.grad is not None for parameter in parameters]
        pieces = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = torch.cat([*(piece.reshape(-1) for piece in pieces), pieces[0].new_tensor(present)])
        with _delivered():
            dist.all_reduce(flat)
        flat /= self.size
        *parts, used = flat.split([*(piece.numel() for piece in pieces), len(present)])
        if not all(present):
            present = (used > 0).tolist()
        for parameter, piece, part, wanted in zip(parameters, pieces, parts, present, strict=True):
            if wanted:
                parameter.grad = piece.copy_(part.view_as(piece))

    @contextmanager
    def averaging(self, parameters: Sequence[nn.Parameter]) -> Iterator[None]:
        """Inside, every gradient of these parameters is averaged over the ranks as soon as it is computed."""
        with ExitStack() as hooks:
            if self.size > 1:
                for parameter in parameters:
                    hooks.callback(parameter.register_hook(self.mean).remove)
            yield

    def same_buffers(self, model: nn.Module) -> None:
        """Give every rank the buffers of rank 0: the running statistics of BatchNorm, which only evaluations use."""
        if self.size > 1:
            with _delivered():
                for buffer in model.buffers():
                    dist.broadcast(buffer, src=0)

    def first(self, work: Callable[[], T]) -> T:
        """Let rank 0 work; all get what it returns, or end together if it fails."""
        if self.size == 1:
            return work()
        told: list[Any] = [None]
        failure: Exception | None = None
        if self.rank == 0:
            try:
                told = [(work(), None)]
            except Exception as error:
                failure, told = error, [(None, kind_of(error))]
        with _delivered():
            dist.broadcast_object_list(told, src=0)
        if failure is not None:
            raise failure
        result, kind = told[0]
        if kind is not None:
            raise Elsewhere(kind)
        found: T = result
        return found

    def say(self, sentence: str | None, aloud: Callable[[str], None]) -> None:
        """Say how this process ends, unless another one said so first; None leaves the word to another."""
        if self.store is None:
            if sentence is not None:
                aloud(sentence)
            return
        try:
            if sentence is not None and self.store.add("has the word", 1) == 1:
                aloud(sentence)
                self.store.set("has spoken", "1")
            else:  # torchrun stops all as soon as one has ended: let the other finish its sentence
                self.store.wait(["has spoken"], _COURTESY)
        except RuntimeError:  # the store has gone with the machine that held it
            if sentence is not None:
                aloud(sentence)


ALONE = Ranks()
"""An ordinary run in one process."""


@contextmanager
def _delivered() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise lost(error, PATIENCE.total_seconds()) from error
