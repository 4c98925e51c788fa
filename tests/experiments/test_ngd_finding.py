import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.experiments.on_disk import BASE, at, given, write_run

from svag.experiments.ngd import Ngd, NgdPanel
from svag.experiments.ngd_finding import NgdFinding, NgdPanelFinding, arm_gap
from svag.records.record import load_records

FINALS = {"sgd": (0.89, 0.892, 0.894), "ngd": (0.891, 0.893, 0.892), "gd": (0.75, 0.76, 0.755)}
NAN = math.nan


def find_in(root: Path, finals: Mapping[str, Sequence[float]] = FINALS) -> NgdPanelFinding:
    for kind, values in finals.items():
        for seed, value in enumerate(values):
            state = "diverged" if math.isnan(value) else "finished"
            spec = at(32, seed=seed, process={"kind": kind})
            write_run(root, spec, None if math.isnan(value) else value, curve={100: 0.8}, state=state)
    asked = Ngd(title="t", seeds=(0, 1, 2), panels=(NgdPanel(name="p", base=BASE),), margin=0.01)
    finding = asked.find(load_records(root))
    assert isinstance(finding, NgdFinding)
    json.dumps(finding.to_dict(), allow_nan=False)
    return finding.panels[0]


def test_ngd_is_where_sgd_is_and_gd_is_not(tmp_path: Path) -> None:
    panel = find_in(tmp_path)
    assert (given(panel.sgd_ngd).answer, given(panel.sgd_gd).answer) == ("equivalent", "different")
    assert given(panel.sgd_gd).gap == pytest.approx(0.892 - 0.755)
    assert "so only the covariance of the noise matters here; GD, without noise, does not end there" in panel.verdict
    assert panel.status == "nothing more to run."
    assert dict(panel.best) == pytest.approx({"SGD": 0.892, "NGD": 0.892, "GD": 0.8})
    assert len(panel.curves) == 27


def test_a_diverged_seed_is_not_dropped(tmp_path: Path) -> None:
    panel = find_in(tmp_path, {**FINALS, "ngd": (*FINALS["ngd"][:2], NAN)})
    assert given(panel.sgd_ngd).answer == "inconclusive"
    assert given(panel.sgd_ngd).p_divergence == pytest.approx(1.0)
    assert "lower the learning rate" in panel.status
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
    assert f"run {given(panel.sgd_ngd).seeds_needed} seeds per arm" in panel.status


def test_missing_arms(tmp_path: Path) -> None:
    panel = find_in(tmp_path, {"sgd": FINALS["sgd"]})
    assert (panel.sgd_ngd, panel.sgd_gd) == (None, None)
    assert len(panel.missing) == 6
    assert panel.verdict == "No answer yet: SGD and NGD both need results."
    assert math.isnan(dict(panel.best)["GD"])
