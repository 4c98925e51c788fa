"""V = Σv̂ of Adam, AdamW and RMSprop in readings, against moving averages that the tests compute themselves."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice, product
from typing import Any

import pytest
import torch
from tests.noise.nets import batches, data, everything, loss_of, net
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, NAdam, Optimizer, RMSprop

from svag import NoiseProbe, Reading, measure_noise
from svag.noise import optimizer as adapter
from svag.noise.optimizer import second_moment, settings_of, state_of
from svag.theory import distortion

STEPS = 4


def steps(model: nn.Module, optimizer: Optimizer, count: int = STEPS) -> Iterator[list[Tensor | None]]:
    """Train, and yield the gradients of every step before it is taken."""
    for batch in batches(count, 16):
        optimizer.zero_grad()
        loss_of(model)(batch).backward()
        yield [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        optimizer.step()


def probed(model: nn.Module, optimizer: Optimizer, count: int = STEPS) -> tuple[Sequence[Reading], list[list[Tensor]]]:
    """Readings of a run, and the gradients of its steps as the optimizer saw them."""
    probe, seen = NoiseProbe(model, optimizer, batch_size=16), []
    for batch in batches(count, 16):
        optimizer.zero_grad()
        probe.backward(loss_of(model), batch)
        seen.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        optimizer.step()
    return probe.readings, seen


def averages(gradients: list[list[Tensor]], beta: float, *, corrected: bool = True) -> list[float]:
    """Σv̂ after each step, from the definition."""
    found, v = [], [torch.zeros_like(gradient) for gradient in gradients[0]]
    for step, now in enumerate(gradients, start=1):
        v = [beta * old + (1 - beta) * g**2 for old, g in zip(v, now, strict=True)]
        found.append(math.fsum(float(one.sum()) for one in v) / (1 - beta**step if corrected else 1.0))
    return found


@pytest.mark.parametrize("how", [{}, {"foreach": True}, {"foreach": False}, {"fused": True}], ids=str)
@pytest.mark.parametrize("make", [Adam, AdamW])
def test_v_of_adam_is_bias_corrected(make: Callable[..., Optimizer], how: dict[str, bool]) -> None:
    model = net()
    readings, gradients = probed(model, make(model.parameters(), lr=0.01, betas=(0.9, 0.99), weight_decay=0.0, **how))
    first, *later = readings
    assert first.second_moment is None, "there is no average before the first step"
    assert first.dimension is None
    assert (first.betas, first.eps) == ((0.9, 0.99), 1e-8)
    truth = averages(gradients, 0.99)[:-1]
    assert [reading.second_moment for reading in later] == pytest.approx(truth, rel=1e-12)
    assert {reading.dimension for reading in later} == {sum(p.numel() for p in model.parameters())}
    control = averages(gradients, 0.99, corrected=False)[:-1]
    assert later[0].second_moment == pytest.approx(100 * control[0]), "without the correction V would be 100 times less"


def test_v_of_rmsprop_is_plain() -> None:
    model = net()
    readings, gradients = probed(model, RMSprop(model.parameters(), lr=0.01, alpha=0.9, eps=1e-6))
    truth = averages(gradients, 0.9, corrected=False)[:-1]
    assert [reading.second_moment for reading in readings] == [None, *(pytest.approx(v, rel=1e-12) for v in truth)]
    assert (readings[1].betas, readings[1].eps, readings[1].momentum) == ((0.0, 0.9), 1e-6, 0.0)
    control = averages(gradients, 0.9)
    assert readings[1].second_moment != pytest.approx(control[0])


def test_groups_may_differ_and_each_has_its_own_correction() -> None:
    model = net()
    weights, rest = ([p for p in model.parameters() if (p.ndim > 1) == wide] for wide in (True, False))
    groups: list[dict[str, Any]] = [
        {"params": weights, "weight_decay": 0.1, "lr": 0.02, "betas": (0.9, 0.95)},
        {"params": rest, "weight_decay": 0.0, "eps": 1e-6},
    ]
    readings, gradients = probed(model, AdamW(groups, lr=0.01))
    parts = [[[g for g in now if (g.ndim > 1) == wide] for now in gradients] for wide in (True, False)]
    truth = [a + b for a, b in zip(averages(parts[0], 0.95), averages(parts[1], 0.999), strict=True)]
    assert [reading.second_moment for reading in readings[1:]] == pytest.approx(truth[:-1], rel=1e-12)
    last = readings[-1]
    assert (last.optimizer, last.lr, last.weight_decay, last.betas, last.eps) == ("AdamW", None, None, None, None)


def test_only_the_measured_parameters_count() -> None:
    model = net()
    optimizer = Adam(model.parameters(), lr=0.01)
    gradients = [[g for g in now if g is not None] for now in steps(model, optimizer)]
    chosen = list(model.parameters())[:2]
    found = state_of(optimizer, chosen).reading_fields()
    assert found["second_moment"] == pytest.approx(averages([now[:2] for now in gradients], 0.999)[-1], rel=1e-12)
    assert found["dimension"] == sum(p.numel() for p in chosen)


def test_parameters_that_join_later_have_a_shorter_average_and_unused_ones_none() -> None:
    late, early, unused = (nn.Parameter(torch.ones(2, dtype=torch.float64)) for _ in range(3))
    optimizer = Adam([early, late, unused], lr=0.01, betas=(0.9, 0.9))
    early.grad = torch.full_like(early, 3.0)
    optimizer.step()
    late.grad = torch.full_like(late, 2.0)
    optimizer.step()
    # equal gradients: v̂ is their square, whatever the step; with the other's step it would not be
    found = second_moment(optimizer, [early, late, unused])
    assert float(found) == pytest.approx(2 * 9 + 2 * 4, rel=1e-12)  # type: ignore[arg-type]
    assert second_moment(optimizer, [unused]) is None


class _OwnAdam(Adam):
    """A subclass may do anything with its average."""


@pytest.mark.parametrize(
    "make",
    [
        lambda p: Adam(p, amsgrad=True),
        lambda p: RMSprop(p, centered=True),
        lambda p: NAdam(p),
        lambda p: _OwnAdam(p),
        lambda p: SGD(p, lr=0.1, momentum=0.9),
    ],
    ids=["amsgrad", "centered", "NAdam", "subclass", "SGD"],
)
def test_where_v_means_something_else_there_is_none(make: Callable[[list[nn.Parameter]], Optimizer]) -> None:
    model = net()
    readings, _ = probed(model, make(list(model.parameters())))
    assert [reading.second_moment for reading in readings] == [None] * STEPS
    assert [reading.dimension for reading in readings] == [None] * STEPS


def test_adam_with_decoupled_decay_is_adamw() -> None:
    model = net()
    assert (
        settings_of(Adam(model.parameters(), decoupled_weight_decay=True), [*model.parameters()]).optimizer == "AdamW"
    )
    assert settings_of(Adam(model.parameters()), [*model.parameters()]).optimizer == "Adam"


@pytest.mark.parametrize("kind", [Adam, RMSprop])
def test_numbers_on_a_device_are_not_waited_for(
    kind: Callable[..., Optimizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the state lived on a device: the same V in one fused pass, fetched when the reading is made."""
    model = net()
    optimizer = kind(model.parameters(), lr=0.01)
    for _ in steps(model, optimizer):
        pass
    measured = list(model.parameters())
    plain = state_of(optimizer, measured).reading_fields()
    with monkeypatch.context() as away:
        away.setattr(adapter, "_is_far", lambda value: True)
        for name in ("item", "tolist", "__float__", "__bool__"):
            away.setattr(torch.Tensor, name, _waits)
        pending = state_of(optimizer, measured)
    assert pending.reading_fields() == plain | {"second_moment": pytest.approx(plain["second_moment"], rel=1e-12)}


