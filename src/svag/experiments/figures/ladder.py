"""The figures that climb batch sizes along the linear scaling rule (subsec:app_lsr_exps), as rows."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from svag.experiments import wording
from svag.experiments.base import Size
from svag.experiments.figures.bases import CIFAR, FASHION, PLAIN, Edits, decays, network
from svag.experiments.ladder import Ladder, LadderPanel
from svag.experiments.wording import Judgement, PaperVerdict
from svag.records.spec import RunSpec

if TYPE_CHECKING:
    from svag.experiments.ladder_finding import LadderFinding, LadderPanelFinding

BATCH_SIZES = tuple(2**power for power in range(1, 12))
SMALL_BATCH_SIZES = (8, 32, 64, 128, 256)
SEEDS = 3


def paper_batches(batch_size: int) -> int:
    """From how many batches the paper estimates G and N (subsec:app_lsr_exps)."""
    return max(200, 50_000 // batch_size)


def frozen(start: float, end: float, readings: int = 50, batches: int = paper_batches(128)) -> Edits:
    """G and N at frozen weights, averaged over a window: also with BatchNorm, which cut batches would disturb."""
    return {"probe": {"kind": "frozen", "window": [start, end], "readings": readings, "batches": batches}}


def in_run(start: float, end: float) -> Edits:
    """G and N from the run's own batches, at most 2,000 times in a whole run."""
    return {"probe": {"kind": "in_run", "parts": 4, "window": [start, end], "every": 0.0005}}


C10 = {"budget": {"epochs": 300}, **decays(250 / 300), **frozen(200 / 300, 250 / 300)}
C100 = {"data.name": "cifar100", "budget": {"epochs": 300}} | decays(80 / 300, 250 / 300)
C100 |= frozen(200 / 300, 250 / 300)
SVHN: Edits = {"data": {"name": "svhn"}, "budget": {"epochs": 120}} | decays(100 / 120) | frozen(80 / 120, 100 / 120)

# Small ladders begin where N/G is at least 8, and reach their window after at least 3.5 e-folds 4ηλ·steps, counted at
# the rate that the window has: λ is raised for that, since more epochs would cost more.
C10_SHORT = {"budget": {"epochs": 20}, "weight_decay": 4e-3, **decays(250 / 300)}
C100_SHORT = {"budget": {"epochs": 20}, "weight_decay": 4e-2, **decays(80 / 300, 250 / 300)}
GROUP_READINGS, BATCH_READINGS = in_run(200 / 300, 250 / 300), frozen(200 / 300, 250 / 300, 30, 20)


@dataclass(frozen=True)
class LadderRow:
    """A figure: panels are names with what they change in the base of their size, which is at B = 128, or 32 if small.

    Attributes:
        label: in the paper.
        title: what it shows.
        paper: panels of the paper, on `BATCH_SIZES`.
        small: panels that a laptop can run.
        note: how these differ from the paper's.
        seeds: of the small size.
        sizes: batch sizes of the small size.
    """

    label: str
    title: str
    paper: dict[str, Edits]
    small: dict[str, Edits]
    note: str
    seeds: int = 2
    sizes: tuple[int, ...] = SMALL_BATCH_SIZES

    def at_paper_size(self) -> Ladder:
        """The paper's own setting."""
        panels = _panels(CIFAR, self.paper, BATCH_SIZES, tuple(map(paper_batches, BATCH_SIZES)))
        return Ladder(title=self.title, label=self.label, size="paper", seeds=tuple(range(SEEDS)), panels=panels)

    def at_small_size(self) -> Ladder:
        """For a laptop."""
        return Ladder(
            title=self.title,
            label=self.label,
            size="small",
            note=self.note,
            seeds=tuple(range(self.seeds)),
            panels=_panels(FASHION, self.small, self.sizes),
        )

    def judged(self, finding: "LadderFinding", size: Size) -> tuple[Judgement, ...]:
        """The paper's two claims about every panel, beside what was found; they are the same at every size."""
        return tuple(judge(panel) for panel in finding.panels for judge in (_drift_judged, _error_judged))


# Two batch sizes count as the same within one rung of a ladder of powers of two.
_NEAR = 2.0


def _drift_judged(panel: "LadderPanelFinding") -> Judgement:
    """Whether training statistics have drifted apart by C² where the smallest baseline says they must have."""
    claim = f"training statistics drift apart by a factor of {panel.c2:g} at the predicted B* or before"
    if not panel.checked:
        return Judgement(panel.name, claim, "no baseline predicts", "cannot tell")
    one, crossing = panel.checked[0]
    seen, ratio, last = crossing.observed, crossing.over_predicted, panel.rungs[-1].batch_size
    predicted = wording.batch(one.critical.critical_batch)
    said = f"B* = {predicted} {wording.batch_interval(one.critical.low, one.critical.high)} from {one.batch_size}; "
    verdict: PaperVerdict = "cannot tell"
    if math.isinf(seen.value):
        said += f"not seen up to {last:,}"
        verdict = "differs" if last > one.critical.high else "cannot tell"
    else:
        said += f"seen at {wording.batch(seen.value)} {wording.batch_interval(seen.low, seen.high)}"
        if ratio.low > 1:
            verdict = "differs"
        elif ratio.high <= _NEAR:
            verdict = "agrees"
    return Judgement(panel.name, claim, said, verdict)


