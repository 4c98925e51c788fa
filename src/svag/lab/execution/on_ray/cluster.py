"""The cluster: how it is reached, and what a run takes of its nodes."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from svag.lab.execution.dispatch import PlanFailed
from svag.lab.execution.execution import Execution, usable_cores

# What the tasks' reports and files need, in a Ray that is started for one plan.
_OBJECT_STORE = 200 * 2**20


@contextmanager
def connected(execution: Execution) -> Iterator[bool]:
    """Be connected to a cluster; whether the connection was there already, which is then used and kept."""
    import ray

    if ray.is_initialized():
        yield True
        return
    address = execution.address or os.environ.get("RAY_ADDRESS")
    if address is not None and address.startswith("ray://"):
        raise ValueError(f"{address} is for Ray's remote client: start the command on a machine of the cluster instead")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # without it, Ray warns of its own future
    os.environ.setdefault("RAY_worker_niceness", "0")  # those of a Ray of its own shall be as fast as local workers
    workers, threads = execution.workers, execution.threads
    own: dict[str, Any] = {
        "num_cpus": workers * threads if workers else max(usable_cores(), threads),
        "object_store_memory": _OBJECT_STORE,
        "include_dashboard": False,
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            ray.init(
                address=address or "local",
                log_to_driver=False,  # what a task prints would land among the answers: it stays in Ray's logs
                logging_level=logging.ERROR,
                **({} if address else own),
            )
    except (ConnectionError, RuntimeError, TimeoutError, ValueError, OSError) as error:
        raise PlanFailed(_sentence(address, error)) from error
    try:
        yield False
    finally:
        ray.shutdown()


def _sentence(address: str | None, error: Exception) -> str:
    reason = " ".join(str(error).split())[:200]
    if address is None:
        return f"Ray does not start on this machine: {reason}"
    return f"no Ray cluster can be joined at {address}: {reason}: ray start --head makes one, its address is --address"


def on_a_node(execution: Execution) -> Execution:
    """How a run is carried out on a node; refuse what no node of the cluster has.

    A run takes `threads` CPUs and, on CUDA, one GPU; the device "auto" is CUDA where the cluster has GPUs.
    """
    import ray

    device, threads = execution.device, execution.threads
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    with_gpu = [node for node in nodes if node.get("GPU", 0) >= 1]
    if device == "cuda" and not with_gpu:
        raise ValueError("device is cuda, but no node of the cluster has a GPU: use cpu or auto")
    cuda = bool(with_gpu) and device != "cpu"
    most = int(max((node.get("CPU", 0) for node in (with_gpu if cuda else nodes)), default=0))
    if most < threads:
        raise ValueError(
            f"a run with threads {threads} fits on no node of the cluster, where it would have at most {most} CPUs"
        )
    data_dir = None if execution.data_dir is None else Path(execution.data_dir).absolute()
    return replace(execution, device="cuda" if cuda else "cpu", data_dir=data_dir)
