import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from tests.findings.critical_batch.streams import make, settled

from svag import Reading, critical_batch_size, max_kappa, predict_critical_batch


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
