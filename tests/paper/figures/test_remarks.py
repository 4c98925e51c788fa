"""What the caption of fig:app_svag_c100 remarks about norms, from values at the end of training."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from svag.lab.experiments.compare import Compare
from svag.lab.experiments.compare_finding import CompareFinding
from svag.lab.experiments.experiment import Size
from svag.lab.experiments.runs import RunRow
from svag.lab.experiments.wording import PaperVerdict
from svag.paper.figures import figure
from svag.paper.figures.compare import WITH_NORMS, norms_judged

LOW = (0.70, 0.701, 0.699, 0.702)
HIGH = (0.80, 0.801, 0.799, 0.802)
WIDE = (0.60, 0.90, 0.75, 0.85)


def verdicts(
    batch: Sequence[float], group: Sequence[float], refined: Sequence[float], size: Size = "small"
) -> dict[tuple[str, str], PaperVerdict]:
    """What is said when SGD ends at `batch` or `group` by its norm, and the largest ell at `refined`."""
    experiment = figure(WITH_NORMS, size)
    assert isinstance(experiment, Compare)
    found = experiment.find([])
    panels = []
    for panel, one in zip(experiment.panels, found.panels, strict=True):
        ends = {"SGD": batch if panel.base.model.norm == "batch" else group, f"SVAG ell={max(panel.ells)}": refined}
        rows = [
            RunRow(arm, 128, 0.8, seed, "finished", 250, value, 1.0, 1.0, 0, "")
            for arm, values in ends.items()
            for seed, value in enumerate(values)
        ]
        panels.append(replace(one, runs=tuple(rows)))
    judged = norms_judged(experiment, CompareFinding(found.title, tuple(panels)))
    return {(one.panel, one.claim): one.verdict for one in judged}


NORMS, REFINED = "BatchNorm ends above GroupNorm", "GroupNorm improves with ell"


@pytest.mark.parametrize(
    ("batch", "group", "refined", "norms", "improves"),
    [
        (HIGH, LOW, HIGH, "agrees", "agrees"),
        (LOW, HIGH, LOW, "differs", "differs"),
        (LOW, LOW, LOW, "differs", "differs"),
        (HIGH, WIDE, HIGH, "cannot tell", "cannot tell"),
        (HIGH, (math.nan, *LOW), HIGH, "agrees", "agrees"),  # a diverged seed does not speak for GroupNorm
        (HIGH, (math.nan,) * 4, HIGH, "cannot tell", "cannot tell"),
        ((), (), (), "cannot tell", "cannot tell"),
    ],
)
def test_both_remarks_are_judged_from_the_ends(
    batch: Sequence[float],
    group: Sequence[float],
    refined: Sequence[float],
    norms: PaperVerdict,
    improves: PaperVerdict,
) -> None:
    found = verdicts(batch, group, refined)
    assert {verdict for (_, claim), verdict in found.items() if claim == NORMS} == {norms}
    assert {verdict for (_, claim), verdict in found.items() if claim == REFINED} == {improves}


def test_norms_are_compared_only_where_nothing_else_differs() -> None:
    """At small size the two VGGs differ in width and rate; at the paper's they do not."""
    small, paper = (verdicts(HIGH, LOW, HIGH, size) for size in ("small", "paper"))
    assert [panel for panel, claim in small if claim == NORMS] == ["PreResNet-8 BN, PreResNet-8 GN"]
    assert [panel for panel, claim in paper if claim == NORMS] == [
        "PreResNet-32 4× BN, PreResNet-32 4× GN",
        "VGG-19 BN, VGG-19 GN",
    ]
    assert [panel for panel, claim in small if claim == REFINED] == ["PreResNet-8 GN", "VGG-11 GN"]
