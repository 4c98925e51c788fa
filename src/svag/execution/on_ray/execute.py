"""Carry out a plan on a Ray cluster."""

from collections.abc import Sequence
from pathlib import Path

from svag.execution.plan import PlannedRun, own_runs
from svag.records.record import RunRecord


def execute_on_ray(
    plan: Sequence[PlannedRun],
    *,
    address: str | None = None,
    workers: int | None = None,
    threads: int = 1,
    device: str = "auto",
    data_dir: Path | None = None,
    shard: tuple[int, int] | None = None,
    progress: bool = True,
    save_seconds: float = 60.0,
    mail: bool = False,
) -> list[RunRecord]:
    """Carry out what is left of a plan on a Ray cluster, and return the records of all its runs, in its order.

    As `svag.execution.local.execute`, with the same records and the same bits, but each run is a task that takes its
    share of a node: `threads` CPUs and, on CUDA, one GPU. A node that sees the plan's folder works in it; from any
    other one the files of a run come back whenever it has made a checkpoint. A task that dies with its process or its
    node is tried again from there, up to three times. Interrupted, what is queued or running is cancelled, and the
    same call continues.

    Args:
        plan: from `plan_runs`.
        address: of the cluster, "auto" for the one that runs on this machine; when None, that of $RAY_ADDRESS or else
            a Ray of its own on this machine. A connection that Ray has already is used.
        workers: how many runs the cluster is given at a time; when None, all, and it computes what fits.
        threads: threads of torch, and CPUs, for each run.
        device: "auto" (CUDA where the cluster has GPUs), "cpu" or "cuda".
        data_dir: where data files are, or shall be, on every node.
        shard: as for `execute`.
        progress: show bars to a person, lines to a file.
        save_seconds: seconds between two checkpoints of a run.
        mail: send results through Ray even where a node sees the plan's folder.
    """
    for name, value in (("workers", 1 if workers is None else workers), ("threads", threads)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    own = own_runs(plan, shard)
    waiting = [run for run in own if not run.record().ended]
    if waiting:
        _carry_out(own, waiting, address, workers, threads, device, data_dir, shard, progress, save_seconds, mail)
    return [run.record() for run in plan]


def _carry_out(
    own: list[PlannedRun],
    waiting: list[PlannedRun],
    address: str | None,
    workers: int | None,
    threads: int,
    device: str,
    data_dir: Path | None,
    shard: tuple[int, int] | None,
    progress: bool,
    save_seconds: float,
    mail: bool,
) -> None:
    # torch, Ray and what needs them: not for a plan that is done
    from svag.execution.on_ray.cluster import check_extra, connected, share_of

    check_extra()
    import torch

    from svag.execution.dispatch import interrupted_in_words, prepare_plan, terminated_is_interrupted
    from svag.execution.on_ray.crew import Crew
    from svag.execution.view import view_of

    ready = prepare_plan(own, waiting, data_dir)
    with connected(address, workers, threads) as in_a_session:
        share = share_of(device, threads)
        order = {
            "device": share.device,
            "data_dir": None if data_dir is None else str(data_dir.absolute()),
            "threads": threads,
            "save_seconds": save_seconds,
        }
        with view_of(ready.board, progress=progress) as view:
            dispatch = ready.dispatch(torch.device(share.device), view, wait_for_others=shard is None)
            with (
                interrupted_in_words(ready.board),
                terminated_is_interrupted(),
                Crew(dispatch, share, order, workers=workers, mail=mail, in_a_session=in_a_session) as crew,
            ):
                crew.work()
