"""The figures that compare SGD with SVAG (subsec:app_svag_exp), as rows."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

from svag.lab.experiments import wording
from svag.lab.experiments.arms import svag_arm
from svag.lab.experiments.bases import FASHION, Edits, at
from svag.lab.experiments.compare import Compare, ComparePanel
from svag.lab.experiments.experiment import MARGIN, Metric, Size
from svag.lab.experiments.wording import Judgement, PaperVerdict, Remedy
from svag.lab.specs.spec import RunSpec
from svag.paper.figures.bases import BATCH, CIFAR, GROUP, MEDIUM, PLAIN, decays, network
from svag.paper.figures.remedies import for_curves, for_gap

if TYPE_CHECKING:
    from svag.lab.experiments.compare_finding import AcrossPanels, CompareFinding, ComparePanelFinding, Difference
    from svag.lab.experiments.decomposition import Decomposition
    from svag.lab.experiments.ngd_finding import ArmGap
    from svag.verdicts.sde import SDEVerdict

ELLS = (1, 2, 4, 8, 16)
FOUR = (1, 2, 4, 8)
HALVED = (1, 4, 8, 16)  # with batches cut in two, l = 2 is a rung of the linear ladder
SEEDS = 4  # fewer give no limits of a trajectory at 95%
# Nats of test loss that go with a change of 1 in accuracy: 2.4 to 3.8 where SGD and SVAG end at least 2 points apart.
LOSS_PER_ACCURACY = 2.5
CLOSE = 0.05  # of an axis from 0 to 100%, on which the paper draws its curves: those so near look like one
_REFINED = 3  # values of l above 1 without which nothing is said about convergence
MORE = 24  # seeds of SGD and of l = 4 where 8 leave open whether one follows the trajectory of the other
CHECKED = ((2, 8), (8, 8))  # seeds of the arms that only show whether SVAG has converged
NO_EULER: dict[str, Any] = {"glsr": (4,), "ngd": True}
ROUTES: dict[str, Any] = {**NO_EULER, "sde": (4,)}
MEDIUM_ELLS, MEDIUM_SEEDS, MEDIUM_MARGIN = (1, 2, 4, 8), 4, 0.015

PHASES = {"budget": 62_400, **decays(0.5, 0.75)}
LONG = {"budget": {"epochs": 300}, **decays(250 / 300)}
COSINE: Edits = {"schedule": {"kind": "cosine", "floor": 0.001 / 0.8}}
TRIANGLE: Edits = {"schedule": {"kind": "triangle", "peaks": [1.0, 0.5], "floor": 0.001 / 0.8}}
CIFAR100 = {"data.name": "cifar100"}
WITH_NORMS = "fig:app_svag_c100"
SVHN: Edits = {"data": {"name": "svhn"}, "budget": {"epochs": 120}, **decays(100 / 120)}

# λ is raised so that the weight norm is at equilibrium, after some multiples of 1/(4ηλ) steps, within the budget.
READ: Edits = {
    "weight_decay": 1e-2,
    "probe": {"kind": "in_run", "parts": 2, "window": [0.5, 0.8], "every": 0.002},
}

# The small base: 7×7 images, on which a step takes 5 ms. λ is raised so that weight decay matters within the budget.
TINY = FASHION.edited({"data.pool": 2, "lr": 0.2, "weight_decay": 5e-3, "evaluate.every": 0.0625})
SHORT: Edits = {"budget": 400, **decays(0.5, 0.75)}


Shown = Literal["same", "apart", "below"]
CLAIMS: dict[Shown, str] = {
    "same": "SGD ends where its SDE ends",
    "apart": "SGD does not end where its SDE ends",
    "below": "SGD ends below its SDE",
}


@dataclass(frozen=True)
class PanelRow:
    """A panel.

    Attributes:
        name: what it is called.
        edits: what it changes in the base of its size.
        split: into how many parts SVAG cuts its batches.
        ells: other than the figure's.
        seeds: how many, if other than the figure's.
        shows: what the paper says of it.
        routes: fields of the panel for the coupled ladder, NGD and Euler–Maruyama, such as `ROUTES`.
        fewer: (l, seeds) of the arms that have fewer seeds than the panel; see `ComparePanel`.
    """

    name: str
    edits: Edits
    split: int = 1
    ells: tuple[int, ...] = ()
    seeds: int = 0
    shows: Shown = "same"
    routes: Edits = field(default_factory=dict)
    fewer: tuple[tuple[int, int], ...] = ()

    def panel(self, base: RunSpec, ells: tuple[int, ...]) -> ComparePanel:
        """The panel, from the base and the ell of its figure."""
        return ComparePanel(
            name=self.name,
            base=base.edited(self.edits),
            seeds=tuple(range(self.seeds)),
            ells=self.ells or ells,
            split=self.split,
            fewer=self.fewer,
            **self.routes,
        )

    def judged(self, panel: "ComparePanelFinding") -> Iterator[Judgement]:
        """Every claim about a panel, beside what was found.

        Whether SGD and its SDE end as the paper says, whether SVAG has converged, whether SGD follows its trajectory,
        whether two roads to the SDE have one limit, and what lies between SGD and the SDE where they end apart.
        """
        yield self._end_judged(panel)
        yield _convergence_judged(self.name, panel)
        if self.shows == "same":
            yield _trajectory_judged(self.name, panel)
        if panel.euler is not None:
            yield _roads_judged(self.name, panel.euler[1], panel.metric)
        yield from _steps_judged(self.name, panel)

    def _end_judged(self, panel: "ComparePanelFinding") -> Judgement:
        """By accuracy or loss, whichever places the gap more precisely within its margin."""
        if panel.verdict is None:
            return Judgement(self.name, CLAIMS[self.shows], "no result", "cannot tell", "end")
        (verdict, metric), *others = _by_precision(panel)
        said = "; beside it ".join(_gap_said(judged, by) for judged, by in ((verdict, metric), *others))
        answer = self._paper_verdict(verdict.answer, verdict.gap if wording.is_share(metric) else -verdict.gap)
        if _through_sgd(verdict):
            ells = " and ".join(str(arm.key) for arm in verdict.arms)
            said, answer = f"{said}; from l = {ells} alone, a line through SGD itself", "cannot tell"
        elif panel.collapsed:
            arms = ", ".join("SGD" if ell == 1 else f"SVAG l = {ell}" for ell in panel.collapsed)
            said += f"; {arms} collapsed, so the SDE is taken to be the largest l"
        remedy = None
        if answer == "cannot tell" and verdict.seeds_needed is not None:
            more = verdict.seeds_needed - _seeds(panel, 1)
            remedy = Remedy(
                "seeds", verdict.seeds_needed, more * len(verdict.arms), _named(*(arm.key for arm in verdict.arms))
            )
        return Judgement(self.name, CLAIMS[self.shows], said, answer, "end", remedy=remedy)

    def _paper_verdict(self, answer: str, above: float) -> PaperVerdict:
        """`above`: by how much SGD is better than its SDE."""
        if answer == "inconclusive" or (self.shows == "below" and answer == "different" and math.isnan(above)):
            return "cannot tell"
        seen = {
            "same": answer == "equivalent",
            "apart": answer == "different",
            "below": answer == "different" and above < 0,
        }
        return "agrees" if seen[self.shows] else "differs"


def _by_precision(panel: "ComparePanelFinding") -> list[tuple["SDEVerdict", Metric]]:
    """The verdicts on the metric and on test loss, the one with the narrower interval for its margin first.

    The choice looks at the spread alone and not at the gap, so the error rates stay as they are.
    """
    verdicts: list[tuple[SDEVerdict, Metric]] = []
    if panel.verdict is not None:
        verdicts.append((panel.verdict, panel.metric))
    if panel.loss is not None:
        verdicts.append((panel.loss, "test_loss"))
    return sorted(verdicts, key=lambda one: (one[0].high - one[0].low) / one[0].margin)


def _gap_said(verdict: "SDEVerdict", metric: Metric) -> str:
    gap = wording.estimated(verdict.gap, verdict.low, verdict.high, metric)
    return f"{wording.UNITS[metric]}: SGD − SDE {gap}, margin ±{wording.size(verdict.margin, metric)}"


def _through_sgd(verdict: "SDEVerdict") -> bool:
    """Whether the limit is a line through SGD and one SVAG, which assumes what is to be shown."""
    return verdict.limit == "fit" and verdict.lack_of_fit is None


def _convergence_judged(panel: str, finding: "ComparePanelFinding") -> Judgement:
    """Whether what SVAG still misses at some l is within half the margin, from l and 4l."""
    claim = "SVAG has converged in l, to within half the margin"
    if finding.verdict is None:
        return Judgement(panel, claim, "no result", "cannot tell", "converged")
    verdict, metric = _by_precision(finding)[0]
    refined = [arm.key for arm in verdict.arms if arm.key > 1]
    if len(refined) < _REFINED or not verdict.biases:
        said = f"l = {', '.join(map(str, refined))} cannot show it: {_REFINED} values above 1 are needed"
        return Judgement(panel, claim, said, "cannot tell", "converged")
    bias = next((one for one in verdict.biases if one.ell == verdict.converged_at), verdict.biases[-1])
    said = (
        f"{wording.UNITS[metric]}: l = {bias.ell} still misses "
        f"{wording.estimated(bias.value, bias.low, bias.high, metric)}, from l = {bias.ell} and {bias.against}; half "
        f"the margin is {wording.size(verdict.margin / 2, metric)}"
    )
    remedy = None
    if bias.answer == "inconclusive":
        ells = bias.ell, bias.against
        seeds = min(_seeds(finding, ell) for ell in ells)
        remedy = for_gap(bias.value, bias.low, bias.high, seeds, verdict.margin / 2, _named(*ells))
    return Judgement(panel, claim, said, _VERDICTS[bias.answer], "converged", remedy=remedy)


def _named(*ells: int) -> tuple[str, ...]:
    return tuple(str(svag_arm(ell)) for ell in ells)


def _seeds(finding: "ComparePanelFinding", ell: int) -> int:
    """How many seeds of SVAG with this l have a result."""
    return sum(row.arm == str(svag_arm(ell)) for row in finding.runs)


def _trajectory_judged(panel: str, finding: "ComparePanelFinding") -> Judgement:
    """Whether the curves of SGD and SVAG stay together from the first step to the last, as far as one can see."""
    claim, curve = f"SGD follows the trajectory of SVAG (within {100 * CLOSE:g} points)", finding.curve
    if curve is None or not wording.is_share(finding.metric):
        return Judgement(panel, claim, "no curves", "cannot tell", "trajectory")
    verdict: PaperVerdict = "cannot tell"
    if curve.apart > CLOSE:
        verdict = "differs"
    elif curve.reach <= CLOSE and not curve.diverged:
        verdict = "agrees"
    reach = (
        f"within {wording.size(curve.reach, finding.metric)}"
        if math.isfinite(curve.reach)
        else "too few seeds for a limit"
    )
    apart = f", surely {wording.size(curve.apart, finding.metric)} apart at some step" if curve.apart else ""
    said = f"SVAG l = {curve.ell}: {reach}{apart} (95% at all steps at once, running means)"
    remedy = None
    if verdict == "cannot tell" and not curve.diverged:
        seeds = min(_seeds(finding, ell) for ell in (1, curve.ell))
        remedy = for_curves(curve.apart, curve.reach, seeds, CLOSE, _named(1, curve.ell))
    return Judgement(panel, claim, said, verdict, "trajectory", remedy=remedy)


def _steps_judged(panel: str, finding: "ComparePanelFinding") -> Iterator[Judgement]:
    """Where SGD ends apart from its SDE: whether that is the size of the steps rather than non-Gaussian noise."""
    measured: list[tuple[Decomposition, Metric]] = [(split, finding.metric) for split in finding.decompositions]
    measured += [(split, "test_loss") for split in finding.loss_decompositions]
    route = "gaussian" if any(split.route == "gaussian" for split, _ in measured) else "ladder"
    told = [(split, by) for split, by in measured if split.route == route and split.total.low * split.total.high > 0]
    if not told:
        return
    split, metric = min(told, key=lambda pair: (pair[0].total.high - pair[0].total.low) / abs(pair[0].total.value))
    share, sign = split.terms[0].value / split.total.value, math.copysign(1.0, split.total.value)
    low, high = sorted((sign * split.excess.low, sign * split.excess.high))
    verdict: PaperVerdict = "agrees" if low > 0 else "differs" if high < 0 else "cannot tell"
    said = f"{wording.UNITS[metric]}: {split.said(metric)}; discretisation is {100 * share:.0f}% of it"
    claim = "the size of SGD's steps, more than non-Gaussian noise, separates it from its SDE"
    yield Judgement(panel, claim, said, verdict, "decomposition")


@dataclass(frozen=True)
class CompareRow:
    """A figure.

    Attributes:
        label: in the paper.
        title: what it shows.
        paper: panels of the paper.
        small: panels that a laptop can run.
        note: how these differ from the paper's.
        ells: of the small size; the paper's are `ELLS`.
        seeds: of the small size.
        margin: of the small size, in accuracy.
        base: of the small size, which its panels change.
        medium: panels that a workstation runs overnight; none where there is no such size.
        medium_note: how these differ from the paper's.
    """

    label: str
    title: str
    paper: tuple[PanelRow, ...]
    small: tuple[PanelRow, ...]
    note: str
    ells: tuple[int, ...] = FOUR
    seeds: int = 8
    margin: float = 0.03
    base: RunSpec = TINY
    medium: tuple[PanelRow, ...] = ()
    medium_note: str = ""

    def at(self, size: Size) -> Compare:
        """The paper's own setting, or one for a workstation overnight ("medium") or a laptop."""
        base, panels, ells = self.base, self.small, self.ells
        seeds, margin, note = self.seeds, self.margin, self.note
        if size == "paper":
            base, panels, ells = CIFAR, self.paper, ELLS
            seeds, margin, note = SEEDS, MARGIN, ""
        elif size == "medium":
            base, panels, ells = MEDIUM, self.medium, MEDIUM_ELLS
            seeds, margin, note = MEDIUM_SEEDS, MEDIUM_MARGIN, self.medium_note
        return Compare(
            title=self.title,
            label=self.label,
            size=size,
            note=note,
            seeds=tuple(range(seeds)),
            margin=margin,
            loss_margin=LOSS_PER_ACCURACY * margin,
            panels=tuple(row.panel(base, ells) for row in panels),
        )

    def judged(self, finding: "CompareFinding", size: Size) -> tuple[Judgement, ...]:
        """The paper's claim about every panel, beside what was found."""
        rows = {"paper": self.paper, "medium": self.medium}.get(size, self.small)
        each = [claim for row, panel in zip(rows, finding.panels, strict=True) for claim in row.judged(panel)]
        return (*each, *(_sampling_judged(across, finding.panels[0].metric) for across in finding.across))