def _error_judged(panel: "LadderPanelFinding") -> Judgement:
    """Whether test error fails within a factor of two of what the baselines predict as the paper draws it."""
    claim = "test error fails near the predicted batch sizes, to within a factor of 2"
    drawn, found = [one for one in panel.ranges if one.form == "plotted"], panel.scaling
    if not drawn:
        return Judgement(panel.name, claim, "no baseline predicts", "cannot tell")
    if found is None or found.answer == "not decided" or wording.unbounded(found.low, found.high):
        said = f"predicted {drawn[0].said}, as the paper draws it; these seeds cannot locate a failure"
        return Judgement(panel.name, claim, said, "cannot tell")
    at = "does not fail" if found.observed is None else f"fails at {wording.batch(found.observed)}"
    said = f"predicted {drawn[0].said}, as the paper draws it; {at} {wording.batch_interval(found.low, found.high)}"
    low, high = drawn[0].smallest / _NEAR, drawn[0].largest * _NEAR
    verdict: PaperVerdict = "cannot tell"
    if found.high < low or found.low > high:
        verdict = "differs"
    elif found.observed is not None and low <= found.observed <= high:
        verdict = "agrees"
    return Judgement(panel.name, claim, said, verdict)


def _panels(
    base: RunSpec, rows: dict[str, Edits], sizes: tuple[int, ...], batches: tuple[int, ...] = ()
) -> tuple[LadderPanel, ...]:
    return tuple(
        LadderPanel(name=name, base=base.edited(edits), batch_sizes=sizes, probe_batches=batches)
        for name, edits in rows.items()
    )


ROWS = (
    LadderRow(
        "fig:lsr_acc_gnr",
        "Linear scaling fails near the batch size that G/N of small batches predicts",
        paper={
            "PreResNet-32 BN": C10 | network("preresnet32", "batch"),
            "PreResNet-32 GN": C10 | network("preresnet32", "group"),
            "VGG-19 GN": C10 | network("vgg19", "group"),
        },
        small={"PreResNet-8 GN": {"budget": {"epochs": 30}, "weight_decay": 2e-3} | in_run(0.5, 0.8)},
        note="Fashion-MNIST at 14×14 for CIFAR-10, PreResNet-8 at half width with GroupNorm for the three networks, "
        "λ = 0.002, 30 epochs with the decay at 24, G and N over epochs 15–24",
        seeds=3,
        sizes=(4, 8, 16, 32, 64, 128, 256, 512),
    ),
    LadderRow(
        "fig:app_lsr_c10",
        "The prediction also holds for the ordinary ResNet and for wide networks",
        paper={
            "ResNet-32 BN, unmodified": C10 | network("resnet32", "batch") | {"model.scale_invariant": False},
            "PreResNet-32 4× BN": C10 | network("preresnet32", "batch", 4),
            "PreResNet-32 4× GN": C10 | network("preresnet32", "group", 4),
        },
        small={
            "ResNet-8 BN, unmodified": C10_SHORT
            | BATCH_READINGS
            | network("resnet8", "batch", 0.5)
            | {"model.scale_invariant": False},
            "PreResNet-8 2× BN": C10_SHORT | BATCH_READINGS | network("preresnet8", "batch", 1),
            "PreResNet-8 2× GN": C10_SHORT | GROUP_READINGS | network("preresnet8", "group", 1),
        },
        note="Fashion-MNIST at 14×14 for CIFAR-10, depth 8 for 32, twice our small width for 4×, λ = 0.004, 20 epochs "
        "for 300",
    ),
    LadderRow(
        "fig:app_lsr_c100",
        "The prediction on CIFAR-100, from the second of three phases",
        paper={
            "PreResNet-32 4× BN": C100 | network("preresnet32", "batch", 4),
            "PreResNet-32 4× GN": C100 | network("preresnet32", "group", 4),
            "VGG-19 BN": C100 | network("vgg19", "batch"),
            "VGG-19 GN": C100 | network("vgg19", "group"),
        },
        small={
            "PreResNet-8 2× BN": C100_SHORT | BATCH_READINGS | network("preresnet8", "batch", 1),
            "PreResNet-8 2× GN": C100_SHORT | GROUP_READINGS | network("preresnet8", "group", 1),
            "VGG-11 BN": C100_SHORT | BATCH_READINGS | network("vgg11", "batch", 0.25),
            "VGG-11 GN": C100_SHORT | GROUP_READINGS | network("vgg11", "group", 0.25),
        },
        note="Fashion-MNIST at 14×14, with its 10 classes, for CIFAR-100; PreResNet-8 for PreResNet-32 4×, VGG-11 at a "
        "quarter of the width for VGG-19, λ = 0.04, 20 epochs for 300",
    ),
    LadderRow(
        "fig:app_lsr_svhn",
        "The prediction on SVHN",
        paper={"PreResNet-32 GN": SVHN | network("preresnet32", "group")},
        small={
            "PreResNet-8 GN": PLAIN
            | {"budget": {"epochs": 24}, "weight_decay": 2.5e-3}
            | decays(100 / 120)
            | in_run(80 / 120, 100 / 120)
        },
        note="Fashion-MNIST at 14×14 without augmentation for SVHN, PreResNet-8 at half width for PreResNet-32, "
        "λ = 0.0025, 24 epochs for 120",
        seeds=3,
    ),
)
