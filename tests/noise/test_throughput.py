"""Throughput: the sizes asked for, in their order, and no trace. How fast a machine is, nothing here asserts."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.noise.nets import Pair, data, everything, loss_of, net
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

import svag
from svag.noise.batches import batch_size_of, resized

Make = Callable[[nn.Module], Optimizer]
OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda model: SGD(model.parameters(), lr=0.1),
    "momentum": lambda model: SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3),
    "adam": lambda model: Adam(model.parameters(), lr=0.01),
    "two groups": lambda model: AdamW(
        [{"params": [p]} for p in model.parameters()], lr=torch.tensor(0.01), weight_decay=0.1
    ),
}


def state_of(optimizer: Optimizer) -> list[object]:
    """Everything an optimizer holds, as comparable values."""

    def plain(value: Any) -> object:
        return value.numpy().tobytes() if isinstance(value, Tensor) else value

    return [
        [{name: plain(v) for name, v in group.items() if name != "params"} for group in optimizer.param_groups],
        [[id(p) for p in group["params"]] for group in optimizer.param_groups],
        [(id(p), {name: plain(v) for name, v in state.items()}) for p, state in optimizer.state.items()],
    ]


@pytest.mark.parametrize("trained", [False, True], ids=["fresh", "trained"])
@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_no_trace_is_left(name: str, trained: bool) -> None:
    model = net("batch", dropout=True)
    optimizer, loss_fn = OPTIMIZERS[name](model), loss_of(model)
    if trained:  # with gradients, running statistics and an optimizer's state
        for _ in range(3):
            optimizer.zero_grad()
            loss_fn(data(8)).backward()
            optimizer.step()
    model[0].eval()  # type: ignore[index]
    before = [*everything(model), *state_of(optimizer)]
    svag.measure_throughput(model, optimizer, loss_fn, data(8), [8, 24, 4])
    assert [*everything(model), *state_of(optimizer)] == before


def test_a_scheduler_does_not_take_the_steps_for_training() -> None:
    model = net()
    optimizer = SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    svag.measure_throughput(model, optimizer, loss_of(model), data(8), [8])
    with pytest.warns(UserWarning, match="before `optimizer.step"):  # as it warns who never called step()
        schedule.step()


def test_no_trace_is_left_by_an_error() -> None:
    model = net("batch", dropout=True)
    optimizer, calls = SGD(model.parameters(), lr=0.1, momentum=0.9), []

    def fails(batch: Pair) -> Tensor:
        calls.append(1)
        if len(calls) == 5:
            raise KeyError("label")
        return loss_of(model)(batch)

    before = [*everything(model), *state_of(optimizer)]
    with pytest.raises(KeyError):
        svag.measure_throughput(model, optimizer, fails, data(8), [8])
    assert [*everything(model), *state_of(optimizer)] == before


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes."),
    ],
)
def test_sizes_that_do_not_fit_are_left_out_with_one_warning(error: Exception) -> None:
    model, seen = net(), set()
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)

    def limited(batch: Pair) -> Tensor:
        seen.add(batch_size_of(batch))
        if batch_size_of(batch) > 16:
            raise error
        return loss_of(model)(batch)

    before = [*everything(model), *state_of(optimizer)]
    with pytest.warns(UserWarning, match=" 32, 64 ") as said:
        found = svag.measure_throughput(model, optimizer, limited, data(8), [64, 16, 32, 8])
    assert len(said) == 1
    assert list(found) == [16, 8]
    assert 64 not in seen  # nor is one tried that is larger than one that did not fit
    assert [*everything(model), *state_of(optimizer)] == before


def test_another_runtime_error_is_not_taken_for_memory() -> None:
    model = net()

    def fails(batch: Pair) -> Tensor:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="mat1"):
        svag.measure_throughput(model, SGD(model.parameters(), lr=0.1), fails, data(8), [8])


def test_sizes_come_in_the_order_asked_for_and_once() -> None:
    model, seen = net(), []

    def loss_fn(batch: Pair) -> Tensor:
        seen.append(batch_size_of(batch))
        return loss_of(model)(batch)

    found = svag.measure_throughput(model, SGD(model.parameters(), lr=0.1), loss_fn, data(8), [32, 2, 8, 32])
    assert list(found) == [32, 2, 8]
    assert all(0 < speed.low <= speed.value == speed.high for speed in found.values())
    assert set(seen) == {2, 8, 32}


def test_the_result_is_what_a_price_list_takes() -> None:
    model = net()
    speeds = svag.measure_throughput(model, SGD(model.parameters(), lr=0.1), loss_of(model), data(8), [8, 16])
    found = svag.price_list([svag.Reading(1.0, 4.0, 1.0, 8, 2)] * 50)
    assert [price.time is not None for price in found.prices([8, 16], throughput=speeds)] == [True, True]


def test_a_batch_is_resized_by_repeating_its_examples() -> None:
    x, y = data(3)
    more = resized({"x": [x], "y": y, "scale": 2.0}, 7)
    assert torch.equal(more["x"][0], x[[0, 1, 2, 0, 1, 2, 0]])  # type: ignore[index]
    assert torch.equal(resized((x, y), 2)[1], y[:2])
    with pytest.raises(ValueError, match=r" 2 .* 3\b"):
        resized((x, y[:2]), 6)


def test_refusals() -> None:
    model = net()
    optimizer = SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"^batch_sizes\b"):
        svag.measure_throughput(model, optimizer, loss_of(model), data(8), [])
    with pytest.raises(ValueError, match="batch_sizes"):
        svag.measure_throughput(model, optimizer, loss_of(model), data(8), [0])


class Clock:
    """A clock on which every timed call takes the next of some durations, and the last one for ever after."""

    def __init__(self, durations: list[float]) -> None:
        self.durations, self.time, self.calls = durations, 0.0, 0

    def __call__(self) -> float:
        self.calls += 1
        if self.calls % 2 == 0:  # the end of a measurement
            self.time += self.durations.pop(0) if len(self.durations) > 1 else self.durations[0]
        return self.time


@pytest.mark.parametrize(
    ("durations", "rounds", "speed"),
    [
        # two steps of warm-up, then as many of .05 s as fit, one of 1 s here
        ([2.0, 1.0], 5, (8.0, 8.0)),
        # 1, 2, 4 are too far apart, until there are three at 1
        ([2.0, 1.0, 2.0, 4.0, 2.0, 2.0, 4.0, 1.0, 2.0, 1.05, 4.0], 9, (8.0, 8.0 / 1.05)),
    ],
)
def test_rounds_are_repeated_until_the_fastest_agree(
    monkeypatch: pytest.MonkeyPatch, durations: list[float], rounds: int, speed: tuple[float, float]
) -> None:
    model, clock = net(), Clock(durations)
    monkeypatch.setattr("svag.noise.throughput.perf_counter", clock)
    found = svag.measure_throughput(model, SGD(model.parameters(), lr=0.1), loss_of(model), data(8), [8])[8]
    assert clock.calls == 2 * (1 + rounds)
    assert (found.value, found.low, found.high) == pytest.approx((speed[0], speed[1], speed[0]))


def test_a_machine_that_never_settles_shows_in_the_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    model, clock = net(), Clock([2.0**k for k in range(100)])
    monkeypatch.setattr("svag.noise.throughput.perf_counter", clock)
    found = svag.measure_throughput(model, SGD(model.parameters(), lr=0.1), loss_of(model), data(8), [8])[8]
    assert clock.calls == 2 * (1 + 40)
    assert found.high / found.low > 2
