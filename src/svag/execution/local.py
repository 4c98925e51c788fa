"""Carry out a plan with worker processes on this machine."""

import os
from collections.abc import Sequence
from pathlib import Path

from svag.execution.plan import PlannedRun, own_runs
from svag.records.record import RunRecord


def usable_cores() -> int:
    """Cores that this process may use, which can be fewer than the machine has."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


def execute(
    plan: Sequence[PlannedRun],
    *,
    workers: int | None = None,
    threads: int = 1,
    device: str = "auto",
    data_dir: Path | None = None,
    shard: tuple[int, int] | None = None,
    progress: bool = True,
    save_seconds: float = 60.0,
) -> list[RunRecord]:
    """Carry out what is left of a plan, the longest runs first, and return the records of all its runs, in its order.

    Runs that have ended are only read. A worker that dies costs its run the time since the last checkpoint; after
    three deaths the run is recorded as failed, and the others go on. A run that another process has is left to it and,
    without shards, waited for. Interrupted, the workers are ended, and the same call continues.

    Args:
        plan: from `plan_runs`.
        workers: worker processes; when None, as many as the usable cores allow, on CUDA one per device.
        threads: threads of torch in each worker.
        device: "auto", "cpu" or "cuda"; workers take turns on several CUDA devices.
        data_dir: where data files are, or shall be.
        shard: (i, n) to carry out only the i-th of n parts, counted from 0; None for the whole plan.
        progress: show bars to a person, lines to a file.
        save_seconds: seconds between two checkpoints of a run.
    """
    for name, value in (("workers", 1 if workers is None else workers), ("threads", threads)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    own = own_runs(plan, shard)
    waiting = [run for run in own if not run.record().ended]
    if waiting:
        _carry_out(own, waiting, workers, threads, device, data_dir, shard, progress, save_seconds)
    return [run.record() for run in plan]


def _carry_out(
    own: list[PlannedRun],
    waiting: list[PlannedRun],
    workers: int | None,
    threads: int,
    device: str,
    data_dir: Path | None,
    shard: tuple[int, int] | None,
    progress: bool,
    save_seconds: float,
) -> None:
    # torch and what needs it: not for a plan that is done
    from svag.execution.dispatch import interrupted_in_words, prepare_plan, terminated_is_interrupted
    from svag.execution.pool import Pool, Settings
    from svag.execution.view import view_of
    from svag.lab.training import pick_device

    place = pick_device(device)
    ready = prepare_plan(own, waiting, data_dir)
    settings = Settings(
        workers=min(workers or default_workers(place.type, threads), len(waiting)),
        threads=threads,
        device=place,
        data_dir=data_dir,
        save_seconds=save_seconds,
    )
    with (
        view_of(ready.board, progress=progress) as view,
        interrupted_in_words(ready.board),
        terminated_is_interrupted(),
        Pool(ready.dispatch(place, view, wait_for_others=shard is None), settings) as pool,
    ):
        pool.work()


def default_workers(device: str, threads: int) -> int:
    """As many workers as the usable cores allow; on CUDA one per device."""
    if device == "cuda":
        import torch

        return torch.cuda.device_count()
    return max(1, usable_cores() // threads)
