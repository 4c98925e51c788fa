"""What the paper says with a figure, beside what its runs say: agrees, differs, or cannot tell."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from tests.lab.experiments.on_disk import at, given, readings_at, write_run

from svag.lab.experiments.arms import GD, NGD
from svag.lab.experiments.arms import SGD as ARM_SGD
from svag.lab.experiments.compare_finding import CompareFinding, ComparePanelFinding, CurveGap
from svag.lab.experiments.decomposition import Decomposition, Term
from svag.lab.experiments.finding import arm_result
from svag.lab.experiments.ladder import Ladder, LadderPanel
from svag.lab.experiments.ladder_finding import LadderFinding, LadderPanelFinding
from svag.lab.experiments.ngd_finding import CurvesApart, NgdFinding, arm_gap
from svag.lab.experiments.sde_limit import Limit
from svag.lab.experiments.wording import Judgement, PaperVerdict, Remedy, overall
from svag.lab.records.record import load_records
from svag.paper.figures import figure, judged
from svag.paper.figures.compare import PanelRow, Shown
from svag.paper.figures.remedies import for_curves, for_gap
from svag.prices.estimate import Estimate
from svag.prices.reasons import Code
from svag.stats.means import welch
from svag.verdicts.scaling import ScalingAnswer
from svag.verdicts.sde import sde_verdict

SGD = (0.80, 0.801, 0.799, 0.802)
THERE = (0.801, 0.80, 0.802, 0.799)
NEAR = (0.7905, 0.793, 0.789, 0.7925)  # by 0.008 to 0.011
BELOW = (0.70, 0.701, 0.699, 0.702)
ABOVE = (0.90, 0.901, 0.899, 0.902)
WIDE = (0.70, 0.90, 0.75, 0.85)
BOTH = ("train_set_accuracy", "test_accuracy")


def of_compare(label: str, svag: Sequence[Sequence[float] | None]) -> tuple[Judgement, ...]:
    """The judgements of a figure whose SVAG ended at these values, panel by panel; None: it has no result."""
    found = figure(label, "small").find([])
    assert isinstance(found, CompareFinding)
    panels = [
        replace(panel, verdict=None if values is None else sde_verdict({1: SGD, 4: values, 16: values}, 0.01))
        for panel, values in zip(found.panels, svag, strict=True)
    ]
    return judged(figure(label, "small"), CompareFinding(found.title, tuple(panels)))


@pytest.mark.parametrize(
    ("svag", "same", "apart", "below"),
    [
        (THERE, "agrees", "differs", "differs"),
        (ABOVE, "differs", "agrees", "agrees"),  # SVAG above: SGD ends below its SDE
        (BELOW, "differs", "agrees", "differs"),
        (WIDE, "cannot tell", "cannot tell", "cannot tell"),
        (None, "cannot tell", "cannot tell", "cannot tell"),
    ],
)
def test_a_comparison_is_held_against_what_the_paper_says_of_each_panel(
    svag: Sequence[float] | None, same: PaperVerdict, apart: PaperVerdict, below: PaperVerdict
) -> None:
    first, second = (one for one in of_compare("fig:svag_accs", [svag, svag]) if one.code == "end")
    assert (first.claim, first.verdict) == ("SGD ends where its SDE ends", same)
    assert (second.claim, second.verdict) == ("SGD does not end where its SDE ends", apart)
    panels = figure("fig:app_svag_c100", "small").panels
    claims = [one for one in of_compare("fig:app_svag_c100", [svag] * len(panels)) if one.code == "end"]
    grouped = [one for one in claims if one.panel.endswith("GN")]
    assert {(one.claim, one.verdict) for one in grouped} == {("SGD ends below its SDE", below)}
    assert {one.verdict for one in claims if one not in grouped} <= {same}


def test_a_comparison_says_its_numbers() -> None:
    first, second = (one for one in of_compare("fig:svag_accs", [THERE, None]) if one.code == "end")
    assert first.found.startswith("test accuracy: SGD − SDE +0.00 points [")
    assert first.found.endswith("], margin ±1.00 points")
    assert (second.found, second.panel) == ("no result", figure("fig:svag_accs", "small").panels[1].name)


@pytest.mark.parametrize(
    ("svag", "headline"),
    [
        (THERE, "Yes: SGD ends where its SDE ends, to within ±1.00 points."),
        (
            [value + 0.004 for value in SGD],
            "Yes: SGD ends where its SDE ends, to within ±1.00 points. It ends 0.43 points below, within that margin.",
        ),
        (ABOVE, "No: SGD ends 10.67 points below its SDE."),
    ],
)
def test_a_gap_within_the_margin_is_told_where_it_is_seen(svag: Sequence[float], headline: str) -> None:
    found = figure("fig:svag_accs", "small").find([])
    assert isinstance(found, CompareFinding)
    panel = replace(found.panels[0], verdict=sde_verdict({1: SGD, 16: svag}, 0.01), metric="test_accuracy")
    assert panel.answer().headline == headline


def panel_with(**changed: Any) -> ComparePanelFinding:
    """The first panel of a figure, at which the paper says that SGD ends where its SDE ends, with what is given."""
    found = figure("fig:app_svag_baselines", "small").find([])
    assert isinstance(found, CompareFinding)
    return replace(found.panels[0], **changed)


def claim_of(panel: ComparePanelFinding, code: str, shows: Shown = "same") -> Judgement:
    (found,) = (one for one in PanelRow(panel.name, {}, shows=shows).judged(panel) if one.code == code)
    return found


@pytest.mark.parametrize("code", ["end", "converged"])
def test_a_line_through_sgd_and_one_refinement_shows_nothing(code: str) -> None:
    assert sde_verdict({1: SGD, 4: THERE}, 0.01).answer == "equivalent"
    assert claim_of(panel_with(verdict=sde_verdict({1: SGD, 4: THERE}, 0.01)), code).verdict == "cannot tell"
    three = sde_verdict({1: SGD, 2: THERE, 4: SGD, 8: THERE}, 0.01)
    assert claim_of(panel_with(verdict=three), code).verdict == "agrees", "the control"


@pytest.mark.parametrize(("last", "verdict"), [(THERE, "agrees"), (ABOVE, "differs"), (WIDE, "cannot tell")])
def test_convergence_is_judged_from_l_and_4l(last: Sequence[float], verdict: PaperVerdict) -> None:
    panel = panel_with(verdict=sde_verdict({1: SGD, 2: THERE, 4: THERE, 8: last}, 0.01))
    found = claim_of(panel, "converged")
    assert found.verdict == verdict
    assert "from l = 2 and 8" in found.found


def test_the_more_precise_of_accuracy_and_loss_decides() -> None:
    arms = {1: SGD, 2: THERE, 4: SGD, 8: THERE}
    wide = {ell: [value + 0.02 * (-1) ** k for k, value in enumerate(values)] for ell, values in arms.items()}
    above = {ell: [value + (ell == 1) * 0.4 for value in values] for ell, values in arms.items()}
    panel = panel_with(verdict=sde_verdict(wide, 0.01), loss=sde_verdict(above, 0.025))
    assert claim_of(panel, "end").verdict == "differs"
    assert claim_of(panel, "end", "below").verdict == "agrees", "more loss is worse"
    assert claim_of(panel, "end").found.startswith("test loss (nats): SGD − SDE +0.")
    panel = panel_with(verdict=sde_verdict(arms, 0.01), loss=sde_verdict(above, 1e-4))
    assert claim_of(panel, "end").verdict == "agrees"


@pytest.mark.parametrize(
    ("reach", "apart", "diverged", "verdict"),
    [
        (0.049, 0.01, 0, "agrees"),
        (0.049, 0.0, 1, "cannot tell"),  # a curve that ended early
        (0.051, 0.04, 0, "cannot tell"),
        (0.09, 0.051, 0, "differs"),
        (math.inf, 0.0, 0, "cannot tell"),
    ],
)
def test_a_trajectory_is_followed_within_5_points(
    reach: float, apart: float, diverged: int, verdict: PaperVerdict
) -> None:
    curve = CurveGap(0.5, 0.01, 40, 0.0, -0.1, 0.1, 400, reach, apart, ell=8, diverged=diverged)
    panel = panel_with(verdict=sde_verdict({1: SGD, 4: THERE}, 0.01), curve=curve)
    assert claim_of(panel, "trajectory").verdict == verdict
    codes = [one.code for one in PanelRow(panel.name, {}, shows="apart").judged(panel)]
    assert codes == ["end", "converged"], "where the paper says that SGD leaves its SDE, it follows no trajectory"


@pytest.mark.parametrize(
    ("total", "excess", "verdict"),
    [
        ((0.04, 0.03, 0.05), (0.03, 0.02, 0.04), "agrees"),
        ((-0.04, -0.05, -0.03), (-0.03, -0.04, -0.02), "agrees"),  # of a loss, which falls
        ((0.04, 0.03, 0.05), (0.01, -0.01, 0.03), "cannot tell"),
        ((0.04, 0.03, 0.05), (-0.03, -0.04, -0.02), "differs"),
        ((0.01, -0.01, 0.03), (0.01, 0.005, 0.015), None),  # nothing to decompose
    ],
)
def test_what_separates_sgd_from_its_sde_is_judged_where_they_are_apart(
    total: tuple[float, float, float], excess: tuple[float, float, float], verdict: PaperVerdict | None
) -> None:
    terms = Term("a", total[0] / 2, 0, 0), Term("b", total[0] / 2, 0, 0)
    route = Decomposition("gaussian", terms, Term("SDE − SGD", *total), Term("a − b", *excess), 5, 0)
    panel = panel_with(decompositions=(route, replace(route, route="ladder")))
    found = [one for one in PanelRow(panel.name, {}).judged(panel) if one.code == "decomposition"]
    assert [one.verdict for one in found] == [verdict] * (verdict is not None)
    assert all(" 50% " in one.found for one in found)
    ladder = replace(panel, decompositions=(replace(route, route="ladder"),))
    assert [one.verdict for one in PanelRow("p", {}).judged(ladder) if one.code == "decomposition"] == [
        one.verdict for one in found
    ]


@pytest.mark.parametrize(
    ("ngd", "gd", "verdicts"),
    [
        (THERE, BELOW, ("agrees", "agrees")),
        (THERE, ABOVE, ("agrees", "differs")),
        (ABOVE, ABOVE, ("differs", "differs")),
        (THERE, THERE, ("cannot tell", "differs")),  # GD ends there too: any noise would do
        (THERE, WIDE, ("cannot tell", "cannot tell")),
        (WIDE, WIDE, ("cannot tell", "cannot tell")),
        ((), (), ("cannot tell", "cannot tell")),
        (THERE, NEAR, ("cannot tell", "agrees")),  # surely apart, and yet as near as NGD may be
    ],
)
def test_ngd_is_held_against_both_claims(
    ngd: Sequence[float], gd: Sequence[float], verdicts: tuple[PaperVerdict, PaperVerdict]
) -> None:
    found = figure("fig:ngd_sgd_accs", "small").find([])
    assert isinstance(found, NgdFinding)
    gaps = [arm_gap("SGD − x", dict(enumerate(SGD)), dict(enumerate(one)), 0.01) for one in (ngd, gd)]
    (panel,) = found.panels
    test = NgdFinding(found.title, (replace(panel, sgd_ngd=gaps[0], sgd_gd=gaps[1]),))
    train = NgdFinding(found.title, (replace(panel, train_ngd=gaps[0], train_gd=gaps[1]),))
    on_train, on_test, curves, below = judged(figure("fig:ngd_sgd_accs", "small"), test)
    assert [one.code for one in (on_train, on_test, curves, below)] == ["ngd", "ngd", "curves", "gd"]
    assert (on_test.verdict, below.verdict) == verdicts
    assert on_train.verdict == "cannot tell"
    assert [one.verdict for one in judged(figure("fig:ngd_sgd_accs", "small"), train)[:2]] == [
        verdicts[0],
        "cannot tell",
    ]
    assert (curves.found, curves.verdict) == ("no curves", "cannot tell")
    without = judged(figure("fig:ngd_sgd_b500", "small"), test)
    assert [one.code for one in without] == ["ngd", "ngd", "curves"], "the paper shows no GD there"


@pytest.mark.parametrize(
    ("metrics", "reaches", "apart", "verdict"),
    [
        (BOTH, (0.02, 0.049), (0.0, 0.0), "agrees"),
        (BOTH, (0.02, 0.049), (0.01, 0.0), "agrees"),  # surely apart, by less than one sees
        (BOTH, (0.02, 0.051), (0.0, 0.03), "cannot tell"),
        (BOTH, (0.02, 0.09), (0.0, 0.051), "differs"),
        (("train_loss", "test_accuracy"), (0.02, 0.02), (9.0, 0.0), "cannot tell"),
    ],
)
def test_curves_are_held_against_the_claim_that_they_are_close(
    metrics: Sequence[str], reaches: Sequence[float], apart: Sequence[float], verdict: PaperVerdict
) -> None:
    found = figure("fig:ngd_sgd_accs", "small").find([])
    assert isinstance(found, NgdFinding)
    curves = [
        CurvesApart(0.5, 0.01, 40, 0.01, 0, 0.02, 400, reach, far, "test curves", metric, "inconclusive")
        for metric, reach, far in zip(metrics, reaches, apart, strict=True)
    ]
    panel = replace(found.panels[0], apart=tuple(curves))
    claim = judged(figure("fig:ngd_sgd_accs", "small"), NgdFinding(found.title, (panel,)))[2]
    assert (claim.code, claim.verdict) == ("curves", verdict)
    first = "within 2.00 points at every step (95%), " if metrics == BOTH else ""
    assert claim.found.startswith(f"test curves: {first}p = 0.5; test curves: within ")
    lost = arm_gap("SGD − NGD", dict(enumerate(SGD)), {**dict(enumerate(THERE)), 3: math.nan}, 0.01)
    with_lost = NgdFinding(found.title, (replace(panel, sgd_ngd=lost),))
    claim = judged(figure("fig:ngd_sgd_accs", "small"), with_lost)[2]
    assert claim.verdict == ("differs" if verdict == "differs" else "cannot tell"), "a curve that ended early"


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> LadderPanelFinding:
    """A ladder with B_simple = 80 at every rung, so that the paper draws 160 from every baseline."""
    folder = tmp_path_factory.mktemp("ladder")
    sizes = (16, 64, 256, 1024)
    for size in sizes:
        for seed in (0, 1, 2):
            spec = at(size, seed=seed)
            readings = readings_at(spec, 1.0, 80 / size)
            write_run(folder, spec, 0.9 - (size > 200) * 0.1 - seed * 0.001, readings=readings)
    asked = Ladder(title="t", seeds=(0, 1, 2), panels=(LadderPanel(name="p", base=at(32), batch_sizes=sizes),))
    found = asked.find(load_records(folder))
    assert isinstance(found, LadderFinding)
    return found.panels[0]


def of_ladder(panel: LadderPanelFinding) -> tuple[Judgement, Judgement]:
    first, second = judged(figure("fig:app_lsr_svhn", "small"), LadderFinding("t", (panel,)))
    return first, second


@pytest.mark.parametrize(
    ("seen", "over", "verdict"),
    [
        ((60.0, 50.0, 70.0), (0.6, 0.5, 0.7), "agrees"),
        ((100.0, 60.0, 180.0), (1.0, 0.6, 1.8), "agrees"),
        ((100.0, 60.0, 220.0), (1.0, 0.6, 2.2), "cannot tell"),
        ((140.0, 120.0, 160.0), (1.4, 1.2, 1.6), "differs"),
        ((math.inf, math.inf, math.inf), (math.inf, math.inf, math.inf), "differs"),
    ],
)
def test_the_drift_is_held_against_the_prediction(
    ladder: LadderPanelFinding,
    seen: tuple[float, float, float],
    over: tuple[float, float, float],
    verdict: PaperVerdict,
) -> None:
    drift = given(ladder.drift)
    first = replace(drift.crossings[0], observed=Estimate(*seen), over_predicted=Estimate(*over))
    changed = replace(ladder, drift=replace(drift, crossings=(first, *drift.crossings[1:])))
    found, other = of_ladder(changed)
    assert found.verdict == verdict
    assert (found.counted, other.counted) == (False, True)
    # by hand, without the term in ηλ: B* = B·(2 + N/G) = 16·(2 + 5) = 112
    assert found.found.startswith("B* = 112 [")
    assert found.found.endswith("from 16; not seen up to 1,024") == math.isinf(seen[0])


def test_a_ladder_that_ends_below_the_prediction_cannot_tell(ladder: LadderPanelFinding) -> None:
    drift, nowhere = given(ladder.drift), Estimate(math.inf, math.inf, math.inf)
    first = replace(drift.crossings[0], observed=nowhere, over_predicted=nowhere)
    short = replace(ladder, drift=replace(drift, crossings=(first,)), rungs=ladder.rungs[:2])
    assert of_ladder(short)[0].verdict == "cannot tell"
    assert of_ladder(replace(ladder, predictions=()))[0].verdict == "cannot tell"


@pytest.mark.parametrize(
    ("answer", "observed", "low", "high", "verdict"),
    [
        ("fails", 100.0, 90.0, 110.0, "agrees"),  # the paper draws 160: 80 to 320 is near
        ("fails", 310.0, 100.0, 900.0, "agrees"),
        ("fails", 400.0, 300.0, 500.0, "cannot tell"),
        ("fails", 400.0, 330.0, 500.0, "differs"),
        ("fails", 40.0, 30.0, 70.0, "differs"),
        ("never fails", None, 200.0, math.inf, "cannot tell"),
        ("never fails", None, 900.0, math.inf, "differs"),
        ("improves", 200.0, 150.0, 250.0, "agrees"),
        ("not decided", 100.0, 90.0, 110.0, "cannot tell"),
        ("fails", 100.0, 0.0, math.inf, "cannot tell"),
    ],
)
def test_the_failure_of_test_error_is_held_against_what_the_paper_draws(
    ladder: LadderPanelFinding,
    answer: ScalingAnswer,
    observed: float | None,
    low: float,
    high: float,
    verdict: PaperVerdict,
) -> None:
    scaling = replace(given(ladder.scaling), answer=answer, observed=observed, low=low, high=high)
    _, found = of_ladder(replace(ladder, scaling=scaling))
    assert found.verdict == verdict
    if answer == "fails" and low > 0:
        assert found.found.endswith(f" {observed:.0f} [{low:.0f}, {high:.0f}]")


def test_without_a_prediction_or_a_result_test_error_cannot_tell(ladder: LadderPanelFinding) -> None:
    silent, lost = (of_ladder(one)[1] for one in (replace(ladder, predictions=()), replace(ladder, scaling=None)))
    assert (silent.verdict, lost.verdict) == ("cannot tell", "cannot tell")
    assert (silent.found, lost.found.partition("; ")[2]) == (
        "no baseline predicts",
        "these seeds cannot locate a failure",
    )


@pytest.mark.parametrize(
    ("sgd", "sde", "verdict"),
    [
        (0.2, (0.1, 0.09, 0.11), "agrees"),  # 0.1 is the lowest error and 20% more is tolerated
        (0.2, (0.1, 0.07, 0.13), "cannot tell"),
        (0.2, (0.18, 0.17, 0.19), "differs"),  # the SDE degrades too
        (0.1, (0.1, 0.09, 0.11), "differs"),  # SGD does not degrade
    ],
)
def test_sgd_degrades_and_its_sde_does_not(
    ladder: LadderPanelFinding, sgd: float, sde: tuple[float, float, float], verdict: PaperVerdict
) -> None:
    last = replace(
        ladder.rungs[-1],
        error=sgd,
        error_low=sgd - 0.001,
        error_high=sgd + 0.001,
        sde=Limit(*sde, source="fit", ells=(1, 4), diverged=0),
    )
    rungs = (*(replace(one, error=0.1) for one in ladder.rungs[:-1]), last)
    *_, claim = judged(figure("fig:app_lsr_svhn", "small"), LadderFinding("t", (replace(ladder, rungs=rungs),)))
    assert claim.verdict == verdict
    assert f"{100 * sgd:.2f}%" in claim.found


def test_one_claim_that_differs_decides() -> None:
    def one(verdict: PaperVerdict) -> Judgement:
        return Judgement("p", "c", "f", verdict)

    assert overall([one("agrees"), one("agrees")]) == "agrees"
    assert overall([one("agrees"), one("cannot tell"), one("differs")]) == "differs"
    assert overall([one("agrees"), one("cannot tell")]) == "cannot tell"
    assert overall([]) == "cannot tell"
    drift = Judgement("p", "c", "f", "differs", "drift")
    assert overall([one("agrees"), drift]) == "agrees", "at equilibrium the drift is algebra"
    assert overall([drift]) == "cannot tell"


def test_what_is_not_the_figure_makes_no_claim(ladder: LadderPanelFinding) -> None:
    found = LadderFinding("t", (ladder,))
    experiment = figure("fig:app_lsr_svhn", "small")
    renamed = experiment.model_copy(update={"panels": (experiment.panels[0].model_copy(update={"name": "other"}),)})
    assert len(judged(experiment, found)) == 2
    assert judged(renamed, found) == ()
    assert judged(figure("fig:app_lsr_svhn", "smoke"), found) == ()
    assert judged(experiment.model_copy(update={"label": None}), found) == ()


@pytest.mark.parametrize(
    ("balance", "rung", "judged_too"),
    [(1.09, 1, True), (0.91, 3, True), (1.11, 3, False), (0.89, 0, False), (None, 3, False)],
)
def test_the_drift_is_judged_only_where_every_rung_is_at_equilibrium(
    ladder: LadderPanelFinding, balance: float | None, rung: int, judged_too: bool
) -> None:
    changed = balanced(ladder, {rung: balance})
    assert [size for size, _ in changed.unbalanced] == ([] if judged_too else [ladder.rungs[rung].batch_size])
    before, after = of_ladder(ladder)[0], of_ladder(changed)[0]
    assert before.reason is None
    assert after == before if judged_too else (after.verdict, after.reason) == ("cannot tell", Code.NOT_BALANCED)


def balanced(ladder: LadderPanelFinding, balances: dict[int, float | None]) -> LadderPanelFinding:
    """The ladder with another growth over decay of the weights at these rungs."""
    rungs = list(ladder.rungs)
    for rung, balance in balances.items():
        rungs[rung] = replace(rungs[rung], balance=balance)
    return replace(ladder, rungs=tuple(rungs))


def test_test_error_is_predicted_by_baselines_at_equilibrium_only(ladder: LadderPanelFinding) -> None:
    """Rungs that failed are seldom at equilibrium; the prediction presumes no more than that its baseline is."""
    error = of_ladder(ladder)[1]
    assert (error.verdict, error.reason) == ("agrees", None), "the fixture predicts 160 from every baseline"
    assert of_ladder(balanced(ladder, {2: 0.1, 3: None}))[1] == error
    last = len(ladder.rungs) - 1
    nowhere = of_ladder(balanced(ladder, dict.fromkeys(range(last + 1), 0.85)))[1]
    assert (nowhere.verdict, nowhere.reason) == ("cannot tell", Code.NOT_BALANCED)
    assert given(nowhere.remedy).code == "equilibrium"


def test_test_error_is_judged_where_there_is_no_equilibrium_to_be_at(ladder: LadderPanelFinding) -> None:
    """An ordinary network has no balance at any rung, and no theorem; the paper expects the failure there too."""
    ordinary = replace(ladder, rungs=tuple(replace(rung, balance=None) for rung in ladder.rungs))
    drift, error = of_ladder(ordinary)
    assert (drift.verdict, drift.reason) == ("cannot tell", Code.NOT_BALANCED)
    assert error == of_ladder(ladder)[1]
    last = balanced(ordinary, {len(ordinary.rungs) - 1: 2.0})
    assert of_ladder(last)[1] == error, "a rung that predicts nothing says nothing of those that do"


@pytest.mark.parametrize(
    ("observed", "low", "high", "rungs", "code"),
    [
        (400.0, 300.0, 500.0, 4, "seeds"),  # the paper draws 160: 80 to 320 is near, and the last rung is 1,024
        (None, 200.0, math.inf, 4, "seeds"),
        (None, 200.0, math.inf, 3, "batch sizes"),  # up to 256
        (100.0, 90.0, 110.0, 4, None),
    ],
)
def test_an_open_failure_of_test_error_says_what_would_decide(
    ladder: LadderPanelFinding, observed: float | None, low: float, high: float, rungs: int, code: str | None
) -> None:
    answer: ScalingAnswer = "never fails" if observed is None else "fails"
    scaling = replace(given(ladder.scaling), answer=answer, observed=observed, low=low, high=high)
    error = of_ladder(replace(ladder, scaling=scaling, rungs=ladder.rungs[:rungs]))[1]
    assert (None if error.remedy is None else error.remedy.code) == code
    assert (error.remedy is None) == (error.verdict != "cannot tell")


@pytest.mark.parametrize(("gap", "margin"), [(0.0, 0.5), (0.2, 0.6), (0.6, 0.2)])
def test_the_seeds_that_an_open_comparison_asks_for_decide(gap: float, margin: float) -> None:
    """From 2,000 seeds of two arms: what is asked for decides in 80% ± 10% of new experiments.

    The standard error of a share of 400 experiments is 2%; the rest is what a guess that rests on normal limits misses.
    """
    draw = np.random.default_rng(5)
    first, second = draw.normal(gap, 1.0, 2000), draw.normal(0.0, 1.0, 2000)
    pilot = welch(first - first.mean() + gap, second - second.mean())
    low, high = (gap + (limit - gap) * math.sqrt(2000 / 40) for limit in pilot.interval())
    asked = given(for_gap(pilot.value, low, high, 40, margin))
    decided = []
    for _ in range(400):
        new = welch(draw.normal(gap, 1.0, asked.seeds), draw.normal(0.0, 1.0, asked.seeds))
        beyond = not (new.interval()[0] <= margin and new.interval()[1] >= -margin)
        decided.append(new.p_equivalent(margin) < 0.05 or beyond)
    assert asked.runs == 2 * (asked.seeds - 40)
    assert np.mean(decided) == pytest.approx(0.8, abs=0.1)


def test_too_few_seeds_and_results_at_the_margin_ask_for_nothing_in_vain() -> None:
    assert given(for_gap(0.6, 0.4, 0.8, seeds=6, margin=0.6)).code == "margin"
    assert for_gap(0.2, -math.inf, math.inf, seeds=6, margin=0.6) is None
    assert for_gap(0.2, -0.5, 0.9, seeds=1, margin=0.6) is None


def test_an_open_trajectory_says_how_many_seeds_would_decide() -> None:
    """By hand: limits 0.04 ± 0.02 around a gap of 4 points reach 5 when they have halved, with four times the seeds."""
    assert for_curves(0.02, 0.06, seeds=8, close=0.05) == Remedy("seeds", 32, 48)
    assert for_curves(0.04, 0.08, seeds=8, close=0.05) == Remedy("seeds", 32, 48), "it would then be surely apart"
    assert given(for_curves(0.04, 0.06, seeds=8, close=0.05)).code == "margin"
    assert for_curves(0.0, math.inf, seeds=8, close=0.05) is None


@pytest.mark.parametrize(
    ("ngd", "gd", "code"),
    [
        (WIDE, BELOW, "seeds"),
        (THERE, THERE, "control"),
        (WIDE, THERE, "control"),
        (THERE, NEAR, "control"),
        (THERE, BELOW, None),
    ],
)
def test_an_open_claim_about_ngd_says_what_would_decide(
    ngd: Sequence[float], gd: Sequence[float], code: str | None
) -> None:
    found = figure("fig:ngd_sgd_b125", "small").find([])
    assert isinstance(found, NgdFinding)
    gaps = [arm_gap("SGD − x", dict(enumerate(SGD)), dict(enumerate(one)), 0.05) for one in (ngd, gd)]
    arms = tuple(arm_result(arm, dict(enumerate(SGD))) for arm in (ARM_SGD, NGD, GD))
    panel = replace(found.panels[0], sgd_ngd=gaps[0], sgd_gd=gaps[1], arms=arms)
    claim = judged(figure("fig:ngd_sgd_b125", "small"), NgdFinding(found.title, (panel,)))[1]
    assert (None if claim.remedy is None else claim.remedy.code) == code
    if code == "seeds":
        assert given(claim.remedy).runs == 3 * (given(claim.remedy).seeds - len(SGD))


@pytest.mark.parametrize("code", get_args(Remedy.__annotations__["code"]))
def test_every_remedy_is_said(code: Any) -> None:
    assert str(Remedy(code)) != str(Remedy(code, seeds=3, runs=5))
    assert str(Remedy(code, runs=5)).endswith("(5 more runs)")
    judgement = Judgement("p", "c", "f", "cannot tell", remedy=Remedy(code))
    assert judgement.said.startswith("f; ")
    assert replace(judgement, remedy=None).said == "f"
