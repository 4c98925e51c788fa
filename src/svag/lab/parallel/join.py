"""How the processes that torchrun started find each other, and how they part."""

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.distributed as dist

# Imported while a group is open, as by the first optimizer, it keeps that group for good, as a default argument: its
# threads then outlive destroy_process_group, and now and then abort the interpreter at its end.
import torch.distributed.nn.functional
from torch.distributed.rendezvous import rendezvous

from svag.lab.parallel.lost import CONTINUES, RankLost
from svag.lab.parallel.ranks import ALONE, PATIENCE, Ranks

_TORCHRUN_SETS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def launched(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether torchrun started this process together with others.

    >>> launched({"RANK": "0", "WORLD_SIZE": "2"})
    False
    """
    return all(name in environment for name in _TORCHRUN_SETS) and environment["WORLD_SIZE"] != "1"


@contextmanager
def joined(device: str = "auto") -> Iterator[Ranks]:
    """The processes of this run while the context is open: those of torchrun, or this one alone.

    They talk by gloo, and about tensors on GPUs by nccl; each takes the GPU of its number on its machine.
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
        yield Ranks(rank, size, store)


@contextmanager
def _told_to_stop() -> Iterator[None]:
    """Turn the SIGTERM that torchrun sends when a process has died into a sentence."""
    if threading.current_thread() is not threading.main_thread():  # only there may handlers be set
        yield
        return

    def stop(*_: Any) -> None:
        raise RankLost(f"this process was told to stop, most likely because another one has ended: {CONTINUES}")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is stop:  # else someone has found a better use for it
            signal.signal(signal.SIGTERM, before)
