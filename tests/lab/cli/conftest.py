"""What the commands of experiments start from."""

from pathlib import Path

import pytest
from tests.lab.training.small import write_npz

from svag.lab.specs.spec import RunSpec


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A perceptron on 64 vectors: what takes time is starting the workers."""
    spec = RunSpec.from_dict(
        {
            "data": {"name": "npz", "path": str(write_npz(tmp_path / "data.npz"))},
            "model": {"arch": "mlp", "norm": "layer", "width": 0.0625, "scale_invariant": True},
            "batch_size": 8,
            "lr": 0.1,
            "weight_decay": 0.01,
            "schedule": {"kind": "steps", "at": [0.8]},
            "budget": 20,
            "evaluate": {"every": 0.5},
        }
    )
    path = tmp_path / "base.yaml"
    path.write_text(spec.to_yaml())
    return path
