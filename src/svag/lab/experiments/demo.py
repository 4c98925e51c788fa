"""The two questions on the embedded data, small enough to be answered in a few minutes on two cores.

What was learned is said in words that need nothing else: a demo is often the first thing that people see.
"""

import math
from collections.abc import Iterator

from svag.lab.experiments import wording
from svag.lab.experiments.bases import FASHION, at, in_run
from svag.lab.experiments.compare import Compare, ComparePanel
from svag.lab.experiments.compare_finding import CompareFinding
from svag.lab.experiments.ladder import Ladder, LadderPanel
from svag.lab.experiments.ladder_answer import factors_said
from svag.lab.experiments.ladder_finding import LadderFinding
from svag.lab.specs.spec import RunSpec

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


def learned(found: LadderFinding | CompareFinding) -> Iterator[str]:
    """What a demo has shown, one paragraph each; what its runs could not show is left out."""
    yield from _about_scaling(found) if isinstance(found, LadderFinding) else _about_the_sde(found)
    yield (
        "For your own training: measure with svag.NoiseProbe (or the callback for Lightning or Hugging Face) and print "
        "probe.price_list()."
    )


def _about_scaling(found: LadderFinding) -> Iterator[str]:
    panel = found.panels[0]
    if not panel.checked:
        return
    one, crossing = panel.checked[0]
    base, rungs = one.batch_size, {rung.batch_size: rung for rung in panel.rungs}
    yield f"The runs at batch size {base} priced the larger batches before any of them was trained:"
    for price in panel.data:
        if price.baseline == base:
            expected = f"about {one.linear.distortion(price.batch_size).value:.2g}× the data"
            yield (
                f"- Batch size {price.batch_size} was expected to need {expected} for the same training loss; it "
                f"needed {factors_said(price)}."
            )
    if math.isfinite(one.linear.limit.value):
        size, seen = wording.batch(one.linear.limit.value), crossing.observed.value
        yield (
            f"At B* = {size} the price reaches {panel.c2:g}. Beyond it, weight norm, gradient and gradient noise "
            f"{'must' if one.theorem else 'are expected to'} drift apart by more than that factor"
            f"{f'; in these runs they did so at {wording.batch(seen)}' if math.isfinite(seen) else ''}."
        )
    first, last = rungs[base], panel.rungs[-1]
    if math.isfinite(first.error) and math.isfinite(last.error):
        yield (
            f"B* is about how the network trains and not about test error. Here the test error was "
            f"{wording.value(first.error, panel.metric)} at batch size {base} and "
            f"{wording.value(last.error, panel.metric)} at {last.batch_size}; other trainings lose less, or nothing."
        )


_MEANING = {
    "equivalent": "What theory says of the SDE may be used for this training, as far as final accuracy is concerned.",
    "different": "What theory says of the SDE is not true of this training: the batch, and with it the learning rate, "
    "is too large. A smaller batch brings the two together.",
    "inconclusive": "More seeds would tell.",
}


def _about_the_sde(found: CompareFinding) -> Iterator[str]:
    panel = found.panels[0]
    if panel.verdict is None:
        return
    yield (
        f"SGD at batch size {panel.batch_size} was compared with its SDE, the idealisation of SGD with infinitely "
        "small steps. SVAG approaches it: each step of SGD is replaced by ell smaller, noisier ones."
    )
    yield f"{panel.answer().headline} {_MEANING[panel.verdict.answer]}"
