import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy import stats
from tests.lab.experiments.on_disk import BASE, at, given, write_run

from svag.lab.experiments import load_experiment
from svag.lab.experiments.ngd import Ngd, NgdPanel
from svag.lab.experiments.ngd_finding import NgdFinding, NgdPanelFinding, arm_gap, curves_apart
from svag.lab.records.record import RunRecord, load_records

FINALS = {"sgd": (0.89, 0.892, 0.894), "ngd": (0.891, 0.893, 0.892), "gd": (0.75, 0.76, 0.755)}
NAN = math.nan


def find_in(root: Path, finals: Mapping[str, Sequence[float]] = FINALS) -> NgdPanelFinding:
    for kind, values in finals.items():
        for seed, value in enumerate(values):
            state = "diverged" if math.isnan(value) else "finished"
            spec = at(32, seed=seed, process={"kind": kind})
            write_run(root, spec, None if math.isnan(value) else value, curve={100: 0.8}, state=state)
    asked = Ngd(title="t", seeds=tuple(range(len(finals["sgd"]))), panels=(NgdPanel(name="p", base=BASE),), margin=0.01)
    finding = asked.find(load_records(root))
    assert isinstance(finding, NgdFinding)
    json.dumps(finding.to_dict(), allow_nan=False)
    return finding.panels[0]


def test_ngd_is_where_sgd_is_and_gd_is_not(tmp_path: Path) -> None:
    panel = find_in(tmp_path)
    assert (given(panel.sgd_ngd).answer, given(panel.sgd_gd).answer) == ("equivalent", "different")
    assert given(panel.sgd_gd).gap == pytest.approx(0.892 - 0.755)
    assert dict(panel.best) == pytest.approx({"SGD": 0.892, "NGD": 0.892, "GD": 0.8})
    assert len(panel.curves) == 27


def test_where_gd_ends_there_too_any_noise_would_do(tmp_path: Path) -> None:
    panel = find_in(tmp_path / "same", {**FINALS, "gd": (0.891, 0.892, 0.893)})
    assert (given(panel.sgd_ngd).answer, given(panel.sgd_gd).answer) == ("equivalent", "equivalent")
    assert panel.answer().tone == "open"
    assert panel.status != "nothing more to run."
    unknown = find_in(tmp_path / "unknown", {**FINALS, "gd": (0.86, 0.9, 0.92)})
    assert (given(unknown.sgd_gd).answer, unknown.answer().tone) == ("inconclusive", "open")
    assert find_in(tmp_path / "apart").answer().tone == "yes"


def test_a_diverged_seed_is_not_dropped(tmp_path: Path) -> None:
    panel = find_in(tmp_path, {**FINALS, "ngd": (*FINALS["ngd"][:2], NAN)})
    assert given(panel.sgd_ngd).answer == "inconclusive"
    assert given(panel.sgd_ngd).p_divergence == pytest.approx(1.0)
    assert panel.missing == ()
    survivors = dict(enumerate(FINALS["ngd"][:2]))
    assert given(arm_gap("a", dict(enumerate(FINALS["sgd"])), survivors, 0.01)).answer == "equivalent"


def test_divergence_itself_is_a_difference() -> None:
    gap = given(arm_gap("a", dict.fromkeys(range(5), 0.9), dict.fromkeys(range(5), NAN), 0.01))
    assert gap.answer == "different"
    assert gap.p_different == pytest.approx(2 / 252)
    assert math.isnan(gap.gap)


def test_no_spread_decides_nothing() -> None:
    gap = given(arm_gap("a", {0: 0.9, 1: 0.9}, {0: 0.9, 1: 0.9}, 0.01))
    assert (gap.answer, gap.low) == ("inconclusive", -math.inf)
    assert given(arm_gap("a", {0: 0.9}, {0: 0.5}, 0.01)).answer == "inconclusive"
    assert arm_gap("a", {}, {0: 0.5}, 0.01) is None


def test_too_few_seeds_ask_for_more(tmp_path: Path) -> None:
    panel = find_in(tmp_path, {**FINALS, "ngd": (0.86, 0.9, 0.92)})
    assert given(panel.sgd_ngd).answer == "inconclusive"
    assert given(given(panel.sgd_ngd).seeds_needed) > 3
    assert f" {given(panel.sgd_ngd).seeds_needed} seeds" in panel.status


def test_missing_arms(tmp_path: Path) -> None:
    panel = find_in(tmp_path, {"sgd": FINALS["sgd"]})
    assert (panel.sgd_ngd, panel.sgd_gd) == (None, None)
    assert len(panel.missing) == 6
    assert math.isnan(dict(panel.best)["GD"])


def run_of(values: Sequence[float], metric: str = "test_accuracy") -> RunRecord:
    """A finished run with an evaluation every 10 steps, and one before the first that must not count."""
    rows = [{"kind": "evaluation", "step": 10 * k, metric: value} for k, value in enumerate([0.1, *values])]
    return RunRecord(Path("a"), "finished", None, "", 99, tuple(rows), {})


def group(shift: ArrayLike, seed: int, spread: float = 0.002) -> list[RunRecord]:
    level = np.asarray(shift, dtype=np.float64)
    noise = spread * np.random.default_rng(seed).normal(size=(5, level.size))
    return [run_of((level + row).tolist()) for row in noise]


