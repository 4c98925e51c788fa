"""What a ladder measured of its own theorem: exact where averages are, and what must not be claimed."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from tests.experiments.on_disk import at, given, readings_at, write_run

from svag.experiments.ladder import Ladder, LadderPanel
from svag.experiments.ladder_drift import covered, shortfalls
from svag.experiments.ladder_evidence import PREDICTS_FROM
from svag.experiments.ladder_finding import LadderPanelFinding
from svag.findings.drift import Drift
from svag.records.fields import SpecError
from svag.records.record import load_records
from svag.records.spec import RunSpec
from svag.theory.distortion import distortion

SIZES = (16, 32, 64, 128, 256)
B_SIMPLE = 160.0  # N/G = 10 at the smallest rung
ALL = (0.4, 0.9)  # all readings of all rungs, whose averages are exact


def found_in(
    root: Path, *, sizes: tuple[int, ...] = SIZES, window: tuple[float, float] | None = None
) -> LadderPanelFinding:
    panel = LadderPanel(name="p", base=at(32), batch_sizes=sizes)
    seeds = tuple(sorted({given(record.spec).seed for record in load_records(root)}))
    finding = Ladder(title="t", seeds=seeds, panels=(panel,), window=window).find(load_records(root))
    return finding.panels[0]


def drift_in(panel: LadderPanelFinding) -> Drift:
    return given(panel.drift)


def write_rung(
    root: Path, size: int, *, growth: float = 1.0, scale: float = 1.0, seeds: int = 2, error: float = 0.1
) -> None:
    """A rung at equilibrium whose noise scale is `scale` times that of the others."""
    for seed in range(seeds):
        spec = at(size, seed=seed)
        readings = readings_at(spec, 1.0, scale * B_SIMPLE / size, growth=growth, count=384)  # 12 blocks alike
        write_run(root, spec, 1 - error - 0.001 * seed, readings=readings)


def test_at_equilibrium_with_one_noise_scale_the_spread_is_the_distortion(tmp_path: Path) -> None:
    for size in SIZES:
        write_rung(tmp_path, size)
    panel = found_in(tmp_path, window=ALL)
    drift = drift_in(panel)
    assert (drift.compared, drift.signal, len(drift.pairs)) == ("R", "G", 10)
    for pair in drift.pairs:
        lr_wd = 0.1 * pair.baseline / 32 * 1e-3
        expected = distortion(pair.kappa, B_SIMPLE / pair.baseline, lr_wd)
        assert pair.spread.value == pytest.approx(expected, rel=1e-9)
        assert pair.distortion.value == pytest.approx(expected, rel=1e-9)
        assert pair.noise_scale.value == pytest.approx(1.0)
        assert covered(pair, panel.predictions)
    assert panel.shortfalls == ()
    assert given(panel.slope).value == pytest.approx(1.0)
    # B* = 2B + 160; log–log interpolation between rungs, where D is convex, comes out up to 3% below
    for one, crossing in panel.checked[:2]:  # the other two lie beyond the ladder, at 288 and 416
        assert crossing.observed.value == pytest.approx(one.critical.critical_batch, rel=0.03)
    assert [one.batch_size for one, _ in panel.checked] == [16, 32, 64, 128]
    answer = panel.answer()
    assert answer.tone == "yes"
    assert answer.headline.startswith("Scaling from 16: the price list put the factor 2 at batch size 192 [")
    assert "; training statistics drifted apart by that factor at 187 [" in answer.headline
    assert dict(answer.numbers)["theorem"].endswith("on all 10 pairs of batch sizes")
    assert panel.status.startswith("nothing more to run")


def test_a_noise_scale_that_falls_explains_the_gap(tmp_path: Path) -> None:
    write_rung(tmp_path, 16)
    write_rung(tmp_path, 128, scale=0.5)
    panel = found_in(tmp_path, sizes=(16, 128), window=ALL)
    (pair,) = drift_in(panel).pairs
    assert pair.noise_scale.value == pytest.approx(0.5)
    assert pair.spread.value > 1.2 * pair.distortion.value
    assert panel.shortfalls == ()
    assert dict(panel.answer().numbers)["B_simple × that of 16"].startswith("0.50 at 128")


def test_a_baseline_below_the_stated_ratio_does_not_predict(tmp_path: Path) -> None:
    for size in (64, 128, 256):
        write_rung(tmp_path, size)
    panel = found_in(tmp_path, sizes=(64, 128, 256))
    ratios = {one.batch_size: one.critical.noise_to_signal for one in panel.predictions}
    assert [one.usable for one in panel.predictions] == [ratio >= PREDICTS_FROM for ratio in ratios.values()]
    assert [one.usable for one in panel.predictions] == [True, True, False]
    assert dict(panel.answer().numbers)["do not predict"].startswith("256: N/G is below 1")


def test_a_ladder_of_too_little_noise_is_told_to_start_lower(tmp_path: Path) -> None:
    for size in (256, 512):
        write_rung(tmp_path, size)
    panel = found_in(tmp_path, sizes=(256, 512))
    assert not panel.checked
    assert panel.status.startswith("start the ladder lower: no baseline predicts; at the smallest, B=256, N/G = 0.625")
    assert panel.answer().headline.startswith("Test error, 20% rule: does not fail up to batch size 512")
    assert panel.answer().tone == "open"


def test_weights_that_had_not_quite_settled_are_named_where_the_inequality_fails(tmp_path: Path) -> None:
    write_rung(tmp_path, 16, growth=0.93)
    write_rung(tmp_path, 128, growth=1.08)  # each within what counts as balanced
    panel = found_in(tmp_path, sizes=(16, 128))
    (pair,) = drift_in(panel).pairs
    assert pair.spread.value == pytest.approx(pair.distortion.value * 0.93 / 1.08, rel=1e-3)
    assert pair.below
    (sentence,) = panel.shortfalls
    assert "had not quite settled, train longer (growth over decay 0.93 and 1.08" in sentence
    assert panel.answer().tone == "no"
    settled = [replace(one, critical=replace(one.critical, balance=1.0)) for one in panel.predictions]
    assert "suspect the readings" in shortfalls(drift_in(panel), settled)[0]
    late = replace(settled[0], critical=replace(settled[0].critical, window=(1000, 2000)))
    assert "do not cover the same part of training" in shortfalls(drift_in(panel), [late, settled[1]])[0]
    estimate = [replace(one, critical=replace(one.critical, basis="gradient")) for one in panel.predictions]
    assert shortfalls(drift_in(panel), estimate) == (), "no theorem, no inequality to break"


def test_a_ladder_that_loses_invariance_at_once_is_told_where_it_would_be_seen_to_hold(tmp_path: Path) -> None:
    for size in (64, 128, 256, 512):
        write_rung(tmp_path, size)
    panel = found_in(tmp_path, sizes=(64, 128, 256, 512))
    assert panel.status.endswith("start lower, where N/G is 8 (it is 2.5 at 64).")


def test_a_pull_of_the_loss_is_compared_in_its_own_right(tmp_path: Path) -> None:
    """|x|² stationary by the loss's own pull, without weight decay: T = 2⟨x, ∇L⟩ = η(G + N), and T′/T = q."""
    for size in (16, 128):
        spec = at(size, weight_decay=0.0)
        noise = B_SIMPLE / size
        readings = [
            replace(one, param_sq=100.0, weight_decay=0.0, param_dot_grad=spec.lr * (1 + noise) / 2)
            for one in readings_at(at(size), 1.0, noise)
        ]
        write_run(tmp_path, spec, 0.9, readings=readings)
    panel = (
        Ladder(
            title="t", seeds=(0,), panels=(LadderPanel(name="p", base=at(32, weight_decay=0.0), batch_sizes=(16, 128)),)
        )
        .find(load_records(tmp_path))
        .panels[0]
    )
    assert [one.critical.basis for one in panel.predictions] == ["pull", "pull"]
    (pair,) = drift_in(panel).pairs
    assert drift_in(panel).compared == "T"
    assert pair.first.value == pytest.approx(distortion(8.0, 10.0))
    assert "pull on the weights T" in dict(panel.answer().numbers)["theorem"]


