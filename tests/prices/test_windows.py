import math
from dataclasses import replace

import numpy as np
import pytest
from tests.prices.streams import make

from svag import Reading
from svag.prices.windows import Choice, Window, choose_window, parts_of_runs, steps_into_phase


def phases(*lengths: tuple[float, int], run: str = "") -> list[Reading]:
    rates = [lr for lr, length in lengths for _ in range(length)]
    return [make(1.0, 1.0, step=10 * k, lr=lr, run=run) for k, lr in enumerate(rates)]


def choose_readings(readings: list[Reading], window: Window | None = None) -> list[Reading]:
    return list(choose_window(readings, window).readings)


def steps(readings: list[Reading]) -> list[int | None]:
    return [reading.step for reading in readings]


def test_a_constant_rate_uses_everything() -> None:
    assert choose_readings(phases((0.1, 50))) == phases((0.1, 50))
    assert choose_readings([make(1.0, 1.0)] * 3) == [make(1.0, 1.0)] * 3


def test_a_decay_uses_the_last_third_of_the_last_but_one_phase() -> None:
    assert steps(choose_readings(phases((0.1, 60), (0.01, 30)))) == list(range(400, 600, 10))
    three = phases((0.1, 60), (0.01, 30), (0.001, 20))
    assert steps(choose_readings(three)) == list(range(800, 900, 10))


def test_a_warm_up_is_no_phase() -> None:
    ramp = [(0.01 * k, 1) for k in range(1, 10)]
    assert {r.lr for r in choose_readings(phases(*ramp, (0.1, 60)))} == {0.1}
    assert {r.lr for r in choose_readings(phases(*ramp, (0.1, 60), (0.01, 30)))} == {0.1}


def test_runs_are_kept_apart_and_sorted() -> None:
    one, two = phases((0.1, 60), (0.01, 30), run="a"), phases((0.1, 60), (0.01, 30), run="b")
    shuffled = [reading for pair in zip(reversed(one), two, strict=True) for reading in pair]
    chosen = choose_readings(shuffled)
    assert steps(chosen) == 2 * list(range(400, 600, 10))
    assert [reading.run for reading in chosen] == ["a"] * 20 + ["b"] * 20


@pytest.mark.parametrize(("window", "expected"), [((100, 130), [100, 110, 120]), ((0.5, 0.55), [250, 260, 270])])
def test_a_window_is_steps_or_fractions(window: Window, expected: list[int]) -> None:
    assert steps(choose_readings(phases((0.1, 50)), window)) == expected


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ((5000, 7000), "no reading lies in the window"),
        ((20, 10), r"^window\b.* steps"),
        ((0.5, 1.5), r"^window\b.* fractions"),
        (0.5, r"^window\b.* fractions .*got 0.5"),
        ((0.1, 0.2, 0.3), r"^window\b.* fractions"),
        (("a", "b"), r"^window\b.* fractions"),
    ],
)
def test_bad_windows(window: Window, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose_readings(phases((0.1, 60), (0.01, 30)), window)


def test_steps_need_steps() -> None:
    with pytest.raises(ValueError, match="fractions"):
        choose_readings([make(1.0, 1.0)] * 3, (0, 2))


@pytest.mark.parametrize("window", [(0, 1), (0.0, 1.0), (0, 1.0)])
def test_0_to_1_is_the_whole_run(window: Window) -> None:
    assert choose_readings(phases((0.1, 50)), window) == phases((0.1, 50))


def test_a_window_may_hold_several_learning_rates() -> None:
    assert len(choose_readings(phases((0.1, 60), (0.01, 30)), (500, 700))) == 20


def settling(name: str, fraction: float, count: int = 400) -> list[Reading]:
    """R = N = 10 with scatter; R or N starts three times as large and falls within this fraction of the run."""
    rng = np.random.default_rng(1)
    found = []
    for k, readings in enumerate(phases((0.1, count))):
        r, n = (10 * (1 + 0.1 * rng.standard_normal(2))).tolist()
        late = 1 + 2 * math.exp(-5 * k / (fraction * count))
        r, n = (late * r, n) if name == "param_sq" else (r, late * n)
        found.append(replace(readings, param_sq=r, noise_trace=n))
    return found


@pytest.mark.parametrize("name", ["param_sq", "noise_trace"])
@pytest.mark.parametrize("fraction", [0.15, 0.4])
def test_a_constant_rate_is_read_after_its_transient(name: str, fraction: float) -> None:
    """Where 10% are left of the transient of exp(−5t/fraction), at 3/5 of the fraction."""
    readings = settling(name, fraction)
    chosen = choose_window(readings)
    dropped = 1 - len(chosen.readings) / len(readings)
    assert 0.4 * fraction <= dropped <= 1.2 * fraction + 0.1
    assert (chosen.choice, chosen.tenths) == (Choice.SETTLED, round(10 * dropped))


def test_no_transient_is_no_reason_to_drop_anything() -> None:
    """Negative control: of 50 settled runs none is cut."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        scatter = 10 * (1 + 0.1 * rng.standard_normal((400, 2)))
        run = [
            replace(reading, param_sq=abs(float(r)), noise_trace=abs(float(n)))
            for reading, (r, n) in zip(phases((0.1, 400)), scatter, strict=True)
        ]
        assert len(choose_window(run).readings) == 400


def test_a_cosine_keeps_most_readings() -> None:
    """The learning rate differs at every reading, or at every epoch of 30; R grows and N falls all the way."""
    for epoch in (1, 30):
        run = [
            replace(
                reading,
                lr=0.1 * (1 + math.cos(math.pi * (k // epoch * epoch) / 600)),
                param_sq=10.0 + k / 10,
                noise_trace=20.0 - k / 40,
            )
            for k, reading in enumerate(phases((0.1, 600)))
        ]
        chosen = choose_window(run)
        assert len(chosen.readings) == 540
        assert (chosen.choice, chosen.tenths) == (Choice.STILL_DRIFTING, 1)


def test_seeds_are_cut_alike() -> None:
    """Every run loses what the slowest needs."""
    slow = [replace(reading, run="slow") for reading in settling("param_sq", 0.4)]
    fast = [replace(reading, run="fast") for reading in settling("param_sq", 0.05)]
    chosen = choose_window([*slow, *fast])
    counts = [sum(reading.run == run for reading in chosen.readings) for run in ("slow", "fast")]
    assert counts[0] == counts[1] < 400


def test_the_window_says_where_it_is() -> None:
    chosen = choose_window(phases((0.1, 60), (0.01, 30)))
    assert (chosen.start, chosen.stop) == (400, 591)
    assert chosen.choice == Choice.LATE_PHASE
    assert chosen.reason.values == {"readings": 20, "choice": "late_phase", "tenths": 0, "start": 400, "stop": 591}
    alone = choose_window([make(1.0, 1.0)])
    assert alone.reason.values == {"readings": 1, "choice": "all", "tenths": 0}, "without steps there is no place"


def test_parts_are_equal_in_time_and_hold_everything() -> None:
    one, two = phases((0.1, 50), run="a"), phases((0.1, 30), run="b")
    parts = parts_of_runs([*one, *two], 5)
    assert [len(part) for part in parts] == [16] * 5
    assert sorted(map(str, (r for part in parts for r in part))) == sorted(map(str, [*one, *two]))


def test_time_at_a_learning_rate_starts_with_its_phase() -> None:
    readings = phases((0.1, 60), (0.01, 30))
    assert steps_into_phase(readings, readings[50]) == 500
    assert steps_into_phase(readings, readings[70]) == 100
    assert steps_into_phase([make(1.0, 1.0)], make(1.0, 1.0)) is None