def _waits(value: Tensor) -> None:
    raise AssertionError("the device was waited for")


def test_a_second_moment_that_overflowed_is_not_known() -> None:
    model = net()
    optimizer = Adam(model.parameters(), lr=0.0)
    for _ in steps(model, optimizer, 1):
        pass
    optimizer.state[next(model.parameters())]["exp_avg_sq"].fill_(math.inf)
    found = state_of(optimizer, list(model.parameters())).reading_fields()
    assert (found["second_moment"], found["dimension"]) == (None, None)


def test_a_frozen_reading_knows_v_and_leaves_it_alone() -> None:
    model = net()
    optimizer = AdamW(model.parameters(), lr=0.01, betas=(0.5, 0.75))
    gradients = [[g for g in now if g is not None] for now in steps(model, optimizer)]
    before = everything(model), [state["exp_avg_sq"].clone() for state in optimizer.state.values()]
    found = measure_noise(model, loss_of(model), batches(4, 16), optimizer=optimizer)
    assert found.second_moment == pytest.approx(averages(gradients, 0.75)[-1], rel=1e-12)
    assert (found.optimizer, found.lr, found.weight_decay, found.betas) == ("AdamW", 0.01, 0.01, (0.5, 0.75))
    after = everything(model), [state["exp_avg_sq"] for state in optimizer.state.values()]
    assert before[0] == after[0]
    assert all(torch.equal(one, other) for one, other in zip(before[1], after[1], strict=True))
    assert measure_noise(model, loss_of(model), [data(16), data(16, 2)]).second_moment is None


