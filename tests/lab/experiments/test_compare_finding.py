import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.lab.experiments.on_disk import BASE, at, given, readings_at, write_run

import svag
import svag.lab
from svag.lab.experiments import experiment_from
from svag.lab.experiments.compare import Compare, ComparePanel
from svag.lab.experiments.compare_finding import CompareFinding, ComparePanelFinding
from svag.lab.experiments.sde_plan import SdePlan, plan_within
from svag.lab.records.record import load_records
from svag.lab.specs.fields import SpecError
from svag.noise.reading import Reading
from svag.stats.curves import gap_band
from svag.stats.means import contrast, fit_limit, welch

FINALS = {
    1: (0.801, 0.804, 0.802, 0.803, 0.800),
    4: (0.802, 0.803, 0.801, 0.804, 0.802),
    16: (0.803, 0.801, 0.802, 0.802, 0.804),
}


def asked(split: int = 1, glsr: tuple[int, ...] = (), ngd: bool = False, seeds: int = 5) -> Compare:
    panel = ComparePanel(name="p", base=BASE, ells=(1, 4, 16), split=split, glsr=glsr, ngd=ngd)
    return Compare(title="t", seeds=tuple(range(seeds)), panels=(panel,), margin=0.006)


def process(ell: int, split: int = 1) -> dict[str, object]:
    return {"kind": "sgd"} if ell == 1 else {"kind": "svag", "ell": ell, "split": split}


def fill(
    root: Path,
    finals: Mapping[int, Sequence[float]] = FINALS,
    split: int = 1,
    readings: Mapping[int, Sequence[Reading]] | None = None,
    middle: Mapping[int, float] | None = None,
) -> None:
    for ell, values in finals.items():
        for seed, value in enumerate(values):
            spec = at(32, seed=seed, process=process(ell, split))
            diverged = math.isnan(value)
            curve = {} if middle is None else {9000: middle[ell] + 0.001 * seed}
            write_run(
                root,
                spec,
                None if diverged else value,
                curve=curve,
                readings=(readings or {}).get(ell, ()),
                state="diverged" if diverged else "finished",
            )


def panel_of(finding: object) -> ComparePanelFinding:
    assert isinstance(finding, CompareFinding)
    json.dumps(finding.to_dict(), allow_nan=False)
    assert str(finding).rpartition("\n")[2].startswith("Next: ")
    [panel] = finding.panels
    return panel


def test_the_verdict_is_that_of_the_bare_numbers(tmp_path: Path) -> None:
    fill(tmp_path)
    panel = panel_of(asked().find(load_records(tmp_path)))
    bare = svag.sde_verdict({ell: list(values) for ell, values in FINALS.items()}, margin=0.006)
    assert panel.verdict is not None
    assert given(panel.verdict).answer == bare.answer == "equivalent"
    assert (given(panel.verdict).gap, given(panel.verdict).low, given(panel.verdict).high) == pytest.approx(
        (bare.gap, bare.low, bare.high)
    )
    assert panel.status == bare.status
    assert bare.to_dict().keys() <= panel.to_dict().keys()
    assert [arm.arm for arm in panel.arms] == ["SGD", "SVAG ell=4", "SVAG ell=16"]
    assert panel.missing == ()


def test_richardson_uses_the_two_largest_ell(tmp_path: Path) -> None:
    fill(tmp_path)
    panel = panel_of(asked().find(load_records(tmp_path)))
    assert panel.richardson is not None
    assert panel.richardson.value == pytest.approx((4 * np.mean(FINALS[16]) - np.mean(FINALS[4])) / 3)
    assert panel.richardson.ells == (4, 16)
    assert panel.limit is not None
    arrays = [np.array(values) for values in FINALS.values()]
    assert panel.limit.value == pytest.approx(fit_limit([1 / ell for ell in FINALS], arrays).limit.value)


def test_dropping_a_diverged_seed_would_flip_the_verdict(tmp_path: Path) -> None:
    fill(tmp_path, {**FINALS, 16: (math.nan, *FINALS[16][1:])})
    records = load_records(tmp_path)
    panel = panel_of(asked().find(records))
    assert panel.verdict is not None
    assert given(panel.verdict).answer == "inconclusive"
    assert panel.missing == ()
    assert panel.arms[-1].diverged == 1
    survivors = [record for record in records if record.state == "finished"]
    assert given(panel_of(asked().find(survivors)).verdict).answer == "equivalent"


