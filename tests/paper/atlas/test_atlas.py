"""Many ladders side by side: exact numbers from records with known answers, and ladders that are wrong."""

import json
from pathlib import Path

import pytest
from tests.lab.experiments.on_disk import at, given, readings_at, write_run

from svag.lab.experiments import save_experiment
from svag.lab.experiments.ladder import Ladder, LadderPanel
from svag.paper.atlas.answer import (
    agreement,
    answers,
    example_agreement,
    explained,
    indicators,
    successes,
    to_dict,
    worst,
)
from svag.paper.atlas.atlas import Atlas, AtlasPair, find_atlas, is_atlas
from svag.theory.distortion import distortion

SIZES = (16, 32, 64, 256)
B_SIMPLE = 160.0
ALL = (0.4, 0.9)


def write_ladder(
    folder: Path, *, growth: dict[int, float] | None = None, scale: dict[int, float] | None = None, seeds: int = 2
) -> None:
    """A scale-invariant ladder at equilibrium, but for what is asked for at single rungs."""
    panel = LadderPanel(name="p", base=at(32), batch_sizes=SIZES)
    save_experiment(Ladder(title="t", seeds=tuple(range(seeds)), panels=(panel,), window=ALL), folder)
    for size in SIZES:
        for seed in range(seeds):
            spec = at(size, seed=seed)
            noise = (scale or {}).get(size, 1.0) * B_SIMPLE / size
            readings = readings_at(spec, 1.0, noise, growth=(growth or {}).get(size, 1.0), count=384)
            pace = distortion(B_SIMPLE / 16, size / 16)  # the loss is reached D times later
            losses = {step: pace / (step * size) for step in range(10, spec.steps(), spec.steps() // 400)}
            write_run(folder / "runs", spec, 0.9 - 0.001 * seed, readings=readings, losses=losses)


def pair_of(atlas: Atlas, ladder: str, baseline: int, batch_size: int) -> AtlasPair:
    (found,) = [
        pair
        for one in atlas.ladders
        for pair in one.pairs
        if (one.setting.ladder, pair.drift.baseline, pair.drift.batch_size) == (ladder, baseline, batch_size)
    ]
    return found


def test_ladders_that_are_right_agree_exactly(tmp_path: Path) -> None:
    write_ladder(tmp_path / "a")
    write_ladder(tmp_path / "b")
    atlas = find_atlas(tmp_path)
    assert atlas.left_out == ()
    assert [one.setting.ladder for one in atlas.ladders] == ["a", "b"]
    assert len(atlas.pairs) == 2 * 6
    for pair in atlas.pairs:
        lr_wd = 0.1 * pair.drift.baseline / 32 * 1e-3
        expected = distortion(B_SIMPLE / pair.drift.baseline, pair.drift.kappa, lr_wd)
        assert pair.predicted.value == pytest.approx(expected, rel=1e-9)
        assert pair.observed.value == pytest.approx(expected, rel=1e-9)
        assert (pair.theorem, pair.small.usable, pair.agrees, pair.falls_short) == (True, True, True, False)
    (one,) = agreement(atlas.pairs)
    assert (one.kind, one.ladders, one.pairs, one.overlap) == ("scale-invariant, SGD", 2, 12, 12)
    assert (one.near, one.far) == (12, 0)
    assert one.middle == pytest.approx(1.0)
    held, invariant, ordinary = successes(atlas)
    assert (held.met, held.of, held.ok) == (12, 12, True)
    # B* = 2B + 160 is 192, 224 and 288, of which the last lies beyond the ladder: nothing was to be seen there
    assert (invariant.met, invariant.of, invariant.ok) == (4, 4, True)
    assert (ordinary.of, ordinary.ok) == (0, None)
    assert worst(atlas.pairs) == ()


def test_a_ladder_whose_spread_is_wrong_is_reported_so(tmp_path: Path) -> None:
    """At 256 the weights are 8% smaller than their balance makes them: below D, where the theorem forbids it."""
    write_ladder(tmp_path / "right")
    write_ladder(tmp_path / "wrong", growth={256: 1.08})
    atlas = find_atlas(tmp_path)
    short = [pair for pair in atlas.pairs if pair.falls_short]
    assert {(pair.setting.ladder, pair.drift.batch_size) for pair in short} == {("wrong", 256)}
    for pair in short:
        assert pair.over_predicted == pytest.approx(1 / 1.08, rel=1e-6)
        assert not pair.agrees
    held = successes(atlas)[0]
    assert (held.met, held.of, held.ok) == (12 - len(short), 12, False)
    first = answers(atlas)[0]
    assert first.tone == "no"
    assert ("below D", f"wrong 16→256: measured {short[0].observed}, D = {short[0].predicted}") in first.numbers
    assert find_atlas(tmp_path).pairs == atlas.pairs, "the same records give the same numbers"


def test_a_noise_scale_that_falls_is_named_with_what_it_alone_makes(tmp_path: Path) -> None:
    write_ladder(tmp_path / "falling", scale={256: 0.4})
    pair = pair_of(find_atlas(tmp_path), "falling", 16, 256)
    rho = B_SIMPLE / 16
    alone = (16 / 0.4 + rho) / (1 + rho)
    assert pair.drift.noise_scale.value == pytest.approx(0.4)
    assert pair.observed.value == pytest.approx(alone, rel=0.01)  # but for ηλ
    assert f"B_simple is 0.4 of the baseline's, which alone makes it {alone:.3g}" in explained(pair)
    assert worst(find_atlas(tmp_path).pairs)[0] == pair


def test_weights_that_have_not_settled_are_named(tmp_path: Path) -> None:
    write_ladder(tmp_path / "moving", growth={256: 0.3})
    pair = pair_of(find_atlas(tmp_path), "moving", 16, 256)
    assert not pair.theorem
    assert pair.over_predicted == pytest.approx(1 / 0.3, rel=1e-6)
    assert "growth over decay 1.00 and 0.30" in explained(pair)
    assert "B_simple" not in explained(pair)


def test_the_factor_in_examples_is_held_against_d(tmp_path: Path) -> None:
    write_ladder(tmp_path / "a")
    atlas = find_atlas(tmp_path)
    factor = given(pair_of(atlas, "a", 16, 64).factor)
    assert factor.value == pytest.approx(distortion(10.0, 4), rel=0.02)
    (one,) = example_agreement(atlas.pairs)
    assert (one.pairs, one.near) == (sum(pair.factor is not None for pair in atlas.pairs), one.pairs)
    assert one.middle == pytest.approx(1.0, abs=0.05)


def test_members_that_cannot_be_used_are_named_and_the_others_are(tmp_path: Path) -> None:
    write_ladder(tmp_path / "good")
    write_ladder(tmp_path / "gap")
    missing = sorted((tmp_path / "gap" / "runs").iterdir())[0]
    for file in missing.iterdir():
        file.unlink()
    missing.rmdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "experiment.json").write_text("{")
    bare = Ladder(title="t", seeds=(0,), panels=(LadderPanel(name="p", base=at(32), batch_sizes=SIZES),))
    save_experiment(bare, tmp_path / "nothing")
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "index.html").write_text("a page")
    atlas = find_atlas(tmp_path)
    assert [one.setting.ladder for one in atlas.ladders] == ["gap", "good"]
    said = dict(one.split(" ", 1) for one in atlas.left_out)
    assert said["empty"] == "is empty"
    assert said["torn"].startswith("cannot be used")
    assert said["gap:"].startswith("1 of its runs have no result")
    assert "report" not in " ".join(said)
    assert "nothing:" in said
    assert json.dumps(to_dict(atlas), allow_nan=False)


def test_a_folder_of_ladders_is_an_atlas_and_a_ladder_is_not(tmp_path: Path) -> None:
    write_ladder(tmp_path / "a", seeds=1)
    assert is_atlas(tmp_path)
    assert not is_atlas(tmp_path / "a")
    assert not is_atlas(tmp_path / "a" / "runs")


def test_rank_correlations_are_those_of_the_ranks(tmp_path: Path) -> None:
    for name, growth in (("a", 1.0), ("b", 0.7), ("c", 0.4)):
        write_ladder(tmp_path / name, growth=dict.fromkeys(SIZES, growth) | {16: 1.0})
    found = {one.name: one for one in indicators(find_atlas(tmp_path).baselines)}
    assert found["balance of the weights"].baselines == 9
    assert found["balance of the weights"].correlation < 1
    assert "pull of the loss" not in found, "⟨x, ∇L⟩ was not recorded"
