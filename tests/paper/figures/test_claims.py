"""What the paper says with a figure, beside what its runs say: agrees, differs, or cannot tell."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.lab.experiments.on_disk import at, given, readings_at, write_run

from svag.lab.experiments.compare_finding import CompareFinding
from svag.lab.experiments.evidence import Limit
from svag.lab.experiments.ladder import Ladder, LadderPanel
from svag.lab.experiments.ladder_finding import LadderFinding, LadderPanelFinding
from svag.lab.experiments.ngd_finding import CurvesApart, NgdFinding, arm_gap
from svag.lab.experiments.wording import Judgement, PaperVerdict, overall
from svag.lab.records.record import load_records
from svag.paper.figures import figure, judged
from svag.prices.estimate import Estimate
from svag.verdicts.scaling import ScalingAnswer
from svag.verdicts.sde import sde_verdict

SGD = (0.80, 0.801, 0.799, 0.802)
THERE = (0.801, 0.80, 0.802, 0.799)
BELOW = (0.70, 0.701, 0.699, 0.702)
ABOVE = (0.90, 0.901, 0.899, 0.902)
WIDE = (0.70, 0.90, 0.75, 0.85)
BOTH = ("train_set_accuracy", "test_accuracy")


def of_compare(label: str, svag: Sequence[Sequence[float] | None]) -> tuple[Judgement, ...]:
    """The judgements of a figure whose SVAG ended at these values, panel by panel; None: it has no result."""
    found = figure(label, "small").find([])
    assert isinstance(found, CompareFinding)
    panels = [
        replace(panel, verdict=None if values is None else sde_verdict({1: SGD, 16: values}, 0.01))
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
    first, second = of_compare("fig:svag_accs", [svag, svag])
    assert (first.claim, first.verdict) == ("SGD ends where its SDE ends", same)
    assert (second.claim, second.verdict) == ("SGD does not end where its SDE ends", apart)
    panels = figure("fig:app_svag_c100", "small").panels
    claims = of_compare("fig:app_svag_c100", [svag] * len(panels))
    grouped = [one for one in claims if one.panel.endswith("GN")]
    assert {(one.claim, one.verdict) for one in grouped} == {("SGD ends below its SDE", below)}
    assert {one.verdict for one in claims if one not in grouped} <= {same}


def test_a_comparison_says_its_numbers() -> None:
    first, second = of_compare("fig:svag_accs", [THERE, None])
    assert first.found.startswith("SGD − SDE +0.00 points [")
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


@pytest.mark.parametrize(
    ("ngd", "gd", "verdicts"),
    [
        (THERE, BELOW, ("agrees", "agrees")),
        (ABOVE, ABOVE, ("differs", "differs")),
        (THERE, THERE, ("agrees", "differs")),
        (WIDE, WIDE, ("cannot tell", "cannot tell")),
        ((), (), ("cannot tell", "cannot tell")),
    ],
)
def test_ngd_is_held_against_both_claims(
    ngd: Sequence[float], gd: Sequence[float], verdicts: tuple[PaperVerdict, PaperVerdict]
) -> None:
    found = figure("fig:ngd_sgd_accs", "small").find([])
    assert isinstance(found, NgdFinding)
    gaps = [arm_gap("SGD − x", dict(enumerate(SGD)), dict(enumerate(one)), 0.01) for one in (ngd, gd)]
    (panel,) = found.panels
    changed = NgdFinding(found.title, (replace(panel, sgd_ngd=gaps[0], sgd_gd=gaps[1]),))
    claims = judged(figure("fig:ngd_sgd_accs", "small"), changed)
    ends, curves, below = claims
    assert (ends.claim, below.claim) == ("NGD ends where SGD ends", "GD ends below SGD")
    assert (ends.verdict, below.verdict) == verdicts
    assert (curves.found, curves.verdict) == ("no curves", "cannot tell")
    assert [one.claim for one in judged(figure("fig:ngd_sgd_b500", "small"), changed)] == [ends.claim, curves.claim]


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
        CurvesApart("test curves", metric, "inconclusive", 0.5, 0.01, 40, 0.01, 0, 0.02, reach, far)
        for metric, reach, far in zip(metrics, reaches, apart, strict=True)
    ]
    panel = replace(found.panels[0], apart=tuple(curves))
    claim = judged(figure("fig:ngd_sgd_accs", "small"), NgdFinding(found.title, (panel,)))[1]
    assert claim.claim == "train and test curves of SGD and NGD are close (within 5 points)"
    assert claim.verdict == verdict
    first = "within 2.00 points at every step (95%), " if metrics == BOTH else ""
    assert claim.found.startswith(f"test curves: {first}p = 0.5; test curves: within ")
    lost = arm_gap("SGD − NGD", dict(enumerate(SGD)), {**dict(enumerate(THERE)), 3: math.nan}, 0.01)
    with_lost = NgdFinding(found.title, (replace(panel, sgd_ngd=lost),))
    claim = judged(figure("fig:ngd_sgd_accs", "small"), with_lost)[1]
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
    found, _ = of_ladder(changed)
    assert found.verdict == verdict
    # by hand, without the term in ηλ: B* = B·(2 + N/G) = 16·(2 + 5) = 112
    assert found.found.startswith("B* = 112 [")
    assert found.found.endswith("from 16; not seen up to 1,024") == math.isinf(seen[0])


def test_a_ladder_that_ends_below_the_prediction_cannot_tell(ladder: LadderPanelFinding) -> None:
    drift, nowhere = given(ladder.drift), Estimate(math.inf, math.inf, math.inf)
    first = replace(drift.crossings[0], observed=nowhere, over_predicted=nowhere)
    short = replace(ladder, drift=replace(drift, crossings=(first,)), rungs=ladder.rungs[:2])
    assert of_ladder(short)[0].verdict == "cannot tell"
    assert of_ladder(replace(ladder, predictions=()))[0].found == "no baseline predicts"


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
        assert found.found == (
            f"predicted 160 to 160, as the paper draws it; fails at {observed:.0f} [{low:.0f}, {high:.0f}]"
        )


def test_without_a_prediction_or_a_result_test_error_cannot_tell(ladder: LadderPanelFinding) -> None:
    silent, lost = (of_ladder(one)[1] for one in (replace(ladder, ranges=()), replace(ladder, scaling=None)))
    assert (silent.verdict, silent.found) == ("cannot tell", "no baseline predicts")
    assert (lost.verdict, lost.found.partition("; ")[2]) == ("cannot tell", "these seeds cannot locate a failure")


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
    assert claim.claim == "SGD degrades along the linear rule, and its SDE does not"
    assert claim.verdict == verdict
    assert f"at 1024 the test error of SGD is {100 * sgd:.2f}%" in claim.found


def test_one_claim_that_differs_decides() -> None:
    def one(verdict: PaperVerdict) -> Judgement:
        return Judgement("p", "c", "f", verdict)

    assert overall([one("agrees"), one("agrees")]) == "agrees"
    assert overall([one("agrees"), one("cannot tell"), one("differs")]) == "differs"
    assert overall([one("agrees"), one("cannot tell")]) == "cannot tell"
    assert overall([]) == "cannot tell"


def test_what_is_not_the_figure_makes_no_claim(ladder: LadderPanelFinding) -> None:
    found = LadderFinding("t", (ladder,))
    experiment = figure("fig:app_lsr_svhn", "small")
    renamed = experiment.model_copy(update={"panels": (experiment.panels[0].model_copy(update={"name": "other"}),)})
    assert len(judged(experiment, found)) == 2
    assert judged(renamed, found) == ()
    assert judged(figure("fig:app_lsr_svhn", "smoke"), found) == ()
    assert judged(experiment.model_copy(update={"label": None}), found) == ()