def test_runs_of_another_split_are_strangers(tmp_path: Path) -> None:
    fill(tmp_path)
    write_run(tmp_path, at(32, process=process(4, split=2)), 0.1)
    finding = asked().find(load_records(tmp_path))
    assert len(finding.strangers) == 1
    assert given(panel_of(finding).verdict).answer == "equivalent"
    other = asked(split=2).find(load_records(tmp_path))
    assert len(other.missing) == 9
    assert len(other.strangers) == 10
    first, second, *_ = str(other).split("\n\n")
    assert re.match(r"Incomplete: 9 .*: SVAG ell=4 B=32 seed 1 \(not run\); ", first)
    assert second.endswith("(and 9 more like this).")


def test_runs_of_another_momentum_limit_are_strangers(tmp_path: Path) -> None:
    base = BASE.edited({"momentum": 0.9})
    panel = ComparePanel(name="p", base=base, ells=(1, 4), momentum_limit="underdamped")
    limits = {"underdamped": FINALS[4], "overdamped": (0.6, 0.6, 0.6, 0.6, 0.6)}
    for seed in range(5):
        write_run(tmp_path, base.edited({"seed": seed}), FINALS[1][seed])
        for limit, finals in limits.items():
            svag4 = {"kind": "svag", "ell": 4, "momentum_limit": limit}
            write_run(tmp_path, base.edited({"seed": seed, "process": svag4}), finals[seed])
    finding = Compare(title="t", seeds=tuple(range(5)), panels=(panel,), margin=0.006).find(load_records(tmp_path))
    assert len(finding.strangers) == 5
    assert given(panel_of(finding).verdict).answer == "equivalent"
    other = panel.model_copy(update={"momentum_limit": "overdamped"})
    finding = Compare(title="t", seeds=tuple(range(5)), panels=(other,), margin=0.006).find(load_records(tmp_path))
    assert given(panel_of(finding).verdict).answer == "different"


def test_svag_at_ell_1_is_sgd(tmp_path: Path) -> None:
    fill(tmp_path, {ell: FINALS[ell] for ell in (4, 16)})
    for seed, value in enumerate(FINALS[1]):
        write_run(tmp_path, at(32, seed=seed, process={"kind": "svag", "ell": 1}), value)
    finding = asked().find(load_records(tmp_path))
    assert not finding.missing
    assert not finding.strangers


def test_curves_may_differ_where_the_ends_do_not(tmp_path: Path) -> None:
    fill(tmp_path, middle={1: 0.5, 4: 0.6, 16: 0.7})
    panel = panel_of(asked().find(load_records(tmp_path)))
    assert given(panel.verdict).answer == "equivalent"
    assert panel.curve is not None
    assert (given(panel.curve).p_value, given(panel.curve).smallest_p) == pytest.approx((2 / 252, 2 / 252))
    assert (given(panel.curve).at_step, given(panel.curve).until_step) == (9000, BASE.steps())


def test_the_gap_of_the_curves_has_limits_that_hold_at_all_steps_at_once(tmp_path: Path) -> None:
    fill(tmp_path, middle={1: 0.5, 4: 0.6, 16: 0.7})
    curve = given(panel_of(asked().find(load_records(tmp_path))).curve)
    assert curve.gap == pytest.approx(-0.2)
    ends = np.array([FINALS[1], FINALS[16]])
    middle = np.array([[0.5 + 0.001 * seed for seed in range(5)], [0.7 + 0.001 * seed for seed in range(5)]])
    band = gap_band(np.stack([middle[0], ends[0]], axis=1), np.stack([middle[1], ends[1]], axis=1))
    assert (curve.low, curve.high) == pytest.approx((band.low[0], band.high[0]))
    assert curve.low < -0.2 < curve.high < -0.19
    assert "−20.00 points [−2" in curve.said("test_accuracy", "SGD")
    assert curve.to_dict()["gap"] == pytest.approx(-0.2)


