"""The figures that put Gaussian noise in the place of SGD's (sec:app_ngd_exps), as rows."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from svag.lab.experiments import wording
from svag.lab.experiments.arms import GD, NGD, SGD
from svag.lab.experiments.bases import FASHION, Edits
from svag.lab.experiments.experiment import Size
from svag.lab.experiments.ngd import Ngd, NgdPanel
from svag.lab.experiments.wording import Judgement, PaperVerdict, Remedy
from svag.paper.figures.bases import CIFAR, MEDIUM, PLAIN, decays, network
from svag.paper.figures.compare import CLOSE, ends_above
from svag.paper.figures.remedies import for_curves

if TYPE_CHECKING:
    from svag.lab.experiments.ngd_finding import ArmGap, CurvesApart, NgdFinding, NgdPanelFinding

SEEDS = 4  # the fewest that are compared in pairs and give limits of a curve at 95%
INTERVALS = {"evaluate": {"every": 100, "train": True}}  # train curves are averages over 100 steps

# NGD and GD pay a pass over all images a step.
SMALL: Edits = {"data": {"name": "fashion-small", "subset": 1000, "pool": 2}, "budget": 1000}
SMALL |= {"evaluate": {"every": 50, "train": True}}
SMALL_SEEDS, MEDIUM_SEEDS = 8, 5


def decayed_at(step: int) -> Edits:
    """×0.1 at an effective step, which is 80% of the budget: the paper does not print how long it went on."""
    return {"budget": step * 10 // 8, **decays(step)}


@dataclass(frozen=True)
class NgdRow:
    """A figure of one panel.

    Attributes:
        label: in the paper.
        title: what it shows.
        paper: name of the network and what it changes in the base.
        small: the same for a laptop.
        note: how this differs from the paper's.
        printed: the best test accuracies that the paper prints, by arm; GD is there where the paper shows it.
        seeds: of the small size.
        medium: the same for a workstation overnight; None where there is no such size.
        medium_note: how this differs from the paper's.
    """

    label: str
    title: str
    paper: tuple[str, Edits]
    small: tuple[str, Edits]
    note: str
    printed: Mapping[str, float]
    seeds: int = SMALL_SEEDS
    medium: tuple[str, Edits] | None = None
    medium_note: str = ""

    def at(self, size: Size) -> Ngd:
        """The paper's own setting, or one for a workstation overnight ("medium") or a laptop."""
        base, (name, edits) = FASHION.edited(SMALL), self.small
        seeds, note = self.seeds, self.note
        if size == "paper":
            base, (name, edits) = CIFAR.edited(PLAIN | INTERVALS), self.paper
            seeds, note = SEEDS, ""
        elif size == "medium" and self.medium is not None:
            base, (name, edits) = MEDIUM.edited(PLAIN), self.medium
            seeds, note = MEDIUM_SEEDS, self.medium_note
        panels = (NgdPanel(name=name, base=base.edited(edits)),)
        return Ngd(title=self.title, label=self.label, size=size, note=note, seeds=tuple(range(seeds)), panels=panels)

    def beside(self, finding: "NgdFinding") -> tuple[tuple[str, float, float], ...]:
        """The best test accuracies: the arm, the paper's and ours."""
        (panel,) = finding.panels
        ours = dict(panel.best)
        return tuple((arm, value, ours[arm]) for arm, value in self.printed.items())

    def judged(self, finding: "NgdFinding", size: Size) -> tuple[Judgement, ...]:
        """The paper's claims beside what was found; they are the same at every size."""
        claims = []
        for panel in finding.panels:
            claims.append(_ngd_judged(panel, "train accuracy", panel.train_ngd, panel.train_gd))
            claims.append(_ngd_judged(panel, "test accuracy", panel.sgd_ngd, panel.sgd_gd))
            claims.append(_curves_judged(panel))
            claims += [_gd_judged(panel)] if str(GD) in self.printed else []
        return tuple(claims)


def _ngd_judged(panel: "NgdPanelFinding", where: str, ngd: "ArmGap | None", gd: "ArmGap | None") -> Judgement:
    """Whether NGD ends where SGD ends and GD does not: where GD ends there too, any noise would do.

    GD is a control only if it surely ends farther from SGD than the margin within which NGD counts as the same.
    """
    verdict: PaperVerdict = "cannot tell"
    if ngd is not None and ngd.answer == "different":
        verdict = "differs"
    elif ngd is not None and gd is not None and ngd.answer == "equivalent" and _beyond(gd, panel.margin):
        verdict = "agrees"
    claim = f"NGD ends where SGD ends, and GD does not ({where})"
    said = f"{_said(panel, ngd)}; " + ("no GD" if gd is None else f"SGD − GD {gd.said(panel.metric)}")
    remedy = None
    if verdict == "cannot tell" and ngd is not None and gd is not None:
        remedy = _remedy(panel, ngd, gd)
    return Judgement(panel.name, claim, said, verdict, "ngd", remedy=remedy)


def _beyond(gap: "ArmGap", margin: float) -> bool:
    return gap.low > margin or gap.high < -margin


def _remedy(panel: "NgdPanelFinding", ngd: "ArmGap", gd: "ArmGap") -> Remedy:
    """More seeds of all three arms, unless GD ends too near to SGD to be a control."""
    if abs(gd.gap) <= panel.margin:
        return Remedy("control")
    needed = [gap.seeds_needed for gap in (ngd, gd) if gap.answer == "inconclusive"]
    seeds = max(filter(None, needed), default=0)
    if None in needed or not seeds:
        return Remedy("margin")
    return Remedy("seeds", seeds, len(panel.arms) * (seeds - max(arm.seeds for arm in panel.arms)))


