"""What a finding knows reaches people: every field of it leaves a row in the answer."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.lab.report.conftest import Find
from tests.lab.report.folders import ladder_folder

from svag.lab.experiments.closeness import Closeness, OwnNoise
from svag.lab.experiments.compare_finding import CompareFinding, ComparePanelFinding, decided
from svag.lab.experiments.decomposition import Decomposition, Term
from svag.lab.experiments.ladder_finding import LadderFinding, LadderPanelFinding
from svag.lab.experiments.ngd_finding import NgdFinding
from svag.lab.experiments.rungs import Certificate
from svag.lab.experiments.sde_limit import Limit
from svag.lab.experiments.sde_plan import SdePlan
from svag.lab.experiments.wording import Answer
from svag.lab.report.write import build_report
from svag.stats.means import Contrast

CLOSE = Closeness(16, (Term("R", 1.5, 1.25, math.inf),), 2.25, 1.5625, 0.875, None, (10, 10))
GAP = Contrast(0.001, 0.002, 8.0)
STEP = Term("SDE − NGD", 0.01, 0.005, 0.015)
ROUTES = (
    Decomposition("gaussian", (STEP, STEP), replace(STEP, name="SDE − SGD"), STEP, 4, 1),
    Decomposition("ladder", (STEP, STEP), replace(STEP, name="SGD − SVAG ell=16"), STEP, 5, 0),
)


PLAN = SdePlan(
    metric="test_accuracy",
    within=0.005,
    ells=(1, 4, 16),
    seeds=(6, 4, 5),
    weights=(0.0, -1 / 3, 4 / 3),
    split=2,
    spread=0.002,
    constant=0.01,
    bias=0.0001,
    chance=0.82,
    examples=1_000,
    plain_ell=16,
    plain_seeds=(5, 5),
    plain_examples=4_000,
)


def compare_panel(finding_of: Find) -> ComparePanelFinding:
    """A panel with everything that a comparison can know."""
    found = finding_of("compare_different")
    assert isinstance(found, CompareFinding)
    panel = found.panels[0]
    assert panel.verdict is not None
    noise = OwnNoise(0.09, 0.08, 0.1, 2.0, sde_refuted=True)
    verdict = replace(panel.verdict, p_divergence=0.125)
    known = replace(panel, closeness=CLOSE, own_noise=noise, decompositions=ROUTES, verdict=verdict, plan=PLAN)
    known = replace(known, loss=verdict, collapsed=(1,), loss_decompositions=ROUTES)
    return replace(known, euler=(Limit(0.8, 0.79, 0.81, "fit", (1, 4), 0), decided("a − b", GAP, 0.01)))


def ladder_panel(finding_of: Find, name: str = "ladder") -> LadderPanelFinding:
    found = finding_of(name)
    assert isinstance(found, LadderFinding)
    (panel,) = found.panels
    return panel


def compared(panel: ComparePanelFinding) -> Answer:
    return panel.answer()


def laddered(panel: LadderPanelFinding) -> Answer:
    return panel.answer()


COMPARE_ROWS: Mapping[str, tuple[object, set[str]]] = {
    "verdict": (None, {"SGD − SDE", "convergence in ell", "p values"}),
    "limit": (None, {"SDE limit"}),
    "plan": (None, {"planned"}),
    "arms": ((), {"SGD", "SVAG ell=4", "SVAG ell=16"}),
    "richardson": (None, {"Richardson"}),
    "curve": (None, {"over the curve"}),
    "closeness": (None, {"C-closeness", "equilibrium"}),
    "own_noise": (None, {"SGD's own noise"}),
    "decompositions": ((), {"decomposed through NGD", "decomposed through the ladder"}),
    "euler": (None, {"Euler–Maruyama", "the same limit?"}),
    "loss": (None, {"final test loss"}),
    "collapsed": ((), {"collapsed"}),
    "loss_decompositions": (
        (),
        {"test loss, decomposed through NGD", "test loss, decomposed through the ladder"},
    ),
}


@pytest.mark.parametrize("field", COMPARE_ROWS)
def test_what_a_comparison_knows_leaves_a_row(finding_of: Find, field: str) -> None:
    panel = compare_panel(finding_of)
    nothing, rows = COMPARE_ROWS[field]
    fields: dict[str, Any] = {field: nothing}
    left = dict(compared(replace(panel, **fields)).numbers)
    assert set(dict(compared(panel).numbers)) - set(left) == rows


def test_no_field_of_a_comparison_is_without_its_rows(finding_of: Find) -> None:
    panel = compare_panel(finding_of)
    # said elsewhere on the page
    plain = {"name", "batch_size", "metric", "runs", "curves", "missing", "status", "optimizer"}
    assert set(vars(panel)) == plain | set(COMPARE_ROWS)
    assert set(dict(compared(panel).numbers)) == set[str]().union(*(rows for _, rows in COMPARE_ROWS.values()))


def test_a_comparison_says_its_evidence_in_numbers(finding_of: Find) -> None:
    panel = compare_panel(finding_of)
    assert panel.curve is not None
    said = dict(compared(panel).numbers)
    assert said["over the curve"].startswith(f"p = {panel.curve.p_value:.2g}, ")
    assert said["Richardson"].endswith(" 4 and 16")
    assert said["C-closeness"].endswith("R 1.5 [1.25, ∞]; smallest C² = 2.25, at least 1.56")
    assert said["p values"].partition("0.12 ")[1]
    assert {name: said[name] for name in ("planned", "equilibrium", "decomposed through NGD")} == {
        "planned": "1,000 examples; plain SVAG at ell=16 would take 4,000, 4 times as many",
        "equilibrium": "growth over decay of |x|², 1 at equilibrium: SGD 0.875",
        "decomposed through NGD": "SDE − SGD = +1.00 points: SDE − NGD = +1.00 points [+0.50, +1.50], SDE − NGD = "
        "+1.00 points [+0.50, +1.50] (4 seeds; 1 diverged left out)",
    }


def test_an_accuracy_s_interval_ends_at_all_of_it(finding_of: Find) -> None:
    panel = replace(compare_panel(finding_of), limit=Limit(0.95, 0.88, 1.02, "fit", (1, 4), 0))
    assert dict(compared(panel).numbers)["SDE limit"] == "95.00% (88.00% to 100.00%)"


def test_the_card_holds_what_it_held_and_the_rest_unfolds(finding_of: Find) -> None:
    answer = compared(compare_panel(finding_of))
    first = ["SGD − SDE", "SDE limit", "planned", "SGD", "SVAG ell=4", "SVAG ell=16"]
    assert [name for name, _ in answer.in_card] == first
    assert answer.in_card + answer.folded == answer.numbers
    assert len(answer.folded) == 15


LADDER_ROWS: Mapping[str, tuple[object, set[str]]] = {
    "scaling": (None, {"test error", "lowest test error"}),
    "drift": (
        None,
        {
            "from 16", "from 32", "from 64", "from 128", "from 256", "theorem", "invariance lost", "data needed",
            "what drifted", "drift from 16", "B_simple relative to 16", "slope of G/N",
        },
    ),
    "data": ((), {"data needed"}),
    "certificates": ((), {"ruled out"}),
}  # fmt: skip


@pytest.mark.parametrize("field", LADDER_ROWS)
def test_what_a_ladder_knows_leaves_a_row(finding_of: Find, field: str) -> None:
    panel = ladder_panel(finding_of)
    nothing, rows = LADDER_ROWS[field]
    fields: dict[str, Any] = {field: nothing}
    left = dict(laddered(replace(panel, **fields)).numbers)
    assert set(dict(laddered(panel).numbers)) - set(left) == rows


def test_a_ladder_says_its_evidence_in_numbers(finding_of: Find) -> None:
    panel = ladder_panel(finding_of)
    fired = (
        Certificate("baseline", 512, 64, 400.0, 512.0),
        Certificate("large_run", 512, 32, 0.5, 0.7),
        Certificate("sde", 256, None, 0.5, 1.0),
    )
    rungs = (replace(panel.rungs[0], balance=0.5, sde=Limit(0.125, 0.12, 0.13, "fit", (1, 4), 0)), *panel.rungs[1:])
    said = dict(laddered(replace(panel, certificates=fired, rungs=rungs)).numbers)
    (first, crossing), *_ = panel.checked
    limit = first.linear.limit
    predicted = f"B* = {limit.value:.0f} [{limit.low:.0f}, {limit.high:.0f}]"
    assert said["from 16"].startswith(f"{predicted}; measured {crossing.observed.value:.0f} [")
    assert said["ruled out"] == "at B = 256 C-closeness of SGD and its SDE; at B = 512 linear scaling from 32, 64"
    assert "0.5 at B = 16" in said["equilibrium"]
    assert re.findall(r"[\d.]+", said["SDE limit of the error"]) == ["12.50", "12.00", "13.00", "16"]
    assert said["N/G"].count(" at B = ") == 7
    assert said["do not predict"].startswith("512, 1024: ")
    assert "diverged" not in said


def test_test_error_stands_apart_from_the_theorem(finding_of: Find) -> None:
    """A second criterion under its own name, with D where it failed."""
    answer = laddered(ladder_panel(finding_of))
    assert "test error" not in answer.headline
    said = dict(answer.in_card)["test error"]
    assert re.fullmatch(
        r"is more than 20% above the lowest from batch size 415 \[370, 519\] on, where D from 16 is 2.* "
        r"\(neither D nor B\* is about test error\)",
        said,
    )


def test_diverged_seeds_are_the_cause_that_is_named(finding_of: Find, tmp_path: Path) -> None:
    folder = ladder_folder(
        tmp_path, {64: [0.15, 0.151], 128: [0.15, 0.152], 256: [0.15, math.nan], 512: [math.nan] * 2}
    )
    (answer,) = build_report(folder).answers
    said = dict(answer.numbers)
    assert re.search(r" 181 \[.*, as seeds diverged at 256\b", said["test error"])
    assert re.findall(r"\d+", said["diverged"]) == ["1", "2", "256", "2", "2", "512"]


def test_ngd_says_the_best_along_the_run_and_its_p_values(finding_of: Find) -> None:
    found = finding_of("ngd")
    assert isinstance(found, NgdFinding)
    (answer,) = found.answers()
    said = dict(answer.folded)
    assert said["best along the run"].count("%") == 3
    curves = {"training curves, SGD − NGD", "test curves, SGD − NGD"}
    assert set(said) == {"best along the run", "p values of SGD − NGD", "p values of SGD − GD"} | curves
