import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from tests.findings.critical_batch.streams import Stream, make, settled

from svag import Reading, critical_batch_size, max_kappa, predict_critical_batch
from svag.arrays import FloatArray
from svag.theory.estimators import u_statistic

TRIALS = 150

STREAMS = [
    Stream(ratio=1.0, dimension=20, batch_size=32, parts=2, steps=300),
    Stream(ratio=10.0, dimension=500, batch_size=128, parts=4, steps=300),
    Stream(ratio=30.0, dimension=2000, batch_size=256, parts=8, steps=400),
    Stream(ratio=100.0, dimension=500, batch_size=128, parts=4, steps=1200),
]


@pytest.mark.parametrize("stream", STREAMS)
def test_known_answers_median_and_coverage(stream: Stream) -> None:
    """Median within 5%, coverage of the 95% interval between 90% and 99%, never a negative number.

    150 trials: the standard error of the coverage is 1.8%, so [90%, 99%] is about 2.5 of them to either side of 95%;
    the seed is fixed. The relative standard error of B* is 21% in the hardest stream, that of its median 2.2%.
    """
    truth = critical_batch_size(stream.batch_size, stream.ratio)
    rng = np.random.default_rng(11)
    found = [predict_critical_batch(stream.readings(rng)) for _ in range(TRIALS)]
    assert np.median([f.critical_batch for f in found]) == pytest.approx(truth, rel=0.05)
    coverage = np.mean([f.low <= truth <= f.high for f in found])
    assert 0.90 <= coverage <= 0.99
    assert min(min(f.low, f.critical_batch, f.high, f.b_simple) for f in found) > 0


@pytest.mark.parametrize("stream", STREAMS[3:])
def test_clipping_and_averaged_ratios_fail_the_same_test(stream: Stream) -> None:
    """Negative controls: what others do reads a half and less, or anything at all, where the truth is 100."""
    rng = np.random.default_rng(11)
    clipped, averaged = [], []
    for _ in range(50):
        readings = stream.readings(rng)
        grad_sq = np.array([reading.grad_sq for reading in readings])
        noise = np.array([reading.noise_trace for reading in readings])
        clipped.append(noise.mean() / np.maximum(grad_sq, 0).mean())
        averaged.append(np.mean(noise / grad_sq))
    assert np.median(clipped) < 0.6 * stream.ratio
    assert np.median(averaged) != pytest.approx(stream.ratio, rel=0.2)