def _curves_judged(panel: "NgdPanelFinding") -> Judgement:
    """Whether the curves of SGD and NGD stay together from the first step to the last, as far as one can see."""
    shares = [curves for curves in panel.apart if wording.is_share(curves.metric)]
    lost = panel.sgd_ngd is not None and panel.sgd_ngd.p_divergence is not None  # a curve that ends early is not judged
    verdict: PaperVerdict = "cannot tell"
    if any(curves.apart > CLOSE for curves in shares):
        verdict = "differs"
    elif len(shares) > 1 and not lost and all(curves.reach <= CLOSE for curves in shares):
        verdict = "agrees"
    said = "; ".join(map(_curves_said, panel.apart)) or "no curves"
    claim = f"train and test curves of SGD and NGD are close (within {100 * CLOSE:g} points)"
    remedy = None
    if verdict == "cannot tell" and not lost:
        seeds = min((arm.seeds for arm in panel.arms), default=0)
        arms = str(SGD), str(NGD)
        remedies = [for_curves(one.apart, one.reach, seeds, CLOSE, arms) for one in shares if one.reach > CLOSE]
        remedy = max(filter(None, remedies), key=lambda one: (one.code == "margin", one.seeds), default=None)
    return Judgement(panel.name, claim, said, verdict, "curves", remedy=remedy)


def _curves_said(curves: "CurvesApart") -> str:
    if not wording.is_share(curves.metric) or math.isinf(curves.reach):
        return f"{curves.name}: p = {curves.p_value:.2g}"
    reach = wording.size(curves.reach, curves.metric)
    return f"{curves.name}: within {reach} at every step (95%), p = {curves.p_value:.2g}"


def _gd_judged(panel: "NgdPanelFinding") -> Judgement:
    """Whether GD, without noise, ends below SGD."""
    gap, remedy = panel.sgd_gd, None
    verdict = ends_above(gap)
    if gap is not None and verdict == "cannot tell" and gap.seeds_needed is not None:
        more = gap.seeds_needed - max(arm.seeds for arm in panel.arms)
        remedy = Remedy("seeds", gap.seeds_needed, 2 * more, (str(SGD), str(GD)))
    return Judgement(panel.name, "GD ends below SGD", _said(panel, gap), verdict, "gd", remedy=remedy)


def _said(panel: "NgdPanelFinding", gap: "ArmGap | None") -> str:
    margin = wording.size(panel.margin, panel.metric)
    return "no result" if gap is None else f"{gap.name} {gap.said(panel.metric)}, margin ±{margin}"


def _note(network: str, *, images: int = 1000, steps: int = 1000) -> str:
    decay = f"{steps:,} steps with the decay at {steps * 8 // 10:,}"
    return f"{images:,} images of Fashion-MNIST at 7×7 for CIFAR-10, {network}, {decay}"


ROWS = (
    NgdRow(
        "fig:ngd_sgd_accs",
        "NGD with matching covariance does what SGD does; GD does not",
        paper=(
            "PreResNet-32 4× GN",
            network("preresnet32", "group", 4) | {"batch_size": 125, "lr": 0.8} | decayed_at(24_000),
        ),
        small=(
            "PreResNet-8 GN",
            {"data.subset": 2000, "batch_size": 25, "lr": 0.4, "budget": 1500, "evaluate.every": 100},
        ),
        note=_note("PreResNet-8 at half width for PreResNet-32 4×, B = 25 for 125", images=2000, steps=1500),
        printed={"GD": 0.755, "SGD": 0.894, "NGD": 0.893},
        seeds=5,
        medium=(
            "PreResNet-8 GN",
            {"data.subset": 5000, "batch_size": 125, "lr": 0.8, "evaluate": {"every": 100, "train": True}}
            | decayed_at(960),
        ),
        medium_note="5,000 images of CIFAR-10 at 16×16, PreResNet-8 for PreResNet-32 4×, 1,200 steps (30 epochs) with "
        "the decay at 960",
    ),
    NgdRow(
        "fig:ngd_sgd_b500",
        "NGD does what SGD does at B = 500",
        paper=("PreResNet-32 GN", network("preresnet32", "group") | {"batch_size": 500, "lr": 3.2} | decayed_at(8_000)),
        small=(
            "PreResNet-8 GN",
            network("preresnet8", "group", 0.25) | {"batch_size": 100, "lr": 1.6, "budget": 500, "evaluate.every": 25},
        ),
        note=_note("PreResNet-8 at a quarter of the width for PreResNet-32, B = 100 for 500", steps=500),
        printed={"SGD": 0.823, "NGD": 0.825},
        seeds=24,
    ),
    NgdRow(
        "fig:ngd_sgd_b125",
        "NGD does what SGD does at B = 125; GD does not",
        paper=(
            "PreResNet-32 GN",
            network("preresnet32", "group") | {"batch_size": 125, "lr": 0.8} | decayed_at(32_000),
        ),
        small=("PreResNet-8 GN", network("preresnet8", "group", 0.25) | {"batch_size": 25, "lr": 0.4}),
        note=_note("PreResNet-8 at a quarter of the width for PreResNet-32, B = 25 for 125"),
        printed={"GD": 0.765, "SGD": 0.869, "NGD": 0.868},
    ),
    NgdRow(
        "fig:ngd_sgd_vgg",
        "NGD does what SGD does for VGG-16; GD does not",
        paper=("VGG-16 GN", network("vgg16", "group") | {"batch_size": 125, "lr": 0.8} | decayed_at(32_000)),
        small=("VGG-11 GN", network("vgg11", "group", 0.125) | {"batch_size": 25, "lr": 0.02}),
        note=_note("VGG-11 at an eighth of the width for VGG-16, B = 25 for 125"),
        printed={"GD": 0.809, "SGD": 0.868, "NGD": 0.865},
        seeds=25,
    ),
)
