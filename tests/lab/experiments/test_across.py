"""Two things that one panel of SVAG cannot say: whether sampling matters, and whether Euler–Maruyama agrees."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from tests.lab.experiments.on_disk import BASE, at, given, write_run

from svag.lab.experiments.compare import Compare, ComparePanel
from svag.lab.experiments.compare_finding import CompareFinding, across, decided
from svag.lab.records.record import load_records
from svag.paper.figures import figure, judged
from svag.stats.means import Contrast

SAMPLINGS = ("shuffle", "with_replacement", "without_replacement")
SGD = (0.801, 0.804, 0.802, 0.803, 0.800)
SVAG = (0.802, 0.803, 0.801, 0.804, 0.802)
MARGIN = 0.01


def experiment(*samplings: str, **panel: object) -> Compare:
    panels = tuple(
        ComparePanel.model_validate(
            {"name": one, "base": BASE.edited({"sampling": one}), "ells": (1, 4), **panel},
        )
        for one in samplings
    )
    return Compare(title="t", seeds=tuple(range(5)), panels=panels, margin=MARGIN)


def fill(root: Path, sampling: str, finals: Mapping[str, Sequence[float]]) -> None:
    """Finals by process: "sgd", "svag 4", "ngd", "sde 4"."""
    for name, values in finals.items():
        kind, _, number = name.partition(" ")
        field = {"svag": "ell", "sde": "refine"}.get(kind)
        process = {"kind": kind} | ({} if field is None else {field: int(number)})
        for seed, value in enumerate(values):
            spec = at(32, seed=seed, process=process).edited({"sampling": sampling})
            diverged = math.isnan(value)
            write_run(root, spec, None if diverged else value, state="diverged" if diverged else "finished")


def found_of(question: Compare, root: Path) -> CompareFinding:
    found = question.find(load_records(root))
    assert isinstance(found, CompareFinding)
    json.dumps(found.to_dict(), allow_nan=False)
    return found


def test_every_two_panels_are_compared_in_sgd_and_in_the_limit(tmp_path: Path) -> None:
    shifts = (0.0, 0.001, -0.001)
    for sampling, shift in zip(SAMPLINGS, shifts, strict=True):
        fill(tmp_path, sampling, {"sgd": [x + shift for x in SGD], "svag 4": [x + shift for x in SVAG]})
    found = found_of(experiment(*SAMPLINGS), tmp_path)
    sgd, sde = found.across
    assert (sgd.of, sde.of) == ("SGD", "SDE limit")
    assert (sgd.answer, sde.answer) == ("equivalent", "equivalent")
    assert [pair.name for pair in sgd.pairs] == [
        "shuffle − with_replacement",
        "shuffle − without_replacement",
        "with_replacement − without_replacement",
    ]
    assert [pair.value for pair in sgd.pairs] == pytest.approx([-0.001, 0.001, 0.002])
    assert [pair.value for pair in sde.pairs] == pytest.approx([-0.001, 0.001, 0.002])
    welch = stats.ttest_ind([x - 0.001 for x in SGD], SGD, equal_var=False)
    assert sgd.pairs[1].p_different == pytest.approx(welch.pvalue)
    # by hand: the limit is (4 E_4 − E_1)/3 in both panels, so its variance is twice (16 s_4² + s_1²)/9/5
    variance = 2 * (16 * np.var(SVAG, ddof=1) + np.var(SGD, ddof=1)) / 9 / 5
    half = (sde.pairs[0].high - sde.pairs[0].low) / 2
    assert 1.96 < half / math.sqrt(variance) < 2.6
    *_, answer = found.answers()
    assert answer.tone == "yes"
    assert "±1.00 points" in answer.headline
    assert len(found.answers()) == 4
    assert str(found).count("Does sampling matter?") == 1
    row = figure("fig:app_svag_sampling", "small")
    names = {one.claim: one.verdict for one in judged(row, found)}
    assert names["SGD is the same however batches are drawn"] == "agrees"
    assert names["SDE limit is the same however batches are drawn"] == "agrees"


def test_one_panel_that_differs_decides(tmp_path: Path) -> None:
    for sampling in SAMPLINGS:
        shift = 0.05 if sampling == "shuffle" else 0.0
        fill(tmp_path, sampling, {"sgd": [x + shift for x in SGD], "svag 4": SVAG})
    found = found_of(experiment(*SAMPLINGS), tmp_path)
    assert found.across[0].answer == "different"
    assert found.answers()[-1].tone == "no"


def test_a_diverged_seed_leaves_it_open(tmp_path: Path) -> None:
    for sampling in SAMPLINGS:
        lost = math.nan if sampling == "shuffle" else SGD[0]
        fill(tmp_path, sampling, {"sgd": [lost, *SGD[1:]], "svag 4": SVAG})
    found = found_of(experiment(*SAMPLINGS), tmp_path)
    assert [one.answer for one in found.across] == ["inconclusive", "inconclusive"]
    assert found.answers()[-1].tone == "open"


def test_panels_that_differ_in_more_are_not_compared(tmp_path: Path) -> None:
    fill(tmp_path, "shuffle", {"sgd": SGD, "svag 4": SVAG})
    one = experiment("shuffle")
    other = one.panels[0].model_copy(update={"name": "other", "base": BASE.edited({"lr": 0.5})})
    question = one.model_copy(update={"panels": (*one.panels, other)})
    found = found_of(question, tmp_path)
    assert found.across == ()
    assert "across" not in found.to_dict()


def test_equivalence_is_of_all_pairs_and_difference_is_corrected() -> None:
    inside, wide = Contrast(0.0, 0.001, 8), Contrast(0.004, 0.02, 8)
    # a p value of .03 among three is .09 after Holm
    weak = Contrast(0.0263, 0.01, 8)
    assert 0.02 < weak.p_different() < 0.04
    pairs = {name: decided(name, one, MARGIN) for name, one in (("in", inside), ("wide", wide), ("weak", weak))}
    assert across("x", [pairs["in"]] * 3, MARGIN).answer == "equivalent"
    assert across("x", [pairs["in"], pairs["in"], pairs["wide"]], MARGIN).answer == "inconclusive"
    assert across("x", [pairs["weak"]], MARGIN).answer == "different"
    assert across("x", [pairs["weak"], pairs["in"], pairs["in"]], MARGIN).answer == "inconclusive"
    assert decided("x", inside, MARGIN, trusted=False).answer == "inconclusive"


@pytest.mark.parametrize(("shift", "answer"), [(0.0, "equivalent"), (0.1, "different")])
def test_euler_maruyama_is_extrapolated_from_ngd_and_compared(tmp_path: Path, shift: float, answer: str) -> None:
    ngd, fine = [x + 0.03 + shift for x in SGD], [x + 0.0075 + shift for x in SGD]  # an error of 1/refine
    finals = {"sgd": SGD, "svag 4": SGD, "ngd": ngd, "sde 4": fine}
    fill(tmp_path, "without_replacement", finals)
    found = found_of(experiment("without_replacement", ngd=True, sde=(4,)), tmp_path)
    limit, gap = given(found.panels[0].euler)
    assert limit.value == pytest.approx(np.mean(SGD) + shift)
    assert limit.ells == (1, 4)
    assert gap.value == pytest.approx(-shift, abs=1e-12)
    assert gap.answer == answer
    assert [arm.arm for arm in found.panels[0].arms][-2:] == ["NGD", "Euler–Maruyama refine=4"]
    assert f"the same limit?: {answer}" in str(found)
    assert found.panels[0].to_dict()["euler"]["answer"] == answer  # type: ignore[index]


def test_without_runs_of_euler_maruyama_nothing_is_said(tmp_path: Path) -> None:
    fill(tmp_path, "without_replacement", {"sgd": SGD, "svag 4": SVAG, "ngd": SGD})
    found = found_of(experiment("without_replacement", ngd=True), tmp_path)
    assert found.panels[0].euler is None
    assert "Maruyama" not in str(found)
