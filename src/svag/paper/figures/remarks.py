"""What the caption of fig:app_svag_c100 remarks about norms, judged from the same runs.

BatchNorm ends above GroupNorm, and GroupNorm improves with ell. The first is judged where two panels differ in their
norm alone: at small size VGG with GroupNorm is wider and has another rate, because it does not train otherwise.
"""

import math
from itertools import combinations
from typing import TYPE_CHECKING

from svag.lab.experiments.arms import svag_arm
from svag.lab.experiments.compare import Compare, ComparePanel
from svag.lab.experiments.wording import Judgement, PaperVerdict

if TYPE_CHECKING:
    from svag.lab.experiments.compare_finding import CompareFinding, ComparePanelFinding
    from svag.lab.experiments.ngd_finding import ArmGap

CIFAR100 = "fig:app_svag_c100"


def norms_judged(experiment: Compare, finding: "CompareFinding") -> tuple[Judgement, ...]:
    """Both remarks, wherever the panels of the experiment allow them."""
    from svag.lab.experiments.ngd_finding import arm_gap

    panels = list(zip(experiment.panels, finding.panels, strict=True))
    claims = []
    for (one, batch), (other, group) in combinations(panels, 2):
        if (one.base.model.norm, other.base.model.norm) == ("batch", "group") and _alike(one, other):
            above = arm_gap("BN − GN", _ends(batch), _ends(group), experiment.margin)
            claims.append(_judged(f"{batch.name}, {group.name}", "BatchNorm ends above GroupNorm", above))
    for panel, group in panels:
        if panel.base.model.norm == "group":
            ell = max(panel.ells)
            above = arm_gap(f"ell={ell} − SGD", _ends(group, ell), _ends(group), experiment.margin)
            claims.append(_judged(group.name, "GroupNorm improves with ell", above))
    return tuple(claims)


def _alike(one: ComparePanel, other: ComparePanel) -> bool:
    """Whether two panels differ in their norm and in what is measured alone."""
    same = {"model.norm": "group", "probe": "none"}
    return one.base.edited(same) == other.base.edited(same)


def _ends(panel: "ComparePanelFinding", ell: int = 1) -> dict[int, float]:
    """Test accuracy at the end, by seed."""
    return {row.seed: row.test_accuracy for row in panel.runs if row.arm == str(svag_arm(ell))}


def _judged(panel: str, claim: str, gap: "ArmGap | None") -> Judgement:
    verdict: PaperVerdict = "cannot tell"
    if gap is not None and gap.answer != "inconclusive" and not math.isnan(gap.gap):
        verdict = "agrees" if gap.answer == "different" and gap.gap > 0 else "differs"
    said = "no result" if gap is None else f"{gap.name} {gap.said('test_accuracy')}"
    return Judgement(panel, claim, said, verdict)
