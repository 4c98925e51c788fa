"""Steps that are not measured, readings in a file, checkpoints, and numbers for a logger."""

import io
import json
import math
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from tests.dynamics.interrupting import ctrl_c
from tests.noise.nets import Pair, batches, data, loss_of, net, sgd
from torch import Tensor, nn
from torch.optim import SGD

from svag import NoiseProbe, Reading, append_readings, load_readings, price_list
from svag.noise.batches import split
from svag.noise.pending import PendingReadings, Readings
from svag.noise.reading import columns_of, readings_of, row_of
from svag.prices.scalars import logged_numbers


def train(probe: NoiseProbe, model: nn.Module, optimizer: SGD, steps: list[Pair], parts: int = 4) -> None:
    for batch in steps:
        optimizer.zero_grad()
        probe.backward(loss_of(model), batch, parts=parts)
        optimizer.step()


def accumulate(probe: NoiseProbe, model: nn.Module, optimizer: SGD, steps: list[Pair]) -> None:
    for batch in steps:
        optimizer.zero_grad()
        for part in split(batch, 4):
            (loss_of(model)(part) / 4).backward()
            probe.micro_batch()
        probe.close_step()
        optimizer.step()


@pytest.mark.parametrize("loop", [train, accumulate])
def test_every_third_step_is_measured(loop: Any) -> None:
    steps, found = batches(8, 16), []
    for every in (1, 3):
        model = net()
        optimizer = sgd(model)
        probe = NoiseProbe(model, optimizer, batch_size=16, every=every)
        loop(probe, model, optimizer, steps)
        found.append((list(probe.readings), [p.detach().clone() for p in model.parameters()]))
    (all_of_them, weights), (some, same) = found
    assert [reading.step for reading in some] == [0, 3, 6]
    for mine, theirs in zip(some, all_of_them[::3], strict=True):
        assert (mine.grad_sq, mine.noise_trace, mine.n) == pytest.approx(
            (theirs.grad_sq, theirs.noise_trace, theirs.n), rel=1e-9
        )
    for one, other in zip(weights, same, strict=True):
        assert torch.allclose(one, other, rtol=1e-12)


def test_a_step_that_is_not_measured_is_a_plain_step() -> None:
    model, plain, batch = net("batch"), net("batch"), data(16)
    probe = NoiseProbe(model, sgd(model), batch_size=16, every=2)
    probe.backward(loss_of(model), batch)
    assert not probe.measuring
    loss_of(plain)(batch)  # the running statistics are not compared
    model.zero_grad()
    sizes: list[int] = []

    def watched(examples: Pair) -> Tensor:
        sizes.append(len(examples[0]))
        return loss_of(model)(examples)

    loss = probe.backward(watched, batch)
    expected = loss_of(plain)(batch)
    expected.backward()
    assert sizes == [16]
    assert torch.equal(loss, expected.detach())
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad)
    assert probe.measuring
    assert [reading.step for reading in probe.readings] == [0]


def calls_of_ours(work: Callable[[], object]) -> list[str]:
    """The functions of this package that are called, and those that dataclasses make."""
    found = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and ("/svag/" in name or name == "<string>"):
            found.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def test_a_step_that_is_not_measured_does_next_to_nothing() -> None:
    """Every call counts where a whole step takes a quarter of a millisecond; 3% of it are a few microseconds."""
    model = net()
    optimizer, loss = sgd(model), loss_of(model)
    probe = NoiseProbe(model, optimizer, batch_size=16, every=100)
    whole = batches(1, 16)[0]
    for _ in range(2):
        optimizer.zero_grad()
        probe.backward(loss, whole)
    optimizer.zero_grad()
    assert len(calls_of_ours(lambda: probe.backward(loss, whole))) <= 10
    optimizer.zero_grad()
    torch.autograd.backward(loss(whole))
    probe.micro_batch()
    assert len(calls_of_ours(probe.close_step)) <= 8
    assert [reading.step for reading in probe.readings] == [0]


def test_micro_batches_of_a_step_that_is_not_measured_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    model = net()
    optimizer = sgd(model)
    probe = NoiseProbe(model, optimizer, batch_size=16, every=100)
    accumulate(probe, model, optimizer, batches(1, 16))
    monkeypatch.setattr("svag.noise.recorders.MicroBatches.micro_batch", None)
    accumulate(probe, model, optimizer, batches(3, 16))
    assert len(probe.readings) == 1


