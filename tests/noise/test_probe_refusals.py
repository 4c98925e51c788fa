"""What a probe refuses, in one sentence, with the model as it was."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.noise.nets import data, everything, loss_of, net, sgd
from torch import nn

from svag import SVAG, NoiseProbe, measure_noise


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
        with pytest.raises(RuntimeError, match="closed"):
            call()
    assert len(probe.readings) == 1


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
        (
            lambda probe, model: probe.backward(lambda x, y: loss_of(model)((x, y)), data(16)),
            TypeError,
            r"write lambda batch: loss_fn\(\*batch\)",
        ),
        (
            lambda probe, _: probe.backward(nn.CrossEntropyLoss(), data(16)),
            TypeError,
            r"loss_fn\(model\(batch\[0\]\), batch\[1\]\)",
        ),
        (
            lambda probe, model: probe.backward(data(16), loss_of(model)),
            TypeError,
            "swap the two, the loss function comes first",
        ),
        (lambda probe, _: probe.backward("mse", data(16)), TypeError, "must be a function of a batch, got a str"),
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
    with pytest.raises(ValueError, match=r"optimizer\.zero_grad\(\)"):
        probe.backward(loss_of(model), data(16))
    assert everything(model) == before


def test_a_micro_batch_without_a_gradient_is_refused() -> None:
    model = net()
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    with pytest.raises(ValueError, match=r"micro_batch\(\)"):
        probe.micro_batch()


def test_a_type_error_inside_the_loss_is_its_own() -> None:
    model = net()
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    with pytest.raises(TypeError, match=r"^unsupported operand"):
        probe.backward(lambda batch: batch[0] + "text", data(16))  # type: ignore[operator]


@pytest.mark.parametrize(
    "use",
    [
        lambda model, optimizer: NoiseProbe(model, optimizer, batch_size=16),
        lambda model, optimizer: measure_noise(model, loss_of(model), [data(16)] * 2, optimizer=optimizer),
        lambda model, optimizer: SVAG(model, optimizer, 4),
    ],
)
def test_deepspeed_is_noticed(use: Callable[[Any, Any], object]) -> None:
    """By stand-ins that come from a package of that name, as the engine and the optimizers of DeepSpeed do."""
    home = {"__module__": "deepspeed.runtime.engine"}
    model = net()
    optimizer = sgd(model)
    engine = type("DeepSpeedEngine", (nn.Sequential,), home)
    with pytest.raises(TypeError, match="DeepSpeed"):
        use(type("Mine", (engine,), {})(model), optimizer)
    with pytest.raises(TypeError, match="DeepSpeed"):
        use(model, type("DeepSpeedZeroOptimizer", (), home | {"param_groups": optimizer.param_groups})())
    stranger = type("DeepSpeedEngine", (nn.Sequential,), {"__module__": "mine.deepspeed"})(model)
    NoiseProbe(stranger, optimizer, batch_size=16)


def test_refused_at_construction() -> None:
    model = net()
    with pytest.raises(ValueError, match=r"^batch_size\b"):
        NoiseProbe(model, sgd(model), batch_size=0)
    with pytest.raises(ValueError, match=r"^batch_size\b"):
        NoiseProbe(model, sgd(model), batch_size=8.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^population\b"):
        NoiseProbe(model, sgd(model), batch_size=16, population=16)
    with pytest.raises(ValueError, match=r"\boptimizer\b"):
        NoiseProbe(model, sgd(net()), batch_size=16)
    embedding = nn.Embedding(3, 3, sparse=True)
    with pytest.raises(TypeError, match="sparse=False"):
        NoiseProbe(embedding, sgd(embedding), batch_size=16)
    with pytest.raises(ValueError, match="nothing to measure"):
        NoiseProbe(model.requires_grad_(False), sgd(model), batch_size=16)


def test_what_is_given_in_the_wrong_place_is_refused_by_its_name() -> None:
    model = net()
    with pytest.raises(TypeError, match="optimizer"):
        NoiseProbe(sgd(model), model, batch_size=16)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="every"):
        NoiseProbe(model, sgd(model), batch_size=16, every="automatic")  # type: ignore[arg-type]


def test_a_probe_that_was_never_called_has_no_price_list() -> None:
    model = net()
    with pytest.raises(ValueError, match=r"probe\.backward"):
        NoiseProbe(model, sgd(model), batch_size=16).price_list()


@pytest.mark.parametrize("dense_parts", [0, 1])
def test_sparse_gradients_that_no_module_announces_are_refused(dense_parts: int) -> None:
    """As of `functional.embedding(…, sparse=True)`; the next step starts afresh."""
    model = nn.Embedding(4, 3)
    probe = NoiseProbe(model, sgd(model), batch_size=4)
    sparse = torch.eye(4, 3).to_sparse()
    for _ in range(dense_parts):
        model.weight.grad = torch.ones(4, 3)
        probe.micro_batch()
    model.weight.grad = sparse
    with pytest.raises(ValueError, match="sparse=False"):
        probe.micro_batch()
    probe.skip_step()
    for total in (1.0, 3.0):
        model.weight.grad = torch.full((4, 3), total)
        probe.micro_batch()
    probe.close_step()
    # gradients of 2 and 4 in each of 12 entries: s² = 12 · (1 + 1), N = s²/2
    assert probe.readings[0].noise_trace == pytest.approx(12.0, rel=1e-5)
