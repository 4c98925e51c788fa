"""What a probe notices while it measures: other parameters, other probes, several optimizers, gradients left behind."""

import copy
import gc
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.noise.nets import batches, data, gradient, loss_of, net, sgd
from tests.noise.test_pending import accumulate, train
from torch import nn
from torch.optim import SGD, AdamW
from torch.optim.optimizer import Optimizer

from svag import GainRule, NoiseProbe, Reading
from svag.noise import parameters
from svag.noise.batches import split
from svag.noise.parameters import Watched
from svag.prices.reasons import Code


def expected(model: nn.Module, batch: Any, parts: int = 4) -> tuple[float, float, float]:
    """G, N and R of the parameters that train, by the textbook sums."""
    gradients = torch.stack([gradient(model, part) for part in split(batch, parts)])
    mean = gradients.mean(dim=0)
    noise = float((gradients - mean).square().sum() / (parts - 1)) / parts
    weights = sum(float(p.detach().square().sum()) for p in model.parameters() if p.requires_grad)
    return float(mean @ mean) - noise, noise, weights


def numbers(reading: Reading) -> tuple[float, float, float]:
    return reading.grad_sq, reading.noise_trace, reading.param_sq


def unfreeze(model: Any, optimizer: SGD) -> None:
    model[0].requires_grad_(True)
    optimizer.add_param_group({"params": list(model[0].parameters())})


def freeze(model: Any, optimizer: SGD) -> None:
    model[4].bias.requires_grad_(False)


def replace_layer(model: Any, optimizer: SGD) -> None:
    torch.manual_seed(1)
    model[4] = nn.Linear(8, 3, dtype=torch.float64)
    optimizer.param_groups[0]["params"] = [p for p in model.parameters() if p.requires_grad]


def replace_tensor(model: Any, optimizer: SGD) -> None:
    model[4].weight = nn.Parameter(2 * model[4].weight.detach())
    optimizer.param_groups[0]["params"] = [p for p in model.parameters() if p.requires_grad]


def add_layer(model: Any, optimizer: SGD) -> None:
    torch.manual_seed(1)
    model.append(nn.Linear(3, 3, dtype=torch.float64))
    optimizer.add_param_group({"params": list(model[5].parameters())})


CHANGES = [unfreeze, freeze, replace_layer, replace_tensor, add_layer]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("loop", [train, accumulate])
@pytest.mark.parametrize("every", [1, 2])
def test_the_next_reading_is_of_what_trains(change: Callable[[Any, SGD], None], loop: Any, every: int) -> None:
    model: Any = net()
    model[0].requires_grad_(False)
    optimizer = SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    probe = NoiseProbe(model, optimizer, batch_size=16, every=every)
    first = expected(model, data(16))
    loop(probe, model, optimizer, [data(16)] * every)
    change(model, optimizer)
    second = expected(model, data(16))
    with pytest.warns(UserWarning, match=f"from step {every} on"):
        loop(probe, model, optimizer, [data(16)] * every)
    model[4].bias.requires_grad_(not model[4].bias.requires_grad)  # once more, and not told of again
    third = expected(model, data(16))
    loop(probe, model, optimizer, [data(16)])
    for reading, truth in zip(probe.readings, (first, second, third), strict=True):
        assert numbers(reading) == pytest.approx(truth, rel=1e-9)


def test_what_stays_the_same_is_not_a_change() -> None:
    """A layer that another loss freezes for a while, and a parameter that is not measured."""
    model: Any = net()
    optimizer = sgd(model)
    some = NoiseProbe(model, optimizer, batch_size=16, parameters=[model[0].weight])
    probe = NoiseProbe(model, optimizer, batch_size=16)
    watched = Watched(model)
    for batch in batches(3, 16):
        model.requires_grad_(False)
        assert watched.changed()
        model.requires_grad_(True)
        assert not watched.changed()
        train(probe, model, optimizer, [batch])
    model[4].bias.requires_grad_(False)
    train(some, model, optimizer, batches(1, 16))
    assert some.readings[0].param_sq == pytest.approx(float(model[0].weight.detach().square().sum()), rel=1e-2)
    assert not Watched(model).changed()


def test_what_cannot_be_followed_is_refused_with_the_gradient_as_it_was() -> None:
    model: Any = net()
    optimizer = sgd(model)
    probe = NoiseProbe(model, optimizer, batch_size=16, parameters=[model[4].weight])
    train(probe, model, optimizer, batches(1, 16))
    replace_layer(model, optimizer)
    for _ in range(2):
        optimizer.zero_grad()
        with pytest.raises(ValueError, match=r"\b1 of .*replace=True"):
            probe.backward(loss_of(model), data(16))
    probe = NoiseProbe(model, optimizer, batch_size=16, parameters=[model[4].weight], replace=True)
    train(probe, model, optimizer, batches(1, 16))
    model.requires_grad_(False)
    optimizer.zero_grad()
    with pytest.raises(ValueError, match="replace=True"):
        probe.backward(loss_of(model), data(16))


