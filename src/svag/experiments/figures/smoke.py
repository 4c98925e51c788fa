"""The smallest version of a figure: seconds, for tests that the whole path runs. It shows nothing about the claim."""

from svag.experiments.figures.bases import FASHION, Edits, at
from svag.records.experiment import Compare, Ladder, Ngd
from svag.records.probe_spec import FrozenProbe, InRunProbe
from svag.records.spec import RunSpec

NOTE = "a few steps of tiny networks on 320 images, which only show that everything runs"
SEEDS = (0, 1)
ELLS = (1, 2)
BATCH_SIZES = (8, 16, 32)
LARGEST = max(BATCH_SIZES)


def smoke(experiment: Compare | Ladder | Ngd) -> Compare | Ladder | Ngd:
    """Shrink a figure of the small size: data, width, budget, seeds and arms."""
    head = {"size": "smoke", "note": NOTE, "seeds": SEEDS}
    match experiment:
        case Compare():
            compared = tuple(
                one.model_copy(update={"seeds": (), "base": _tiny(one.base, {"budget": 10}), "ells": ELLS})
                for one in experiment.panels
            )
            return experiment.model_copy(update=head | {"panels": compared})
        case Ladder():
            climbed = tuple(
                one.model_copy(
                    update={"seeds": (), "base": _tiny(one.base, {"budget": {"epochs": 1}}), "batch_sizes": BATCH_SIZES}
                )
                for one in experiment.panels
            )
            return experiment.model_copy(update=head | {"panels": climbed})
        case Ngd():
            replaced = tuple(
                one.model_copy(update={"seeds": (), "base": _tiny(one.base, {"budget": 10})})
                for one in experiment.panels
            )
            return experiment.model_copy(update=head | {"panels": replaced})


def _tiny(base: RunSpec, budget: Edits) -> RunSpec:
    least = 0.25 if "resnet" in base.model.arch else 0.125  # the fewest channels that GroupNorm has groups for
    edits: Edits = {"data.subset": 320, "model.width": max(least, base.model.width / 2), "evaluate.every": 0.5}
    match base.probe:
        case FrozenProbe():
            edits |= {"probe.window": [0.3, 0.8], "probe.readings": 4, "probe.batches": 3}
        case InRunProbe():
            edits |= {"probe.window": [0.3, 0.8], "probe.every": 1}
    return base.edited(edits | at(FASHION, min(base.batch_size, LARGEST)) | budget)