@pytest.mark.parametrize("due", [True, False])
def test_short_and_skipped_steps_in_between(due: bool) -> None:
    """A short batch counts as a step, and is told of only where a reading was due; a skipped step does not count."""
    model = net()
    optimizer = sgd(model)
    probe = NoiseProbe(model, optimizer, batch_size=16, every=2)
    train(probe, model, optimizer, batches(2 if due else 1, 16))
    x, y = data(16)
    if due:
        with pytest.warns(UserWarning, match="a batch of 6 examples"):
            train(probe, model, optimizer, [(x[:6], y[:6])])
    else:
        train(probe, model, optimizer, [(x[:6], y[:6])])
    optimizer.zero_grad()
    loss_of(model)((x, y)).backward()
    probe.micro_batch()
    probe.skip_step()
    train(probe, model, optimizer, batches(3, 16))
    assert [reading.step for reading in probe.readings] == ([0, 4] if due else [0, 2, 4])


def test_batches_of_changing_size_are_one_sentence_in_every_step() -> None:
    model = net()
    probe = NoiseProbe(model, sgd(model), batch_size=8, every=2)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"16 examples.*batch_size=8"):
            probe.backward(loss_of(model), data(16))
        probe.backward(loss_of(model), data(8))
        model.zero_grad()
    with pytest.raises(ValueError, match=r"^every\b.*got 0"):
        NoiseProbe(model, sgd(model), batch_size=8, every=0)


def test_a_second_probe_of_the_same_parameters_is_refused_until_the_first_is_closed() -> None:
    model = net()
    first = NoiseProbe(model, sgd(model), batch_size=8)
    some = NoiseProbe(model, sgd(model), batch_size=8, parameters=[model[0].weight])  # type: ignore[index]
    with pytest.raises(ValueError, match="replace=True"):
        NoiseProbe(model, sgd(model), batch_size=8)
    first.close()
    assert some.readings == []
    kept = NoiseProbe(model, sgd(model), batch_size=8)
    del kept  # nobody holds it
    NoiseProbe(model, sgd(model), batch_size=8)


def reading(step: int = 0, run: str = "", grad_sq: float = 1.0) -> Reading:
    return Reading(grad_sq, noise_trace=10.0, param_sq=1.0, batch_size=16, n=4, step=step, run=run)


def test_readings_are_a_view_that_behaves_like_a_list_and_does_not_change() -> None:
    kept = [reading(step) for step in range(3)]
    view = Readings(kept)
    kept.append(reading(3))
    assert (len(view), len(Readings(kept))) == (3, 4)
    assert view == kept[:3]
    assert kept[:3] == view
    assert view != kept
    assert view == Readings(kept[:3])
    assert view[-1].step == 2
    assert view[1:] == kept[1:3]
    assert [one.step for one in reversed(view)] == [2, 1, 0]
    assert kept[0] in view
    assert kept[3] not in view
    assert len(repr(view)) < 120
    assert repr(Readings([])) == "<no readings>"
    assert not Readings([])
    with pytest.raises(IndexError):
        view[3]


def test_asking_for_readings_copies_nothing() -> None:
    model = net()
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    train(probe, model, sgd(model), batches(3, 16))
    one, other = probe.readings, probe.readings
    assert isinstance(one, Readings)
    assert isinstance(other, Readings)
    assert one._kept is other._kept


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("svag.noise.pending._FETCH_EVERY", 3)
    monkeypatch.setattr("svag.noise.pending.KEPT", 4)


