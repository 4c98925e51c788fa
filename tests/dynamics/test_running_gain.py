"""The estimator of the gain: memory, start, clamps, finite populations, batches of changing size."""

import itertools
import math

import numpy as np
import pytest

from svag.dynamics.running_gain import RunningGain
from svag.theory.estimators import NoiseEstimate, disjoint_parts
from svag.theory.gain import gain


def fed(readings: list[tuple[float, float]], base: int = 4, size: int = 32) -> RunningGain:
    running = RunningGain(base)
    for signal, noise in readings:
        running.add(NoiseEstimate(signal, noise), size)
    return running


def test_it_begins_as_the_plain_average() -> None:
    readings = [(3.0, 1.0), (-1.0, 2.0), (4.0, 6.0)]
    running = fed(readings)
    assert running.grad_sq == pytest.approx(2.0)
    assert running.example_noise == pytest.approx(32 * 3.0)
    assert running.gain(32) == pytest.approx(gain(8 * 3.0 / 2.0, 8.0))


def test_without_spread_it_remembers_the_shortest_memory() -> None:
    running = fed([(1.0, 1.0)] * 50)
    assert (running.spread, running.weight) == (0.0, 1 / 10)


def test_the_memory_is_the_shortest_of_a_tenth_in_log_gain() -> None:
    """Against the definition, from readings drawn independently: their spread in log gain, by small differences."""
    rng = np.random.default_rng(0)
    readings = [(1.0 + 1.6 * z, 0.5) for z in rng.standard_normal(4000)]
    running = fed(readings)
    small = 1e-6
    slope = math.log(gain(8 * 0.5 / (1 + small), 8.0) / gain(8 * 0.5, 8.0)) / small
    spread = (1.6 * slope) ** 2
    # half mean squares of differences over a hundred readings: a relative standard error of √(3/100)
    assert running.spread == pytest.approx(spread, rel=6 * math.sqrt(3 / 100))
    weight = running.weight
    assert weight == pytest.approx(2 * 0.01 / (running.spread + 0.01))
    assert running.spread * weight / (2 - weight) == pytest.approx(0.01)


def test_the_average_has_the_promised_standard_error() -> None:
    """2,000 readings are about 2000·a/2 independent averages, so that the spread is known to 10%."""
    rng, found = np.random.default_rng(1), []
    running = fed([(1.0, 0.5)])
    for z in rng.standard_normal(3000):
        running.add(NoiseEstimate(1.0 + 1.2 * z, 0.5), 32)
        found.append(math.log(running.gain(32)))
    assert running.weight < 1 / 10
    assert 0.07 < np.std(found[1000:]) < 0.13


def test_a_trend_is_no_spread() -> None:
    """The negative control has the same readings in any order."""
    readings = [(math.exp(-0.01 * k), 0.1) for k in range(300)]
    order = np.random.default_rng(0).permutation(300)
    assert fed(readings).spread < 1e-4 < 1e-2 < fed([readings[k] for k in order]).spread


def test_a_reading_does_not_decide_on_its_own_weight() -> None:
    running = fed([(1.0, 1.0)] * 20)
    before, spread = running.weight, running.spread
    running.add(NoiseEstimate(5.0, 1.0), 32)
    assert running.grad_sq == pytest.approx(1 + before * 4)
    assert running.spread > spread


def test_an_outlier_brakes_at_once_and_is_forgotten_again() -> None:
    """What a reading does to log(gain) is bounded, and so is the memory that it leaves."""
    running = fed([(1.0, 1.0)] * 20)
    usual = running.gain(32)
    running.add(NoiseEstimate(1e6, 1.0), 32)
    assert running.gain(32) == pytest.approx(1.0, abs=1e-3)
    assert running.weight > 1 / 20
    for _ in range(200):
        running.add(NoiseEstimate(1.0, 1.0), 32)
    assert running.gain(32) == pytest.approx(usual, rel=0.01)


@pytest.mark.parametrize("kappa", [8.0, 0.5])
def test_a_negative_signal_is_noise_only_after_ten_readings(kappa: float) -> None:
    size = int(32 * kappa)
    for count in (1, 10, 11, 40):
        running = fed([(-0.1, 1.0)] * count, base=32, size=size)
        assert running.gain(size) == (min(1.0, kappa) if count <= 10 else kappa)


def test_without_a_gradient_nothing_is_gained() -> None:
    assert RunningGain(4).gain(32) == 1.0
    assert fed([(0.0, 0.0)] * 20).gain(32) == 1.0
    assert fed([(-0.1, 0.0)] * 20).gain(32) == 1.0
    assert fed([(2.0, 0.0)] * 20).gain(32) == 1.0


@pytest.mark.parametrize("size", [4, 32, 2])
def test_the_gain_stays_between_1_and_kappa(size: int) -> None:
    rng = np.random.default_rng(2)
    kappa = size / 4
    for _ in range(200):
        running = fed([tuple(rng.normal(size=2) * [1, 0.5] + [0, 1]) for _ in range(15)], size=size)
        assert min(1.0, kappa) <= running.gain(size) <= max(1.0, kappa)
        if kappa == 1:
            assert running.gain(size) == 1.0


def test_averaging_comes_before_clipping() -> None:
    """Readings whose G is as often 3 as −1 average to 1; the control that clips first finds 1.5."""
    plain = fed([(3.0, 1.0), (-1.0, 1.0)] * 2000)
    clipped = fed([(3.0, 1.0), (0.0, 1.0)] * 2000)
    truth = gain(8.0, 8.0)
    assert plain.gain(32) == pytest.approx(truth, rel=0.02)
    assert clipped.gain(32) != pytest.approx(truth, rel=0.1)


def test_the_noise_of_the_baseline_without_replacement() -> None:
    """Against the enumeration of all batches of both sizes out of eight examples."""
    rng, n, base, size = np.random.default_rng(3), 8, 2, 4
    gradients = rng.normal(size=(n, 3)) + 1
    mean = gradients.mean(axis=0)
    small = [gradients[list(rows)].mean(axis=0) for rows in itertools.combinations(range(n), base)]
    truth = float(np.mean([np.sum((g - mean) ** 2) for g in small]))
    found = []
    for rows in itertools.combinations(range(n), size):
        for half in itertools.combinations(rows, 2):
            rest = [row for row in rows if row not in half]
            parts = np.stack([gradients[list(half)].mean(axis=0), gradients[rest].mean(axis=0)])
            sums = float(np.sum(parts**2)), float(np.sum(parts.sum(axis=0) ** 2))
            found.append(disjoint_parts(*sums, 2, part_size=2, batch_size=size, population=n))
    running = RunningGain(base, n)
    running.add(
        NoiseEstimate(float(np.mean([f.grad_sq for f in found])), float(np.mean([f.noise_trace for f in found]))), size
    )
    signal = float(mean @ mean)
    assert running.grad_sq == pytest.approx(signal, rel=1e-10)
    assert running.gain(size) == pytest.approx(gain(truth / signal, 2.0), rel=1e-10)


def test_readings_of_any_batch_size_average_the_noise_of_one_example() -> None:
    running = RunningGain(4)
    for size in (8, 16, 64):
        running.add(NoiseEstimate(1.0, 48.0 / size), size)
    assert running.example_noise == pytest.approx(48.0)
    assert [running.gain(size) for size in (4, 16)] == pytest.approx([1.0, gain(12.0, 4.0)])
