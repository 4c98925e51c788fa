"""A cluster of two nodes on this machine, whose tasks look for the files of the tests' own networks in one folder."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray.cluster_utils import Cluster
from tests.lab.execution.nets import DEATHS, GO

NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",  # otherwise a busy machine lets them wait for minutes
    "OMP_NUM_THREADS": "1",
}


class Nodes:
    """The cluster, and what its tasks and the tests tell each other by files."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self.address: str = cluster.address
        self.go, self.deaths = folder / "go", folder / "deaths"
        self.second = cluster.add_node(**NODE)

    def clean(self) -> None:
        for file in self.go.parent.iterdir():
            file.unlink()

    def wait_until_awaited(self, runs: int) -> None:
        """Until so many runs wait for the file `go`."""
        while len(list(self.go.parent.glob("go.awaited.*"))) < runs:
            time.sleep(0.05)

    def lose_the_second(self) -> None:
        """Kill the second node with all its processes: by themselves, those notice only after a while."""
        raylet = self.second.all_processes["raylet"][0].process.pid
        waiting = [int(file.suffix[1:]) for file in self.go.parent.glob("go.awaited.*")]
        on_second = [process for process in waiting if _parent(process) == raylet]
        self._cluster.remove_node(self.second, allow_graceful=False)
        assert len(on_second) == 1
        os.kill(on_second[0], signal.SIGKILL)

    def replace_the_second(self) -> None:
        self.second = self._cluster.add_node(**NODE)
        self._cluster.wait_for_nodes()


def _parent(process: int) -> int:
    found = subprocess.run(["ps", "-o", "ppid=", "-p", str(process)], capture_output=True, text=True, check=True)
    return int(found.stdout)


@pytest.fixture(scope="module")
def _nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    folder = tmp_path_factory.mktemp("words")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**SETTINGS, GO: str(folder / "go"), DEATHS: str(folder / "deaths")}.items():
            patch.setenv(name, value)
        cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
        try:
            yield Nodes(cluster, folder)
        finally:
            cluster.shutdown()
    assert GO not in os.environ


@pytest.fixture
def nodes(_nodes: Nodes) -> Nodes:
    _nodes.clean()
    return _nodes