ATOMS = torch.tensor([[1.0, 0.0], [3.0, 1.0], [2.0, -2.0]], dtype=torch.float64)


def stationary(make: Callable[[list[nn.Parameter]], Optimizer], size: int) -> Sequence[Reading]:
    """Readings over all batches of `size` draws from the atoms, in a cycle that has gone on for long, at frozen x.

    The gradient of a batch is its mean atom.
    """
    model = nn.Linear(2, 1, bias=False, dtype=torch.float64)
    optimizer = make(list(model.parameters()))
    every = [torch.stack(draws) for draws in product(ATOMS, repeat=size)]
    probe = NoiseProbe(model, optimizer, batch_size=size)
    for batch in islice(cycle(every), (128 // len(every) + 2) * len(every)):
        optimizer.zero_grad()
        probe.backward(lambda x: model(x).mean(), batch, parts=2)
        optimizer.step()
    return probe.readings[-len(every) :]


def mean(readings: Sequence[Reading], name: str) -> float:
    return math.fsum(getattr(reading, name) for reading in readings) / len(readings)


@pytest.mark.parametrize(
    "make",
    [lambda p: RMSprop(p, lr=0.0, alpha=0.5), lambda p: Adam(p, lr=0.0, betas=(0.9, 0.5))],
    ids=["RMSprop", "Adam"],
)
def test_v_settles_at_g_plus_n_and_grows_with_the_batch_by_the_distortion(
    make: Callable[[list[nn.Parameter]], Optimizer],
) -> None:
    small, large = stationary(make, 2), stationary(make, 4)
    centre = ATOMS.mean(dim=0)
    grad_sq, noise = float(centre @ centre), float((ATOMS - centre).square().sum(dim=1).mean()) / 2
    assert mean(small, "grad_sq") == pytest.approx(grad_sq, rel=1e-12)
    assert mean(small, "noise_trace") == pytest.approx(noise, rel=1e-12)
    assert mean(small, "second_moment") == pytest.approx(grad_sq + noise, rel=1e-12)
    grown = 2 * mean(large, "second_moment") / mean(small, "second_moment")
    assert grown == pytest.approx(distortion(noise / grad_sq, 2.0), rel=1e-12)
    assert grown > 1.1, "the rule presumes 1"