_VERDICTS: dict[str, PaperVerdict] = {
    "equivalent": "agrees",
    "different": "differs",
    "inconclusive": "cannot tell",
}


def _roads_judged(panel: str, gap: "Difference", metric: Metric) -> Judgement:
    claim = "SVAG and Euler–Maruyama tend to the same limit"
    return Judgement(panel, claim, gap.said(metric), _VERDICTS[gap.answer], "roads")


def _sampling_judged(across: "AcrossPanels", metric: Metric) -> Judgement:
    furthest = max(across.pairs, key=lambda pair: abs(pair.value))
    said = f"furthest apart: {furthest.said(metric)}, margin ±{wording.size(across.margin, metric)}"
    claim = f"{across.of} is the same however batches are drawn"
    return Judgement("all panels", claim, said, _VERDICTS[across.answer], "sampling")


def norms_judged(experiment: Compare, finding: "CompareFinding") -> tuple[Judgement, ...]:
    """What the caption of fig:app_svag_c100 remarks about norms, wherever the panels of an experiment allow it.

    BatchNorm ends above GroupNorm, and GroupNorm improves with ell. The first is judged where two panels differ in
    their norm alone: at small size VGG with GroupNorm is wider and has another rate, because it does not train
    otherwise.
    """
    from svag.lab.experiments.ngd_finding import arm_gap

    panels = list(zip(experiment.panels, finding.panels, strict=True))
    claims = []
    for (one, batch), (other, group) in combinations(panels, 2):
        if (one.base.model.norm, other.base.model.norm) == ("batch", "group") and _alike(one, other):
            above = arm_gap("BN − GN", _ends(batch), _ends(group), experiment.margin)
            claims.append(_norm_judged(f"{batch.name}, {group.name}", "BatchNorm ends above GroupNorm", above))
    for panel, group in panels:
        if panel.base.model.norm == "group":
            ell = max(panel.ells)
            above = arm_gap(f"ell={ell} − SGD", _ends(group, ell), _ends(group), experiment.margin)
            claims.append(_norm_judged(group.name, "GroupNorm improves with ell", above))
    return tuple(claims)


