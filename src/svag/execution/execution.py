"""`svag.Execution`: how the runs of an experiment are carried out, in one frozen record that is passed whole."""

import os
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

from svag.records.fields import SpecError

Device = Literal["auto", "cpu", "cuda"]
Executor = Literal["local", "ray"]


@dataclass(frozen=True)
class Execution:
    """How the runs of an experiment are carried out: how many at a time, on what, and where.

    What makes no sense is refused at once, with the name of the field:

    >>> Execution(workers=2, shard=(0, 4)).shard
    (0, 4)
    >>> Execution(shard=(4, 4))
    Traceback (most recent call last):
    svag.records.fields.SpecError: shard: must be i/n with 0 ≤ i < n, got 4/4: the first of four is 0/4, the last 3/4

    Attributes:
        workers: runs at a time. When None: on this machine as many as the usable cores allow, on CUDA one per device;
            on Ray as many as fit on the cluster.
        threads: threads of torch for each run.
        device: "auto", "cpu" or "cuda"; local workers take turns on several CUDA devices.
        data_dir: the folder of the data files; $SVAG_DATA or the user's cache when None. On Ray: on every node.
        shard: (i, n) to carry out only the i-th of n parts of the runs, counted from 0; None for all.
        executor: "local" (workers on this machine) or "ray" (tasks of a Ray cluster; needs the extra `ray`).
        address: the Ray cluster, "auto" for the one that this machine belongs to. When None: that of $RAY_ADDRESS,
            otherwise a Ray of its own on this machine. A connection that Ray has already is used.
        mail: on Ray, send the files of a run through Ray even where its node sees the folder of the experiment.
        progress: show bars to a person, lines to a file; False for nothing.
        save_seconds: seconds between two checkpoints of a run.
    """

    workers: int | None = None
    threads: int = 1
    device: Device = "auto"
    data_dir: str | Path | None = None
    shard: tuple[int, int] | None = None
    executor: Executor = "local"
    address: str | None = None
    mail: bool = False
    progress: bool = True
    save_seconds: float = 60.0

    def __post_init__(self) -> None:
        for name, least in (("workers", 1), ("threads", 1), ("save_seconds", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise SpecError(name, f"must be at least {least}, got {value}")
        if self.device not in get_args(Device):
            raise SpecError("device", f"must be auto, cpu or cuda, got {self.device!r}")
        if self.executor not in get_args(Executor):
            raise SpecError("executor", f"must be local or ray, got {self.executor!r}")
        if self.shard is not None and not 0 <= self.shard[0] < self.shard[1]:
            index, count = self.shard
            reason = f"must be i/n with 0 ≤ i < n, got {index}/{count}: the first of four is 0/4, the last 3/4"
            raise SpecError("shard", reason)
        if self.address is not None and self.executor != "ray":
            raise SpecError("address", "is that of a Ray cluster: set the executor to ray")

    def check_extra(self) -> None:
        """Refuse an executor that is not installed."""
        if self.executor == "ray" and find_spec("ray") is None:
            raise ValueError(
                "the executor ray needs an extra that is not installed: pip install -c constraints.txt '.[ray]'"
            )

    def workers_on(self, device: str) -> int:
        """How many local workers there are: those asked for, or one per CUDA device, or what the cores allow."""
        if self.workers is not None:
            return self.workers
        if device == "cuda":
            import torch

            return torch.cuda.device_count()
        return max(1, usable_cores() // self.threads)

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON values, from which `Execution(**fields)` makes the same record."""
        return {**asdict(self), "data_dir": None if self.data_dir is None else str(self.data_dir)}


HERE = Execution()
"""Workers on this machine, as many as its cores allow: the default everywhere."""


def usable_cores() -> int:
    """Cores that this process may use, which can be fewer than the machine has."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1