def test_with_momentum_the_distortion_is_made_of_x_which_stands_beside_the_ratios(tmp_path: Path) -> None:
    """X and κN unchanged, R at the balance 2λR = (1 + β)η|v|²: then R′/R is the distortion with ρ = N/X."""
    beta, signal = 0.9, 0.5
    for size in (16, 128):
        spec = at(size, momentum=beta)
        noise = B_SIMPLE / size
        velocity = (signal + noise) / (1 - beta**2)
        param_sq = (1 + beta) * spec.lr * velocity / (2 * spec.weight_decay)
        readings = [
            replace(one, momentum=beta, velocity_sq=velocity, noise_trace=noise, param_sq=param_sq, param_dot_grad=0.0)
            for one in readings_at(at(size), 1.0, noise, count=384)
        ]
        write_run(tmp_path, spec, 0.9, readings=readings)
    ladder = LadderPanel(name="p", base=at(32, momentum=beta), batch_sizes=(16, 128))
    panel = Ladder(title="t", seeds=(0,), panels=(ladder,), window=ALL).find(load_records(tmp_path)).panels[0]
    drift = drift_in(panel)
    (pair,) = drift.pairs
    assert ([one.critical.basis for one in panel.predictions], drift.signal) == (["weight_norm"] * 2, "X")
    assert pair.distortion.value == pytest.approx(distortion(8.0, B_SIMPLE / 16 / signal))
    assert pair.spread.value == pytest.approx(pair.distortion.value)
    assert given(pair.moving).value == pytest.approx(1.0)
    assert panel.shortfalls == ()
    assert dict(panel.answer().numbers)["X × that of 16"].startswith("1 at 128; with momentum X takes the place")


