"""A base spec that the tests of the experiments vary."""

from typing import Any

from svag.lab.specs.spec import RunSpec

FIELDS: dict[str, Any] = {
    "data": {"name": "fashion-small"},
    "model": {"arch": "preresnet8", "norm": "group"},
    "batch_size": 64,
    "lr": 0.2,
    "weight_decay": 1e-3,
    "schedule": {"kind": "steps", "at": [0.8]},
    "budget": {"epochs": 10},
}


def base(**edits: Any) -> RunSpec:
    return RunSpec.from_dict(FIELDS).edited({path.replace("__", "."): value for path, value in edits.items()})
