"""The figures that climb batch sizes along the linear scaling rule (subsec:app_lsr_exps), as rows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from svag.lab.experiments import wording
from svag.lab.experiments.bases import FASHION, Edits, in_run
from svag.lab.experiments.experiment import Size
from svag.lab.experiments.ladder import Ladder, LadderPanel
from svag.lab.experiments.wording import Judgement, PaperVerdict, Remedy
from svag.paper.bounds import plotted_max_kappa
from svag.paper.figures.bases import CIFAR, MEDIUM, PLAIN, decays, network
from svag.prices.reasons import Code

if TYPE_CHECKING:
    from svag.lab.experiments.ladder_finding import LadderFinding, LadderPanelFinding

BATCH_SIZES = tuple(2**power for power in range(1, 12))
SMALL_BATCH_SIZES = (16, 32, 64, 128, 256, 512)
MEDIUM_BATCH_SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)
SEEDS, SMALL_SEEDS, MEDIUM_SEEDS = 3, 4, 8


def paper_batches(batch_size: int) -> int:
    """From how many batches the paper estimates G and N (subsec:app_lsr_exps)."""
    return max(200, 50_000 // batch_size)


def frozen(start: float, end: float, readings: int = 50, batches: int = paper_batches(128)) -> Edits:
    """G and N at frozen weights, averaged over a window: also with BatchNorm, which cut batches would disturb."""
    return {"probe": {"kind": "frozen", "window": [start, end], "readings": readings, "batches": batches}}


C10 = {"budget": {"epochs": 300}, **decays(250 / 300), **frozen(200 / 300, 250 / 300)}
C100 = {"data.name": "cifar100", "budget": {"epochs": 300}} | decays(80 / 300, 250 / 300)
C100 |= frozen(200 / 300, 250 / 300)
SVHN: Edits = {"data": {"name": "svhn"}, "budget": {"epochs": 120}} | decays(100 / 120) | frozen(80 / 120, 100 / 120)

# Small ladders begin where N/G is about 6 or more, and those of scale-invariant networks reach their window after at
# least 3.5 e-folds 4ηλ·steps, counted at the rate that the window has: λ is raised for that, as more epochs would cost
# more. Where even that leaves them away from equilibrium, `init_scale` starts them at the norm at which a first ladder
# settled.
FROM_16: Edits = {"batch_size": 16, "weight_decay": 5e-3, "budget": {"epochs": 8}, "evaluate": {"every": 0.025}}
QUICK: Edits = {"data.pool": 2, "budget": {"epochs": 6}, "weight_decay": 6e-3}
# At the paper's decay, with first weights scaled to the norm at which they settle. So λ may be small for VGG-11, which
# hardly trains where a larger one lets it settle from its usual first weights.
DECIDED = FROM_16 | decays(250 / 300) | {"budget": {"epochs": 8}, "data.augment": {"pad": 0, "flip": True}}
GN_DECIDED = DECIDED | {"data.pool": 2, "weight_decay": 6e-3, "model.init_scale": 0.4} | in_run(0.6, 250 / 300)
BN_DECIDED = GN_DECIDED | {"model.norm": "batch", "model.init_scale": 0.43} | frozen(0.6, 250 / 300, 30, 8)
VGG_DECIDED = DECIDED | network("vgg11", "group", 0.125) | in_run(0.6, 250 / 300)
VGG_DECIDED |= {"weight_decay": 1e-3, "model.init_scale": 0.57}
BN_ORDINARY: Edits = {
    "model": {"arch": "resnet8", "norm": "batch", "width": 0.5},
    "lr": 0.025,
    "weight_decay": 5e-4,
    "schedule": {"kind": "steps", "at": [0.6, 0.85], "factor": 0.2},
    "budget": {"epochs": 8},
    "evaluate": {"every": 0.025},
    **frozen(0.2, 0.6, 13, 16),  # at the largest batch the window has few steps: few readings, of many batches each
}
WIDE = FROM_16 | QUICK | decays(0.8)
WIDE_BATCH = WIDE | network("preresnet8", "batch", 1) | frozen(0.4, 0.8, 21, 8) | {"model.init_scale": 0.36}
WIDE_GROUP = WIDE | network("preresnet8", "group", 1) | in_run(0.4, 0.8) | {"model.init_scale": 0.4}
# ×0.3 where the paper has ×0.1: at a tenth of the rate the weights would need three times as many steps to settle again
C100_SHORT = FROM_16 | QUICK | {"lr": 0.15, "weight_decay": 1.6e-2}
C100_SHORT |= {"schedule": {"kind": "steps", "at": [80 / 300, 250 / 300], "factor": 0.3}}
C100_VGG: Edits = C100_SHORT | {"data.pool": 1, "lr": 0.1, "weight_decay": 2.4e-2}
C100_GROUP, C100_BATCH = in_run(180 / 300, 250 / 300), frozen(180 / 300, 250 / 300, 50, 4)
C100_BEYOND = frozen(180 / 300, 250 / 300, 25, 8)
SVHN_SHORT = FROM_16 | QUICK | PLAIN | decays(100 / 120) | in_run(80 / 120, 100 / 120) | {"model.init_scale": 0.45}


@dataclass(frozen=True)
class LadderRow:
    """A figure: panels are names with what they change in the base of their size, which is at B = 128, or 32 if small.

    Attributes:
        label: in the paper.
        title: what it shows.
        paper: panels of the paper, on `BATCH_SIZES`.
        small: panels that a laptop can run.
        note: how these differ from the paper's.
        sizes: batch sizes of panels of the small size that have others than `SMALL_BATCH_SIZES`.
        sde: the refinements of SVAG at the small size, and the batch sizes that have them.
        seeds: of the small size.
        decided: how many seeds panels of the small size have that decide more than the others.
        medium: panels that a workstation runs overnight, on `MEDIUM_BATCH_SIZES`; none where there is no such size.
        medium_note: how these differ from the paper's.
    """

    label: str
    title: str
    paper: dict[str, Edits]
    small: dict[str, Edits]
    note: str
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    sde: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    seeds: int = SMALL_SEEDS
    decided: Mapping[str, int] = field(default_factory=dict)
    medium: Mapping[str, Edits] = field(default_factory=dict)
    medium_note: str = ""

    def at(self, size: Size) -> Ladder:
        """The paper's own setting, or one for a workstation overnight ("medium") or a laptop."""
        if size == "paper":
            seeds, note, batches = SEEDS, "", tuple(map(paper_batches, BATCH_SIZES))
            panels = [
                LadderPanel(name=name, base=CIFAR.edited(edits), batch_sizes=BATCH_SIZES, probe_batches=batches)
                for name, edits in self.paper.items()
            ]
        elif size == "medium":
            seeds, note = MEDIUM_SEEDS, self.medium_note
            panels = [
                LadderPanel(name=name, base=MEDIUM.edited(edits), batch_sizes=MEDIUM_BATCH_SIZES)
                for name, edits in self.medium.items()
            ]
        else:
            seeds, note, (ells, refined) = self.seeds, self.note, self.sde
            panels = [
                LadderPanel(
                    name=name,
                    base=FASHION.edited(edits),
                    seeds=tuple(range(self.decided.get(name, 0))),
                    batch_sizes=self.sizes.get(name, SMALL_BATCH_SIZES),
                    ells=ells,
                    split=2 if ells else 1,
                    refined=refined,
                )
                for name, edits in self.small.items()
            ]
        return Ladder(
            title=self.title,
            label=self.label,
            size=size,
            note=note,
            seeds=tuple(range(seeds)),
            panels=tuple(panels),
        )

    def judged(self, finding: "LadderFinding", size: Size) -> tuple[Judgement, ...]:
        """The paper's two claims about every panel, beside what was found; they are the same at every size."""
        claims = []
        for panel in finding.panels:
            claims += [_under_theorem(panel, _drift_judged(panel)), _error_judged(panel)]
        return (*claims, *(_sde_judged(panel) for panel in finding.panels if any(rung.sde for rung in panel.rungs)))


