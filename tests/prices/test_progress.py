"""How many steps a measurement still needs, and the numbers for a logger."""

from dataclasses import replace

import numpy as np
import pytest
from tests.prices.streams import make, settled

from svag import Reading, price_list
from svag.prices.basis import FEWEST
from svag.prices.progress import progress, steps_needed
from svag.prices.reasons import Code
from svag.prices.scalars import logged_numbers
from svag.theory import critical_batch_size
from svag.theory.gain import gain


def test_steps_needed_are_those_of_the_reasons() -> None:
    assert steps_needed([]) == FEWEST
    assert steps_needed([], every=10) == 10 * FEWEST
    few = settled(30)
    needed = int(price_list(few, window=(0.0, 1.0)).reasons[0].values["needed"] or 0)
    assert steps_needed(few) == needed - 30
    assert steps_needed(settled()) == 0
    drowned = [make(float(g), 10.0) for g in 1.0 + 20 * np.random.default_rng(2).standard_normal(400)]
    assert steps_needed(drowned) == price_list(drowned, window=(0.0, 1.0)).reasons[0].values["more"]


def test_steps_needed_are_those_of_the_window_that_the_list_averages() -> None:
    """The first half of the run is a transient of the noise, which the list leaves out."""
    given = settled(120)
    noise = [10 * reading.noise_trace if k < 60 else reading.noise_trace for k, reading in enumerate(given)]
    readings = [replace(r, step=k, noise_trace=noise[k]) for k, r in enumerate(given)]
    found = price_list(readings)
    reason = next(reason for reason in found.reasons if reason.code == Code.TOO_FEW_READINGS)
    assert found.readings < len(readings)
    missing = int(reason.values["needed"] or 0) - found.readings
    assert steps_needed(readings) == -(-missing * 120 // found.readings)
    assert "Enough" not in progress(readings, 120, 1, 64)


def rising(count: int) -> list[Reading]:
    """Readings whose noise rises along the run, too few of them to tell that from autocorrelation."""
    draw = np.random.default_rng(3).standard_normal(count)
    return [make(1.0, 2.0 + 20 * k / count + 0.1 * draw[k], step=39 * k) for k in range(count)]


@pytest.mark.parametrize("count", [10, 40, 60])
def test_a_trend_does_not_ask_for_ever_more_steps(count: int) -> None:
    """A rate of a block in `count` readings, taken literally, asked for fifty times as many as there were."""
    reason = price_list(rising(count), window=(0.0, 1.0)).reasons[0]
    assert reason.code == Code.TOO_FEW_READINGS
    assert reason.values["needed"] == max(FEWEST, 4 * count)
    assert steps_needed(rising(count), every=39) <= 39 * max(FEWEST, 4 * count)


def test_a_first_list_is_told_of_before_it_is_reliable() -> None:
    few, more = settled(20), settled(30)
    assert (price_list(few).usable, price_list(more).usable) == (False, True)
    assert "price_list()" not in progress(few, 20, 1, 64)
    said = progress(more, 30, 1, 64)
    assert "price_list()" in said
    assert "Enough" not in said
    assert f"about {steps_needed(more)} more steps" in said


def test_a_list_with_a_lower_limit_only_is_a_list() -> None:
    drowned = [make(float(g), 10.0) for g in 1.0 + 20 * np.random.default_rng(2).standard_normal(400)]
    assert price_list(drowned).usable
    said = progress(drowned, 400, 1, 64)
    assert "Enough for a price list" in said
    assert f"About {steps_needed(drowned)} more steps would resolve G." in said


def test_more_steps_do_not_help_a_phase_of_the_schedule_that_is_over() -> None:
    """The list averages the last third of 90 readings at the first rate, however long the second rate is kept."""
    readings = [replace(r, step=k, lr=0.5 if k < 90 else 0.05) for k, r in enumerate(settled(180))]
    assert steps_needed(readings) == 0
    said = progress(readings, 180, 1, 64)
    assert "more steps" not in said
    assert str(price_list(readings).reasons[0]) in said


def test_progress_tells_where_it_is() -> None:
    assert "0 readings in 5 steps" in progress([], 5, 1, 64)
    assert f"about {steps_needed(settled(30), 10)} more steps" in progress(settled(30), 300, 10, 64)
    assert "price_list()" in progress(settled(), 400, 1, 64)
    far = [replace(r, parts_ratio=4.0) for r in settled()]
    assert "more steps" not in progress(far, 400, 1, 64), "more steps would not help"


def test_the_scalars_are_those_of_the_price_list_over_everything() -> None:
    found, logged = price_list(settled(), window=(0.0, 1.0)), logged_numbers(settled())
    ratio = found.noise_to_signal
    assert logged["noise_to_signal"] == ratio.value
    assert logged["noise_to_signal_low"] == ratio.low
    assert logged["critical_batch"] == found.critical_batch.value == critical_batch_size(64, ratio.value)
    assert logged["b_simple"] == pytest.approx(found.noise_scale.value, rel=1e-12)
    for factor in (2, 4):
        assert logged[f"gain_{factor}x"] == gain(ratio.value, factor)
        assert logged[f"distortion_{factor}x"] == pytest.approx(factor / gain(ratio.value, factor), rel=1e-12)
    with_momentum = logged_numbers(settled(momentum=0.9, velocity_sq=1.0))
    assert with_momentum["gain_2x"] == pytest.approx(logged["gain_2x"]), "of the plain N/G"