def test_three_seeds_have_a_gap_without_limits(tmp_path: Path) -> None:
    finals = {ell: values[:3] for ell, values in FINALS.items()}
    fill(tmp_path, finals, middle={1: 0.5, 4: 0.6, 16: 0.7})
    curve = given(panel_of(asked(seeds=3).find(load_records(tmp_path))).curve)
    assert (curve.low, curve.high) == (-math.inf, math.inf)
    assert "−20.00 points; " in curve.said("test_accuracy", "SGD")
    assert curve.to_dict()["low"] is None


def test_the_same_curves_do_not_differ(tmp_path: Path) -> None:
    fill(tmp_path, {1: FINALS[1], 16: FINALS[1]}, middle={1: 0.5, 16: 0.5})
    panel = panel_of(asked().find(load_records(tmp_path)))
    assert given(panel.curve).p_value == 1.0


def test_a_diverged_seed_ends_the_comparison_of_curves(tmp_path: Path) -> None:
    fill(tmp_path, {**FINALS, 16: (math.nan, *FINALS[16][1:])}, middle={1: 0.5, 4: 0.6, 16: 0.7})
    panel = panel_of(asked().find(load_records(tmp_path)))
    assert (given(panel.curve).until_step, given(panel.curve).diverged) == (9000, 1)


def test_closeness_of_r_g_and_n(tmp_path: Path) -> None:
    # R follows from the balance: eta (G + N)/((2 - eta lambda) lambda) for SGD, (eta/16) G + eta N for ell = 16
    sgd, svag16 = readings_at(at(32), 3.0, 1.0), readings_at(at(32), 1.0, 1.0, ell=16)
    fill(tmp_path, readings={1: sgd, 16: svag16})
    panel = panel_of(asked().find(load_records(tmp_path)))
    found = panel.closeness
    assert found is not None
    ratio = {one.name: one for one in found.ratios}
    assert ratio["G"].value == pytest.approx(3.0)
    assert ratio["N"].value == pytest.approx(1.0)
    assert ratio["R"].value == pytest.approx(sgd[0].param_sq / svag16[0].param_sq)
    assert found.c2 == pytest.approx(max(3.0, ratio["R"].value) ** 2)
    assert found.c2_low == pytest.approx(max(one.low for one in found.ratios) ** 2)
    assert found.c2_low <= found.c2 * (1 + 1e-12)
    assert (found.sgd_balance, found.svag_balance) == pytest.approx((1.0, 1.0))
    assert all(one.low <= one.value <= one.high for one in found.ratios)
    assert found.readings == (5 * 400, 5 * 400)


def test_sgd_s_own_noise_refutes_its_sde(tmp_path: Path) -> None:
    fill(tmp_path / "loud", readings={1: readings_at(at(32), 1.0, 0.09)})
    panel = panel_of(asked().find(load_records(tmp_path / "loud")))
    found = given(panel.own_noise)
    assert found.sde_refuted is True
    assert found.noise_to_signal == pytest.approx(0.09)
    assert "N/G = 0.09 [0.0" in str(panel)
    alone = dict(panel.answer().numbers)["SGD's own noise"]
    assert "(C² = 2)" in alone
    # above the threshold, or away from equilibrium, nothing is said
    for name, readings in (
        ("quiet", readings_at(at(32), 1.0, 9.0)),
        ("moving", readings_at(at(32), 1.0, 0.09, growth=3.0)),
    ):
        fill(tmp_path / name, readings={1: readings})
        other = panel_of(asked().find(load_records(tmp_path / name)))
        assert given(other.own_noise).sde_refuted is False
        assert "SGD's own noise" not in dict(other.answer().numbers)


def test_nothing_is_close_or_far_while_g_is_not_resolved(tmp_path: Path) -> None:
    noisy = [Reading(-0.1, 1.0, 1.0, 32, 4, step=n, lr=0.1, ell=16) for n in range(40)]
    fill(tmp_path, readings={1: readings_at(at(32), 1.0, 1.0), 16: noisy})
    found = panel_of(asked().find(load_records(tmp_path))).closeness
    assert found is not None
    assert math.isinf(found.c2)
    assert {one.name: (one.low, one.high) for one in found.ratios}["G"] == (0.0, math.inf)


