import itertools
import json
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from tests.noise.nets import Norm, Pair, batches, data, gradient, loss_of, net, sgd
from torch import Tensor, nn
from torch.optim import SGD
from torch.profiler import ProfilerActivity, profile

from svag import NoiseProbe, Reading, measure_noise
from svag.noise.batches import split


def expected(model: nn.Module, batch: Pair, parts: int, population: int | None = None) -> tuple[float, float]:
    """G and N from the parts' gradients, by the textbook sums."""
    gradients = torch.stack([gradient(model, part) for part in split(batch, parts)])
    mean, size = gradients.mean(dim=0), len(batch[0])
    spread = float((gradients - mean).square().sum() / (parts - 1))
    grad_sq = float(mean @ mean) - spread / parts
    if population is None:
        return grad_sq, spread / parts
    return grad_sq + size / parts / population * spread, spread / parts * (1 - size / population)


def numbers(reading: Reading) -> tuple[float, float]:
    return reading.grad_sq, reading.noise_trace


@pytest.mark.parametrize("norm", ["group", "layer", "none", "batch"])
@pytest.mark.parametrize("parts", [2, 4, 8])
@pytest.mark.parametrize("population", [None, 100])
def test_plain_loop(norm: Norm, parts: int, population: int | None) -> None:
    model, batch = net(norm), data(16)
    truth = expected(model, batch, parts, population)
    probe = NoiseProbe(model, sgd(model), batch_size=16, population=population)
    loss = probe.backward(loss_of(model), batch, parts=parts)
    (reading,) = probe.readings
    assert numbers(reading) == pytest.approx(truth, rel=1e-10)
    assert (reading.batch_size, reading.n, reading.population, reading.step) == (16, parts, population, 0)
    assert (reading.lr, reading.weight_decay, reading.momentum, reading.optimizer) == (0.1, 0.01, 0.0, "SGD")
    assert reading.approximate is (norm == "batch")
    assert loss.ndim == 0
    assert not loss.requires_grad


