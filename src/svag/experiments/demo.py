"""The two questions on the embedded data, small enough to be answered in a few minutes on two cores."""

from svag.experiments.compare import Compare, ComparePanel
from svag.experiments.figures.bases import FASHION, at
from svag.experiments.figures.ladder import in_run
from svag.experiments.ladder import Ladder, LadderPanel
from svag.records.spec import RunSpec

NETWORK = "PreResNet-8 GN"

# It starts at a batch of 8, where N/G is about 6: at 32 invariance is seen to hold, at 128 it is lost. Weight decay is
# large so that the weights settle within half of this short training.
SCALING = Ladder(
    title="Demo: a small network on 10,000 images of Fashion-MNIST",
    seeds=(0, 1),
    panels=(
        LadderPanel(
            name=f"fashion-small, {NETWORK}",
            base=FASHION.edited({"budget": {"epochs": 20}, "weight_decay": 4e-3, **in_run(0.5, 0.8)}),
            batch_sizes=(8, 32, 128),
        ),
    ),
)

SDE = Compare(
    title="Demo: a small network on 10,000 images of Fashion-MNIST",
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


def baseline_runs() -> list[RunSpec]:
    """The part of the ladder that predicts the rest: its smallest batch size.

    >>> [(spec.batch_size, spec.seed) for spec in baseline_runs()]
    [(8, 0), (8, 1)]
    """
    runs = SCALING.runs()
    return [spec for spec in runs if spec.batch_size == min(one.batch_size for one in runs)]
