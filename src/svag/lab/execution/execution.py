"""`svag.lab.Execution`: how the runs of an experiment are carried out, as one frozen record."""

import os
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, get_args

from svag.lab.specs.fields import SpecError, shown

Device = Literal["auto", "cpu", "cuda"]
Executor = Literal["local", "ray"]


def _is_shard(shard: object) -> bool:
    two = isinstance(shard, tuple | list) and len(shard) == 2 and all(isinstance(part, Integral) for part in shard)
    return two and 0 <= shard[0] < shard[1]  # type: ignore[index]  # two whole numbers


DEATHS = 3
"""A run whose process has died this many times is recorded as failed."""

GRACE = 5.0
"""Seconds for a run to finish its step and make a checkpoint when its worker is told to end."""

LOOK_AGAIN = 1.0
"""Seconds between two checks of a run that another process is computing."""


@dataclass(frozen=True)
class Execution:
    """How the runs of an experiment are carried out: how many at a time, on which device, and where.

    Invalid values raise SpecError with the name of the field:

    >>> Execution(workers=2, shard=(0, 4)).shard
    (0, 4)
    >>> Execution(shard=(4, 4))
    Traceback (most recent call last):
    svag.lab.specs.fields.SpecError: shard: must be i/n with 0 ≤ i < n, got 4/4: the first of four is 0/4, the last 3/4

    Attributes:
        workers: runs at a time. When None, as many as the usable cores of this machine allow, on CUDA one per device,
            on Ray as many as fit on the cluster.
        threads: threads of torch for each run.
        device: "auto", "cpu" or "cuda"; local workers take turns on several CUDA devices.
        data_dir: the folder of the data files; $SVAG_DATA or the user's cache when None. On Ray: on every node.
        shard: (i, n) to carry out only part i of n of the runs, counted from 0; None for all.
        executor: "local" (workers on this machine) or "ray" (tasks of a Ray cluster; needs the extra `ray`).
        address: the Ray cluster; "auto" for the one that this machine belongs to. When None, that of $RAY_ADDRESS,
            otherwise a new Ray on this machine. An existing connection to Ray is used.
        mail: on Ray, send the files of a run through Ray even if its node sees the folder of the experiment.
        progress: show bars at a terminal, lines in a file; False for nothing.
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
        for name, least, kind in (("workers", 1, Integral), ("threads", 1, Integral), ("save_seconds", 0, Real)):
            value: Any = getattr(self, name)
            if value is not None and not (isinstance(value, kind) and bool(value >= least)):  # type: ignore[operator]
                raise SpecError(name, f"must be at least {least}, got {shown(value)}")
        device: object = self.device
        if not isinstance(device, str) or device not in get_args(Device):
            raise SpecError("device", f"must be auto, cpu or cuda, got {shown(device)}")
        executor: object = self.executor
        if not isinstance(executor, str) or executor not in get_args(Executor):
            raise SpecError("executor", f"must be local or ray, got {shown(executor)}")
        shard: object = self.shard
        if shard is not None and not _is_shard(shard):
            given = "/".join(map(shown, shard)) if isinstance(shard, tuple) else shown(shard)
            reason = f"must be i/n with 0 ≤ i < n, got {given}: the first of four is 0/4, the last 3/4"
            raise SpecError("shard", reason[:300])
        if self.address is not None and self.executor != "ray":
            raise SpecError("address", "is that of a Ray cluster: set the executor to ray")

    def check_extra(self) -> None:
        """Refuse an executor that is not installed."""
        if self.executor == "ray" and find_spec("ray") is None:
            raise ValueError(
                "the executor ray needs an extra that is not installed: pip install -c constraints.txt '.[ray]'"
            )

    def workers_on(self, device: str) -> int:
        """Number of local workers: as given, or one per CUDA device, or as many as the cores allow."""
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
"""The default: workers on this machine, as many as its cores allow."""


def usable_cores() -> int:
    """Number of cores that this process may use, which can be fewer than the machine has."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1