def test_all_rungs_are_averaged_over_the_part_of_training_in_which_the_last_has_settled(tmp_path: Path) -> None:
    for size, start in ((32, 0.2), (64, 0.5)):
        spec = at(size)
        steps = spec.steps()
        readings = [
            replace(one, step=int(steps * (start + (0.8 - start) * k / 400)))
            for k, one in enumerate(readings_at(spec, 1.0, B_SIMPLE / size))
        ]
        write_run(tmp_path, spec, 0.9, readings=readings)
    panel = found_in(tmp_path, sizes=(32, 64))
    start, stop = given(panel.window)
    assert (start, stop) == pytest.approx((0.5, 0.8), abs=0.005)
    assert [one.critical.readings for one in panel.predictions] == [
        pytest.approx(200, abs=4),
        pytest.approx(400, abs=4),
    ]
    asked = found_in(tmp_path, sizes=(32, 64), window=(0.6, 0.8))
    assert asked.window == (0.6, 0.8)
    assert [one.critical.window[0] / given(record).steps for one, record in zip(
        asked.predictions, sorted(load_records(tmp_path), key=lambda run: -run.steps), strict=True
    )] == pytest.approx([0.6, 0.6], abs=0.005)  # fmt: skip


def test_a_window_has_to_increase() -> None:
    panel = LadderPanel(name="p", base=at(32), batch_sizes=(16, 32))
    with pytest.raises(SpecError, match="two increasing fractions of the budget"):
        Ladder(title="t", seeds=(0,), panels=(panel,), window=(0.8, 0.6))


def losses_of(spec: RunSpec, pace: float) -> dict[int, float]:
    """A loss that falls with the examples seen, `pace` times more slowly, and jumps down when the rate does, at 80%."""
    steps = spec.steps()
    points = [round(steps * k / 50) for k in range(1, 51)]
    total = steps * spec.batch_size
    return {s: (0.1 if s > 0.8 * steps else 2 - s * spec.batch_size / total / pace) for s in points}


def test_the_price_in_examples_is_measured_before_the_rate_falls(tmp_path: Path) -> None:
    paces = {32: 1.0, 64: 1.2, 256: 8.0}
    for size, pace in paces.items():
        spec = at(size)
        write_run(tmp_path, spec, 0.9, losses=losses_of(spec, pace), readings=readings_at(spec, 1.0, B_SIMPLE / size))
    panel = found_in(tmp_path, sizes=tuple(paces))
    first, far = panel.data[0], panel.data[1]
    assert (first.baseline, first.batch_size) == (32, 64)
    assert first.reached == pytest.approx([1.2] * 3, rel=0.02)
    assert (far.batch_size, far.reached) == (256, ())
    assert far.at_least == pytest.approx(4.0, rel=0.02)  # a quarter of the baseline's examples is the first level
    said = dict(panel.answer().numbers)["examples needed"]
    assert said == "1.2× at 64 (D = 1.2), more than 4× at 256 (D = 2.2), to the training loss of 32"


def test_an_error_that_improves_and_one_that_never_fell_have_words_of_their_own(tmp_path: Path) -> None:
    for size in SIZES:
        write_rung(tmp_path, size)
    panel = found_in(tmp_path)
    found = replace(given(panel.scaling), observed=None, best_batch=64)
    better = replace(panel, scaling=replace(found, answer="improves"))
    assert dict(better.answer().numbers)["test error, 20% rule"].startswith("improves up to batch size 64 (no theorem")
    assert replace(better, drift=None).answer().tone == "open"
    nothing = replace(panel, drift=None, scaling=replace(found, answer="not decided"))
    assert nothing.answer().tone == "open"
    assert "no batch size has learned enough" in dict(nothing.answer().numbers)["test error, 20% rule"]


def test_a_ladder_that_ends_before_the_drift_says_so_and_ticks_nothing(tmp_path: Path) -> None:
    for size in (16, 32, 64):
        write_rung(tmp_path, size)
    panel = found_in(tmp_path, sizes=(16, 32, 64))
    assert math.isinf(drift_in(panel).crossings[0].observed.value)
    assert panel.to_dict()["observed_dynamics"] is None
    answer = panel.answer()
    assert answer.tone == "open"
    assert answer.headline.endswith("did not drift apart by that factor up to 64, the largest batch here.")
    assert panel.status.startswith("add batch sizes up to 192")
