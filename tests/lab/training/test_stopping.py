"""Ctrl-C and SIGTERM, at any moment of a step: the run saves where it is, leaves, and goes on bit for bit."""

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.lab.training.small import go, same_bits, small
from torch import Tensor

from svag.lab.records.record import read_record
from svag.lab.training.run import run
from svag.lab.training.training import Training
from svag.lab.training.watching import HeldSignals, Stopped, stoppable


class Terminated(BaseException):
    pass


@pytest.fixture
def terminating() -> Iterator[None]:
    """SIGTERM and SIGHUP raise, instead of ending the tests."""

    def stop(number: int, frame: object) -> None:
        raise Terminated

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def stopped(npz: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, sent: list[signal.Signals]) -> type[Any]:
    """Send signals in the middle of the third step of a run that makes no checkpoint by itself; what it raised."""
    calls, whole = list[int](), Training.loss

    def loss(self: Training, batch: Any) -> Tensor:
        calls.append(1)
        if len(calls) == 3:
            for one in sent:
                signal.raise_signal(one)
        return whole(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "loss", loss)
        with pytest.raises(BaseException) as caught:  # noqa: PT011  # whatever the signal stands for
            run(small(npz), folder, device="cpu", progress=False, save_seconds=1000)
    return caught.type


@pytest.mark.usefixtures("terminating")
@pytest.mark.parametrize(
    ("sent", "raised"),
    [
        ([signal.SIGINT], KeyboardInterrupt),
        ([signal.SIGTERM], Terminated),
        ([signal.SIGHUP], Terminated),
        ([signal.SIGTERM, signal.SIGTERM], Terminated),  # to the job, then to each of its processes
        ([signal.SIGHUP, signal.SIGHUP, signal.SIGTERM], Terminated),  # by the system, the shell and the parent
    ],
    ids=["ctrl-c", "sigterm", "sighup", "a job's end", "a terminal's end"],
)
def test_a_run_saves_before_it_leaves(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: list[signal.Signals], raised: type[BaseException]
) -> None:
    handled = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = [signal.getsignal(number) for number in handled]
    assert stopped(npz, tmp_path / "run", monkeypatch, sent) is raised
    assert [signal.getsignal(number) for number in handled] == handlers
    assert (tmp_path / "run" / "checkpoint.pt").exists()
    record = read_record(tmp_path / "run")
    assert (record.state, record.step, record.final["step"]) == ("interrupted", 3, 0)
    state = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    assert state["step"] == 3  # it was finished before the run left
    assert go(small(npz), tmp_path / "run").state == "finished"
    go(small(npz), tmp_path / "straight")
    assert same_bits(tmp_path / "run", tmp_path / "straight")


def test_the_second_ctrl_c_does_not_wait(npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stopped(npz, tmp_path / "run", monkeypatch, [signal.SIGINT, signal.SIGINT]) is KeyboardInterrupt
    assert not (tmp_path / "run" / "checkpoint.pt").exists()


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with HeldSignals() as held:
            signal.raise_signal(signal.SIGINT)
            assert not held.came
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_run_in_another_thread_holds_nothing(npz: Path, tmp_path: Path) -> None:
    states = list[str]()
    thread = threading.Thread(target=lambda: states.append(go(small(npz), tmp_path / "run").state))
    thread.start()
    thread.join()
    assert states == ["finished"]


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_what_would_end_the_program_without_a_word_can_be_caught(sent: signal.Signals) -> None:
    before = signal.signal(sent, signal.SIG_DFL)
    try:
        with stoppable(), stoppable():  # the inner one changes nothing
            with pytest.raises(Stopped) as caught:
                signal.raise_signal(sent)
            assert caught.value.number == sent
            signal.raise_signal(sent)  # a second one does not disturb the end that the first has begun
        assert signal.getsignal(sent) is signal.SIG_DFL
        signal.signal(sent, signal.SIG_IGN)
        with stoppable(always=True):
            signal.raise_signal(sent)  # as under nohup
    finally:
        signal.signal(sent, before)


def test_a_handler_is_replaced_where_that_is_asked_for_only() -> None:
    class Theirs(BaseException):
        pass

    def theirs(number: int, frame: object) -> None:
        raise Theirs

    before = signal.signal(signal.SIGTERM, theirs)
    try:
        with stoppable(), pytest.raises(Theirs):
            signal.raise_signal(signal.SIGTERM)
        with stoppable(always=True), pytest.raises(Stopped):
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is theirs
    finally:
        signal.signal(signal.SIGTERM, before)