def test_the_route_over_the_ladder_is_coupled_by_seed(tmp_path: Path) -> None:
    sgd, svag4 = (0.70, 0.75, 0.80, 0.85, 0.90), (0.71, 0.77, 0.80, 0.87, 0.91)
    fill(tmp_path, {1: sgd, 4: svag4, 16: svag4})
    for seed, value in enumerate(sgd):
        spec = at(32, seed=seed, process={"kind": "glsr", "parts": 4})
        write_run(tmp_path, spec, value - 0.02 - 0.001 * (seed % 2))
    [found] = panel_of(asked(glsr=(4,)).find(load_records(tmp_path))).decompositions
    first, second = found.terms
    assert found.route == "ladder"
    assert (first.name, second.name) == ("SGD − ladder of 4", "ladder of 4 − SVAG ell=4")
    assert first.value == pytest.approx(0.0204)
    assert first.value + second.value == pytest.approx(found.total.value)
    assert found.total.value == pytest.approx(np.mean(sgd) - np.mean(svag4))
    unpaired = welch(np.array(sgd), np.array(sgd) - 0.02).interval()
    assert first.high - first.low < (unpaired[1] - unpaired[0]) / 50


def test_the_route_of_the_paper_goes_over_ngd(tmp_path: Path) -> None:
    fill(tmp_path)
    ngd = (0.79, 0.795, 0.8, 0.79, 0.8)
    for seed, value in enumerate(ngd):
        write_run(tmp_path, at(32, seed=seed, process={"kind": "ngd"}), value)
    panel = panel_of(asked(ngd=True).find(load_records(tmp_path)))
    [found] = panel.decompositions
    discrete, shape = found.terms
    assert found.route == "gaussian"
    assert discrete.value == pytest.approx(given(panel.limit).value - np.mean(ngd))
    assert shape.value == pytest.approx(np.mean(ngd) - np.mean(FINALS[1]))
    assert discrete.value + shape.value == pytest.approx(found.total.value)
    # the limit contains SGD's own mean: its weight in the total is what is left of it, not an independent -1
    arrays = [np.array(values) for values in FINALS.values()]
    own, *others = fit_limit([1 / ell for ell in FINALS], arrays).limit_weights
    exact = contrast(arrays, [own - 1, *others])
    assert (found.total.low, found.total.high) == pytest.approx(exact.interval())


def test_without_svag_there_is_no_verdict_and_a_way_on(tmp_path: Path) -> None:
    fill(tmp_path, {1: FINALS[1]})
    finding = asked().find(load_records(tmp_path))
    panel = panel_of(finding)
    assert (panel.verdict, panel.curve, panel.closeness, panel.richardson) == (None, None, None, None)
    assert panel.own_noise is None
    assert len(panel.missing) == 10
    assert panel.to_dict()["answer"] is None
    assert panel_of(asked().find([])).arms == ()


def test_a_finished_run_without_the_metric_is_missing(tmp_path: Path) -> None:
    fill(tmp_path)
    losses = asked().model_copy(update={"metric": "train_loss"})
    finding = losses.find(load_records(tmp_path))
    assert len(finding.missing) == 15
    assert {(run.state, run.problem.split()[-1]) for run in finding.missing} == {("finished", "train_loss")}


PILOT = {1: (0.801, 0.804, 0.802, 0.799), 4: (0.802, 0.803, 0.798, 0.804)}


def plan_of(experiment: Compare) -> SdePlan:
    return given(experiment.panels[0].plan)


def planned(root: Path, within: float, finals: Mapping[int, Sequence[float]] = PILOT) -> Compare:
    pilot = Compare.pilot(BASE)
    fill(root, finals, split=pilot.panels[0].split)
    return plan_within(pilot, load_records(root), within)


