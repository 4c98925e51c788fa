"""The ranks of a run: how they find each other, share a batch, exchange messages and end together."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

# If this is first imported while a group is open, as the first optimizer does, it keeps that group in a default
# argument. The threads of the group then outlive destroy_process_group and sometimes abort the interpreter at exit.
import torch.distributed.nn.functional
from torch import Tensor, nn
from torch.distributed import ProcessGroup, Store  # type: ignore[attr-defined]  # Store is there
from torch.distributed.rendezvous import rendezvous

from svag.noise.group import Group, LostMessage, delivered

T = TypeVar("T")

CONTINUES = "the same command continues from the last checkpoint, with any number of processes unless BatchNorm is used"
# A rank that is alive but does not answer is given up after this many seconds; a dead one is noticed at once.
PATIENCE = timedelta(minutes=10)
# A rank that ends waits this long for another one to finish its message.
_COURTESY = timedelta(seconds=30)


class RankLost(Exception):  # noqa: N818  # it is not an error of this rank
    """Another rank of the run died or does not answer; the message is one sentence."""


class Elsewhere(Exception):  # noqa: N818
    """Rank 0 of the run failed, and reports the reason itself.

    Attributes:
        kind: the class of its error.
    """

    def __init__(self, kind: type[BaseException]) -> None:
        super().__init__(f"the first process of the run ended with {kind.__name__}")
        self.kind = kind


@contextmanager
def ranks_answer() -> Iterator[None]:
    """Inside, a message between ranks that does not get through raises `RankLost`."""
    try:
        yield
    except LostMessage as error:
        # torch distinguishes a dead rank from a silent one only by the text of the error, which changes between
        # versions
        raise RankLost(f"a process of this run was lost, or did not answer in time: {CONTINUES}") from error


def kind_of(error: Exception) -> type[BaseException]:
    """The most specific class of an error that every rank can import: one of svag or of Python itself."""
    return next(kind for kind in type(error).__mro__ if kind.__module__.split(".")[0] in {"svag", "builtins"})


@dataclass(frozen=True, eq=False)
class Ranks:
    """The ranks that share a run. With a single rank, messages do nothing.

    >>> Ranks(rank=1, size=2).share(9), Ranks(rank=1, size=2).weight(9)
    (slice(4, 9, None), 1.1111111111111112)

    Attributes:
        rank: the number of this rank; rank 0 writes.
        size: number of ranks.
        group: carries their messages.
        store: torchrun's key-value store, which outlives each rank.
    """

    rank: int = 0
    size: int = 1
    group: Group = field(default_factory=lambda: Group(None))
    store: Store | None = None

    @classmethod
    def of(cls, process_group: ProcessGroup | None) -> "Ranks":
        """The ranks of a process group; this one alone for None."""
        group = Group(process_group)
        return cls(group.rank, group.size, group)

    def share(self, count: int) -> slice:
        """This rank's share of `count` examples or parts: consecutive, and of nearly the same size on every rank."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def count(self, count: int) -> int:
        """How many of `count` are this rank's."""
        share = self.share(count)
        return int(share.stop - share.start)

    def weight(self, count: int) -> float:
        """Weight of this rank's mean, so that the mean over ranks is the mean over all; exactly 1 for equal shares."""
        return self.size * self.count(count) / count

    def total(self, number: Tensor) -> Tensor:
        """Sum of a tensor over the ranks."""
        return self.group.total(number)

    def mean(self, number: Tensor) -> Tensor:
        """Mean of a tensor over the ranks."""
        return number if self.size == 1 else self.total(number) / self.size

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
            with delivered():
                for buffer in model.buffers():
                    dist.broadcast(buffer, group=self.group.process_group, group_src=0)

    def first(self, work: Callable[[], T]) -> T:
        """Let rank 0 call `work`. All ranks get what it returns, or end together if it fails."""
        if self.size == 1:
            return work()
        told: list[Any] = [None]
        failure: Exception | None = None
        if self.rank == 0:
            try:
                told = [(work(), None)]
            except Exception as error:
                failure, told = error, [(None, kind_of(error))]
        with delivered():
            dist.broadcast_object_list(told, group=self.group.process_group, group_src=0)
        if failure is not None:
            raise failure
        result, kind = told[0]
        if kind is not None:
            raise Elsewhere(kind)
        found: T = result
        return found

    def say(self, sentence: str | None, aloud: Callable[[str], None]) -> None:
        """Report how this rank ends, unless another rank has reported already; with None another rank reports."""
        if self.store is None:
            if sentence is not None:
                aloud(sentence)
            return
        try:
            if sentence is not None and self.store.add("has the word", 1) == 1:
                aloud(sentence)
                self.store.set("has spoken", "1")
            else:  # torchrun stops all ranks as soon as one has ended, so let the other one finish its message
                self.store.wait(["has spoken"], _COURTESY)
        except RuntimeError:  # the machine that held the store is gone
            if sentence is not None:
                aloud(sentence)


ALONE = Ranks()
"""An ordinary run on one rank."""

_TORCHRUN_SETS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def launched(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether torchrun started this program together with others.

    >>> launched({"RANK": "0", "WORLD_SIZE": "2"})
    False
    """
    return all(name in environment for name in _TORCHRUN_SETS) and environment["WORLD_SIZE"] != "1"


@contextmanager
def joined(device: str = "auto") -> Iterator[Ranks]:
    """The ranks of this run while the context is open: those of torchrun, or this process alone.

    They communicate by gloo, and for tensors on GPUs by nccl. Each uses the GPU of its local number.
    """
    if not launched():
        yield ALONE
        return
    on_gpu = device != "cpu" and torch.cuda.is_available()
    if on_gpu and (local := int(os.environ["LOCAL_RANK"])) < torch.cuda.device_count():
        torch.cuda.set_device(local)
    elif on_gpu:
        raise ValueError(
            f"torchrun started more processes than the {torch.cuda.device_count()} GPUs here: start that many, or use "
            "--device cpu"
        )
    try:
        store, rank, size = next(rendezvous("env://", timeout=PATIENCE))
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if on_gpu else "gloo", store=store, rank=rank, world_size=size, timeout=PATIENCE
        )
    except RuntimeError as error:
        raise RankLost(
            f"the {os.environ['WORLD_SIZE']} processes of this run did not find each other at "
            f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}: start all of them, on a port of their own"
        ) from error
    with ExitStack() as at_the_end:
        at_the_end.callback(dist.destroy_process_group)
        at_the_end.enter_context(_told_to_stop())
        yield Ranks(rank, size, Group(dist.group.WORLD), store)


@contextmanager
def _told_to_stop() -> Iterator[None]:
    """Turn the SIGTERM that torchrun sends when a rank has died into a sentence."""
    if threading.current_thread() is not threading.main_thread():  # only there may handlers be set
        yield
        return

    def stop(*_: Any) -> None:
        raise RankLost(f"this process was told to stop, most likely because another one has ended: {CONTINUES}")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is stop:  # otherwise another handler was installed meanwhile
            signal.signal(signal.SIGTERM, before)