@pytest.mark.usefixtures("few")
def test_saved_readings_are_all_there_and_memory_is_bounded(tmp_path: Path) -> None:
    path, model = tmp_path / "readings.jsonl", net()
    optimizer = sgd(model)
    same = NoiseProbe(other := net(), sgd(other), batch_size=16)
    with NoiseProbe(model, optimizer, batch_size=16, save_to=path) as probe:
        train(probe, model, optimizer, batches(8, 16))
        assert len(load_readings(path)) == 6, "written in bunches"
        early = probe.readings
        assert [one.step for one in early] == [4, 5, 6, 7]
        train(probe, model, optimizer, batches(5, 16))
        assert [one.step for one in early] == [4, 5, 6, 7], "a view stays what it was"
    train(same, other, sgd(other), batches(8, 16) + batches(5, 16))
    assert load_readings(path) == same.readings
    assert [one.step for one in probe.readings] == [9, 10, 11, 12]


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("saves", [True, False])
def test_a_continued_run_reads_and_saves_what_an_uninterrupted_one_does(tmp_path: Path, saves: bool) -> None:
    steps = batches(11, 16)

    def fresh(name: str) -> tuple[nn.Module, SGD, NoiseProbe]:
        model = net()
        optimizer = SGD(model.parameters(), lr=0.1, momentum=0.5)
        save_to = tmp_path / name if saves else None
        return model, optimizer, NoiseProbe(model, optimizer, batch_size=16, every=2, save_to=save_to, run="a")

    model, optimizer, whole = fresh("whole")
    train(whole, model, optimizer, steps)
    model, optimizer, stopped = fresh("stopped")
    train(stopped, model, optimizer, steps[:7])
    torch.save([model.state_dict(), optimizer.state_dict(), stopped.state_dict()], tmp_path / "checkpoint.pt")
    train(stopped, model, optimizer, steps[7:9])  # after the checkpoint, and lost
    stopped.close()
    if saves:
        with (tmp_path / "stopped").open("a") as file:
            file.write('{"grad_sq": 1.0, "noi')  # a crash in the middle of a line
    weights, state, where = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    model, optimizer, continued = fresh("stopped")
    model.load_state_dict(weights)
    optimizer.load_state_dict(state)
    continued.load_state_dict(where)
    train(continued, model, optimizer, steps[7:])
    assert continued.readings == whole.readings
    assert [one.step for one in continued.readings] == ([4, 6, 8, 10] if saves else [0, 2, 4, 6, 8, 10])
    if saves:
        continued.close()
        whole.close()
        assert (tmp_path / "stopped").read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_file_that_does_not_fit_the_checkpoint_is_refused(tmp_path: Path) -> None:
    model, path = net(), tmp_path / "readings.jsonl"
    probe = NoiseProbe(model, sgd(model), batch_size=16, save_to=path, run="a")
    train(probe, model, sgd(model), batches(2, 16))
    state = probe.state_dict()
    append_readings(path, [reading(run="b")])
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"readings\.jsonl .*'b'"):
        probe.load_state_dict(state)
    assert path.read_bytes() == before
    path.write_bytes(before[:100])
    with pytest.raises(ValueError, match=r" 100 bytes, .* \d+ "):
        probe.load_state_dict(state)


def test_a_checkpoint_keeps_the_comparison_with_whole_batches() -> None:
    model = net("batch")
    probe = NoiseProbe(model, sgd(model), batch_size=16, check=batches(8, 16))
    train(probe, model, sgd(model), batches(2, 16))
    state = json.loads(json.dumps(probe.state_dict()))
    probe.close()
    continued = NoiseProbe(model, sgd(model), batch_size=16)
    continued.load_state_dict(state)
    assert continued.comparison == probe.comparison
    train(continued, model, sgd(model), batches(1, 16))
    assert continued.readings[-1].parts_ratio == probe.readings[0].parts_ratio
    assert [one.step for one in continued.readings] == [0, 1, 2]


def noisy(count: int, signal: float = 1.0, seed: int = 0, **fields: Any) -> list[Reading]:
    spread = np.random.default_rng(seed).normal(size=(2, count))
    return [
        Reading(signal + 3 * g, 10 + n, 1.0, 128, 4, step=step, optimizer="SGD", lr=0.1, **fields)
        for step, (g, n) in enumerate(spread.T.tolist())
    ]


@pytest.mark.parametrize("fields", [{}, {"momentum": 0.9, "velocity_sq": 100.0}, {"population": 400}])
def test_logged_numbers_are_those_of_the_price_list(fields: dict[str, Any]) -> None:
    readings = noisy(1000, **fields)
    found, logged = price_list(readings, window=(0.0, 1.0)), logged_numbers(readings)
    assert found.resolved
    assert logged["noise_to_signal"] == found.noise_to_signal.value
    assert logged["noise_to_signal_low"] == found.noise_to_signal.low
    assert logged["critical_batch"] == found.critical_batch.value
    assert logged["b_simple"] == pytest.approx(found.noise_scale.value, rel=1e-12)
    prices = {price.batch_size: price.distortion.value for price in found.prices()}
    assert logged["distortion_2x"] == prices[256]
    assert ("distortion_4x" in logged) is (512 in prices) is ("population" not in fields)
    assert logged.get("distortion_4x") == prices.get(512)


def test_what_is_not_resolved_is_not_logged() -> None:
    assert logged_numbers([]) == {}
    assert logged_numbers(noisy(3)) == {}
    assert logged_numbers(noisy(400, signal=-5.0)) == {}, "a significantly negative G"
    (name,) = drowned = logged_numbers(noisy(400, signal=0.1))
    assert name == "noise_to_signal_low"
    assert 0 < drowned[name] < math.inf


