"""The specs that the figures vary: one on CIFAR-10, the paper's own, and one that a laptop trains in a minute.

`smoke` makes the smallest version of a figure, which only shows that the whole path runs.
"""

from typing import Any, TypeVar

from svag.experiments.base import Experiment
from svag.experiments.ladder import SMALLEST_LADDER
from svag.records.parts import FrozenProbe, InRunProbe
from svag.records.spec import RunSpec
from svag.theory.optimizers import linear_scaling

Edits = dict[str, Any]

CIFAR = RunSpec.from_dict(
    {
        "data": {"name": "cifar10", "augment": {"pad": 4, "flip": True}},
        "model": {"arch": "preresnet32", "norm": "batch", "scale_invariant": True},
        "batch_size": 128,
        "lr": 0.8,
        "weight_decay": 5e-4,
        "budget": {"epochs": 300},
        "evaluate": {"every": 0.01},
    }
)

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

PLAIN: Edits = {"data.augment": False}
BATCH, GROUP = ({"model.norm": norm} for norm in ("batch", "group"))


def at(base: RunSpec, batch_size: int) -> Edits:
    """Batch size and learning rate of a base along the linear scaling rule (def:lsr).

    >>> at(CIFAR, 1024)
    {'batch_size': 1024, 'lr': 6.4}
    """
    scaled = linear_scaling(batch_size / base.batch_size, lr=base.lr, batch_size=base.batch_size)
    return {"batch_size": scaled.batch_size, "lr": scaled.lr}


def network(arch: str, norm: str, width: float = 1.0) -> Edits:
    """A network; one without a norm is trained as it is, the others with a scale-invariant loss."""
    return {"model": {"arch": arch, "norm": norm, "width": width, "scale_invariant": norm != "none"}}


def decays(*at: float) -> Edits:
    """×0.1 at these fractions of the budget."""
    return {"schedule": {"kind": "steps", "at": at, "factor": 0.1}}


NOTE = "a few steps of tiny networks on 320 images, which only show that everything runs"
SEEDS = (0, 1)
LARGEST = max(SMALLEST_LADDER)


ExperimentT = TypeVar("ExperimentT", bound=Experiment)


def smoke(experiment: ExperimentT) -> ExperimentT:
    """Shrink a figure of the small size to seconds: data, width, budget, seeds and arms.

    It is for tests that the whole path runs, and shows nothing about the claim.
    """
    panels = tuple(one.smallest(_tiny(one.base)) for one in experiment.panels)
    return experiment.model_copy(update={"size": "smoke", "note": NOTE, "seeds": SEEDS, "panels": panels})


def _tiny(base: RunSpec) -> Edits:
    least = 0.25 if "resnet" in base.model.arch else 0.125  # the fewest channels that GroupNorm has groups for
    edits: Edits = {"data.subset": 320, "model.width": max(least, base.model.width / 2), "evaluate.every": 0.5}
    match base.probe:
        case FrozenProbe():
            edits |= {"probe.window": [0.3, 0.8], "probe.readings": 4, "probe.batches": 3}
        case InRunProbe():
            edits |= {"probe.window": [0.3, 0.8], "probe.every": 1}
    return edits | at(FASHION, min(base.batch_size, LARGEST))
