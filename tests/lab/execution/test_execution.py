"""An execution refuses what makes no sense when it is made, by the name of the field."""

import json
import math
from typing import Any

import pytest

from svag.lab.execution.execution import Execution
from svag.lab.specs.fields import SpecError


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"workers": 0}, "workers: must be at least 1, got 0"),
        ({"threads": 0}, "threads: must be at least 1, got 0"),
        ({"save_seconds": -1}, "save_seconds: must be at least 0, got -1"),
        ({"device": "tpu"}, "device: must be auto, cpu or cuda, got 'tpu'"),
        ({"executor": "slurm"}, "executor: must be local or ray, got 'slurm'"),
        ({"shard": (2, 2)}, "shard: must be i/n with 0 ≤ i < n, got 2/2"),
        ({"shard": (-1, 2)}, "shard: must be i/n with 0 ≤ i < n, got -1/2"),
        ({"shard": 3}, "shard: must be i/n with 0 ≤ i < n, got 3"),
        ({"shard": ("a", "b")}, "shard: must be i/n with 0 ≤ i < n, got 'a'/'b'"),
        ({"workers": [1]}, "workers: must be at least 1, got [1]"),
        ({"threads": 1.5}, "threads: must be at least 1, got 1.5"),
        ({"save_seconds": math.nan}, "save_seconds: must be at least 0, got nan"),
        ({"device": {}}, "device: must be auto, cpu or cuda, got {}"),
        ({"address": "auto"}, "address: is that of a Ray cluster: set the executor to ray"),
    ],
)
def test_nonsense_is_refused_by_the_name_of_the_field(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SpecError) as refused:
        Execution(**fields)
    assert str(refused.value).startswith(sentence)


def test_it_travels_to_a_worker_as_json() -> None:
    execution = Execution(workers=2, device="cpu", data_dir="data", executor="ray", address="auto", save_seconds=0)
    assert Execution(**json.loads(json.dumps(execution.to_dict()))) == execution


def test_workers_are_those_asked_for_or_what_the_cores_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("svag.lab.execution.execution.usable_cores", lambda: 8)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    assert (Execution(workers=5).workers_on("cpu"), Execution(workers=5).workers_on("cuda")) == (5, 5)
    assert [Execution(threads=threads).workers_on("cpu") for threads in (1, 3, 9)] == [8, 2, 1]
    assert Execution().workers_on("cuda") == 3
