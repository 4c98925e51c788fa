"""The spec on embedded data that the demo and the paper's small figures vary: a laptop trains it in a minute."""

from typing import Any

from svag.lab.specs.spec import RunSpec
from svag.theory.optimizers import linear_scaling

Edits = dict[str, Any]

FASHION = RunSpec.from_dict(
    {
        "data": {"name": "fashion-small", "augment": {"pad": 1, "flip": True}},
        "model": {"arch": "preresnet8", "norm": "group", "width": 0.5, "scale_invariant": True},
        "batch_size": 32,
        "lr": 0.1,
        "weight_decay": 1e-3,
        "schedule": {"kind": "steps", "at": [0.8], "factor": 0.1},
        "budget": {"epochs": 60},
        "evaluate": {"every": 0.1},
    }
)


def at(base: RunSpec, batch_size: int) -> Edits:
    """Batch size and learning rate of a base along the linear scaling rule (def:lsr).

    >>> at(FASHION, 256)
    {'batch_size': 256, 'lr': 0.8}
    """
    scaled = linear_scaling(batch_size / base.batch_size, lr=base.lr, batch_size=base.batch_size)
    return {"batch_size": scaled.batch_size, "lr": scaled.lr}


def in_run(start: float, end: float) -> Edits:
    """G and N from the run's own batches, at most 2,000 times in a whole run."""
    return {"probe": {"kind": "in_run", "parts": 4, "window": [start, end], "every": 0.0005}}
