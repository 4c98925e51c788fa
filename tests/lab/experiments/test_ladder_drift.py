"""What a ladder measured of its own theorem: exact where averages are, and what must not be claimed."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.lab.experiments.on_disk import at, given, readings_at, write_run

from svag.lab.experiments.drift import Drift, covered, shortfalls
from svag.lab.experiments.ladder import Ladder, LadderPanel, rung
from svag.lab.experiments.ladder_finding import LadderPanelFinding
from svag.lab.experiments.rungs import PREDICTS_FROM, RungPrediction
from svag.lab.records.record import load_records
from svag.lab.specs.fields import SpecError
from svag.lab.specs.spec import RunSpec
from svag.theory.distortion import distortion

SIZES = (16, 32, 64, 128, 256)
B_SIMPLE = 160.0  # N/G = 10 at the smallest rung
ALL = (0.4, 0.9)  # all readings of all rungs, whose averages are exact


def found_in(
    root: Path,
    *,
    sizes: tuple[int, ...] = SIZES,
    window: tuple[float, float] | None = None,
    base: RunSpec | None = None,
) -> LadderPanelFinding:
    panel = LadderPanel(name="p", base=base or at(32), batch_sizes=sizes)
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
        expected = distortion(B_SIMPLE / pair.baseline, pair.kappa, lr_wd)
        assert pair.spread.value == pytest.approx(expected, rel=1e-9)
        assert pair.distortion.value == pytest.approx(expected, rel=1e-9)
        assert pair.noise_scale.value == pytest.approx(1.0)
        assert covered(pair, panel.predictions)
    assert panel.shortfalls == ()
    assert given(panel.slope).value == pytest.approx(1.0)
    # B* = 2B + 160; log–log interpolation between rungs, where D is convex, comes out up to 3% below
    for one, crossing in panel.checked[:2]:  # the other two lie beyond the ladder, at 288 and 416
        assert crossing.observed.value == pytest.approx(one.linear.limit.value, rel=0.03)
    assert [one.batch_size for one, _ in panel.checked] == [16, 32, 64, 128]
    assert panel.answer().tone == "yes"


def test_a_rung_that_has_not_settled_is_no_evidence_for_the_theorem(tmp_path: Path) -> None:
    for size in SIZES:
        write_rung(tmp_path, size, growth=1.2 if size == 64 else 1.0)
    panel = found_in(tmp_path, window=ALL)
    assert [size for size, _ in panel.unbalanced] == [64]
    assert panel.answer().tone == "open"


def test_a_noise_scale_that_falls_explains_the_gap(tmp_path: Path) -> None:
    write_rung(tmp_path, 16)
    write_rung(tmp_path, 128, scale=0.5)
    panel = found_in(tmp_path, sizes=(16, 128), window=ALL)
    (pair,) = drift_in(panel).pairs
    assert pair.noise_scale.value == pytest.approx(0.5)
    assert pair.spread.value > 1.2 * pair.distortion.value
    assert panel.shortfalls == ()
    assert dict(panel.answer().numbers)["B_simple relative to 16"].startswith("0.50 at 128")


def test_a_baseline_below_the_stated_ratio_does_not_predict(tmp_path: Path) -> None:
    for size in (64, 128, 256):
        write_rung(tmp_path, size)
    panel = found_in(tmp_path, sizes=(64, 128, 256))
    ratios = {one.batch_size: one.linear.noise_to_signal.value for one in panel.predictions}
    assert [one.usable for one in panel.predictions] == [ratio >= PREDICTS_FROM for ratio in ratios.values()]
    assert [one.usable for one in panel.predictions] == [True, True, False]


def test_a_ladder_of_too_little_noise_checks_nothing(tmp_path: Path) -> None:
    for size in (256, 512):
        write_rung(tmp_path, size)
    panel = found_in(tmp_path, sizes=(256, 512))
    assert not panel.checked
    assert panel.answer().tone == "note"


def test_weights_that_had_not_quite_settled_are_named_where_the_inequality_fails(tmp_path: Path) -> None:
    write_rung(tmp_path, 16, growth=0.93)
    write_rung(tmp_path, 128, growth=1.08)  # each within what counts as balanced
    panel = found_in(tmp_path, sizes=(16, 128))
    (pair,) = drift_in(panel).pairs
    assert pair.spread.value == pytest.approx(pair.distortion.value * 0.93 / 1.08, rel=1e-3)
    assert pair.below
    (short,) = panel.shortfalls
    assert (short.pair, short.cause) == (pair, "not_settled")
    assert short.balances == pytest.approx((0.93, 1.08), rel=1e-3)
    assert str(short) in dict(panel.answer().numbers)["theorem"]
    assert panel.answer().tone == "no"

    def changed(one: RungPrediction, **changes: object) -> RungPrediction:
        return replace(
            one,
            price_list=replace(one.price_list, linear=replace(one.linear, **changes)),  # type: ignore[arg-type]
        )

    settled = [changed(one, balance=1.0) for one in panel.predictions]
    (unexplained,) = shortfalls(drift_in(panel), settled)
    assert unexplained.cause == "unexplained"
    late = replace(settled[0], price_list=replace(settled[0].price_list, window=(1000, 2000)))
    (elsewhere,) = shortfalls(drift_in(panel), [late, settled[1]])
    assert elsewhere.cause == "other_window"
    assert [str(one).partition(": ")[2] for one in (short, unexplained, elsewhere)] == [
        "the weights had not quite settled, train longer (growth over decay 0.93 and 1.08, 1 at equilibrium)",
        "the balance of the weights does not explain it, so suspect the readings",
        "the readings of the two do not cover the same part of training",
    ]
    estimate = [changed(one, basis="gradient") for one in panel.predictions]
    assert shortfalls(drift_in(panel), estimate) == (), "no theorem, no inequality to break"


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
    assert [one.linear.basis for one in panel.predictions] == ["pull", "pull"]
    (pair,) = drift_in(panel).pairs
    assert drift_in(panel).compared == "T"
    assert pair.first.value == pytest.approx(distortion(10.0, 8.0))


def test_a_baseline_is_held_against_its_own_price_list_where_another_rung_has_not_resolved_x(tmp_path: Path) -> None:
    beta = 0.9
    for size, signal in ((16, 0.5), (128, 0.5), (256, -0.5)):
        spec, noise = at(size, momentum=beta), B_SIMPLE / size
        velocity = (signal + noise) / (1 - beta**2)
        readings = [
            replace(one, momentum=beta, velocity_sq=velocity, noise_trace=noise, param_dot_grad=0.0)
            for one in readings_at(spec, 1.0, noise, count=384)
        ]
        write_run(tmp_path, spec, 0.9, readings=readings)
    ladder = LadderPanel(name="p", base=at(32, momentum=beta), batch_sizes=(16, 128, 256))
    panel = Ladder(title="t", seeds=(0,), panels=(ladder,), window=ALL).find(load_records(tmp_path)).panels[0]
    drift, smallest = drift_in(panel), panel.predictions[0].linear
    assert (drift.signal, smallest.signal) == ("X̂", "X")
    crossing = drift.crossings[0]
    assert crossing.predicted.value == smallest.limit.value
    assert drift.pairs[0].distortion == smallest.distortion(128)
    assert crossing.over_predicted.value == pytest.approx(crossing.observed.value / smallest.limit.value)


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
    assert ([one.linear.basis for one in panel.predictions], drift.signal) == (["weight_norm"] * 2, "X")
    assert pair.distortion.value == pytest.approx(distortion(B_SIMPLE / 16 / signal, 8.0))
    assert pair.spread.value == pytest.approx(pair.distortion.value)
    assert given(pair.moving).value == pytest.approx(1.0)
    assert panel.shortfalls == ()
    assert dict(panel.answer().numbers)["X relative to 16"].startswith("1 at 128")


ADAMW = at(32, optimizer={"kind": "adamw", "betas": [0.9, 0.96]})


def write_adam(root: Path, size: int, *, lag: float = 1.0, **changes: object) -> None:
    """A rung of AdamW with G = 1, N = 160/B and V = G + N, up to a factor; nothing of V before the first step."""
    for seed in range(2):
        spec, noise = rung(ADAMW, size).edited({"seed": seed}), B_SIMPLE / size
        first, *others = readings_at(spec, 1.0, noise, count=384)
        known: dict[str, Any] = {"optimizer": "AdamW", "momentum": None, "betas": (0.9, 0.999), "eps": 1e-8} | changes
        moment: dict[str, Any] = {"second_moment": lag * (1 + noise), "dimension": 1000} | changes
        readings = [replace(first, **known), *(replace(one, **known | moment) for one in others)]
        write_run(root, spec, 0.9 - 0.001 * seed, readings=readings)


def test_of_adam_the_second_moment_is_compared_and_no_theorem_is_claimed(tmp_path: Path) -> None:
    for size in SIZES:
        write_adam(tmp_path, size)
    panel = found_in(tmp_path, window=ALL, base=ADAMW)
    drift = drift_in(panel)
    assert (drift.compared, drift.signal, len(drift.pairs)) == ("V", "G", 10)
    for pair in drift.pairs:
        expected = distortion(B_SIMPLE / pair.baseline, pair.kappa)
        assert pair.distortion.value == pytest.approx(expected, rel=0.005)  # one of 384 readings is left out
        assert given(pair.second_moment_over_noise).value == pytest.approx(expected, rel=0.005)
        assert pair.first.value == pytest.approx(expected, rel=1e-9), "κV′/V of V = G + N"
        assert not covered(pair, panel.predictions)
    assert (panel.shortfalls, panel.certificates) == ((), ())
    assert all(rung.balance is None for rung in panel.rungs)
    answer = panel.answer()
    said = dict(answer.numbers)
    assert "reliability" in said
    # D from 16 is 1.09, 1.27, 1.64 and 2.36: 1 − 1/√D of it
    steps = {32: 4, 64: 11, 128: 22, 256: 35}
    assert re.findall(r"(\d+)% at (\d+) \(predicted (\d+)%\)", said["steps from 16"]) == [
        (str(share), str(size), str(share)) for size, share in steps.items()
    ]
    assert "theorem" not in str(answer)
    assert said["κV′/V over κN′/N from 16"].startswith("1.09 [1.0")
    assert "(D = 1.09 [1.0" in said["κV′/V over κN′/N from 16"]
    assert [name for name in said if name.startswith("κV′/V")] == [f"κV′/V over κN′/N from {b}" for b in SIZES[:-1]]
    assert said["V/(G + N)"].startswith("1.00 at B = 16, 1.00 at B = 32")
    assert "equilibrium" not in said
    assert answer.tone == "note"
    found = panel.to_dict()
    assert found["compared"] == "V"
    assert isinstance(found["pairs"], list)
    assert found["pairs"][0]["second_moment_over_noise"]["value"] == pytest.approx(distortion(10.0, 2.0), rel=0.005)
    assert isinstance(found["predictions"], list)
    assert found["predictions"][0]["linear"]["second_moment_ratio"] == pytest.approx(1.0, abs=0.005)


def test_a_second_moment_that_lags_behind_is_seen_as_it_is(tmp_path: Path) -> None:
    write_adam(tmp_path, 16)
    write_adam(tmp_path, 128, lag=1.5)
    panel = found_in(tmp_path, sizes=(16, 128), window=ALL, base=ADAMW)
    (pair,) = drift_in(panel).pairs
    assert given(pair.second_moment_over_noise).value == pytest.approx(1.5 * pair.distortion.value, rel=0.005)
    assert dict(panel.answer().numbers)["V/(G + N)"].startswith("1.00 at B = 16, 1.50 at B = 128")


DRIFT = "training statistics must drift apart by a factor of 2 by B* ="
ESTIMATED = "training statistics were estimated to drift apart by a factor of 2 at B* ="
LOCATED = "nothing more to run: the drift is located to within the spacing of the ladder."
SAID: list[tuple[tuple[int, ...], bool, str, str, str]] = [
    (
        SIZES,
        False,
        "agrees with the theorem",
        f"Scaling from batch size 16, {DRIFT} 192 [191, 193]; they did at 187 [186, 189], 0.97 [0.96, 0.99] of B*.",
        LOCATED,
    ),
    (
        (16, 32, 64),
        False,
        "not reached on this ladder",
        f"Scaling from batch size 16, {DRIFT} 192 [191, 193]; up to 64, the largest batch here, they did not.",
        "add batch sizes up to 192, where the statistics must have drifted apart.",
    ),
    (
        (256, 512),
        False,
        "",
        (
            "Test error is nowhere more than 20% above the lowest, up to batch size 512; 95% interval of where it "
            "would be [512, ∞)."
        ),
        (
            "start the ladder lower: no baseline predicts; at the smallest, B=256, N/G = 0.625 is below 1: B* would "
            "be little more than C²B, whatever was measured."
        ),
    ),
    (
        (64, 128, 256, 512),
        False,
        "agrees with the theorem",
        f"Scaling from batch size 64, {DRIFT} 288 [287, 289]; they did at 285 [283, 288], 0.99 [0.98, 1.00] of B*.",
        (
            "nothing is missing. Starting at a smaller batch, where N/G is 8 (it is 2.5 at 64), would also show "
            "batches between which training hardly changes."
        ),
    ),
    (
        SIZES,
        True,
        "estimate",
        (
            f"Scaling by the square-root rule from batch size 16, {ESTIMATED} 192 [191, 193]; they did at 187 "
            "[186, 189], 0.97 [0.96, 0.99] of B*. These are estimates: no batch size is ruled out."
        ),
        LOCATED,
    ),
    (
        (16, 32),
        True,
        "estimate",
        (
            f"Scaling by the square-root rule from batch size 16, {ESTIMATED} 192 [191, 193]; up to 32, the largest "
            "batch here, they did not. These are estimates: no batch size is ruled out."
        ),
        "add batch sizes up to 192, where the statistics are estimated to have drifted apart.",
    ),
]


@pytest.mark.parametrize(("sizes", "adam", "badge", "headline", "status"), SAID)
def test_every_answer_of_a_ladder_renders(
    tmp_path: Path, sizes: tuple[int, ...], adam: bool, badge: str, headline: str, status: str
) -> None:
    for size in sizes:
        (write_adam if adam else write_rung)(tmp_path, size)
    panel = found_in(tmp_path, sizes=sizes, window=ALL if len(sizes) == 5 else None, base=ADAMW if adam else None)
    answer = panel.answer()
    assert (answer.badge, answer.headline, panel.status) == (badge, headline, status)


def test_without_v_the_weight_norm_is_compared_and_sgd_never_has_v(tmp_path: Path) -> None:
    for size in (16, 128):
        write_adam(tmp_path / "amsgrad", size, second_moment=None, dimension=None)
        write_rung(tmp_path / "sgd", size)
    for name, base in (("amsgrad", ADAMW), ("sgd", None)):
        panel = found_in(tmp_path / name, sizes=(16, 128), base=base)
        (pair,) = drift_in(panel).pairs
        assert (drift_in(panel).compared, pair.second_moment_over_noise) == ("R", None)
        assert not any(name.startswith(("κV′", "V/")) for name in dict(panel.answer().numbers))


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
    assert [one.price_list.readings for one in panel.predictions] == [
        pytest.approx(200, abs=4),
        pytest.approx(400, abs=4),
    ]
    asked = found_in(tmp_path, sizes=(32, 64), window=(0.6, 0.8))
    assert asked.window == (0.6, 0.8)
    assert [one.price_list.window[0] / given(record).steps for one, record in zip(
        asked.predictions, sorted(load_records(tmp_path), key=lambda run: -run.steps), strict=True
    )] == pytest.approx([0.6, 0.6], abs=0.005)  # fmt: skip


def test_a_window_has_to_increase() -> None:
    panel = LadderPanel(name="p", base=at(32), batch_sizes=(16, 32))
    with pytest.raises(SpecError, match=r"^ladder\.window:"):
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
    said = dict(panel.answer().numbers)["data needed"]
    assert re.findall(r"([\d.]+)× at (\d+) \(D = ([\d.]+)\)", said) == [("1.2", "64", "1.2"), ("4", "256", "2.2")]


def test_an_error_that_improves_and_one_that_never_fell_have_words_of_their_own(tmp_path: Path) -> None:
    for size in SIZES:
        write_rung(tmp_path, size)
    panel = found_in(tmp_path)
    found = replace(given(panel.scaling), observed=None, best_batch=64)
    better = replace(panel, scaling=replace(found, answer="improves"))
    assert dict(better.answer().numbers)["test error"].startswith("improves up to batch size 64")
    assert replace(better, drift=None).answer().tone == "note"
    nothing = replace(panel, drift=None, scaling=replace(found, answer="not decided"))
    assert nothing.answer().tone == "open"


def test_a_ladder_that_ends_before_the_drift_says_so_and_ticks_nothing(tmp_path: Path) -> None:
    for size in (16, 32, 64):
        write_rung(tmp_path, size)
    panel = found_in(tmp_path, sizes=(16, 32, 64))
    assert math.isinf(drift_in(panel).crossings[0].observed.value)
    assert panel.to_dict()["observed_dynamics"] is None
    answer = panel.answer()
    assert answer.tone == "open"