@pytest.mark.parametrize("parts", [9, 10, 11, 18, 25])
def test_many_parts_are_all_remembered(parts: int) -> None:
    """There is room for eight at first."""
    model, batch = net("group"), data(2 * parts)
    truth = expected(model, batch, parts)
    probe = NoiseProbe(model, sgd(model), batch_size=2 * parts)
    for _ in range(2):
        model.zero_grad()
        probe.backward(loss_of(model), batch, parts=parts)
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    for reading in probe.readings:
        assert numbers(reading) == pytest.approx(truth, rel=1e-10)
        assert reading.param_sq == pytest.approx(float(weights @ weights), rel=1e-10)
        assert reading.param_dot_grad == pytest.approx(float(weights @ gradient(model, batch)), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("given_up", [1, 8, 9, 17, 20])
def test_steps_of_any_number_of_parts_leave_nothing_behind(given_up: int) -> None:
    """Not even one that was given up, whose last parts found no room beside the first ones."""
    model, batch = net("group"), data(40)
    probe = NoiseProbe(model, sgd(model), batch_size=40)
    for _ in range(given_up):
        loss_of(model)(batch).backward()
        probe.micro_batch()
    probe.skip_step()
    counts = [10, 2, 20, 4, 8]
    for parts in counts:
        model.zero_grad()
        probe.backward(loss_of(model), batch, parts=parts)
    for parts, reading in zip(counts, probe.readings, strict=True):
        assert numbers(reading) == pytest.approx(expected(model, batch, parts), rel=1e-10)


def test_single_precision_keeps_a_small_noise_beside_a_large_signal() -> None:
    """Where N is a thousandth of G: single precision is good to seven digits, and three are lost in the difference."""
    torch.manual_seed(0)
    model = nn.Linear(60_000, 1, bias=False)
    gradients = 1 + 0.03 * torch.randn(4, 60_000)
    probe = NoiseProbe(model, sgd(model), batch_size=4)
    for one in gradients:
        (model(one) / 4).sum().backward()
        probe.micro_batch()
    probe.close_step()
    (reading,) = probe.readings
    exact, weights = gradients.double(), model.weight.detach().double().flatten()
    mean = exact.mean(dim=0)
    noise = float((exact - mean).square().sum() / 3 / 4)
    assert reading.noise_trace == pytest.approx(noise, rel=1e-3)
    assert reading.grad_sq == pytest.approx(float(mean @ mean) - noise, rel=1e-6)
    assert reading.param_sq == pytest.approx(float(weights @ weights), rel=1e-6)
    assert reading.param_dot_grad == pytest.approx(
        float(weights @ mean), abs=1e-6 * float(weights.norm() * mean.norm())
    )


@pytest.mark.parametrize("width", [100, 50_000], ids=["small", "large"])
@pytest.mark.parametrize("parts", [2, 12])
def test_it_holds_one_extra_gradient_whatever_the_size(width: int, parts: int) -> None:
    """Counted by the allocator: what a step leaves is the copy, and a few norms for each row of it."""
    model = nn.Linear(width, 8, bias=False)
    optimizer = sgd(model)
    batch = torch.randn(2 * parts, width)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as log:
        probe = NoiseProbe(model, optimizer, batch_size=2 * parts)
        probe.backward(lambda x: model(x).mean(), batch, parts=parts)
    held = sum(e.nbytes() for e in log.profiler.kineto_results.events() if e.name() == "[memory]")  # `.grad` included
    gradient_bytes = 4 * 8 * width
    assert 2 * gradient_bytes <= held <= 2.1 * gradient_bytes + 8192  # the copy ends with a whole row of 1,024 numbers


def test_gradients_are_those_of_the_micro_batched_step_bit_for_bit() -> None:
    with_probe, without = net(dropout=True), net(dropout=True)
    batch = data(16)
    probe = NoiseProbe(with_probe, sgd(with_probe), batch_size=16)
    torch.manual_seed(2)
    loss = probe.backward(loss_of(with_probe), batch, parts=4)
    torch.manual_seed(2)
    losses = []
    for part in split(batch, 4):
        part_loss = loss_of(without)(part) / 4
        part_loss.backward()
        losses.append(part_loss.detach())
    assert torch.equal(loss, torch.stack(losses).sum())
    for one, other in zip(with_probe.parameters(), without.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad)


def test_unbiased_over_every_batch_of_a_tiny_data_set() -> None:
    model, (x, y) = net(), data(5)
    full = gradient(model, (x, y))
    draws = [gradient(model, (x[list(d)], y[list(d)])) - full for d in itertools.combinations(range(5), 4)]
    probe = NoiseProbe(model, sgd(model), batch_size=4, population=5)
    for order in itertools.permutations(range(5), 4):
        model.zero_grad()
        probe.backward(loss_of(model), (x[list(order)], y[list(order)]), parts=2)
    assert np.mean([r.grad_sq for r in probe.readings]) == pytest.approx(float(full @ full), rel=1e-12)
    trace = float(torch.stack(draws).square().sum(dim=1).mean())
    assert np.mean([r.noise_trace for r in probe.readings]) == pytest.approx(trace, rel=1e-12)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_accumulation_loop_with_a_scaler_and_clipping(set_to_none: bool) -> None:
    model = net()
    optimizer = sgd(model)
    probe = NoiseProbe(model, optimizer, batch_size=16)
    for step, batch in enumerate(batches(3, 16)):
        truth = expected(model, batch, 4)
        weights = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
        radial = float(weights @ gradient(model, batch))
        optimizer.zero_grad(set_to_none=set_to_none)
        for part in split(batch, 4):
            (1024.0 * loss_of(model)(part) / 4).backward()
            probe.micro_batch(scale=1024.0)
        probe.close_step()
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad /= 1024.0
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        optimizer.step()
        reading = probe.readings[-1]
        assert numbers(reading) == pytest.approx(truth, rel=1e-10)
        assert reading.param_dot_grad == pytest.approx(radial, rel=1e-9)
        assert reading.step == step


def test_backward_with_a_grad_scaler() -> None:
    model, batch = net(), data(16)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    optimizer = sgd(model)
    probe = NoiseProbe(model, optimizer, batch_size=16)
    truth = expected(model, batch, 4)
    loss = probe.backward(loss_of(model), batch, parts=4, scaler=scaler)
    assert numbers(probe.readings[0]) == pytest.approx(truth, rel=1e-10)
    assert float(loss) == pytest.approx(loss_of(model)(batch).item(), rel=1e-10)
    scaler.step(optimizer)


def test_a_step_that_is_not_finite_is_counted_and_without_a_scaler_warned_of_once() -> None:
    model, batch = net(), data(16)
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    assert "skipped" not in probe.scalars()
    wrong, right = (float("nan"), 1.0), (1.0, 1.0)
    for number, (factor, scale) in enumerate([right, (float("inf"), 4.0), wrong, right, wrong, right]):
        model.zero_grad()
        for part in split(batch, 2):
            (factor * loss_of(model)(part) / 2).backward()
            probe.micro_batch(scale)
        probe.close_step()
        with pytest.warns(UserWarning, match="step 2") if number == 2 else nullcontext():
            assert probe.scalars().get("skipped", 0) == [0, 1, 2, 2, 3, 3][number]
    assert [reading.step for reading in probe.readings] == [0, 3, 5]
    state = json.loads(json.dumps(probe.state_dict()))
    probe.close()
    continued = NoiseProbe(model, sgd(model), batch_size=16)
    continued.load_state_dict(state)
    assert continued.scalars()["skipped"] == 3
    del state["skipped"]  # as in a checkpoint of version 0.1.0
    continued.load_state_dict(state)
    assert "skipped" not in continued.scalars()


def test_parameters_restrict_tied_count_once_and_unused_are_zero() -> None:
    torch.manual_seed(0)

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(4, 4, dtype=torch.float64)
            self.two = nn.Linear(4, 4, dtype=torch.float64)
            self.two.weight = self.one.weight
            self.frozen = nn.Linear(4, 4, dtype=torch.float64).requires_grad_(False)
            self.unused = nn.Linear(4, 4, dtype=torch.float64)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.frozen(self.two(torch.tanh(self.one(x))))
            return logits

    model, (x, y) = Tied(), data(8)
    parts = [torch.autograd.grad(loss_of(model)(part), [model.one.weight])[0].reshape(-1) for part in split((x, y), 4)]
    gradients = torch.stack(parts)
    spread = float((gradients - gradients.mean(dim=0)).square().sum() / 3)
    probe = NoiseProbe(model, sgd(model), batch_size=8, parameters=[model.one.weight, model.unused.weight])
    probe.backward(loss_of(model), (x, y), parts=4)
    (reading,) = probe.readings
    assert reading.noise_trace == pytest.approx(spread / 4, rel=1e-10)
    measured = [model.one.weight, model.unused.weight]
    assert reading.param_sq == pytest.approx(sum(float(p.detach().square().sum()) for p in measured), rel=1e-12)


def test_parameters_that_only_some_micro_batches_use() -> None:
    """A gradient that comes late or never counts as 0 before, in every step."""
    torch.manual_seed(0)
    first, second, unused = (nn.Linear(4, 4, dtype=torch.float64) for _ in range(3))
    model = nn.ModuleList([first, second, unused])
    optimizer, (x, y) = sgd(model), data(8)
    probe = NoiseProbe(model, optimizer, batch_size=8)
    layers = [first, nn.Sequential(first, second)]
    for _ in range(3):
        optimizer.zero_grad()
        parts = []
        for layer, part in zip(layers, split((x, y), 2), strict=True):
            loss = loss_of(layer)(part)
            found: tuple[torch.Tensor | None, ...] = torch.autograd.grad(
                loss, list(model.parameters()), retain_graph=True, allow_unused=True
            )
            parts.append(
                torch.cat(
                    [
                        torch.zeros(p.numel()) if g is None else g.reshape(-1)
                        for p, g in zip(model.parameters(), found, strict=True)
                    ]
                )
            )
            (loss / 2).backward()
            probe.micro_batch()
        probe.close_step()
        optimizer.step()
        one, other = parts
        noise = float((one - other).square().sum()) / 4
        assert numbers(probe.readings[-1]) == pytest.approx((float(one @ other), noise), rel=1e-10)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_of_any_precision_and_layout(dtype: torch.dtype, channels_last: bool, create_graph: bool) -> None:
    """They are given, so that the answer is exact: sums of whole numbers, which even bfloat16 holds."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = nn.Conv2d(2, 3, 3, bias=False, dtype=dtype)
    nn.init.ones_(model.weight)
    parts = torch.randint(-8, 9, (4, *model.weight.shape), generator=torch.Generator().manual_seed(0)).to(dtype)
    probe = NoiseProbe(model, sgd(model), batch_size=4)
    for number in range(4):
        so_far = parts[: number + 1].sum(dim=0).to(memory_format=layout)
        model.weight.grad = so_far.requires_grad_() if create_graph else so_far
        probe.micro_batch()
    probe.close_step()
    (reading,) = probe.readings
    each = 4 * parts.double().flatten(1)
    mean = each.mean(dim=0)
    noise = float((each - mean).square().sum() / 3 / 4)
    assert numbers(reading) == pytest.approx((float(mean @ mean) - noise, noise), rel=1e-5)
    assert reading.param_dot_grad == pytest.approx(float(mean.sum()), rel=1e-5)


def test_mixed_dtypes() -> None:
    model, batch = net(), data(16)
    model[4].float()  # type: ignore[index]
    cast = nn.Sequential(*list(model)[:4], Cast(), model[4])  # type: ignore[call-overload,index]
    probe = NoiseProbe(cast, sgd(cast), batch_size=16)
    probe.backward(loss_of(cast), batch, parts=4)
    assert numbers(probe.readings[0]) == pytest.approx(expected(net(), batch, 4), rel=1e-4)


class Cast(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.float()


def test_steps_nobody_measures_and_frozen_readings_in_between_do_no_harm() -> None:
    model = net(dropout=True)
    optimizer = sgd(model)
    probe = NoiseProbe(model, optimizer, batch_size=16)
    for step, batch in enumerate(batches(6, 16)):
        optimizer.zero_grad()
        for part in split(batch, 2):
            (loss_of(model)(part) / 2).backward()
            if step % 3 == 2:
                probe.micro_batch()
        if step % 3 == 2:
            probe.close_step(step=step)
        optimizer.step()
        measure_noise(model, loss_of(model), batches(2, 4))
    assert [reading.step for reading in probe.readings] == [2, 5]


def accumulate(model: nn.Module, probe: NoiseProbe, count: int) -> None:
    model.zero_grad()
    for part in split(data(16), 4)[:count]:
        (loss_of(model)(part) / 4).backward()
        probe.micro_batch()


@pytest.mark.parametrize("abandoned", [True, False])
def test_a_short_or_abandoned_step_is_refused_or_skipped(abandoned: bool) -> None:
    model = net()
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    accumulate(model, probe, 4)
    probe.close_step()
    for skip in (False, True):
        accumulate(model, probe, 2)
        if skip:
            probe.skip_step()
            accumulate(model, probe, 4)
            probe.close_step()
            continue
        if abandoned:
            accumulate(model, probe, 4)
        with pytest.raises(ValueError, match=rf"^got {6 if abandoned else 2} .* 4\b"):
            probe.close_step()
    first, second = (numbers(reading) for reading in probe.readings)
    assert first == second == pytest.approx(expected(model, data(16), 4), rel=1e-10)


def weighted(model: nn.Module, probe: NoiseProbe, sizes: list[int], weights: list[float | None]) -> None:
    x, y = data(16)
    model.zero_grad()
    for rows, labels, weight in zip(x.split(sizes), y.split(sizes), weights, strict=True):
        (loss_of(model)((rows, labels)) * len(rows) / 16).backward()
        probe.micro_batch(weight=weight)
    probe.close_step()


@pytest.mark.parametrize("population", [None, 100])
def test_parts_of_different_weights(population: int | None) -> None:
    model, (x, y) = net(), data(16)
    probe = NoiseProbe(model, sgd(model), batch_size=16, population=population)
    sizes = [3, 8, 5]
    weighted(model, probe, sizes, [size / 16 for size in sizes])
    weighted(model, probe, [4, 4, 4, 4], [0.25] * 4)  # their number may change
    parts = [gradient(model, part) * len(part[0]) / 16 for part in zip(x.split(sizes), y.split(sizes), strict=True)]
    counted = torch.stack(parts)
    square = float(counted.sum(dim=0).square().sum())
    grad_sq = (square - float(counted.square().sum())) / (1 - sum((size / 16) ** 2 for size in sizes))
    noise, taken = square - grad_sq, 0.0 if population is None else 16 / population
    first, second = probe.readings
    assert numbers(first) == pytest.approx((grad_sq + taken * noise, noise * (1 - taken)), rel=1e-10)
    assert first.weights_sq == pytest.approx(sum((size / 16) ** 2 for size in sizes), rel=1e-12)
    weights = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    assert first.param_dot_grad == pytest.approx(float(weights @ gradient(model, (x, y))), rel=1e-9)
    # equal weights are equal parts
    assert numbers(second) == pytest.approx(expected(model, (x, y), 4, population), rel=1e-10)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([0.5, None], "^1 of 2 "),
        ([0.5, 0.25], r" 1, got 0.75"),
        ([0.5, 0.0], r"^weight\b"),
    ],
)
def test_weights_that_make_no_sense_are_refused(weights: list[float | None], message: str) -> None:
    model = net()
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    with pytest.raises(ValueError, match=message):
        weighted(model, probe, [8, 8], weights)
    probe.skip_step()
    weighted(model, probe, [4, 12], [0.25, 0.75 + 1e-7])
    assert len(probe.readings) == 1


def test_parts_named_in_backward_may_change() -> None:
    model = net()
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    for parts in (2, 4):
        model.zero_grad()
        probe.backward(loss_of(model), data(16), parts=parts)
    assert [reading.n for reading in probe.readings] == [2, 4]


def test_an_accumulation_loop_with_batch_norm_measures_the_run_as_it_is() -> None:
    model = net("batch")
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    accumulate(model, probe, 4)
    probe.close_step()
    assert not probe.readings[0].approximate


def test_several_backward_calls_make_one_micro_batch() -> None:
    model, batch = net(), data(16)
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    for number, part in enumerate(split(batch, 4)):
        (loss_of(model)(part) / 4).backward()
        if number % 2:
            probe.micro_batch()
    probe.close_step()
    assert numbers(probe.readings[0]) == pytest.approx(expected(model, batch, 2), rel=1e-10)


def test_many_steps_are_fetched_in_bunches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("svag.noise.pending._FETCH_EVERY", 3)
    model = net()
    probe = NoiseProbe(model, sgd(model), batch_size=4)
    for batch in batches(7, 4):
        model.zero_grad()
        probe.backward(loss_of(model), batch, parts=2)
    assert [reading.step for reading in probe.readings] == list(range(7))


@pytest.mark.parametrize("tensor", [False, True])
def test_a_reading_has_the_settings_of_its_own_step(tensor: bool) -> None:
    """Though they are looked through only when all readings are asked for, after the schedule has moved on."""
    model = net()
    optimizer = SGD(model.parameters(), lr=torch.tensor(0.1) if tensor else 0.1, weight_decay=0.01)
    probe = NoiseProbe(model, optimizer, batch_size=16)
    for _ in range(3):
        model.zero_grad()
        probe.backward(loss_of(model), data(16))
        group = optimizer.param_groups[0]
        group["weight_decay"] += 0.01
        group["lr"] *= 0.5  # a tensor changes in place
    assert [reading.lr for reading in probe.readings] == pytest.approx([0.1, 0.05, 0.025])
    assert [reading.weight_decay for reading in probe.readings] == pytest.approx([0.01, 0.02, 0.03])