# Two batch sizes count as the same within one rung of a ladder of powers of two.
_NEAR = 2.0


def _under_theorem(panel: "LadderPanelFinding", claim: Judgement) -> Judgement:
    """The claim, which is not judged unless every rung was measured at equilibrium: the theorem compares any two."""
    if not panel.unbalanced:
        return claim
    said = f"{claim.found}; not judged under the theorem: {_off_balance(panel.unbalanced)}"
    return replace(claim, found=said, verdict="cannot tell", reason=Code.NOT_BALANCED)


def _off_balance(unbalanced: Sequence[tuple[int, float | None]]) -> str:
    known = [(size, balance) for size, balance in unbalanced if balance is not None]
    size, balance = max(known, key=lambda one: abs(one[1] - 1), default=(0, math.nan))
    seen = f"is {balance:.2f} at B = {size}, not 1 ± 0.1" if known else "is not known"
    return f"growth over decay of the weights {seen}"


def _drift_judged(panel: "LadderPanelFinding") -> Judgement:
    """Whether training statistics have drifted apart by C² where the smallest baseline says they must have."""
    claim = f"training statistics drift apart by a factor of {panel.c2:g} at the predicted B* or before"
    if not panel.checked:
        return Judgement(panel.name, claim, "no baseline predicts", "cannot tell", "drift")
    baseline, crossing = panel.checked[0]
    seen, ratio, last = crossing.observed, crossing.over_predicted, panel.rungs[-1].batch_size
    said = f"B* = {wording.batch_estimate(baseline.linear.limit)} from {baseline.batch_size}; "
    verdict: PaperVerdict = "cannot tell"
    if math.isinf(seen.value):
        said += f"not seen up to {last:,}"
        verdict = "differs" if last > baseline.linear.limit.high else "cannot tell"
    else:
        said += f"seen at {wording.batch_estimate(seen)}"
        if ratio.low > 1:
            verdict = "differs"
        elif ratio.high <= _NEAR:
            verdict = "agrees"
    return Judgement(panel.name, claim, said, verdict, "drift")


