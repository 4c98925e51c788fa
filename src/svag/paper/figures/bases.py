"""The spec on CIFAR-10 that the figures vary, the paper's own; the small one is `svag.lab.experiments.bases.FASHION`.

`smoke` makes the smallest version of a figure, which only shows that the whole path runs.
"""

from typing import TypeVar

from svag.lab.experiments.bases import FASHION, Edits, at
from svag.lab.experiments.experiment import Experiment
from svag.lab.experiments.ladder import SMALLEST_LADDER
from svag.lab.specs.parts import FrozenProbe, InRunProbe
from svag.lab.specs.spec import RunSpec

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

# All of CIFAR-10 at 16×16 and a shallow network. Learning rate and weight decay are the paper's own.
MEDIUM = CIFAR.edited(
    {
        "data": {"name": "cifar10", "pool": 2, "augment": {"pad": 2, "flip": True}},
        "model": {"arch": "preresnet8", "norm": "group", "scale_invariant": True},
        "budget": {"epochs": 12},
        "evaluate": {"every": 0.025},
    }
)

PLAIN: Edits = {"data.augment": False}
BATCH, GROUP = ({"model.norm": norm} for norm in ("batch", "group"))


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
    panels = tuple(panel.smallest(_tiny(panel.base)) for panel in experiment.panels)
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