def unfreeze_only(model: Any) -> None:
    model[0].requires_grad_(True)


def replace_only(model: Any) -> None:
    model[4] = nn.Linear(8, 3, dtype=torch.float64)


@pytest.mark.parametrize("change", [unfreeze_only, replace_only])
def test_new_parameters_that_no_known_optimizer_trains_are_refused(change: Callable[[Any], None]) -> None:
    """They stay as they are, or another optimizer trains them, whose settings are not in the readings."""
    model: Any = net()
    model[0].requires_grad_(change is not unfreeze_only)
    optimizer = SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    probe = NoiseProbe(model, optimizer, batch_size=16)
    train(probe, model, optimizer, batches(2, 16))
    change(model)
    optimizer = SGD(model.parameters(), lr=0.001, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        with pytest.raises(ValueError, match=r"\b2 of .*add_param_group\(\).*replace=True"):
            probe.backward(loss_of(model), data(16))
    probe = NoiseProbe(model, optimizer, batch_size=16, replace=True)
    train(probe, model, optimizer, batches(2, 16))
    assert [reading.lr for reading in probe.readings] == [0.001, 0.001]
    assert probe.readings[1].velocity_sq


def test_a_layer_of_a_sharded_model_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parameters are not: fully_shard puts others in their place in every pass."""
    monkeypatch.setattr(parameters, "is_sharded", lambda _: True)
    model: Any = net()
    watched = Watched(model)
    model[4].weight = nn.Parameter(model[4].weight.detach())
    assert not watched.changed()
    replace_only(model)
    assert watched.changed()


def test_replace_closes_the_other_probe_and_an_unreachable_one_goes_by_itself(tmp_path: Any) -> None:
    model = net()
    optimizer = sgd(model)
    old = NoiseProbe(model, optimizer, batch_size=16, save_to=tmp_path / "old.jsonl")
    train(old, model, optimizer, batches(2, 16))
    with pytest.raises(ValueError, match="replace=True"):
        NoiseProbe(model, optimizer, batch_size=16)
    new = NoiseProbe(model, optimizer, batch_size=16, replace=True)
    assert len((tmp_path / "old.jsonl").read_text().splitlines()) == 2, "closed, and written"
    with pytest.raises(RuntimeError, match="closed"):
        old.backward(loss_of(model), data(16))
    train(new, model, optimizer, batches(1, 16))
    assert len(new.readings) == 1
    gc.disable()
    try:
        circle: list[Any] = [new]
        circle.append(circle)
        del new, circle
        NoiseProbe(model, optimizer, batch_size=16)
    finally:
        gc.enable()


def halves(model: Any) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    return list(model[0].parameters()), list(model[4].parameters())


@pytest.mark.parametrize("same", [True, False])
def test_a_list_of_optimizers(same: bool) -> None:
    model: Any = net()
    first, second = halves(model)
    kind = AdamW if same else SGD
    optimizers: list[Optimizer] = [kind(first, lr=0.1, weight_decay=0.01), AdamW(second, lr=0.1, weight_decay=0.02)]
    alone = copy.deepcopy(model)
    groups: list[dict[str, Any]] = [
        {"params": own, "weight_decay": decay} for own, decay in zip(halves(alone), (0.01, 0.02), strict=True)
    ]
    one = AdamW(groups, lr=0.1)
    probe, whole = NoiseProbe(model, optimizers, batch_size=16), NoiseProbe(alone, one, batch_size=16)
    for batch in batches(3, 16):
        for optimizer in optimizers:
            optimizer.zero_grad()
        probe.backward(loss_of(model), batch)
        for optimizer in optimizers:
            optimizer.step()
        train(whole, alone, one, [batch])  # type: ignore[arg-type]
    mine, theirs = probe.readings[1], whole.readings[1]
    if same:
        assert replace(mine, second_moment=theirs.second_moment) == theirs
        assert mine.second_moment == pytest.approx(theirs.second_moment, rel=1e-12)
        return
    assert (mine.optimizer, mine.lr, mine.weight_decay) == ("SGD + AdamW", 0.1, None)
    assert (mine.second_moment, mine.betas, mine.velocity_sq) == (None, None, None)
    answer = probe.price_list()
    assert Code.UNTESTED_OPTIMIZER in {reason.code for reason in (*answer.reasons, *answer.linear.reasons)}


def test_lists_that_hold_nothing_and_rules_of_several_are_refused() -> None:
    model = net()
    first, second = halves(model)
    with pytest.raises(ValueError, match=r"\boptimizers\b"):
        NoiseProbe(model, [], batch_size=16)
    with pytest.raises(ValueError, match=r"\boptimizer\b"):
        NoiseProbe(model, [sgd(net()), sgd(net())], batch_size=16)
    probe = NoiseProbe(model, [SGD(first, lr=0.1), SGD(second, lr=0.1)], batch_size=16)
    with pytest.raises(ValueError, match=r"GainRule\.planned"):
        GainRule(probe, base_batch_size=4)
    probe.close()
    GainRule(NoiseProbe(model, [sgd(model)], batch_size=16), base_batch_size=4).close()


def test_velocities_of_several_optimizers_are_one() -> None:
    model: Any = net()
    optimizers = [SGD(half, lr=0.1, momentum=0.9) for half in halves(model)]
    probe = NoiseProbe(model, optimizers, batch_size=16)
    velocity = 0.0
    for batch in batches(2, 16):
        model.zero_grad()
        velocity = sum(
            float(state["momentum_buffer"].square().sum()) for one in optimizers for state in one.state.values()
        )
        probe.backward(loss_of(model), batch)
        for optimizer in optimizers:
            optimizer.step()
    assert [one.velocity_sq for one in probe.readings] == [None, pytest.approx(velocity, rel=1e-12)]
    probe = NoiseProbe(model, [optimizers[0]], batch_size=16, replace=True)
    model.zero_grad()
    probe.backward(loss_of(model), data(16))
    assert probe.readings[0].velocity_sq is None, "the other half has none that is known"


def stale(model: nn.Module, probe: NoiseProbe, optimizer: Optimizer, *, passes: int = 1) -> None:
    for part in split(data(16), 4):
        for _ in range(passes):
            (loss_of(model)(part) / 4 / passes).backward()
        probe.micro_batch()
    probe.close_step()
    optimizer.step()


@pytest.mark.parametrize("passes", [1, 2])
def test_a_gradient_left_from_an_earlier_step_is_noticed_at_the_first_micro_batch(passes: int) -> None:
    model = net()
    optimizer = sgd(model)
    probe = NoiseProbe(model, optimizer, batch_size=16)
    stale(model, probe, optimizer, passes=passes)
    with pytest.raises(ValueError, match=r"optimizer\.zero_grad\(\)"):
        stale(model, probe, optimizer, passes=passes)
    probe.skip_step()
    for set_to_none in (True, False, False):
        optimizer.zero_grad(set_to_none=set_to_none)
        stale(model, probe, optimizer, passes=passes)
    assert len(probe.readings) == 4


def test_a_gradient_left_is_noticed_where_the_loss_leaves_parameters_out() -> None:
    """The last one always, and other ones in turn, as with experts."""
    model: Any = net()
    model.expert, model.spare = nn.Linear(3, 3).double(), nn.Linear(2, 2).double()
    model.forward = lambda x: model[:5](x)
    optimizer = sgd(model)
    probe = NoiseProbe(model, optimizer, batch_size=16)
    for set_to_none in (True, True, False, False):
        optimizer.zero_grad(set_to_none=set_to_none)
        stale(model, probe, optimizer)
    with pytest.raises(ValueError, match=r"optimizer\.zero_grad\(\)"):
        stale(model, probe, optimizer)
    probe.skip_step()
    model.forward = lambda x: model.expert(x[:, :3])
    optimizer.zero_grad()
    stale(model, probe, optimizer)
    with pytest.raises(ValueError, match=r"optimizer\.zero_grad\(\)"):
        stale(model, probe, optimizer)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_another_loss_may_use_the_model_between_two_steps(set_to_none: bool) -> None:
    """As a generator does with its discriminator, before the gradients of that are zeroed."""
    model = net()
    optimizer = sgd(model)
    probe = NoiseProbe(model, optimizer, batch_size=16)
    for _ in range(3):
        optimizer.zero_grad(set_to_none=set_to_none)
        stale(model, probe, optimizer)
        loss_of(model)(data(16)).backward()
    assert len(probe.readings) == 3


def test_a_closed_probe_leaves_no_hook() -> None:
    model = net()
    with NoiseProbe(model, sgd(model), batch_size=16):
        assert any(p._backward_hooks for p in model.parameters())
    assert not any(p._backward_hooks for p in model.parameters())


def test_gradients_that_never_arrive_are_warned_of_once() -> None:
    model = net()
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    for factor in (1.0, 0.0, 0.0):
        model.zero_grad()
        probe.backward(lambda batch, factor=factor: factor * loss_of(model)(batch), data(16))  # type: ignore[misc]
        if factor:
            assert len(probe.readings) == 1
    with pytest.warns(UserWarning, match=r"step 1\b") as caught:
        assert [one.noise_trace == 0 for one in probe.readings] == [False, True, True]
    assert len(caught) == 1


@pytest.mark.parametrize("exponent", [16, 40, 66, 90])
def test_any_factor_of_a_scaler_is_divided_out(exponent: int) -> None:
    """Also where the squares of scaled gradients overflow single precision, from 2⁶⁴ on."""
    found = []
    for scale in (1.0, 2.0**exponent):
        model = net(dtype=torch.float32)
        probe = NoiseProbe(model, sgd(model), batch_size=16)
        for part in split(data(16, dtype=torch.float32), 4):
            (scale * loss_of(model)(part) / 4).backward()
            probe.micro_batch(scale)
        probe.close_step()
        found.append(probe.readings[0].to_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert found[1] == found[0]
