import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.noise.nets import Norm, Pair, batches, data, everything, gradient, loss_of, net
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from svag import NoiseProbe, Reading, measure_noise, predict_critical_batch
from svag.noise.batches import split
from svag.noise.settings import velocities


def sgd(model: nn.Module) -> SGD:
    return SGD(model.parameters(), lr=0.1, weight_decay=0.01)


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


def test_an_overflow_under_a_scaler_is_skipped_and_without_one_reported_once() -> None:
    model, batch = net(), data(16)
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    for factor, scale in [(1.0, 1.0), (float("inf"), 4.0), (float("nan"), 1.0), (1.0, 1.0)]:
        model.zero_grad()
        for part in split(batch, 2):
            (factor * loss_of(model)(part) / 2).backward()
            probe.micro_batch(scale)
        probe.close_step()
    with pytest.raises(ValueError, match=r"the gradients of step 2 are not finite \(1 such steps\)"):
        probe.readings  # noqa: B018  # asking is what raises
    assert [reading.step for reading in probe.readings] == [0, 3]


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


def test_velocity_and_momentum_are_recorded() -> None:
    model = net()
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    probe = NoiseProbe(model, optimizer, batch_size=16)
    for batch in batches(2, 16):
        optimizer.zero_grad()
        probe.backward(loss_of(model), batch)
        velocity = [optimizer.state[p].get("momentum_buffer") for p in model.parameters()]
        squares = [float(v.square().sum()) for v in velocity if v is not None]
        optimizer.step()
    first, second = probe.readings
    assert first.velocity_sq is None
    assert second.velocity_sq == pytest.approx(sum(squares), rel=1e-12)
    assert second.momentum == 0.9


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda p: AdamW(p, lr=0.1), "AdamW"),
        (lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True), "SGD with Nesterov momentum"),
        (lambda p: SGD(p, lr=0.1, momentum=0.9, dampening=0.1), "SGD with dampening"),
        (lambda p: SGD(p, lr=torch.tensor(0.1)), "SGD"),
    ],
)
def test_the_kind_of_optimizer_is_recorded(make: Callable[[list[nn.Parameter]], Optimizer], kind: str) -> None:
    model = net()
    probe = NoiseProbe(model, make(list(model.parameters())), batch_size=16)
    probe.backward(loss_of(model), data(16))
    assert probe.readings[0].optimizer == kind
    assert probe.readings[0].lr == pytest.approx(0.1)


def test_groups_that_disagree_have_no_one_weight_decay() -> None:
    model = net()
    weights = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim == 1]
    groups: list[dict[str, Any]] = [{"params": weights, "weight_decay": 0.1}, {"params": rest}]
    optimizer = SGD(groups, lr=0.1)
    probe, decayed = (NoiseProbe(model, optimizer, batch_size=16, parameters=p) for p in (None, weights))
    model.zero_grad()
    for part in split(data(16), 2):
        (loss_of(model)(part) / 2).backward()
        probe.micro_batch()
        decayed.micro_batch()
    probe.close_step()
    decayed.close_step()
    assert probe.readings[0].weight_decay is None
    assert decayed.readings[0].weight_decay == 0.1
    mixed, one = (predict_critical_batch(p.readings).status for p in (probe, decayed))
    assert "different weight decays: pass parameters=" in mixed
    assert "different" not in one


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
        with pytest.raises(ValueError, match=f"got {6 if abandoned else 2} micro-batches where earlier steps had 4"):
            probe.close_step()
    first, second = (numbers(reading) for reading in probe.readings)
    assert first == second == pytest.approx(expected(model, data(16), 4), rel=1e-10)


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


def test_a_closed_probe_refuses_and_keeps_its_readings() -> None:
    model = net()
    with NoiseProbe(model, sgd(model), batch_size=16) as probe:
        probe.backward(loss_of(model), data(16))
    calls: list[Callable[[], object]] = [
        lambda: probe.backward(loss_of(model), data(16)),
        probe.micro_batch,
        probe.close_step,
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match="this probe is closed"):
            call()
    assert len(probe.readings) == 1


def test_a_velocity_counts_only_when_every_measured_parameter_has_one() -> None:
    model = net()
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    first, *others = model.parameters()
    first.grad = torch.ones_like(first)
    optimizer.step()
    assert velocities(optimizer, [first]) == [optimizer.state[first]["momentum_buffer"]]
    assert velocities(optimizer, [first, *others]) == []