def test_curves_are_judged_at_all_steps_at_once() -> None:
    """The same final value does not make the same curve, and a small gap everywhere is within the margin."""
    level = np.linspace(0.5, 0.9, 8)
    dip = level - 0.05 * (np.arange(8) == 3)  # one evaluation of the four that a trajectory averages
    same = given(curves_apart("c", "test_accuracy", group(level, 1), group(level + 0.001, 2), 0.01))
    assert same.answer == "equivalent"
    assert same.reach < 0.01
    assert given(curves_apart("c", "test_accuracy", group(level, 1), group(level, 2), None)).answer != "equivalent"
    other = given(curves_apart("c", "test_accuracy", group(level, 1), group(dip, 2), 0.01))
    assert (other.answer, other.at_step) == ("different", 40)
    assert other.p_value == pytest.approx(2 / 252)
    assert other.low < 0.05 < other.high
    assert 0.01 < other.apart < 0.05 / 4 < other.reach
    assert same.apart < 0.002
    assert "step 40, by +" in other.said()
    wide = given(curves_apart("c", "test_accuracy", group(level, 1, 0.05), group(level, 2, 0.05), 0.01))
    assert wide.answer == "inconclusive"


def test_curves_of_too_few_runs_or_of_none_are_not_compared() -> None:
    one = [run_of([0.5, 0.6])]
    assert curves_apart("c", "test_accuracy", one, one, 0.01) is None
    assert curves_apart("c", "train_loss", one * 3, one * 3, 0.01) is None, "it was not recorded"
    few = given(curves_apart("c", "test_accuracy", group([0.5, 0.6], 1)[:3], group([0.5, 0.6], 2)[:3], 0.01))
    assert (few.answer, few.reach) == ("inconclusive", math.inf)
    assert few.smallest_p == pytest.approx(0.1)
    assert "within" not in few.said()


@pytest.mark.parametrize("evaluated", [True, False])
def test_the_training_curve_is_that_of_the_training_set_where_it_was_evaluated(evaluated: bool) -> None:
    folder = Path(__file__).parents[3] / "results" / "figures" / "fig-ngd_sgd_b125"
    runs = load_records(folder)
    if not evaluated:
        runs = [replace(run, rows=tuple(row | {"train_set_accuracy": None} for row in run.rows)) for run in runs]
    (panel,) = given(load_experiment(folder)).find(runs).panels
    assert isinstance(panel, NgdPanelFinding)
    train = "train_set_accuracy" if evaluated else "train_loss"
    assert [one.metric for one in panel.apart] == [train, "test_accuracy"]
    assert [one.name for one in panel.apart] == ["training curves", "test curves"]


LUCK = (0.04, -0.03, 0.02, -0.05)  # of the first weights, which the arms of a seed share


def test_arms_of_the_same_seeds_are_compared_seed_by_seed() -> None:
    """What a seed does to both arms cancels; of seeds that are not the same, nothing does."""
    sgd = {seed: 0.80 + luck for seed, luck in enumerate(LUCK)}
    ngd = {seed: value + 0.001 * (-1) ** seed for seed, value in sgd.items()}
    found = given(arm_gap("a", sgd, dict(reversed(ngd.items())), 0.01))
    assert (found.answer, found.in_pairs) == ("equivalent", True)
    assert found.high == pytest.approx(stats.ttest_rel(list(sgd.values()), list(ngd.values())).confidence_interval()[1])
    others = {seed + 4: value for seed, value in ngd.items()}
    for apart in (others, {seed: value for seed, value in ngd.items() if seed != 3}):
        unpaired = given(arm_gap("a", sgd, apart, 0.01))
        assert (unpaired.answer, unpaired.in_pairs) == ("inconclusive", False)
    few, fewer = ({seed: values[seed] for seed in range(3)} for values in (sgd, ngd))
    assert not given(arm_gap("a", few, fewer, 0.01)).in_pairs


def test_equal_differences_are_no_spread_to_judge_by() -> None:
    sgd = {seed: 0.80 + luck for seed, luck in enumerate(LUCK)}
    found = given(arm_gap("a", sgd, {seed: value + 0.02 for seed, value in sgd.items()}, 0.01))
    assert (found.answer, found.in_pairs) == ("inconclusive", False)
    assert found.low < -0.03 < 0.0 < found.high


def test_a_finding_says_that_it_compared_seed_by_seed(tmp_path: Path) -> None:
    assert "seed by seed" not in str(find_in(tmp_path / "three"))
    four = {kind: (*values, values[1]) for kind, values in FINALS.items()}
    assert "seed by seed: the arms of a seed start from the same weights" in str(find_in(tmp_path / "four", four))


def test_train_accuracy_at_the_end_is_a_mean_over_100_steps(tmp_path: Path) -> None:
    rows = {"sgd": (0.80, 0.90), "ngd": (0.81, 0.89), "gd": (0.90, 1.0)}
    base = at(32).edited({"evaluate.train": True, "budget": 1000})
    for kind, (before, last) in rows.items():
        for seed in range(4):
            spec = base.edited({"seed": seed, "process": {"kind": kind}})
            write_run(tmp_path, spec, last + 0.001 * seed, curve={900: 0.2, 950: before + 0.002 * seed**2})
    experiment = Ngd(title="t", seeds=(0, 1, 2, 3), panels=(NgdPanel(name="p", base=base),), margin=0.01)
    finding = experiment.find(load_records(tmp_path))
    assert isinstance(finding, NgdFinding)
    (panel,) = finding.panels
    assert given(panel.train_ngd).gap == pytest.approx(0.0)
    assert given(panel.train_gd).gap == pytest.approx(-0.1)
    assert given(panel.sgd_ngd).gap == pytest.approx(0.01), "the last evaluation alone"