def test_scalars_are_over_the_last_thousand_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    model = net()
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    assert probe.scalars() == {}
    monkeypatch.setattr("svag.noise.probe.KEPT", 200)
    train(probe, model, sgd(model), batches(250, 16))
    scalars = probe.scalars()
    assert scalars == logged_numbers(probe.readings[50:]) != logged_numbers(probe.readings)
    assert all(map(math.isfinite, scalars.values()))


def test_the_price_list_of_a_probe_is_over_all_readings_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("svag.noise.pending.KEPT", 100)
    model = net()
    probe = NoiseProbe(model, sgd(model), batch_size=16, save_to=tmp_path / "readings.jsonl", run="this one")
    append_readings(tmp_path / "readings.jsonl", noisy(5, run="another"))
    train(probe, model, sgd(model), batches(250, 16))
    assert len(probe.readings) == 100
    everything = [one for one in load_readings(tmp_path / "readings.jsonl") if one.run == "this one"]
    assert len(everything) == 250
    assert probe.price_list().to_dict() == price_list(everything).to_dict()
    assert (
        probe.price_list(c2=3.0, window=(0.5, 1.0)).to_dict() == price_list(everything, 3.0, 0.95, (0.5, 1.0)).to_dict()
    )
    assert re.findall(r"\d+", str(probe))[:3] == ["16", "250", "250"]


def test_a_probe_says_where_it_is() -> None:
    model = net()
    probe = NoiseProbe(model, sgd(model), batch_size=16, every=2)
    assert str(probe).split("\n") == [
        "NoiseProbe at batch size 16: 0 readings in 0 steps.",
        "About 400 more steps are needed for a price list.",
    ]
    train(probe, model, sgd(model), batches(250, 16))
    assert re.findall(r"\d+", str(probe))[:3] == ["16", "125", "250"]


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("loop", [train, accumulate])
@pytest.mark.parametrize("torn", [0, 100])
def test_a_full_disk_loses_no_reading_and_does_not_touch_the_run(tmp_path: Path, loop: Any, torn: int) -> None:
    disk = pytest.importorskip("tests.noise.disk")
    path, model, other = tmp_path / "readings.jsonl", net(), net()
    optimizer, others = sgd(model), sgd(other)
    same = NoiseProbe(other, others, batch_size=16)
    probe = NoiseProbe(model, optimizer, batch_size=16, save_to=path)
    loop(same, other, others, batches(17, 16))
    loop(probe, model, optimizer, batches(17, 16)[:3])
    size = path.stat().st_size
    with disk.full_at(size + torn):
        loop(probe, model, optimizer, batches(17, 16)[3:])  # fetched, and not written, five times
        for ask in (lambda: probe.readings, probe.state_dict, probe.close, probe.close):
            with pytest.raises(OSError, match=r"^14 .*readings\.jsonl") as caught:
                ask()
            assert "\n" not in str(caught.value)
        assert path.stat().st_size == size
        assert probe.scalars() == same.scalars()
        assert probe.price_list().to_dict() == same.price_list().to_dict()
        assert re.findall(r"\d+", str(probe))[:3] == ["16", "17", "17"]
    probe.close()
    assert load_readings(path) == same.readings
    assert probe.readings == same.readings[-4:]
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("cut", [0, 1, 2, 60])
def test_a_short_write_that_cannot_be_undone_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    """The second reading has all of its line, no line end, no brace either, or half of it."""
    disk = pytest.importorskip("tests.noise.disk")
    path = tmp_path / "readings.jsonl"
    model, other = net(), net()
    optimizer, others = sgd(model), sgd(other)
    probe = NoiseProbe(model, optimizer, batch_size=16, save_to=path)
    same = NoiseProbe(other, others, batch_size=16)
    train(probe, model, optimizer, batches(4, 16))
    train(same, other, others, batches(4, 16))
    second = sum(len(json.dumps(reading.to_dict()) + "\n") for reading in same.readings[:2])

    def no_undo(file: object, size: int) -> None:
        raise OSError(5, "Input/output error")

    class Failing(io.FileIO):
        truncate = no_undo  # type: ignore[assignment]

    with monkeypatch.context() as patched, disk.full_at(second - cut):
        patched.setattr("svag.noise.reading.os.fdopen", lambda handle, *_, **__: Failing(handle, "r+b"))
        with pytest.raises(OSError, match=r"readings\.jsonl"):
            _ = probe.readings
    assert probe.price_list().to_dict() == same.price_list().to_dict()
    probe.close()
    assert load_readings(path) == same.readings