def _alike(one: ComparePanel, other: ComparePanel) -> bool:
    """Whether two panels differ in their norm and in what is measured alone."""
    same = {"model.norm": "group", "probe": "none"}
    return one.base.edited(same) == other.base.edited(same)


def _ends(panel: "ComparePanelFinding", ell: int = 1) -> dict[int, float]:
    """Test accuracy at the end, by seed."""
    return {row.seed: row.test_accuracy for row in panel.runs if row.arm == str(svag_arm(ell))}


def _norm_judged(panel: str, claim: str, gap: "ArmGap | None") -> Judgement:
    said = "no result" if gap is None else f"{gap.name} {gap.said('test_accuracy')}"
    return Judgement(panel, claim, said, ends_above(gap))


def ends_above(gap: "ArmGap | None") -> PaperVerdict:
    """Whether the first of two arms ends above the second, as the paper claims."""
    if gap is None or gap.answer == "inconclusive" or math.isnan(gap.gap):
        return "cannot tell"
    return "agrees" if gap.answer == "different" and gap.gap > 0 else "differs"


_IMAGES = "Fashion-MNIST at 7×7 for {}"
_RESIDUAL = "PreResNet-8 at half width for PreResNet-32"
_THIN_VGG = "VGG-11 at an eighth of the width for VGG-16"
_BUDGET = "λ = 0.005, 400 effective steps"


