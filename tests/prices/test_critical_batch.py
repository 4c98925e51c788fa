"""What one run says about larger batches: the basis, the price list, B*, and the sentences beside them."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from tests.prices.streams import make, settled

from svag import Reading, predict_critical_batch
from svag.prices.critical_batch import CriticalBatch
from svag.theory import critical_batch_size, distortion, max_kappa


def said(found: CriticalBatch, words: str) -> bool:
    return any(words in sentence for sentence in (found.status, *found.notes))


def test_fine() -> None:
    found = predict_critical_batch(settled())
    assert found.ok
    assert found.status == "Reliable: noise resolved, weights at equilibrium."
    assert (found.basis, found.rule, found.resolved, found.signal) == ("weight_norm", "linear", True, "G")
    # one number, one definition: all readings count
    noise, grad_sq = ([getattr(r, name) for r in settled()] for name in ("noise_trace", "grad_sq"))
    assert found.noise_to_signal == pytest.approx(np.mean(noise) / np.mean(grad_sq), rel=1e-12)
    truth = critical_batch_size(64, found.noise_to_signal, lr_wd=5e-4)
    assert found.critical_batch == pytest.approx(truth, rel=1e-12)
    assert found.low < truth < found.high
    assert found.kappa == pytest.approx(truth / 64, rel=1e-12)
    assert found.printed == pytest.approx(128 * (1 + found.noise_to_signal), rel=1e-12)
    assert found.plotted == pytest.approx(128 * found.noise_to_signal, rel=1e-12)
    low, high = found.noise_to_signal_low, found.noise_to_signal_high
    assert (found.printed_low, found.printed_high) == pytest.approx((128 * (1 + low), 128 * (1 + high)), rel=1e-12)
    assert (found.plotted_low, found.plotted_high) == pytest.approx((128 * low, 128 * high), rel=1e-12)
    assert found.b_simple == pytest.approx(64 * found.noise_to_signal, rel=1e-12)
    assert found.gain_limit == pytest.approx(1 + found.noise_to_signal, rel=1e-12)
    assert found.balance == pytest.approx(1.0, abs=0.02)
    assert found.form == "sharp"
    assert found.refutes(math.ceil(found.high))
    assert not found.refutes(found.high)
    assert not found.refutes(64)


def test_a_larger_c2_and_confidence_refute_less() -> None:
    base = predict_critical_batch(settled())
    assert predict_critical_batch(settled(), c2=3.0).critical_batch > base.critical_batch
    assert predict_critical_batch(settled(), confidence=0.99).high > base.high


def test_population_goes_into_b_simple() -> None:
    found = predict_critical_batch(settled(population=640))
    assert found.b_simple == pytest.approx(64 * found.noise_to_signal / 0.9, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "basis", "words"),
    [
        ({"optimizer": "AdamW"}, "second_moment", ["The theorems cover SGD only, and this run used AdamW"]),
        ({"optimizer": "Adagrad"}, "gradient", ["No scaling rule is known for Adagrad"]),
        ({"optimizer": "LBFGS"}, "gradient", ["No scaling rule is known for LBFGS"]),
        ({"lr": 0.0}, "gradient", ["The learning rate is 0"]),
        ({"weight_decay": 0.0}, "gradient", ["No weight decay"]),
        ({"ell": 4}, "gradient", ["SVAG with ell=4"]),
        ({"param_sq": 100.0}, "gradient", ["Not at equilibrium", "27.5", "relaxation times", "train longer"]),
        ({"param_sq": 1e5}, "gradient", ["Not at equilibrium", "0.03 times"]),
        ({"momentum": 0.9, "weight_decay": None}, "momentum", ["different weight decays"]),
        ({"weight_decay": None}, "gradient", ["different weight decays: pass parameters="]),
        ({"lr": None}, "gradient", ["different learning rates: pass parameters="]),
        ({"lr": None, "weight_decay": None, "optimizer": None}, "gradient", ["could not be tested"]),
    ],
)
def test_without_a_theorem_there_is_an_estimate_and_a_reason(
    changes: dict[str, object], basis: str, words: list[str]
) -> None:
    found = predict_critical_batch(settled(**changes))
    assert (found.basis, found.ok, found.resolved) == (basis, False, True)
    assert not found.refutes(1e9)
    assert not any(price.refuted for price in found.prices())
    for word in words:
        assert word in found.status
    assert "No theorem applies to this run" in str(found)
    assert "no batch size is ruled out" in str(found)
    # the estimate is that of the noise scale, without ηλ; with momentum that of X̂
    assert found.noise_to_signal == pytest.approx(190 if basis == "momentum" else 10, rel=0.02)
    assert found.distortion(256).value == distortion(found.noise_to_signal, 4.0)
    assert found.critical_batch == pytest.approx(critical_batch_size(64, found.noise_to_signal), rel=1e-12)


def test_adam_gets_the_square_root_rule() -> None:
    found = predict_critical_batch(settled(optimizer="AdamW", lr=1e-3, momentum=None))
    assert found.rule == "square_root"
    [price] = found.prices([256])
    assert price.settings == "lr 0.002, 1−betas ×4, eps ÷2, weight decay 0.002"
    assert predict_critical_batch(settled(optimizer="LBFGS")).rule is None


def test_clipping_after_reading_is_noticed_and_leaves_the_estimate() -> None:
    """|x|² stays at 100 while the gradients say that it grows by 2.65 a step: as if the steps had been shorter."""
    found = predict_critical_batch(settled(param_sq=100.0))
    assert found.basis == "gradient"
    assert said(found, "the steps were shorter, as with gradients clipped after they are read")
    assert not said(predict_critical_batch(settled()), "clipped")
    grows = [replace(r, param_sq=100 + 2.65 * k) for k, r in enumerate(settled())]
    assert not said(predict_critical_batch(grows), "clipped")


def test_what_is_not_a_reading_is_refused() -> None:
    with pytest.raises(TypeError, match=r"got one Reading: make a list"):
        predict_critical_batch(make(1.0, 1.0))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"must be svag\.Reading objects, got int"):
        predict_critical_batch([1, 2])  # type: ignore[list-item]


def test_an_unbalanced_run_without_the_radial_product_may_be_either() -> None:
    found = predict_critical_batch(settled(param_sq=100.0, param_dot_grad=None))
    assert "(or the network is not scale invariant)" in found.status
    assert found.pull_share is None


def test_a_balanced_run_without_the_radial_product_says_what_was_not_tested() -> None:
    found = predict_critical_batch(settled(param_dot_grad=None))
    assert found.ok
    assert found.status == "Reliable: noise resolved, weights at equilibrium, scale invariance not tested."


@pytest.mark.parametrize(
    ("product", "param_sq", "pulled"), [(1.4, 1349.5, "shrinks the weights, at 104%"), (-0.9, 3650.0, "grows")]
)
def test_any_network_with_a_stationary_norm_has_the_theorem_about_the_pull(
    product: float, param_sq: float, pulled: str
) -> None:
    """(2−ηλ)λR + 2(1−ηλ)⟨x,∇L⟩ = η(G+N) holds for these R and ⟨x,∇L⟩: stationary, not scale invariant."""
    found = predict_critical_batch(settled(param_dot_grad=product, param_sq=param_sq))
    assert found.balance == pytest.approx(1.0, abs=0.02)
    assert (found.basis, found.ok) == ("pull", True)
    assert said(found, f"Not scale invariant: the loss itself {pulled}")
    assert found.critical_batch == critical_batch_size(64, found.noise_to_signal), "ηλ has no part in this theorem"
    assert found.refutes(1024)
    assert not found.sde_refuted


def test_weights_that_nothing_shrinks_have_no_theorem() -> None:
    """T > 0 is a premise: where the loss grows the weights faster than weight decay shrinks them, |x|² only grows."""
    found = predict_critical_batch(settled(param_dot_grad=-6.0, param_sq=2650.0))
    assert found.pull_share is not None
    assert found.pull_share < -1
    assert (found.basis, found.ok, found.balance) == ("gradient", False, None)
    assert said(found, "so nothing shrinks them and |x|² only grows")
    assert not found.refutes(10**6)


def test_nearly_scale_invariant_is_a_remark() -> None:
    found = predict_critical_batch(settled(param_dot_grad=0.1, param_sq=2648.0))
    assert (found.basis, found.ok) == ("weight_norm", True)
    assert said(found, "Nearly scale invariant: the loss itself shrinks the weights, at 4% of the rate of weight decay")


def test_drift_tells_when_the_balance_cannot() -> None:
    unknown = {"lr": None, "weight_decay": None, "optimizer": None}
    steady = predict_critical_batch(settled(**unknown))
    assert not said(steady, "changes by")
    drifting = [replace(reading, param_sq=1 + k / 400) for k, reading in enumerate(settled(**unknown))]
    found = predict_critical_batch(drifting)
    assert not found.ok
    assert said(found, "R changes by +58% over the window")
    assert said(found, "without the first tenth; the weight norm or the noise keeps drifting")


def test_early_readings_are_tested_for_drift_even_when_they_balance() -> None:
    early = [
        replace(reading, step=k, param_sq=reading.param_sq * (0.85 + 0.3 * k / 400))
        for k, reading in enumerate(settled())
    ]
    found = predict_critical_batch(early)
    assert found.balance == pytest.approx(1.0, abs=0.03)
    assert "R changes by +27%" in found.status


def test_too_few_readings() -> None:
    found = predict_critical_batch(settled(30))
    assert not found.ok
    assert re.match(r"Too few readings: 30 make only [23] independent blocks; record about 2\d0", found.status)
    single = predict_critical_batch(settled(1))
    assert "Too few readings" in single.status
    assert single.critical_batch > 0


def two_runs(ratio: float, count: int = 40) -> list[Reading]:
    """Readings of two runs, the noise of the second `ratio` times that of the first."""
    return [
        replace(reading, run=run, noise_trace=reading.noise_trace * factor)
        for run, factor in (("a", 1.0), ("b", ratio))
        for reading in settled(count, {"a": 1, "b": 2}[run])
    ]


def test_runs_that_differ_are_priced_as_these_runs_and_nothing_else() -> None:
    alike, apart = predict_critical_batch(two_runs(1.0)), predict_critical_batch(two_runs(1.6))
    assert (alike.resolved, alike.window_only) == (True, False)
    assert (apart.resolved, apart.window_only, apart.ok) == (False, True, False)
    assert apart.status.startswith("The runs differ by more than their readings scatter")
    assert "run more seeds" in apart.status
    # N = 10 and 16, G = 1, each with 10% scatter, over 80 readings: 13 ± about 2 × 13 × .14/√80
    assert apart.noise_to_signal == pytest.approx(13.0, rel=0.05)
    assert 0.02 < apart.noise_to_signal_high / apart.noise_to_signal - 1 < 0.06
    assert "B* =" in str(apart), "there is a price list"
    assert not any(price.refuted for price in apart.prices())
    assert apart.to_dict()["window_only"] is True


def test_a_short_run_is_priced_over_its_window_and_says_so() -> None:
    found = predict_critical_batch(settled(30))
    assert found.window_only
    assert said(found, "The interval is that of the average over this window")
    assert (found.basis, found.ok, found.refutes(10**6)) == ("weight_norm", False, False)
    assert "Too little was read for a theorem, so no batch size is ruled out." in str(found)
    assert not predict_critical_batch(settled(20)).window_only, "20 readings have 19 differences"
    assert predict_critical_batch(settled(21)).window_only


def test_some_blocks_are_enough_with_a_remark() -> None:
    found = predict_critical_batch(settled(100))
    assert found.ok
    assert any(re.match(r"Only \d+ independent blocks", note) for note in found.notes)


def test_unresolved_says_how_many_more_and_that_many_resolve_it() -> None:
    rng = np.random.default_rng(2)

    def noisy(count: int) -> list[Reading]:
        return [make(float(g), 10.0) for g in 1.0 + 20 * rng.standard_normal(count)]

    sample = noisy(400)
    found = predict_critical_batch(sample)
    assert not found.ok
    assert "G is not resolved: B* ≥ " in found.status
    assert found.high == math.inf
    assert found.to_dict()["high"] is None
    assert found.low > 0
    more = int(found.status.split("take about ")[1].split(" ")[0])
    means = np.array([r.grad_sq for r in sample]).reshape(20, 20).mean(axis=1)
    reach = 2.093 * means.std(ddof=1) / math.sqrt(20) / means.mean()
    assert more == pytest.approx(400 * ((2 * reach) ** 2 - 1), rel=1e-3)  # until it reaches half-way to 0
    assert predict_critical_batch(noisy(400 + 2 * more)).resolved
    # the price is one-sided: at most what the lower end of N/G allows
    assert str(found).startswith(f"Scaling from batch size 64: B* is at least {found.low:.0f} (95%, C² = 2)")
    price = found.prices([256])[0]
    assert price.high == distortion(found.noise_to_signal_low, 4.0)
    assert price.low == 1.0
    assert f"at most {price.high:.3g}" in found.price_list([256])


def test_an_unresolved_g_leaves_the_bound_that_the_decay_alone_sets() -> None:
    """Balanced at G = 1, N = 10 for lr = 0.5, weight_decay = 0.1: 11·0.5 = (2 − 0.05)·0.1·R."""
    rng = np.random.default_rng(2)
    sample = [
        make(float(g), 10.0, lr=0.5, weight_decay=0.1, param_sq=5.5 / 0.195)
        for g in 1.0 + 20 * rng.standard_normal(400)
    ]
    found = predict_critical_batch(sample)
    assert (found.ok, found.basis) == (False, "weight_norm")
    assert found.noise_to_signal_high == math.inf
    assert found.high == pytest.approx(64 * max_kappa(math.inf, lr_wd=0.05), rel=1e-12)
    assert f"and at most {found.high:.4g} whatever G is" in found.status


def cosine(count: int = 600, fall: float = 1.0) -> list[Reading]:
    """A cosine schedule over N/G = 10, or over one that rises `fall`-fold as G falls; nothing settles."""
    rng = np.random.default_rng(6)
    found = []
    for k in range(count):
        grad_sq = fall ** (-k / count) * (1 + 0.1 * rng.standard_normal())
        lr = 0.25 * (1 + math.cos(math.pi * k / count))
        setting = {"step": k, "lr": lr, "weight_decay": 1e-3, "momentum": 0.0, "optimizer": "SGD"}
        noise = 10 * (1 + 0.1 * rng.standard_normal())
        found.append(make(float(grad_sq), float(noise), param_sq=10.0 + k / 10, **setting))
    return found


def test_a_schedule_that_never_holds_still_gets_a_price_list() -> None:
    found = predict_critical_batch(cosine())
    assert (found.basis, found.resolved, found.readings) == ("gradient", True, 540)
    assert found.noise_to_signal_low < 10 < found.noise_to_signal_high
    assert found.noise_to_signal == pytest.approx(10, rel=0.02)
    assert [price.settings for price in found.prices([128, 256])] == ["lr ×2", "lr ×4"]
    assert "along the run)" not in str(found)
    assert len(found.history) == 5
    assert all(row.noise_to_signal.low < 10 < row.noise_to_signal.high for row in found.history)


def test_a_changing_rate_weighs_with_its_square() -> None:
    """ΣηN²/ΣηG² from the readings themselves; without weights N/G of a decayed run is another number."""
    readings = cosine(fall=8.0)
    found = predict_critical_batch(readings, window=(0, 1))
    lr, grad_sq, noise = (np.array([getattr(r, name) for r in readings]) for name in ("lr", "grad_sq", "noise_trace"))
    assert found.noise_to_signal == pytest.approx((lr**2 * noise).sum() / (lr**2 * grad_sq).sum(), rel=1e-12)
    assert noise.mean() / grad_sq.mean() > 1.2 * found.noise_to_signal


def test_an_answer_that_moves_along_the_run_gives_its_range_first() -> None:
    found = predict_critical_batch(cosine(fall=8.0))
    values = [row.critical_batch.value for row in found.history]
    assert values == sorted(values)
    assert values[-1] > 2 * values[0]
    assert str(found).startswith(f"Scaling from batch size 64 (B* = {values[0]:.0f} to {values[-1]:.0f} along the run)")
    assert found.low < found.critical_batch < found.high


def test_a_part_of_the_run_with_other_settings_is_left_out_of_the_history() -> None:
    early = [replace(r, step=k, weight_decay=0.1 * (k % 2)) for k, r in enumerate(settled(100))]
    found = predict_critical_batch([*early, *settled()], window=(2500, 2900))
    assert found.ok
    assert [row.start for row in found.history] == [2500]


def test_a_slow_start_is_left_out_of_a_constant_rate() -> None:
    """Ten relaxation times of 1/(4ηλ) = 500 steps, R from ten times its equilibrium: all readings would not balance."""
    fixed = settled(1)[0].param_sq
    readings = [
        replace(r, step=10 * k, param_sq=fixed * (1 + 9 * math.exp(-k / 25))) for k, r in enumerate(settled(500))
    ]
    found = predict_critical_batch(readings)
    assert found.ok, str(found)
    assert 100 <= 500 - found.readings <= 200
    assert said(found, "where the weight norm or the noise was still settling")
    assert not predict_critical_batch(readings, window=(0, 1)).ok


def test_a_few_frozen_readings_say_how_many_are_needed_and_that_many_suffice() -> None:
    found = predict_critical_batch(settled(1, relative_error=0.05))
    assert not found.ok
    assert "take about 100 frozen readings along the run" in found.status
    assert not said(predict_critical_batch(settled(100, relative_error=0.05)), "Too few readings")


def test_approximate_readings_are_labelled() -> None:
    found = predict_critical_batch(settled(approximate=True))
    assert found.ok
    assert found.approximate
    assert said(found, "BatchNorm saw parts")


def test_speaks() -> None:
    found = predict_critical_batch(settled())
    text = str(found)
    assert re.match(
        r"Scaling from batch size 64: beyond B\* = 7\d\d \[7\d\d, 7\d\d\] \(95% interval\), training statistics must "
        r"change by more than a factor of 2 \(C² = 2\)\.\n",
        text,
    )
    assert f"N/G = {found.noise_to_signal:.3g} [" in text
    assert "from 400 readings" in text
    for price in found.prices():
        assert re.search(rf"^ +{price.batch_size}  {price.settings} ", text, re.MULTILINE)
    assert text.count("ruled out") == sum(price.refuted for price in found.prices()) == 3
    for jargon in ("gain limit", "as printed", "as plotted"):
        assert jargon not in text
    assert found._repr_html_().startswith("<p><b>Scaling from batch size 64")


def test_json_holds_everything_and_no_infinity() -> None:
    found = json.loads(json.dumps(predict_critical_batch(settled()).to_dict(), allow_nan=False))
    assert found["ok"] is True
    assert {"printed", "plotted", "gain_limit", "status", "basis", "rule", "resolved", "sde_refuted"} <= set(found)
    assert [price["batch_size"] for price in found["prices"]] == [128, 256, 512, 1024, 2048, 4096]
    assert set(found["history"][0]) == {"start", "stop", "noise_to_signal", "critical_batch"}
    assert found["price_bound"] is None


def test_the_interval_of_the_distortion_is_that_of_the_ratio() -> None:
    found = predict_critical_batch(settled())
    at = found.distortion(512)
    ratios = (found.noise_to_signal, found.noise_to_signal_high, found.noise_to_signal_low)
    assert (at.value, at.low, at.high) == tuple(distortion(ratio, 8.0, lr_wd=5e-4) for ratio in ratios)
    assert at.low < at.value < at.high
    assert found.distortion(found.critical_batch).value == pytest.approx(2.0, rel=1e-12)
    with pytest.raises(ValueError, match="kappa must be at least 1"):
        found.distortion(32)


def test_prices_stop_at_the_population_and_take_any_size() -> None:
    found = predict_critical_batch(settled(population=640))
    assert [price.batch_size for price in found.prices()] == [128, 256, 512]
    assert [price.kappa for price in found.prices([96, 64])] == [1.5, 1.0]
    with pytest.raises(ValueError, match="whole number"):
        found.prices([96.5])  # type: ignore[list-item]


def test_a_rate_at_which_weight_decay_diverges_is_said() -> None:
    readings = settled(lr=0.5, weight_decay=0.5, param_sq=0.5 * 11 / ((2 - 0.25) * 0.5))
    found = predict_critical_batch(readings)
    assert found.ok
    [price] = found.prices([512])
    assert (price.settings, price.distortion, price.refuted) == ("lr 4 (weight decay diverges)", math.inf, True)


def test_throughput_gives_the_time_and_marks_the_fastest() -> None:
    found = predict_critical_batch(settled())
    speeds = {64: 1000.0, 128: 1900.0, 256: 3000.0, 512: 3100.0}
    prices = found.prices(throughput=speeds)
    assert [price.batch_size for price in prices] == [64, 128, 256, 512]
    for price in prices:
        assert price.time == pytest.approx(price.distortion * 1000 / speeds[price.batch_size], rel=1e-12)
    text = found.price_list(throughput=speeds).split("\n")
    assert [line.endswith("← fastest") for line in text] == [False, False, False, True, False]
    assert found.prices([1024], throughput=speeds)[0].time is None
    with pytest.raises(ValueError, match="must also hold the batch size of the run, 64"):
        found.prices(throughput={128: 1.0})
    with pytest.raises(ValueError, match=r"throughput\[128\] must be positive"):
        found.prices(throughput={64: 1.0, 128: 0.0})


def test_a_run_that_its_sde_does_not_describe_says_so() -> None:
    """N/G = 0.5 < 1/(C² − 1) at equilibrium refutes the SDE; at N/G = 10, and without a theorem, nothing is said."""
    low_noise = [replace(r, noise_trace=r.noise_trace / 20) for r in settled(param_sq=0.5 * 1.5 / (1.9995 * 1e-3))]
    found = predict_critical_batch(low_noise)
    assert found.sde_refuted
    assert said(found, "The SDE does not describe this run: N/G ≤ 0.5")
    assert not predict_critical_batch(settled()).sde_refuted
    assert not predict_critical_batch([replace(r, param_sq=1.0) for r in low_noise]).sde_refuted


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "there are no readings"),
        ((settled(), 1.0), "c2 .* must exceed 1"),
        ((settled(), 2.0, 1.0), "confidence must lie strictly between 0 and 1"),
        (([*settled(), make(1.0, 1.0, batch_size=128)],), r"different batch sizes \(64, 128"),
        (([*settled(5), *settled(5, weight_decay=0.1)],), r"different weight_decay \(0.001, 0.1\)"),
    ],
)
def test_bad_input_is_one_sentence(arguments: tuple[list[Reading]], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        predict_critical_batch(*arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"grad_sq": 5e-324}, "the largest grad_sq is 4.941e-324, outside 1e-60 to 1e60: rescale the loss"),
        ({"noise_trace": 5e-324}, "the largest noise_trace is 4.941e-324"),
        ({"noise_trace": 1e308}, r"the largest noise_trace is 1e\+308"),
        ({"param_sq": 1e200}, r"the largest param_sq is 1e\+200"),
        ({"lr": 1e-300}, "the largest lr is 1e-300"),
    ],
)
def test_readings_beyond_the_numbers_of_a_computer_are_refused(change: dict[str, float], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        predict_critical_batch([replace(reading, **change) for reading in settled()])  # type: ignore[arg-type]


def test_small_readings_are_as_good_as_large_ones() -> None:
    scaled = [replace(one, grad_sq=one.grad_sq * 1e-40, noise_trace=one.noise_trace * 1e-40) for one in settled()]
    one, other = predict_critical_batch(settled()), predict_critical_batch(scaled)
    assert other.noise_to_signal == pytest.approx(one.noise_to_signal, rel=1e-12)
