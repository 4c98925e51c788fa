"""The Ray cluster as an executor: how it is reached, what a run takes of its nodes, and how a plan is carried out."""

import logging
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch

from svag.lab.execution.dispatch import Dispatch, PlanFailed
from svag.lab.execution.execution import Execution, usable_cores
from svag.lab.execution.plan import Looked, PlannedRun
from svag.lab.execution.worker import LoadedData, load_data_of, timed_seconds

# Memory for the reports and files of the tasks, in a Ray that is started for one plan.
_OBJECT_STORE = 200 * 2**20


class RayCluster:
    """Carries out runs as tasks on a Ray cluster.

    Args:
        execution: how the runs are carried out.
    """

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._loaded: LoadedData | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass  # the connection is open during `work` only

    def look(self, runs: Iterable[PlannedRun]) -> Looked:
        """Load the data of the runs in this process and check every spec against it; the device is not known yet."""
        self._loaded = load_data_of(runs, self._execution)
        return Looked(self._loaded.shapes, "cpu")

    def work(self, dispatch: Dispatch) -> None:
        """Announce the plan if it is to be announced, then carry out all runs."""
        from svag.lab.execution.on_ray.crew import Crew

        loaded, self._loaded = self._loaded, None  # nobody needs the data while the tasks run
        assert loaded is not None  # since `look`
        dispatch.announce(timed_seconds(dispatch.to_time, loaded, torch.device("cpu"), self._execution.threads))
        del loaded
        with connected(self._execution) as in_a_session:
            on_node = on_a_node(self._execution)
            dispatch.device = on_node.device
            with Crew(dispatch, on_node, in_a_session=in_a_session) as crew:
                crew.work()


@contextmanager
def connected(execution: Execution) -> Iterator[bool]:
    """Connect to a cluster. The value says whether there was a connection already, which is then used and kept."""
    import ray

    if ray.is_initialized():
        yield True
        return
    address = execution.address or os.environ.get("RAY_ADDRESS")
    if address is not None and address.startswith("ray://"):
        raise ValueError(f"{address} is for Ray's remote client: start the command on a machine of the cluster instead")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # otherwise Ray warns of a future change
    os.environ.setdefault("RAY_worker_niceness", "0")  # so that tasks are as fast as local workers
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
                log_to_driver=False,  # what tasks print stays in Ray's logs, not among the answers
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
    """How a run is carried out on a node; refuse what no node of the cluster can offer.

    A run takes `threads` CPUs and, on CUDA, one GPU. The device "auto" is CUDA if the cluster has GPUs.
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
