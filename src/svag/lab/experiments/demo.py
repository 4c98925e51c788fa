"""The three questions on the embedded data, small enough to be answered in a few minutes on two cores.

`learned` summarises a demo for newcomers: it is often the first output that they see.
"""

from collections.abc import Iterator
from itertools import groupby
from statistics import fmean

from svag.lab.experiments.bases import FASHION, at, in_run
from svag.lab.experiments.compare import Compare, ComparePanel
from svag.lab.experiments.compare_finding import CompareFinding
from svag.lab.experiments.gain_finding import GainFinding
from svag.lab.experiments.ladder import Ladder, LadderPanel
from svag.lab.experiments.ladder_finding import LadderFinding
from svag.lab.specs.spec import RunSpec

NETWORK = "PreResNet-8 GN"
TITLE = "Demo: a small network on 10,000 images of Fashion-MNIST"
# It measures from the first step, where the gain of a larger batch is smallest. Weight decay is large, so that the
# weights settle in this short training and the price list can also judge the linear rule.
_BASE = FASHION.edited({"budget": {"epochs": 6}, "weight_decay": 6e-3, **at(FASHION, 8), **in_run(0.0, 1.0)})

# At a batch of 8 N/G is about 6 on average: 32 costs little more data, 128 about twice as much.
SCALING = Ladder(
    title=TITLE,
    seeds=(0, 1, 2),
    panels=(LadderPanel(name=f"fashion-small, {NETWORK}", base=_BASE, batch_sizes=(8, 32, 128), rule="gain"),),
)

TRAIN = Ladder(
    title=TITLE,
    seeds=(0, 1),
    panels=(
        LadderPanel(name=f"fashion-small, {NETWORK}", base=_BASE, batch_sizes=(8, 128), rule="gain", measured=True),
    ),
)

SDE = Compare(
    title=TITLE,
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


def baseline_runs(ladder: Ladder) -> list[RunSpec]:
    """The runs at the smallest batch size of a ladder, which predict the others.

    >>> [(spec.batch_size, spec.seed) for spec in baseline_runs(TRAIN)]
    [(8, 0), (8, 1)]
    """
    runs = ladder.runs()
    smallest = min(spec.batch_size for spec in runs)
    return [spec for spec in runs if spec.batch_size == smallest]


def learned(finding: LadderFinding | CompareFinding) -> Iterator[str]:
    """What a demo has shown, one paragraph for each result; results that its runs do not have are left out."""
    yield from _about_gains(finding) if isinstance(finding, LadderFinding) else _about_the_sde(finding)
    yield (
        "For your own training: measure with svag.NoiseProbe (or the callback for Lightning or Hugging Face) and print "
        "probe.price_list()."
    )


def _about_gains(finding: LadderFinding) -> Iterator[str]:
    gains = finding.panels[0].gain
    if gains is None or not gains.finished:
        return
    base = gains.baseline
    yield f"The runs at batch size {base} priced the larger batches before any of them was trained:"
    for rung in gains.finished:
        reached = "" if rung.examples is None else f" It needed {rung.examples.said()} for the same loss."
        yield (
            f"- Batch size {rung.batch_size} was expected to need about {rung.price:.2g}× the examples and used "
            f"{rung.paid:.2g}×; it ended at {rung.loss_said()} times the training loss of {base}.{reached}"
        )
    if gains.measured:
        yield from _side_by_side(gains)
    else:
        yield (
            "The learning rate of a larger batch follows from the gradient noise of the small one, at every moment of "
            "training (the gain rule)."
        )


# Number of parts of the training that are shown side by side.
_SHOWN = 5


def _side_by_side(gains: GainFinding) -> Iterator[str]:
    """Training loss of both batch sizes at the same baseline time, with gain and price of the larger one."""
    steps, large = max(row.baseline_time for row in gains.rows), gains.rungs[-1].batch_size
    yield f"Side by side, means over seeds (time in steps of batch size {gains.baseline}):"
    ends = [steps * part / _SHOWN for part in range(1, _SHOWN + 1)]
    for start, end in zip([0.0, *ends], ends, strict=False):
        inside = sorted((row for row in gains.rows if start < row.baseline_time <= end), key=lambda row: row.batch_size)
        rows = {size: list(own) for size, own in groupby(inside, key=lambda row: row.batch_size)}
        if gains.baseline in rows and large in rows:
            loss, small_loss = (fmean(row.train_loss for row in rows[size]) for size in (large, gains.baseline))
            gain, price = fmean(row.gain for row in rows[large]), rows[large][-1].price
            yield (
                f"- to step {end:,.0f}: training loss {small_loss:.3f} at batch size {gains.baseline}, {loss:.3f} at "
                f"{large} (gain {gain:.1f}, {price:.2f}× the examples so far)"
            )


_MEANING = {
    "equivalent": "What theory says of the SDE may be used for this training, as far as final accuracy is concerned.",
    "different": "What theory says of the SDE is not true of this training: the batch, and with it the learning rate, "
    "is too large. A smaller batch brings the two together.",
    "inconclusive": "More seeds would tell.",
}


def _about_the_sde(finding: CompareFinding) -> Iterator[str]:
    panel = finding.panels[0]
    if panel.verdict is None:
        return
    yield (
        f"SGD at batch size {panel.batch_size} was compared with its SDE, the idealisation of SGD with infinitely "
        "small steps. SVAG approaches it: each step of SGD is replaced by ell smaller, noisier ones."
    )
    yield f"{panel.answer().headline} {_MEANING[panel.verdict.answer]}"
