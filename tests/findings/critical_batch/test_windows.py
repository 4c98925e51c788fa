import pytest
from tests.findings.critical_batch.streams import make

from svag import Reading
from svag.findings.averages import Window, choose_readings, steps_into_phase


def phases(*lengths: tuple[float, int], run: str = "") -> list[Reading]:
    rates = [lr for lr, length in lengths for _ in range(length)]
    return [make(1.0, 1.0, step=10 * k, lr=lr, run=run) for k, lr in enumerate(rates)]


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
        ((500, 700), "readings at 2 learning rates"),
        ((5000, 7000), "no reading lies in the window"),
        ((20, 10), "two increasing effective steps"),
        ((0.5, 1.5), "two increasing fractions"),
        (0.5, "two increasing fractions .* got 0.5"),
        ((0.1, 0.2, 0.3), "two increasing fractions"),
        (("a", "b"), "two increasing fractions"),
    ],
)
def test_bad_windows(window: Window, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose_readings(phases((0.1, 60), (0.01, 30)), window)


def test_steps_need_steps() -> None:
    with pytest.raises(ValueError, match="give fractions"):
        choose_readings([make(1.0, 1.0)] * 3, (0, 2))


def test_time_at_a_learning_rate_starts_with_its_phase() -> None:
    readings = phases((0.1, 60), (0.01, 30))
    assert steps_into_phase(readings, readings[50]) == 500
    assert steps_into_phase(readings, readings[70]) == 100
    assert steps_into_phase([make(1.0, 1.0)], make(1.0, 1.0)) is None
