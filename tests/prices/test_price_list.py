"""The price list: prices of the plan, settings, time, reasons, and what each of them does not depend on."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from tests.prices.streams import make, settled

from svag import Estimate, PriceList, Reading, price_list
from svag.prices.progress import progress
from svag.prices.ranges import price_range
from svag.prices.reasons import Code
from svag.prices.scalars import logged_numbers
from svag.theory import critical_batch_size, distortion


def codes(found: PriceList) -> list[Code]:
    return [reason.code for reason in found.reasons]


def exact(count: int = 400, /, **changes: object) -> list[Reading]:
    """N/G = 8 at batch size 32 from the first step, without scatter."""
    setting: dict[str, object] = {"batch_size": 32, "lr": 0.1, "optimizer": "SGD", "weight_decay": 0.0} | changes
    return [make(1.0, 8.0, **({"step": k} | setting)) for k in range(count)]


def rising() -> list[Reading]:
    """N/G = 2 over the first tenth, 8 afterwards."""
    return [make(1.0, 2.0 if k < 40 else 8.0, batch_size=32, step=k, lr=0.1, optimizer="SGD") for k in range(400)]


def test_every_member_of_a_price() -> None:
    """ρ = 8, κ = 4: D = 12/9, gain 3, a third of the steps, three times the learning rate."""
    [price] = price_list(exact()).prices([128])
    assert (price.batch_size, price.kappa) == (128, 4.0)
    assert price.examples.value == pytest.approx(4 / 3, rel=1e-12)
    assert price.gain == pytest.approx(3.0, rel=1e-12)
    assert price.steps == pytest.approx(1 / 3, rel=1e-12)
    assert price.distortion == Estimate(*[distortion(8.0, 4.0)] * 3)
    assert price.time is None
    assert price.plan.phases == ((0, 3.0),)
    assert price.settings == "0.3"
    assert (price.factors.lr, price.factors.weight_decay, price.factors.eps) == pytest.approx((3.0, 1.0, 1.0))
    assert (str(price.linear), price.linear.settings) == ("0.4", "lr 0.4")


def test_the_price_is_that_of_the_plan_over_the_whole_run() -> None:
    """A tenth of the run at D = 6/3, nine tenths at 12/9; the window leaves the start out, and D with it."""
    found = price_list(rising())
    [price] = found.prices([128])
    assert price.examples.value == pytest.approx(0.1 * 2 + 0.9 * 4 / 3, rel=1e-9)
    assert price.examples.value == pytest.approx(price.plan.price(), rel=1e-12)
    assert price.gain == pytest.approx(4 / price.examples.value, rel=1e-12)
    assert price.distortion.value == pytest.approx(4 / 3, rel=1e-9)
    assert price.plan.phases == ((0, 2.0), (40, 3.0))
    assert price.settings == "0.29 (0.2 at first)"
    everything = price_list(rising(), window=(0.0, 1.0)).prices([128])[0]
    assert everything.examples == price.examples, "a window is for D and for the linear rule"
    assert everything.distortion.value > price.distortion.value


def test_a_rate_that_varied_is_a_factor() -> None:
    found = price_list([replace(r, lr=0.1 + 1e-4 * k) for k, r in enumerate(rising())])
    assert re.fullmatch(r"× 2\.9 \(× 2 at first\)", found.prices([128])[0].settings)


def test_the_range_is_that_of_the_ladders_whatever_the_confidence() -> None:
    one, other = (price_list(settled(), confidence=level).prices([256])[0] for level in (0.5, 0.99))
    assert one.examples == other.examples
    assert one.distortion != other.distortion
    low, high = price_range(log_error=price_list(settled()).history.log_error(256))
    assert one.examples.low == pytest.approx(low * one.examples.value)
    assert one.examples.high == high * one.examples.value


@pytest.mark.parametrize(
    ("optimizer", "checked"),
    [("SGD", True), ("AdamW", True), ("Adam8bit", True), ("RMSprop", False), ("NAdam", False), ("Lion", False)],
)
def test_an_optimizer_that_was_never_checked_has_no_range(optimizer: str, checked: bool) -> None:
    [price] = price_list(exact(optimizer=optimizer)).prices([128])
    assert (price.examples.low > 0) is checked
    if not checked:
        assert (price.examples.low, price.examples.high) == (0.0, math.inf)


def test_an_unknown_optimizer_gets_the_price_of_plain_gradient_steps() -> None:
    found, control = price_list(exact(optimizer="Lion")), price_list(exact())
    assert found.prices([128])[0].examples.value == control.prices([128])[0].examples.value
    assert found.prices([128])[0].settings == "0.3"
    assert Code.UNTESTED_OPTIMIZER in codes(found)
    assert Code.UNTESTED_OPTIMIZER not in codes(control)
    assert (found.linear.rule, found.linear.basis) == (None, "gradient")


def test_batch_sizes_below_that_of_the_run() -> None:
    """ρ = 8, κ = 1/2: D = 8.5/9, fewer examples in more steps at a smaller rate."""
    [price] = price_list(exact()).prices([16])
    assert price.kappa == 0.5
    assert price.examples.value == pytest.approx(8.5 / 9, rel=1e-12)
    assert price.distortion.value == pytest.approx(8.5 / 9, rel=1e-12)
    assert price.gain == pytest.approx(0.5 * 9 / 8.5, rel=1e-12)
    assert price.steps > 1
    assert (price.linear.distortion, price.linear.ruled_out) == (None, False)


def test_the_batch_of_the_run_itself_costs_nothing() -> None:
    [price] = price_list(settled()).prices([64])
    assert (price.examples, price.gain, price.factors.lr) == (Estimate(1.0, 1.0, 1.0), 1.0, 1.0)


def test_the_critical_batch_and_the_noise_scale_are_those_of_the_plain_ratio() -> None:
    found = price_list(settled())
    ratio = found.noise_to_signal
    assert found.critical_batch == ratio.mapped(lambda rho: critical_batch_size(64, rho))
    assert found.noise_scale.value == pytest.approx(64 * ratio.value, rel=1e-12)
    assert (found.noise_scale.low, found.noise_scale.high) == pytest.approx((64 * ratio.low, 64 * ratio.high))
    drawn = price_list(settled(population=640))
    assert drawn.noise_scale.value == pytest.approx(64 * drawn.noise_to_signal.value / 0.9, rel=1e-12)
    assert price_list(settled(), c2=3.0).critical_batch.value > found.critical_batch.value


def test_rows_that_cannot_be_used_are_left_out() -> None:
    found = price_list(settled(population=640))
    assert [price.batch_size for price in found.prices()] == [128, 256, 512]
    with pytest.raises(ValueError, match=r"^batch_size\b"):
        found.prices([96.5])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"^batch_size\b.*\b640\b"):
        found.prices([1024])
    # ηλ = 0.25 and gain ≤ 11: weight decay alone diverges from a gain of 8 on
    steep = price_list(settled(lr=0.5, weight_decay=0.5, param_sq=0.5 * 11 / ((2 - 0.25) * 0.5)))
    sizes = [price.batch_size for price in steep.prices()]
    assert sizes[0] == 128
    assert len(sizes) < 6
    assert all(0.25 * max(gain for _, gain in price.plan.phases) < 2 for price in steep.prices())


def test_throughput_gives_the_time_with_its_spread() -> None:
    found = price_list(exact())
    speeds: dict[int, float | Estimate] = {
        32: 1000.0,
        64: Estimate(1900.0, 1800.0, 2000.0),
        128: 3000.0,
        256: 3100.0,
        16: 900.0,
    }
    prices = {price.batch_size: price for price in found.prices(throughput=speeds)}
    assert list(prices) == [16, 64, 128, 256]
    for size, price in prices.items():
        assert price.time is not None
        assert price.time.value == pytest.approx(price.examples.value * 1000 / float(speeds[size]), rel=1e-12)
    one = prices[64]
    assert one.time is not None
    assert one.time.low == pytest.approx(one.examples.low * 1000 / 2000, rel=1e-12)
    assert found.prices([512], throughput=speeds)[0].time is None
    with pytest.raises(ValueError, match=r"^throughput\b.*\b32\b"):
        found.prices(throughput={64: 1.0})
    with pytest.raises(ValueError, match=r"^throughput\[64\]"):
        found.prices(throughput={32: 1.0, 64: 0.0})


def test_the_best_is_the_fastest_within_the_price() -> None:
    """Examples 1.11, 1.33, 1.78 at 64, 128, 256."""
    found = price_list(exact())
    assert found.best({32: 1.0, 64: 1.9, 128: 3.0, 256: 5.0}).batch_size == 256
    assert found.best({32: 1.0, 64: 1.9, 128: 3.0, 256: 5.0}, max_price=1.5).batch_size == 128
    assert found.best({32: 1.0, 64: 1.05, 128: 1.1}).batch_size == 32, "no larger batch is worth it"
    with pytest.raises(ValueError, match=r"^max_price\b"):
        found.best({32: 1.0}, max_price=0.0)


def test_the_batch_schedule_is_that_of_the_history() -> None:
    found = price_list(rising()).batch_schedule(1.5)
    assert [row.batch_size for row in found.rows] == [64, 128]
    assert price_list(rising()).batch_schedule().max_price == 1.1


def test_readings_that_miss_the_start_say_so() -> None:
    late = price_list([replace(r, step=(r.step or 0) + 100) for r in exact()])
    [reason] = [one for one in late.reasons if one.code == Code.MISSES_START]
    assert reason.values == {"step": 100}
    assert Code.MISSES_START not in codes(price_list(exact()))


def test_readings_without_steps_or_too_few_give_one_phase() -> None:
    unstepped = price_list([replace(r, step=None) for r in rising()])
    assert Code.NO_STEPS in codes(unstepped)
    assert len(unstepped.prices([128])[0].plan.phases) == 1
    few = price_list(exact(30))
    assert Code.ONE_PHASE in codes(few)
    assert not {Code.NO_STEPS, Code.ONE_PHASE} & set(codes(price_list(rising())))


def test_too_few_readings() -> None:
    found = price_list(settled(30))
    assert (found.resolved, found.window_only) == (False, True)
    reason = found.reasons[0]
    assert reason.code == Code.TOO_FEW_READINGS
    assert reason.values["readings"] == 30
    assert reason.values["blocks"] in (2, 3)
    assert 200 <= int(reason.values["needed"] or 0) < 300
    single = price_list(settled(1))
    assert single.reasons[0].code == Code.TOO_FEW_READINGS
    assert not single.usable
    assert not price_list(settled(20)).window_only, "20 readings have 19 differences"
    assert price_list(settled(21)).window_only
    assert Code.WINDOW_ONLY in codes(price_list(settled(21)))


def two_runs(ratio: float, count: int = 40) -> list[Reading]:
    """Readings of two runs, the noise of the second `ratio` times that of the first."""
    return [
        replace(reading, run=run, noise_trace=reading.noise_trace * factor)
        for run, factor in (("a", 1.0), ("b", ratio))
        for reading in settled(count, {"a": 1, "b": 2}[run])
    ]


def test_runs_that_differ_are_priced_as_these_runs_and_nothing_else() -> None:
    alike, apart = price_list(two_runs(1.0)), price_list(two_runs(1.6))
    assert (alike.resolved, alike.window_only) == (True, False)
    assert (apart.resolved, apart.window_only, apart.linear.proved) == (False, True, False)
    assert apart.reasons[0].code == Code.RUNS_DIFFER
    # N = 10 and 16, G = 1, each with 10% scatter, over 80 readings: 13 ± about 2 × 13 × .14/√80
    assert apart.noise_to_signal.value == pytest.approx(13.0, rel=0.05)
    assert 0.02 < apart.noise_to_signal.high / apart.noise_to_signal.value - 1 < 0.06
    assert apart.usable
    assert not any(price.linear.ruled_out for price in apart.prices())


def test_some_blocks_are_enough_with_a_remark() -> None:
    found = price_list(settled(100))
    assert found.resolved
    assert Code.FEW_BLOCKS in codes(found)
    assert Code.FEW_BLOCKS not in codes(price_list(settled()))


def test_unresolved_says_how_many_more_and_that_many_resolve_it() -> None:
    rng = np.random.default_rng(2)

    def noisy(count: int) -> list[Reading]:
        return [make(float(g), 10.0) for g in 1.0 + 20 * rng.standard_normal(count)]

    sample = noisy(400)
    found = price_list(sample)
    assert (found.resolved, found.one_sided, found.usable) == (False, True, True)
    reason = found.reasons[0]
    assert reason.code == Code.SIGNAL_UNRESOLVED
    assert reason.values["high"] is None
    assert found.critical_batch.high == math.inf
    assert found.critical_batch.to_dict()["high"] is None
    more = int(reason.values["more"] or 0)
    means = np.array([r.grad_sq for r in sample]).reshape(20, 20).mean(axis=1)
    reach = 2.093 * means.std(ddof=1) / math.sqrt(20) / means.mean()
    assert more == pytest.approx(400 * ((2 * reach) ** 2 - 1), rel=1e-3)  # until it reaches half-way to 0
    assert price_list(noisy(400 + 2 * more)).resolved
    price = found.prices([256])[0]
    assert price.distortion.high == 4 / (4 * (1 + found.noise_to_signal.low) / (4 + found.noise_to_signal.low))
    assert price.distortion.low == 1.0


def test_a_changing_rate_weighs_with_its_square() -> None:
    """ΣηN²/ΣηG² from the readings themselves; without weights N/G of a decayed run is another number."""
    rng = np.random.default_rng(6)
    readings = []
    for k in range(600):
        lr = 0.25 * (1 + math.cos(math.pi * k / 600))
        noise, grad_sq = 10 * (1 + 0.1 * rng.standard_normal()), 8 ** (-k / 600) * (1 + 0.1 * rng.standard_normal())
        readings.append(make(float(grad_sq), float(noise), step=k, lr=lr, weight_decay=1e-3, optimizer="SGD"))
    found = price_list(readings, window=(0, 1))
    rates, grad, trace = (np.array([getattr(r, name) for r in readings]) for name in ("lr", "grad_sq", "noise_trace"))
    assert found.noise_to_signal.value == pytest.approx((rates**2 * trace).sum() / (rates**2 * grad).sum(), rel=1e-12)
    assert trace.mean() / grad.mean() > 1.2 * found.noise_to_signal.value
    gains = [gain for _, gain in found.prices([256])[0].plan.phases]
    assert gains[-1] > gains[0], "N/G rises, and the plan with it"


def test_clipping_after_reading_is_noticed_and_leaves_the_price() -> None:
    """|x|² stays at 100 while the gradients say that it grows by 2.65 a step: as if the steps had been shorter."""
    found = price_list(settled(param_sq=100.0))
    assert found.resolved
    [reason] = [one for one in found.reasons if one.code == Code.STEPS_TOO_SHORT]
    assert reason.values["seen"] == 0.0
    assert Code.STEPS_TOO_SHORT not in codes(price_list(settled()))
    grows = [replace(r, param_sq=100 + 2.65 * k) for k, r in enumerate(settled())]
    assert Code.STEPS_TOO_SHORT not in codes(price_list(grows))


def test_a_few_frozen_readings_say_how_many_are_needed_and_that_many_suffice() -> None:
    found = price_list(settled(1, relative_error=0.05))
    assert not found.resolved
    assert (found.reasons[0].code, found.reasons[0].values["needed"]) == (Code.TOO_FEW_FROZEN, 100)
    assert Code.TOO_FEW_FROZEN not in codes(price_list(settled(100, relative_error=0.05)))


def test_batch_norm_in_parts() -> None:
    assert Code.PARTS_UNCHECKED in codes(price_list(settled(approximate=True)))
    near = price_list(settled(approximate=True, parts_ratio=1.2))
    assert (near.resolved, Code.PARTS_NEAR in codes(near)) == (True, True)
    far = price_list(settled(approximate=True, parts_ratio=4.0))
    assert (far.resolved, far.usable, far.linear.proved) == (False, False, False)
    assert far.reasons[0].code == Code.PARTS_FAR
    assert not {Code.PARTS_UNCHECKED, Code.PARTS_NEAR, Code.PARTS_FAR} & set(codes(price_list(settled())))


def test_one_batch_size_is_no_list_of_them() -> None:
    with pytest.raises(TypeError, match="batch_sizes"):
        price_list(settled()).prices(256)  # type: ignore[arg-type]


def test_what_is_not_a_reading_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^readings\b.*\bReading\b"):
        price_list(make(1.0, 1.0))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^readings\b.*svag\.Reading\b.*\bint\b"):
        price_list([1, 2])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "there are no readings"),
        ((settled(), 1.0), r"^c2\b"),
        ((settled(), 2.0, 1.0), r"^confidence\b"),
        (([*settled(), make(1.0, 1.0, batch_size=128)],), r"^readings\b.*\(64, 128"),
        (([*settled(5), *settled(5, weight_decay=0.1)],), r"^readings\b.*\bweight_decay \(0.001, 0.1\)"),
    ],
)
def test_bad_input_is_one_sentence(arguments: tuple[list[Reading]], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        price_list(*arguments)
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
        price_list([replace(reading, **change) for reading in settled()])  # type: ignore[arg-type]


def test_small_readings_are_as_good_as_large_ones() -> None:
    scaled = [replace(one, grad_sq=one.grad_sq * 1e-40, noise_trace=one.noise_trace * 1e-40) for one in settled()]
    one, other = price_list(settled()), price_list(scaled)
    assert other.noise_to_signal.value == pytest.approx(one.noise_to_signal.value, rel=1e-12)


def test_json_and_rows_hold_everything_and_no_infinity() -> None:
    found = price_list(settled())
    saved = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert [price["batch_size"] for price in saved["prices"]] == [128, 256, 512, 1024, 2048, 4096]
    assert saved["prices"][0]["plan"]["phases"]
    assert saved["linear"]["proved"] is True
    assert [reason["code"] for reason in saved["reasons"]] == [code.value for code in codes(found)]
    rows = found.rows()
    assert [row["batch_size"] for row in rows] == [128, 256, 512, 1024, 2048, 4096]
    assert rows[0]["examples"] == found.prices()[0].examples.value
    assert all(not isinstance(value, dict | list | tuple) for row in rows for value in row.values())


def test_momentum_may_follow_a_schedule() -> None:
    """OneCycleLR moves it: the price does not depend on it, and no theorem covers it."""
    readings = [
        Reading(1.0, 8.0, 1.0, 32, 4, step=k, lr=0.1, weight_decay=0.0, momentum=0.85 + 0.1 * (k % 2), optimizer="SGD")
        for k in range(400)
    ]
    found = price_list(readings)
    assert [price.examples.value for price in found.prices([256])] == pytest.approx([16 / 9])
    assert Code.MOMENTUM_VARIES in {reason.code for reason in found.linear.reasons}
    assert not found.linear.proved
    assert logged_numbers(readings)["gain_2x"] == pytest.approx(1.8)


def test_a_batch_that_has_changed_is_read_at_its_present_size() -> None:
    readings = [Reading(1.0, 8.0, 1.0, 32, 4, step=k, lr=0.1, optimizer="SGD") for k in range(400)]
    grown = [replace(one, batch_size=64, noise_trace=4.0, step=400 + (one.step or 0)) for one in readings]
    assert logged_numbers([*readings, *grown]) == logged_numbers(grown)
    assert progress([*readings, *grown], 800, 1, 64).startswith("NoiseProbe at batch size 64: 400 readings")


def test_no_rule_is_promised_where_none_is_known() -> None:
    def said(optimizer: str) -> str:
        return str(price_list(Reading(1.0, 8.0, 1.0, 32, 4, step=k, lr=0.1, optimizer=optimizer) for k in range(400)))

    assert "GainRule" in said("AdamW")
    assert "GainRule" not in said("Adagrad")