def test_a_plan_says_what_it_runs_what_it_costs_and_what_plain_svag_would_cost(tmp_path: Path) -> None:
    experiment = planned(tmp_path, within=0.25)  # points: the margin is .0025
    plan = plan_of(experiment)
    assert (experiment.margin, plan.within, plan.split) == (0.0025, 0.0025, 2)
    spread = math.sqrt((np.var(PILOT[1], ddof=1) + np.var(PILOT[4], ddof=1)) / 2)
    assert plan.spread == pytest.approx(spread, rel=1e-12)
    gap = contrast([np.array(PILOT[1]), np.array(PILOT[4])], [4 / 3, -4 / 3])
    assert plan.constant == pytest.approx(abs(gap.value) + gap.error, rel=1e-12)
    assert plan.bias == pytest.approx(plan.constant / math.prod(plan.limit_weights), rel=1e-12)
    assert sum(plan.weights) == pytest.approx(1, rel=1e-12)
    assert plan.chance >= 0.82
    per_run = 32 * BASE.steps()
    units = [1 if ell == 1 else ell for ell in plan.ells]  # 2l/m, m = 2
    assert plan.examples == per_run * sum(n * unit for n, unit in zip(plan.seeds, units, strict=True))
    plain = plan.plain_seeds[0] + plan.plain_seeds[1] * 2 * plan.plain_ell
    assert plan.plain_examples == per_run * plain
    assert plan.saving > 1.5
    said = experiment.planned()
    assert f"{plan.examples:,} examples" in said
    assert f"{plan.plain_examples:,}" in said
    assert "±0.25 points" in said


def test_every_arm_of_a_plan_has_its_own_seeds_and_the_pilot_is_among_them(tmp_path: Path) -> None:
    experiment = planned(tmp_path, within=0.25)
    plan = plan_of(experiment)
    slots = experiment.slots()
    for ell, seeds in zip(plan.ells, plan.seeds, strict=True):
        found = [slot.seed for slot in slots if slot.arm.refinement == ell]
        assert found == list(range(seeds))
    assert set(Compare.pilot(BASE).runs()) <= set(experiment.runs())
    assert experiment_from(json.loads(experiment.model_dump_json())) == experiment
    # The plan rests on the pilot alone: with more of its own runs there it is the same.
    fill(tmp_path, {16: (0.5, 0.9)}, split=2)
    assert plan_within(Compare.pilot(BASE), load_records(tmp_path), 0.25) == experiment


def test_a_planned_verdict_uses_the_planned_weights_and_allows_for_what_they_miss(tmp_path: Path) -> None:
    experiment = planned(tmp_path / "pilot", within=0.25)
    plan = plan_of(experiment)
    weights = {4: -1 / 3, 16: 4 / 3}
    fields = {"ells": (1, 4, 16), "seeds": (5, 4, 5), "weights": (0.0, -1 / 3, 4 / 3), "bias": 0.0004}
    forced = experiment.with_plan(plan.model_copy(update=fields))
    finals = {**FINALS, 4: FINALS[4][:4]}
    fill(tmp_path / "all", finals, split=2)
    panel = panel_of(forced.find(load_records(tmp_path / "all")))
    arrays = {ell: np.array(values) for ell, values in finals.items()}
    gap = contrast(list(arrays.values()), [1, 1 / 3, -4 / 3])
    verdict, limit = given(panel.verdict), given(panel.limit)
    assert verdict.limit == "plan"
    assert verdict.gap == pytest.approx(gap.value, rel=1e-12)
    low, high = gap.interval()
    assert (verdict.low, verdict.high) == pytest.approx((low - 0.0004, high + 0.0004), rel=1e-9)
    assert verdict.p_equivalent == pytest.approx(gap.p_equivalent(0.0025 - 0.0004), rel=1e-9)
    expected = contrast([arrays[4], arrays[16]], list(weights.values()))
    assert limit.source == "plan"
    assert limit.value == pytest.approx(expected.value, rel=1e-12)
    assert limit.high - limit.low == pytest.approx(np.diff(expected.interval())[0] + 0.0008, rel=1e-9)
    assert panel.missing == ()
    found = panel.to_dict()["plan"]
    assert isinstance(found, dict)
    assert found["saving"] == pytest.approx(plan.saving)
    assert any(name == "planned" for name, _ in panel.answer().numbers)
    unplanned = panel_of(asked(split=2, seeds=4).find(load_records(tmp_path / "all")))
    assert "plan" not in unplanned.to_dict()
    assert given(unplanned.verdict).limit == "fit"