def _error_judged(panel: "LadderPanelFinding") -> Judgement:
    """Whether test error fails within a factor of two of what the baselines predict as the paper draws it.

    The prediction presumes that the weights of its baseline are at equilibrium; larger rungs need not be, as no theorem
    is claimed here and those that failed seldom are. Networks that are not scale invariant have no equilibrium, and the
    paper predicts from them all the same.
    """
    claim = "test error fails near the predicted batch sizes, to within a factor of 2"
    limits, scaling = _plotted_limits(panel), panel.scaling
    invariant = any(rung.balance is not None for rung in panel.rungs if rung.batch_size in limits)
    unsettled = {size: balance for size, balance in panel.unbalanced if invariant and size in limits}
    settled = [limit for baseline, limit in limits.items() if baseline not in unsettled]
    if not limits:
        return Judgement(panel.name, claim, "no baseline predicts", "cannot tell", "error")
    smallest, largest = min(settled or limits.values()), max(settled or limits.values())
    between = wording.batch(smallest) + (f" to {wording.batch(largest)}" if smallest < largest else "")
    predicted = f"predicted {between}, as the paper draws it"
    if scaling is None or scaling.answer == "not decided" or wording.unbounded(scaling.low, scaling.high):
        said = f"{predicted}; these seeds cannot locate a failure"
        return Judgement(panel.name, claim, said, "cannot tell", "error", remedy=Remedy("seeds"))
    at = "does not fail" if scaling.observed is None else f"fails at {wording.batch(scaling.observed)}"
    said = f"{predicted}; {at} {wording.batch_interval(scaling.low, scaling.high)}"
    if not settled:
        off = _off_balance(list(unsettled.items()))
        said, remedy = f"{said}; no baseline was at equilibrium: {off}", Remedy("equilibrium")
        return Judgement(panel.name, claim, said, "cannot tell", "error", Code.NOT_BALANCED, remedy)
    low, high = smallest / _NEAR, largest * _NEAR
    if scaling.high < low or scaling.low > high:
        return Judgement(panel.name, claim, said, "differs", "error")
    if scaling.observed is not None and low <= scaling.observed <= high:
        return Judgement(panel.name, claim, said, "agrees", "error")
    short = math.isinf(scaling.high) and panel.rungs[-1].batch_size < high
    remedy = Remedy("batch sizes" if short else "seeds")
    return Judgement(panel.name, claim, said, "cannot tell", "error", remedy=remedy)


def _plotted_limits(panel: "LadderPanelFinding") -> dict[int, float]:
    """B* of every baseline that predicts, as the paper's figures draw it."""
    rules = [prediction.linear for prediction in panel.predictions if prediction.usable]
    return {rule.batch_size: rule.batch_size * plotted_max_kappa(rule.noise_to_signal.value, rule.c2) for rule in rules}


def _sde_judged(panel: "LadderPanelFinding") -> Judgement:
    """Whether, at the largest batch size with SVAG, SGD exceeds the tolerated test error and its SDE does not."""
    claim = "SGD degrades along the linear rule, and its SDE does not"
    rung = [rung for rung in panel.rungs if rung.sde is not None][-1]
    if rung.sde is None or panel.scaling is None or not math.isfinite(rung.error):
        return Judgement(panel.name, claim, "no limit of SVAG", "cannot tell")
    lowest = min(other.error for other in panel.rungs if math.isfinite(other.error))
    allowed = lowest * (1 + panel.scaling.tolerance)
    percents = [
        wording.value(number, panel.metric) for number in (rung.error, rung.sde.value, rung.sde.low, rung.sde.high)
    ]
    said = (
        f"at {rung.batch_size} the test error of SGD is {percents[0]}, that of its SDE {percents[1]} ({percents[2]} to "
        f"{percents[3]}); {wording.value(allowed, panel.metric)} is tolerated"
    )
    degrades, holds = rung.error_low > allowed, rung.sde.high <= allowed
    verdict: PaperVerdict = "cannot tell"
    if degrades and holds:
        verdict = "agrees"
    elif rung.error_high <= allowed or rung.sde.low > allowed:
        verdict = "differs"
    return Judgement(panel.name, claim, said, verdict)


