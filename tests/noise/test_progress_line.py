"""Progress of a measurement: shown to people, from two seconds on, and erased at the end."""

import io
import sys
from itertools import count

import pytest
import torch
from tests.noise.nets import data, loss_of, net

import svag
from svag.noise import progress_line
from svag.noise.progress_line import ProgressLine


class Screen(io.StringIO):
    """A terminal, or a file."""

    def __init__(self, terminal: bool = True) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def watch(monkeypatch: pytest.MonkeyPatch, *, terminal: bool = True, seconds: float = 1.0) -> Screen:
    """Standard error as a screen, with a clock on which this many seconds pass between two looks."""
    screen, ticks = Screen(terminal), count()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress_line, "perf_counter", lambda: next(ticks) * seconds)
    return screen


def test_the_line_is_rewritten_and_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watch(monkeypatch, seconds=5.0)
    with ProgressLine("measuring") as line:
        line.say("9 batches")
        line.say("10 batches")
        assert screen.getvalue() == "\rmeasuring: 9 batches\rmeasuring: 10 batches"
    assert screen.getvalue().endswith("\r" + " " * len("measuring: 10 batches") + "\r")


def test_a_quick_measurement_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watch(monkeypatch, seconds=0.1)
    with ProgressLine("measuring") as line:
        for _ in range(10):
            line.say("some")
    assert screen.getvalue() == ""


@pytest.mark.parametrize(("terminal", "verbose"), [(False, True), (True, False)])
def test_nothing_is_written_to_a_file_or_against_ones_wish(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, verbose: bool
) -> None:
    screen = watch(monkeypatch, terminal=terminal, seconds=5.0)
    with ProgressLine("measuring", verbose=verbose) as line:
        line.say("9 batches")
    assert screen.getvalue() == ""


@pytest.mark.parametrize("verbose", [True, False])
def test_measurements_show_how_far_they_are(monkeypatch: pytest.MonkeyPatch, verbose: bool) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    screen = watch(monkeypatch, seconds=5.0)
    svag.measure_noise(model, loss_of(model), [data(8) for _ in range(3)], verbose=verbose)
    assert ("measuring noise: 3 batches" in screen.getvalue()) == verbose
    svag.measure_throughput(model, optimizer, loss_of(model), data(8), [8, 16], verbose=verbose)
    assert ("round 2 of 5 to 40, batch size 16" in screen.getvalue()) == verbose