def bad_calls() -> list[tuple[Callable[[NoiseProbe, nn.Module], object], type[Exception], str]]:
    def backward(*parts: object) -> Callable[[NoiseProbe, nn.Module], object]:
        return lambda probe, model: probe.backward(loss_of(model), *parts)  # type: ignore[arg-type]

    def vector(probe: NoiseProbe, model: nn.Module) -> None:
        probe.backward(lambda b: nn.functional.cross_entropy(model(b[0]), b[1], reduction="none"), data(16))

    def second_part_fails(probe: NoiseProbe, model: nn.Module) -> None:
        calls = itertools.count()
        probe.backward(lambda b: loss_of(model)(b) if next(calls) == 0 else model(b[0]), data(16))

    return [
        (backward(data(12)), ValueError, r"the batch has 12 examples, but the probe was made for batch_size=16"),
        (backward(data(16), 5), ValueError, "cannot be cut into 5 equal parts"),
        (backward(data(16), 1), ValueError, "parts must be at least 2, got 1"),
        (backward((torch.zeros(0, 4), torch.zeros(0))), ValueError, "the batch is empty"),
        (vector, ValueError, "as a scalar"),
        (second_part_fails, ValueError, "as a scalar"),
        (lambda probe, _: probe.close_step(), ValueError, "at least 2 micro-batches, got 0"),
        (lambda probe, _: probe.micro_batch(scale=0.0), ValueError, "scale must be positive"),
    ]


@pytest.mark.parametrize("number", range(len(bad_calls())))
@pytest.mark.parametrize("set_to_none", [True, False])
def test_bad_calls_are_one_sentence_and_the_model_is_as_it_was(number: int, set_to_none: bool) -> None:
    call, error, message = bad_calls()[number]
    model = net("batch")
    if not set_to_none:
        loss_of(model)(data(4)).backward()
        model.zero_grad(set_to_none=False)
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    before = everything(model)
    with pytest.raises(error, match=message) as caught:
        call(probe, model)
    assert "\n" not in str(caught.value)
    assert everything(model) == before
    model.zero_grad()
    probe.backward(loss_of(model), data(16))  # and the probe still works
    assert len(probe.readings) == 1


def test_gradients_left_from_an_earlier_step_are_noticed() -> None:
    model = net()
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    loss_of(model)(data(16)).backward()
    before = everything(model)
    with pytest.raises(ValueError, match=r"call optimizer.zero_grad\(\)"):
        probe.backward(loss_of(model), data(16))
    assert everything(model) == before


def test_a_micro_batch_without_a_gradient_is_refused() -> None:
    model = net()
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    with pytest.raises(ValueError, match="there is no gradient yet"):
        probe.micro_batch()


def test_several_backward_calls_make_one_micro_batch() -> None:
    model, batch = net(), data(16)
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    for number, part in enumerate(split(batch, 4)):
        (loss_of(model)(part) / 4).backward()
        if number % 2:
            probe.micro_batch()
    probe.close_step()
    assert numbers(probe.readings[0]) == pytest.approx(expected(model, batch, 2), rel=1e-10)


def test_refused_at_construction() -> None:
    model = net()
    with pytest.raises(ValueError, match="batch_size must be at least 2"):
        NoiseProbe(model, sgd(model), batch_size=0)
    with pytest.raises(ValueError, match="batch_size must be a whole number"):
        NoiseProbe(model, sgd(model), batch_size=8.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the full batch has no noise"):
        NoiseProbe(model, sgd(model), batch_size=16, population=16)
    with pytest.raises(ValueError, match="holds none of the measured parameters"):
        NoiseProbe(model, sgd(net()), batch_size=16)
    embedding = nn.Embedding(3, 3, sparse=True)
    with pytest.raises(TypeError, match="sparse=False"):
        NoiseProbe(embedding, sgd(embedding), batch_size=16)
    with pytest.raises(ValueError, match="nothing to measure"):
        NoiseProbe(model.requires_grad_(False), sgd(model), batch_size=16)


def test_many_steps_are_fetched_in_bunches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("svag.noise.pending._FETCH_EVERY", 3)
    model = net()
    probe = NoiseProbe(model, sgd(model), batch_size=4)
    for batch in batches(7, 4):
        model.zero_grad()
        probe.backward(loss_of(model), batch, parts=2)
    assert [reading.step for reading in probe.readings] == list(range(7))