ROWS = (
    LadderRow(
        "fig:lsr_acc_gnr",
        "Linear scaling fails near the batch size that G/N of small batches predicts",
        paper={
            "PreResNet-32 BN": C10 | network("preresnet32", "batch"),
            "PreResNet-32 GN": C10 | network("preresnet32", "group"),
            "VGG-19 GN": C10 | network("vgg19", "group"),
        },
        small={"PreResNet-8 GN": GN_DECIDED, "PreResNet-8 BN": BN_DECIDED, "VGG-11 GN": VGG_DECIDED},
        note="Fashion-MNIST for CIFAR-10, flipped but not shifted, at 7×7 (VGG-11: 14×14); PreResNet-8 at half width "
        "and VGG-11 at an eighth of it for PreResNet-32 and VGG-19; λ = 0.006 (VGG-11: 0.001), first weights × 0.4, "
        "0.43 and 0.57, 8 epochs for 300 with the decay",
        sizes={"PreResNet-8 GN": (*SMALL_BATCH_SIZES, 1024), "VGG-11 GN": (8, *SMALL_BATCH_SIZES)},
        decided={"PreResNet-8 GN": 8},
        medium={"PreResNet-8 GN": decays(250 / 300) | in_run(0.6, 250 / 300)},
        medium_note="CIFAR-10 at 16×16, PreResNet-8 with GroupNorm for the three networks, 12 epochs for 300, G and N "
        "over 60% to 83% of them, batch sizes from 8 to 1,024",
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
            "ResNet-8 BN, unmodified": BN_ORDINARY,
            "PreResNet-8 2× BN": WIDE_BATCH,
            "PreResNet-8 2× GN": WIDE_GROUP,
        },
        note="Fashion-MNIST for CIFAR-10, at 14×14 for ResNet-8 and at 7×7 for the others; depth 8 for 32, twice the "
        "width of our other small panels for 4×; ResNet-8 in 8 epochs at a small learning rate that falls by 5 twice, "
        "the others in 6 epochs with λ = 0.006, first weights × 0.36 and 0.4",
        sizes={
            "ResNet-8 BN, unmodified": (*SMALL_BATCH_SIZES, 1024, 2048),
            "PreResNet-8 2× BN": (*SMALL_BATCH_SIZES, 1024),
            "PreResNet-8 2× GN": (8, *SMALL_BATCH_SIZES),
        },
        seeds=2,
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
            "PreResNet-8 BN": C100_SHORT | network("preresnet8", "batch", 0.5) | C100_BEYOND,
            "PreResNet-8 GN": C100_SHORT | network("preresnet8", "group", 0.5) | C100_GROUP,
            "VGG-11 BN": C100_VGG | network("vgg11", "batch", 0.125) | C100_BATCH,
            "VGG-11 GN": C100_VGG | network("vgg11", "group", 0.125) | C100_GROUP,
        },
        note="Fashion-MNIST at 7×7, with its 10 classes, for CIFAR-100; PreResNet-8 at half width for PreResNet-32 4×; "
        "VGG-11 at an eighth of the width, and at 14×14, for VGG-19; λ = 0.016 and 0.024, the rate falls by 0.3 for "
        "0.1, 6 epochs for 300, G and N over 60% to 83% of them",
        sizes={"PreResNet-8 GN": (16, 64, 128, 256, 512), "VGG-11 BN": (16, 32, 64, 128, 256)},
    ),
    LadderRow(
        "fig:app_lsr_svhn",
        "The prediction on SVHN",
        paper={"PreResNet-32 GN": SVHN | network("preresnet32", "group")},
        small={"PreResNet-8 GN": SVHN_SHORT},
        note="Fashion-MNIST at 7×7 without augmentation for SVHN, PreResNet-8 at half width for PreResNet-32, "
        "λ = 0.006, first weights × 0.45, 6 epochs for 120; SVAG at two batch sizes besides, which the paper does not "
        "run here",
        sde=((2, 8), (128, 512)),
    ),
)