def _note(*parts: str, data: str = "CIFAR-10") -> str:
    return ", ".join((_IMAGES.format(data), *parts))


_VGG_BN, _VGG_GN = network("vgg11", "batch", 0.125), network("vgg11", "group", 0.25)
# Few images and a large rate, at which the gradient is as large as its noise: there the SDE may differ from SGD.
NOISE: Edits = {"probe": {"kind": "in_run", "parts": 2, "window": [0.25, 0.5]}}
# 4ηλ × 200 steps = 8 e-folds before the window, at η = 0.25
SETTLED: Edits = {"weight_decay": 0.04, "probe": {"kind": "in_run", "parts": 2, "window": [0.5, 0.8]}, **decays(0.8)}
_SAMPLINGS = {
    "random shuffling": "shuffle",
    "with replacement": "with_replacement",
    "without replacement": "without_replacement",
}
FEW: Edits = {"data.subset": 2000, "batch_size": 128, "lr": 0.8, "budget": 250}

ROWS = (
    CompareRow(
        "fig:svag_accs",
        "SVAG converges to SGD at a small batch, and away from it where linear scaling is ruled out",
        paper=(
            PanelRow("PreResNet-32 BN, B = 64", LONG | at(CIFAR, 64)),
            PanelRow("PreResNet-32 BN, B = 1024", LONG | at(CIFAR, 1024), shows="apart"),
        ),
        small=(
            PanelRow("PreResNet-8 GN, B = 8", READ | {"budget": 4000} | at(FASHION, 8), seeds=10, fewer=((8, 4),)),
            PanelRow(
                "PreResNet-8 GN, B = 256",
                READ | {"budget": 390} | at(FASHION, 256),
                split=2,
                ells=HALVED,
                shows="apart",
            ),
        ),
        note="Fashion-MNIST at 14×14 for CIFAR-10, PreResNet-8 at half width with GroupNorm for PreResNet-32 with "
        "BatchNorm, batches of 8 and 256 for 64 and 1024, λ = 0.01, 4,000 and 390 effective steps",
        seeds=4,
        margin=0.015,
        base=FASHION,
        medium=(
            PanelRow("PreResNet-8 GN, B = 64", decays(250 / 300) | at(MEDIUM, 64), split=2),
            PanelRow("PreResNet-8 GN, B = 1024", decays(250 / 300) | at(MEDIUM, 1024), split=2, shows="apart"),
        ),
        medium_note="CIFAR-10 at 16×16, PreResNet-8 with GroupNorm for PreResNet-32 with BatchNorm, 12 epochs for 300",
    ),
    CompareRow(
        "fig:app_svag_sampling",
        "How batches are drawn hardly matters",
        paper=tuple(PanelRow(name, PHASES | {"sampling": sampling}) for name, sampling in _SAMPLINGS.items()),
        small=tuple(
            PanelRow(name, SHORT | BATCH | {"data.subset": 2000, "sampling": sampling}, fewer=((8, 8),))
            for name, sampling in _SAMPLINGS.items()
        ),
        note=_note("2,000 of its images, so that they return", _RESIDUAL, _BUDGET),
        seeds=12,
        margin=0.02,
    ),
    CompareRow(
        "fig:app_svag_baselines",
        "SVAG follows SGD for residual networks of several widths and norms",
        paper=(
            PanelRow("PreResNet-32 BN", PHASES | network("preresnet32", "batch")),
            PanelRow("PreResNet-32 4× BN", PHASES | network("preresnet32", "batch", 4)),
            PanelRow("PreResNet-32 GN", PHASES | network("preresnet32", "group")),
        ),
        small=(
            PanelRow("PreResNet-8 BN", SHORT | BATCH, seeds=MORE, fewer=CHECKED),
            PanelRow("PreResNet-8 2× BN", SHORT | network("preresnet8", "batch", 1)),
            PanelRow("PreResNet-8 GN", SHORT | GROUP, ells=ELLS, seeds=MORE, fewer=CHECKED),
        ),
        note=_note(_RESIDUAL + " (2×: full width)", _BUDGET),
    ),
    CompareRow(
        "fig:app_svag_otherarch",
        "SVAG follows SGD without residual connections and without a norm",
        paper=(
            PanelRow("VGG-16 without norm", PHASES | network("vgg16", "none") | {"lr": 0.01}),
            PanelRow("VGG-16 BN", PHASES | network("vgg16", "batch")),
            PanelRow("VGG-16 GN", PHASES | network("vgg16", "group")),
        ),
        small=(
            PanelRow(
                "perceptron without norm",
                SHORT | network("mlp", "none") | {"lr": 0.2, "weight_decay": 5e-4, "budget": 1000},
                ells=ELLS,
            ),
            PanelRow("VGG-11 BN", SHORT | _VGG_BN, seeds=MORE),
            PanelRow("VGG-11 GN", SHORT | _VGG_GN | {"lr": 0.02, "budget": 1000}, routes={"glsr": (4,)}),
        ),
        note=_note(
            "VGG-11 at an eighth (BN) and a quarter of the width (GN) for VGG-16",
            "a perceptron for VGG-16 without norm, which takes thousands of steps to leave the first plateau here",
            "λ = 0.005 (without norm 0.0005), 400 effective steps (BN) and 1,000",
        ),
    ),
    CompareRow(
        "fig:app_svag_triangle",
        "SVAG follows SGD through a cyclic schedule",
        paper=(
            PanelRow("PreResNet-32", PHASES | TRIANGLE),
            PanelRow("VGG-16", PHASES | TRIANGLE | network("vgg16", "batch")),
        ),
        small=(
            PanelRow("PreResNet-8", SHORT | BATCH | TRIANGLE, seeds=MORE, fewer=CHECKED),
            PanelRow("VGG-11", SHORT | _VGG_BN | TRIANGLE, seeds=2 * MORE, fewer=((2, MORE), (4, MORE))),
        ),
        note=_note(_RESIDUAL, _THIN_VGG, _BUDGET),
    ),
    CompareRow(
        "fig:app_svag_cosine",
        "SVAG follows SGD through a cosine schedule",
        paper=(
            PanelRow("PreResNet-32", PHASES | COSINE),
            PanelRow("VGG-16", PHASES | COSINE | network("vgg16", "batch")),
        ),
        small=(
            PanelRow("PreResNet-8", SHORT | BATCH | COSINE, seeds=MORE, fewer=CHECKED),
            PanelRow("VGG-11", SHORT | _VGG_BN | COSINE, seeds=2 * MORE, fewer=((2, MORE), (4, MORE))),
        ),
        note=_note(_RESIDUAL, _THIN_VGG, _BUDGET),
    ),
    CompareRow(
        "fig:app_svag_c100",
        "On CIFAR-100 SVAG converges; with GroupNorm the SDE does not match SGD",
        paper=(
            PanelRow("PreResNet-32 4× BN", PHASES | CIFAR100 | network("preresnet32", "batch", 4)),
            PanelRow("PreResNet-32 4× GN", PHASES | CIFAR100 | network("preresnet32", "group", 4), shows="below"),
            PanelRow("VGG-19 BN", PHASES | CIFAR100 | network("vgg19", "batch")),
            PanelRow("VGG-19 GN", PHASES | CIFAR100 | network("vgg19", "group"), shows="below"),
        ),
        small=(
            PanelRow("PreResNet-8 BN", SHORT | FEW | BATCH, seeds=12),
            PanelRow("PreResNet-8 GN", SHORT | FEW | GROUP | NOISE, split=2, ells=HALVED, shows="below"),
            PanelRow("VGG-11 BN", SHORT | FEW | _VGG_BN, seeds=16),
            PanelRow(
                "VGG-11 GN",
                SHORT | FEW | _VGG_GN | NOISE | {"lr": 0.2},
                split=2,
                ells=HALVED,
                seeds=10,
                shows="below",
            ),
        ),
        note="2,000 images of Fashion-MNIST at 7×7, with its 10 classes, for CIFAR-100; PreResNet-8 at half width for "
        "PreResNet-32 4×, VGG-11 at an eighth (BN) and a quarter of the width (GN) for VGG-19; a learning rate of 0.8 "
        "(VGG-11 GN: 0.2), so large for a batch of 128 that SGD may leave its SDE; λ = 0.005, 250 effective steps",
        seeds=4,
    ),
    CompareRow(
        "fig:app_svag_svhn",
        "SVAG converges on SVHN; at a large batch to another limit than SGD",
        paper=(
            PanelRow("PreResNet-32 GN, B = 128", SVHN | GROUP),
            PanelRow("PreResNet-32 BN, B = 128", SVHN | BATCH),
            PanelRow("PreResNet-32 GN, B = 1024", SVHN | GROUP | at(CIFAR, 1024), shows="apart"),
        ),
        small=(
            PanelRow("PreResNet-8 GN, B = 32", SHORT | PLAIN | GROUP | decays(100 / 120)),
            PanelRow("PreResNet-8 BN, B = 32", SHORT | PLAIN | BATCH | decays(100 / 120)),
            PanelRow(
                "PreResNet-8 GN, B = 256",
                SHORT | PLAIN | GROUP | decays(100 / 120) | {"budget": 150} | at(TINY, 256),
                split=2,
                ells=HALVED,
                shows="apart",
            ),
        ),
        note=_note("without augmentation", _RESIDUAL, "batches of 32 and 256 for 128 and 1024", _BUDGET, data="SVHN")
        + " (B = 256: 150)",
    ),
    CompareRow(
        "eq:noise_decomposition",
        "What lies between SGD and its SDE: the size of the steps, and noise that is not Gaussian",
        paper=(
            PanelRow(
                "PreResNet-32 GN",
                PLAIN | GROUP | {"budget": 10_000, **decays(0.8)},
                ells=(1, 4, 16),
                routes=ROUTES,
            ),
            PanelRow(
                "PreResNet-32 GN, B = 1024",
                PLAIN | GROUP | {"budget": 1250, **decays(0.8)} | at(CIFAR, 1024),
                ells=(1, 4, 16),
                shows="apart",
                routes=NO_EULER,
            ),
        ),
        small=(
            PanelRow(
                "PreResNet-8 GN, B = 8",
                PLAIN | GROUP | SETTLED | {"data.subset": 640, "batch_size": 8, "lr": 0.25, "budget": 400},
                ells=FOUR,
                seeds=MORE,
                routes=ROUTES,
                fewer=((1, 5), (2, 5), (4, 5)),
            ),
            PanelRow(
                "PreResNet-8 GN, B = 256",
                PLAIN | GROUP | decays(0.8) | {"data.subset": 2000, "batch_size": 256, "lr": 1.6, "budget": 150},
                split=2,
                ells=HALVED,
                seeds=8,
                shows="apart",
                routes=NO_EULER,
            ),
        ),
        note=_note(
            "without augmentation",
            _RESIDUAL,
            "B = 8: 640 images, λ = 0.04, 400 effective steps",
            "B = 256: 2,000 images, λ = 0.005, 150",
        ),
        seeds=5,
    ),
)
