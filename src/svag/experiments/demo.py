"""The two questions on the embedded data, small enough to be answered in a few minutes on two cores."""

from svag.experiments.figures.bases import FASHION, at
from svag.experiments.figures.ladder import in_run
from svag.records.experiment import Compare, ComparePanel, Ladder, LadderPanel

NETWORK = "PreResNet-8 GN"

SCALING = Ladder(
    title="How far can I scale the batch?",
    seeds=(0, 1),
    panels=(
        LadderPanel(
            name=f"fashion-small, {NETWORK}",
            base=FASHION.edited({"budget": {"epochs": 30}, "weight_decay": 2e-3, **in_run(0.5, 0.8)}),
            batch_sizes=(32, 128, 512),
        ),
    ),
)

SDE = Compare(
    title="Does the SDE describe my SGD?",
    seeds=(0, 1, 2),
    panels=(
        ComparePanel(
            name=f"fashion-small, {NETWORK}, B = 512",
            base=FASHION.edited({"budget": {"epochs": 12}, **at(FASHION, 512)}),
            ells=(1, 4),
            split=2,
        ),
    ),
)


def baseline(ladder: Ladder) -> Ladder:
    """The part of a ladder that predicts the rest: its smallest batch size."""
    panels = tuple(
        panel.model_copy(update={"batch_sizes": (min(panel.batch_sizes),), "ells": ()}) for panel in ladder.panels
    )
    return ladder.model_copy(update={"panels": panels})