def quadratic(steps: int = 4000, d: int = 20, lr: float = 0.5, seed: int = 0) -> tuple[list[Reading], list[Reading]]:
    """SGD on |x|²/2 with Gaussian noise at stationarity: readings from two batches at one x, and from successive x."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(d) * math.sqrt(lr / (2 - lr))
    proper, successive, previous = [], [], None
    for _ in range(steps):
        first, second = x + rng.standard_normal(d), x + rng.standard_normal(d)
        proper.append(_pair(first, second))
        if previous is not None:
            successive.append(_pair(previous, first))
        previous, x = first, x - lr * first
    return proper, successive


def _pair(one: FloatArray, other: FloatArray) -> Reading:
    estimate = u_statistic(float(one @ one + other @ other), float((one + other) @ (one + other)), 2)
    return make(estimate.grad_sq, estimate.noise_trace)


def test_successive_steps_are_found_out() -> None:
    """At stationarity G = d·lr/(2 − lr) and N = d; successive gradients average to −G instead."""
    proper, successive = quadratic()
    right = predict_critical_batch(proper)
    assert right.ok
    assert right.noise_to_signal_low < (2 - 0.5) / 0.5 < right.noise_to_signal_high
    wrong = predict_critical_batch(successive)
    assert not wrong.ok
    assert "significantly negative" in wrong.status
    assert wrong.critical_batch == math.inf
    assert wrong.low >= 0


def test_fine() -> None:
    found = predict_critical_batch(settled())
    assert found.ok
    assert found.status == "Fine: resolved and at equilibrium."
    assert found.noise_to_signal == pytest.approx(10.0, rel=0.02)
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
    ("changes", "words"),
    [
        ({"optimizer": "AdamW"}, ["AdamW is adaptive", "svag.square_root_scaling"]),
        ({"optimizer": "LBFGS"}, ["nothing here is known about LBFGS"]),
        ({"lr": 0.0}, ["The learning rate is 0"]),
        ({"optimizer": "SGD with Nesterov momentum"}, ["does not cover SGD with Nesterov momentum"]),
        ({"weight_decay": 0.0}, ["No weight decay", "B_simple = 6"]),
        ({"ell": 4}, ["SVAG with ell=4"]),
        ({"param_sq": 100.0}, ["Not at equilibrium", "27.5", "relaxation times", "train longer"]),
        ({"param_sq": 1e5}, ["Not at equilibrium", "0.03 times"]),
        ({"param_dot_grad": 1.4, "param_sq": 1349.5}, ["not scale invariant", "approximate", "+104% as hard"]),
        ({"momentum": 0.9, "weight_decay": None}, ["needs the velocity"]),
        ({"weight_decay": None}, ["different weight decays: pass parameters="]),
        ({"lr": None}, ["different learning rates: pass parameters="]),
    ],
)
def test_doubts_name_the_remedy_and_withdraw_the_certificate(changes: dict[str, object], words: list[str]) -> None:
    found = predict_critical_batch(settled(**changes))
    assert not found.ok
    assert not found.refutes(1e9)
    for word in words:
        assert word in found.status
    assert "No certificate" in str(found)


def test_an_adaptive_optimizer_is_all_there_is_to_say() -> None:
    found = predict_critical_batch(settled(3, optimizer="AdamW", weight_decay=0.0, lr=None, momentum=None))
    assert found.status.startswith("AdamW is adaptive")
    assert found.status.count(".") == 2  # the dot in svag.square_root_scaling, and the end
    assert not found.ok


def test_what_is_not_a_reading_is_refused() -> None:
    with pytest.raises(TypeError, match=r"got one Reading: make a list"):
        predict_critical_batch(make(1.0, 1.0))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"must be svag\.Reading objects, got int"):
        predict_critical_batch([1, 2])  # type: ignore[list-item]


def test_an_unbalanced_run_without_the_radial_product_may_be_either() -> None:
    found = predict_critical_batch(settled(param_sq=100.0, param_dot_grad=None))
    assert "(or the network is not scale invariant)" in found.status
    assert found.pull_share is None


def test_the_pull_of_the_loss_belongs_to_the_balance() -> None:
    """(2−ηλ)λR + 2(1−ηλ)⟨x,∇L⟩ = η(G+N) holds for R = 1349.5 and ⟨x,∇L⟩ = 1.4, so only scale invariance is in doubt."""
    found = predict_critical_batch(settled(param_dot_grad=1.4, param_sq=1349.5))
    assert found.balance == pytest.approx(1.0, abs=0.02)
    assert "Not at equilibrium" not in found.status


def test_nearly_scale_invariant_is_a_remark() -> None:
    found = predict_critical_batch(settled(param_dot_grad=0.1, param_sq=2648.0))
    assert found.ok
    assert "Nearly scale invariant" in found.status


def test_drift_tells_when_the_balance_cannot() -> None:
    unknown = {"lr": None, "weight_decay": None, "optimizer": None}
    steady = predict_critical_batch(settled(**unknown))
    assert steady.ok
    assert "Resolved; equilibrium judged by drift alone, scale invariance not tested." in steady.status
    assert "Fine" not in steady.status
    drifting = [replace(reading, param_sq=1 + k / 400) for k, reading in enumerate(settled(**unknown))]
    found = predict_critical_batch(drifting)
    assert not found.ok
    assert "R changes by +67% over the window" in found.status


def test_early_readings_are_tested_for_drift_even_when_they_balance() -> None:
    early = [
        replace(reading, step=k, param_sq=reading.param_sq * (0.85 + 0.3 * k / 400))
        for k, reading in enumerate(settled())
    ]
    found = predict_critical_batch(early)
    assert found.balance == pytest.approx(1.0, abs=0.03)
    assert "R changes by +30%" in found.status


def test_too_few_readings() -> None:
    found = predict_critical_batch(settled(30))
    assert not found.ok
    assert re.match(r"Too few readings: 30 are [23] independent blocks; record about 2\d0 of them", found.status)
    single = predict_critical_batch(settled(1))
    assert "Too few readings" in single.status
    assert single.critical_batch > 0


def test_some_blocks_are_enough_with_a_remark() -> None:
    found = predict_critical_batch(settled(100))
    assert found.ok
    assert re.search(r"Only \d+ independent blocks", found.status)


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
    more = int(found.status.split("measure about ")[1].split(" ")[0])
    means = np.array([r.grad_sq for r in sample]).reshape(20, 20).mean(axis=1)
    reach = 2.093 * means.std(ddof=1) / math.sqrt(20) / means.mean()
    assert more == pytest.approx(400 * ((2 * reach) ** 2 - 1), rel=1e-3)  # until it reaches half-way to 0
    assert predict_critical_batch(noisy(400 + 2 * more)).ok


def test_an_unresolved_g_leaves_the_bound_that_the_decay_alone_sets() -> None:
    rng = np.random.default_rng(2)
    sample = [make(float(g), 10.0, lr=0.5, weight_decay=0.1) for g in 1.0 + 20 * rng.standard_normal(400)]
    found = predict_critical_batch(sample)
    assert not found.ok
    assert found.noise_to_signal_high == math.inf
    assert found.high == pytest.approx(64 * max_kappa(math.inf, lr_wd=0.05), rel=1e-12)
    assert f"and at most {found.high:.4g} whatever G is" in found.status


def test_momentum_uses_the_velocity() -> None:
    beta, noise, signal = 0.9, 10.0, 0.5
    velocity = (noise + signal) / (1 - beta**2)
    lr, decay = 0.1, 1e-3
    param_sq = (1 + beta) * lr * velocity / (2 * decay)
    common = {"momentum": beta, "lr": lr, "weight_decay": decay, "param_sq": param_sq}
    rng = np.random.default_rng(3)
    readings = [
        replace(reading, velocity_sq=velocity * (1 + 0.002 * float(rng.standard_normal())))
        for reading in settled(2000, **common)
    ]
    readings = [replace(r, noise_trace=10 + 0.1 * (r.noise_trace - 10)) for r in readings]
    readings[0] = replace(readings[0], velocity_sq=None)  # before the first step there is none
    found = predict_critical_batch(readings)
    assert found.ok, found.status
    assert found.readings == 1999
    assert found.noise_to_signal == pytest.approx(noise / signal, rel=0.05)
    assert found.critical_batch == pytest.approx(64 * (2 + found.noise_to_signal), rel=1e-12)
    assert found.b_simple == pytest.approx(640, rel=0.02)
    assert found.balance == pytest.approx(1.0, abs=0.01)
    assert found.excess == pytest.approx((noise + signal) / noise, rel=0.01)
    assert "Momentum 0.9" in found.status
    # without the velocity the weight norm stands in for it
    norm = predict_critical_batch([replace(r, velocity_sq=None) for r in readings])
    assert norm.noise_to_signal == pytest.approx(noise / signal, rel=0.05)
    assert "from the weight norm" in norm.status
    assert "Resolved; equilibrium judged by drift alone. " in norm.status


def moving(velocity_sq: float, scatter: float) -> list[Reading]:
    """Momentum 0.9 with N = 10 and X = 0.19|v|² − 10."""
    rng = np.random.default_rng(4)
    return [
        replace(r, noise_trace=10.0, velocity_sq=velocity_sq * (1 + scatter * float(rng.standard_normal())))
        for r in settled(momentum=0.9, lr=0.1)
    ]


def test_a_negative_x_is_not_blamed_on_g() -> None:
    found = predict_critical_batch(moving(40.0, 0.01))
    assert not found.ok
    assert "The average X = (1−β²)|v|² − N is significantly negative: train longer" in found.status
    assert "do not clip gradients between close_step()" in found.status
    assert "average G" not in found.status


def test_an_unresolved_x_is_not_blamed_on_g() -> None:
    found = predict_critical_batch(moving(10.001 / 0.19, 0.1))
    assert not found.ok
    assert "X is not resolved: B* ≥ " in found.status
    assert "G is not" not in found.status


def test_the_relaxation_time_is_that_of_the_effective_learning_rate() -> None:
    found = predict_critical_batch(settled(momentum=0.5, velocity_sq=1.0))
    # 1/(4·(0.5/(1 − 0.5))·1e-3)
    assert "relaxation times 1/(4ηλ) of 250 steps had passed" in found.status


@pytest.mark.parametrize(("length", "words"), [(1, "at every reading: hold"), (3, "every 3 readings or sooner: hold")])
def test_a_schedule_that_never_holds_still(length: int, words: str) -> None:
    cosine = [replace(r, lr=0.5 * (1 + math.cos(k // length / 200))) for k, r in enumerate(settled())]
    found = predict_critical_batch(cosine)
    assert not found.ok
    assert f"The learning rate changes {words}" in found.status
    assert "Too few readings" not in found.status
    held = predict_critical_batch([*cosine, *(replace(r, step=3000 + k) for k, r in enumerate(settled()))])
    assert "The learning rate changes" not in held.status


def test_a_few_frozen_readings_say_how_many_are_needed_and_that_many_suffice() -> None:
    found = predict_critical_batch(settled(1, relative_error=0.05))
    assert not found.ok
    assert "take about 100 frozen readings along the run" in found.status
    assert "Too few readings" not in predict_critical_batch(settled(100, relative_error=0.05)).status


def test_momentum_far_from_its_sde_is_said() -> None:
    found = predict_critical_batch(settled(momentum=0.5, velocity_sq=100.0, param_sq=37500.0))
    assert found.excess == pytest.approx(7.5, rel=0.02)
    assert "is not C-close to its SDE" in found.status


def test_approximate_readings_are_labelled() -> None:
    found = predict_critical_batch(settled(approximate=True))
    assert found.ok
    assert found.approximate
    assert "BatchNorm saw parts" in found.status


def test_speaks() -> None:
    found = predict_critical_batch(settled())
    lines = str(found).split("\n")
    assert len(lines) == 3
    assert lines[0].startswith("Linear scaling from 64 cannot hold beyond B* = 7")
    assert "N/G = 9.9" in lines[1] or "N/G = 10" in lines[1]
    assert found._repr_html_().startswith("<p><b>Linear scaling")
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["ok"] is True


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