@pytest.mark.parametrize(
    ("spread", "advice"),
    [(0.001, "--within 0.125"), (0.03, "--within 0.25")],
)
def test_an_undecided_plan_advises_flags_that_it_takes(tmp_path: Path, spread: float, advice: str) -> None:
    """A plan chooses the seeds itself: more seeds per ell, the advice for other comparisons, cannot be given to it."""
    experiment = planned(tmp_path / "pilot", within=0.25)
    fields = {"ells": (1, 4), "seeds": (4, 4), "weights": (0.0, 1.0), "bias": 0.0}
    finals = {1: [0.802 + spread * e for e in (-3, -1, 1, 3)], 4: [0.799, 0.8, 0.8, 0.801]}
    fill(tmp_path / "all", finals, split=2)
    forced = experiment.with_plan(plan_of(experiment).model_copy(update=fields))
    panel = panel_of(forced.find(load_records(tmp_path / "all")))
    verdict = given(panel.verdict)
    assert (verdict.answer, verdict.limit) == ("inconclusive", "plan")
    assert advice in panel.status
    assert "per ell" not in panel.status


def test_an_arm_without_spread_leaves_a_planned_verdict_open() -> None:
    finals = {1: [0.8, 0.81, 0.79], 4: [0.8, 0.81], 16: [0.8]}
    found = svag.sde_verdict(finals, 0.1, limit_weights={4: -1 / 3, 16: 4 / 3})
    assert (found.answer, found.limit) == ("inconclusive", "none")
    found = svag.sde_verdict({ell: finals[ell] for ell in (1, 4)}, 0.1, limit_weights={4: 1.0})
    assert (found.answer, found.limit) == ("equivalent", "plan")


@pytest.mark.parametrize(
    ("within", "finals", "reason"),
    [
        (-1.0, PILOT, "positive"),
        (0.25, {1: PILOT[1], 4: (0.8, math.nan, 0.8, 0.8)}, "every seed finishes"),
        (0.25, {1: PILOT[1], 4: PILOT[4][:3]}, "every seed finishes"),
        (0.25, {1: (0.8,) * 4, 4: (0.8,) * 4}, "agree to the last digit"),
        (1e-4, PILOT, "out of reach"),
    ],
)
def test_a_plan_that_cannot_be_made_says_why(
    tmp_path: Path, within: float, finals: Mapping[int, Sequence[float]], reason: str
) -> None:
    with pytest.raises(SpecError, match=reason) as refused:
        planned(tmp_path, within, finals)
    assert refused.value.path == "--within"


def test_an_arm_that_learned_less_than_half_is_not_extrapolated_from(tmp_path: Path) -> None:
    """All runs start at 0.1; 0.8 is 0.7 above it."""
    fill(tmp_path / "fell", {**FINALS, 1: (0.44, *FINALS[1][1:])})
    fell = panel_of(asked().find(load_records(tmp_path / "fell")))
    assert (fell.collapsed, given(fell.verdict).limit, given(fell.limit).source) == ((1,), "collapsed", "collapsed")
    assert given(fell.limit).value == pytest.approx(np.mean(FINALS[16]))
    fill(tmp_path / "low", {**FINALS, 1: (0.46, *FINALS[1][1:])})
    low = panel_of(asked().find(load_records(tmp_path / "low")))
    assert (low.collapsed, given(low.verdict).limit in {"fit", "largest_ell"}) == ((), True)


def test_test_loss_is_compared_beside_the_metric_if_it_has_a_margin(tmp_path: Path) -> None:
    fill(tmp_path)
    records = load_records(tmp_path)
    assert panel_of(asked().find(records)).loss is None
    panel = panel_of(asked().model_copy(update={"loss_margin": 0.01}).find(records))
    assert given(panel.loss).margin == 0.01
    assert given(panel.loss).gap == pytest.approx(-given(panel.verdict).gap)  # the loss of these runs is 1 − accuracy


def test_the_trajectory_is_that_of_the_largest_ell_with_the_most_seeds(tmp_path: Path) -> None:
    fill(tmp_path, {**FINALS, 16: FINALS[16][:3]}, middle={1: 0.5, 4: 0.6, 16: 0.9})
    panel = ComparePanel(name="p", base=BASE, ells=(1, 4, 16), fewer=((16, 3),))
    experiment = Compare(title="t", seeds=tuple(range(5)), panels=(panel,), margin=0.006)
    assert len(experiment.runs()) == 13
    found = panel_of(experiment.find(load_records(tmp_path)))
    assert (found.missing, given(found.curve).ell) == ((), 4)
    # two evaluations after the first are fewer than a running mean takes: their mean is 0.05 below, about
    assert 0.04 < given(found.curve).apart < 0.05 < given(found.curve).reach < 0.06