def test_writing_in_vain_is_not_tried_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def fail(path: Path, readings: list[Reading]) -> None:
        tries.append(len(readings))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("svag.noise.pending._FETCH_EVERY", 3)
    monkeypatch.setattr("svag.noise.pending.append_readings", fail)
    model = net()
    probe = NoiseProbe(model, sgd(model), batch_size=16, save_to=tmp_path / "readings.jsonl")
    for batch in batches(8, 16):
        train(probe, model, sgd(model), [batch])
        probe.scalars()  # as a logger does
    assert tries == [1, 3, 3], "at 1, 4 and 7 readings, a block each"


def test_a_folder_that_is_not_there_is_refused_before_the_run(tmp_path: Path) -> None:
    model = net()
    with pytest.raises(ValueError, match=r"^save_to\b"):
        NoiseProbe(model, sgd(model), batch_size=16, save_to=tmp_path / "none" / "readings.jsonl")
    NoiseProbe(model, sgd(model), batch_size=16)  # nothing was attached


def test_a_checkpoint_of_rows_is_still_read() -> None:
    """As version 0.1.0 wrote them."""
    model = net()
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    train(probe, model, sgd(model), batches(3, 16))
    state = probe.state_dict()
    assert len(state["readings"]["grad_sq"]) == 3
    found = list(probe.readings)
    for rows in (state["readings"], [row_of(one) for one in found], []):
        probe.load_state_dict(json.loads(json.dumps({**state, "readings": rows})))
        assert probe.readings == (found if rows else [])
    with pytest.raises(ValueError, match=r"^grad_sq\b"):
        probe.load_state_dict({**state, "readings": {"noise_trace": [1.0]}})


def test_a_checkpoint_does_not_copy_reading_by_reading() -> None:
    kept = [replace(reading(step), betas=(0.9, 0.99) if step == 1 else None) for step in range(3)]
    columns = columns_of(kept)
    assert columns["betas"] == [None, (0.9, 0.99), None]
    assert set(columns) == {"grad_sq", "noise_trace", "param_sq", "batch_size", "n", "step", "betas"}
    assert readings_of(columns) == kept
    assert columns_of([]) == {}
    assert readings_of({}) == []


@dataclass(frozen=True)
class Interrupting:
    """A reading during whose fetch, or after whose fetch, something happens."""

    step: int
    happens: Callable[[], None]
    may_overflow: bool = False

    def fetch(self) -> list[float]:
        self.happens()
        return [1.0]

    def reading(self, numbers: list[float]) -> Reading:
        return Reading(grad_sq=1.0, noise_trace=1.0, param_sq=1.0, batch_size=8, n=2, step=self.step)


def test_ctrl_c_loses_and_doubles_no_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "readings.jsonl"
    pending = PendingReadings("step", "steps", file)
    pending.add([Interrupting(0, lambda: None), Interrupting(1, lambda: signal.raise_signal(signal.SIGINT))])
    with pytest.raises(KeyboardInterrupt):
        pending.flush()
    assert [reading.step for reading in load_readings(file)] == [0, 1]

    def written_and_interrupted(*given: Any) -> None:
        append_readings(*given)
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr("svag.noise.pending.append_readings", written_and_interrupted)
        pending.add([Interrupting(2, lambda: None)])
        with pytest.raises(KeyboardInterrupt):
            pending.flush()
    pending.flush()
    assert [reading.step for reading in load_readings(file)] == [0, 1, 2]


def test_a_device_that_fails_once_loses_no_reading() -> None:
    failures = [RuntimeError("the device is gone for a moment")]

    def fail_once() -> None:
        if failures:
            raise failures.pop()

    pending = PendingReadings("step", "steps")
    pending.add([Interrupting(0, lambda: None), Interrupting(1, fail_once), Interrupting(2, lambda: None)])
    with pytest.raises(RuntimeError, match="device"):
        pending.collect()
    assert [reading.step for reading in pending.collect()] == [0, 1, 2]


@pytest.mark.parametrize("loop", [train, accumulate])
def test_an_interrupted_step_that_is_repeated_has_a_number_of_its_own(
    loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = net()
    optimizer = sgd(model)
    probe = NoiseProbe(model, optimizer, batch_size=16)
    add = probe._pending.add

    def interrupted(found: Any) -> None:
        monkeypatch.undo()
        add(found)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(probe._pending, "add", interrupted)
    with ctrl_c(), pytest.raises(KeyboardInterrupt):
        loop(probe, model, optimizer, batches(1, 16))
    loop(probe, model, optimizer, batches(1, 16))
    assert [reading.step for reading in probe.readings] == [0, 1]
