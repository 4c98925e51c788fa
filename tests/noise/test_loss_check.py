"""A loss that is no mean over examples is noticed at the first step, before it changes training; others pass."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.noise.nets import Pair, data, everything, loss_of, net, sgd
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from svag import NoiseProbe
from svag.noise.batches import split
from svag.noise.loss_check import LossKind, NotAMean
from svag.noise.loss_check import check_loss as checked

Loss = Callable[[nn.Module, Pair], Tensor]


def summed(model: nn.Module, batch: Pair) -> Tensor:
    return cross_entropy(model(batch[0]), batch[1], reduction="sum")


def over_a_constant(model: nn.Module, batch: Pair) -> Tensor:
    return summed(model, batch) / 16


def ignoring(model: nn.Module, batch: Pair) -> Tensor:
    """The mean over examples of two of three classes: 0 to 4 of a part."""
    return cross_entropy(model(batch[0]), batch[1], ignore_index=1)


def by_class(model: nn.Module, batch: Pair) -> Tensor:
    return cross_entropy(model(batch[0]), batch[1], weight=torch.tensor([1.0, 5.0, 1.0], dtype=batch[0].dtype))


def contrastive(model: nn.Module, batch: Pair) -> Tensor:
    found = normalize(model(batch[0]), dim=1)
    return cross_entropy(found @ found.T.detach().roll(1) / 0.5, torch.arange(len(found)))


def distances(model: nn.Module, batch: Pair) -> Tensor:
    return torch.pdist(model(batch[0])).mean()


@pytest.mark.parametrize(
    ("loss", "kind", "parts", "difference"),
    [
        (summed, LossKind.SUM, 4, 0.75),
        (summed, LossKind.SUM, 2, 0.5),
        (over_a_constant, LossKind.SUM, 8, 0.875),
        (ignoring, LossKind.UNEQUAL_WEIGHTS, 4, None),
        (by_class, LossKind.UNEQUAL_WEIGHTS, 4, None),
        (contrastive, LossKind.ACROSS_EXAMPLES, 4, None),
        (distances, LossKind.ACROSS_EXAMPLES, 2, None),
    ],
)
@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_loss_that_is_no_mean_is_refused_before_the_step(
    loss: Loss, kind: LossKind, parts: int, difference: float | None, norm: Any, dtype: torch.dtype
) -> None:
    model, batch = net(norm, dropout=True, dtype=dtype), data(16, dtype=dtype)
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    before = everything(model)
    with pytest.raises(NotAMean) as caught:
        probe.backward(lambda part: loss(model, part), batch, parts)
    found = caught.value.found
    assert (found.kind, found.parts) == (kind, parts)
    assert "\n" not in str(found)
    if difference is not None:
        assert (found.difference, found.ratio) == pytest.approx((difference, parts), rel=1e-5)
    assert found.difference > 0.01
    assert everything(model) == before
    model.zero_grad()
    probe.backward(loss_of(model), batch, parts)  # and the probe still works
    assert len(probe.readings) == 1


@pytest.mark.parametrize("loss", [summed, ignoring, contrastive])
def test_without_the_check_they_pass(loss: Loss) -> None:
    model = net()
    probe = NoiseProbe(model, sgd(model), batch_size=16, check_loss=False)
    probe.backward(lambda part: loss(model, part), data(16))
    assert len(probe.readings) == 1


class Bare(nn.Module):
    """Dropout as a function, BatchNorm without running statistics, and a buffer that every forward pass moves."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)
        self.norm = nn.BatchNorm1d(8, track_running_stats=False)
        self.count: Tensor
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        hidden = nn.functional.dropout(self.norm(self.first(x)), 0.5, self.training)
        found: Tensor = self.last(hidden)
        return found


@pytest.mark.parametrize("norm", ["batch", "group", "layer", "none", "bare"])
@pytest.mark.parametrize("scaled", [False, True])
def test_a_mean_trains_bit_for_bit_as_without_the_check(norm: Any, scaled: bool) -> None:
    """Dropout, BatchNorm and a GradScaler included: nothing of the check is left."""
    found = []
    for check_loss in (True, False):
        model = Bare().double() if norm == "bare" else net(norm, dropout=True)
        optimizer = sgd(model)
        probe = NoiseProbe(model, optimizer, batch_size=16, check_loss=check_loss)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0) if scaled else None
        for seed in range(3):
            optimizer.zero_grad()
            probe.backward(loss_of(model), data(16, seed), scaler=scaler)
            optimizer.step()
        found.append((everything(model), list(probe.readings)))
    assert found[0] == found[1]


def test_it_is_done_once_and_not_again_after_a_checkpoint() -> None:
    model, sizes = net(), list[int]()

    def loss_fn(batch: Pair) -> Tensor:
        sizes.append(len(batch[1]))
        return loss_of(model)(batch)

    probe = NoiseProbe(model, sgd(model), batch_size=16)
    for _ in range(2):
        model.zero_grad()
        probe.backward(loss_fn, data(16))
    assert sizes == [16, 4, 4, 4, 4, *[4] * 8]
    state = probe.state_dict()
    probe.close()
    again = NoiseProbe(model, sgd(model), batch_size=16)
    again.load_state_dict(state)
    model.zero_grad()
    again.backward(loss_fn, data(16))
    assert sizes[13:] == [4] * 4


def test_a_first_step_that_is_not_finite_leaves_the_check_to_the_next() -> None:
    model, (x, y) = net(), data(16)
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    probe.backward(lambda part: summed(model, part), (x * torch.nan, y))
    model.zero_grad()
    with pytest.raises(NotAMean) as caught:
        probe.backward(lambda part: summed(model, part), (x, y))
    assert caught.value.found.kind is LossKind.SUM


@pytest.mark.parametrize("broken", ["memory", "random", "eval", "overflow"])
def test_what_cannot_be_checked_is_said_once_and_trains(broken: str) -> None:
    model, kinds = net(dropout=True), []

    def loss_fn(batch: Pair) -> Tensor:
        if broken == "memory" and len(batch[1]) == 16:
            raise torch.OutOfMemoryError("no more")
        if broken == "eval" and not model.training:
            raise RuntimeError("a detector has no loss in eval mode")
        loss = loss_of(model)((batch[0] + (torch.randn_like(batch[0]) if broken == "random" else 0), batch[1]))
        return loss * float("inf") if broken == "overflow" and not model.training else loss

    probe = NoiseProbe(model, sgd(model), batch_size=16)
    for _ in range(4):
        model.zero_grad()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            probe.backward(loss_fn, data(16))
        kinds.append(len(caught))
    assert kinds == ([0, 0, 1, 0] if broken == "overflow" else [1, 0, 0, 0])
    assert len(probe.readings) == 4


def noisy(kind: str, amount: float) -> Callable[[nn.Module, Tensor], Tensor]:
    """The outputs for noisy inputs; the noise comes from somewhere that the check may not know."""
    own, of_numpy = torch.Generator().manual_seed(1), np.random.default_rng(0)

    def outputs(model: nn.Module, x: Tensor) -> Tensor:
        if kind == "eval" and not model.training:
            raise RuntimeError("a detector has no loss in eval mode")
        if kind == "dropout":
            return nn.functional.dropout(model(x), amount)
        draws = {
            "own": lambda: torch.randn(x.shape, generator=own),
            "numpy": lambda: torch.tensor(of_numpy.normal(size=x.shape)),
            "common": lambda: torch.randn(1, x.shape[1], generator=own),
            "eval": lambda: torch.zeros(x.shape),
        }
        moved: Tensor = model(x + amount * draws[kind]().to(x))
        return moved

    return outputs


@pytest.mark.parametrize(
    ("kind", "norm"), [*((kind, "none") for kind in ("own", "numpy", "common", "dropout", "eval")), ("eval", "batch")]
)
@pytest.mark.parametrize("amount", [0.1, 0.3, 0.8])
@pytest.mark.parametrize("parts", [2, 4, 8])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_a_sum_is_told_from_a_mean_in_spite_of_noise(
    kind: str, norm: Any, amount: float, parts: int, reduction: str
) -> None:
    model, outputs, batch = net(norm), noisy(kind, amount), data(16)

    def loss_fn(batch: Pair) -> Tensor:
        return cross_entropy(outputs(model, batch[0]), batch[1], reduction=reduction)

    found = checked(model, loss_fn, batch, [(part, 1 / parts) for part in split(batch, parts)])
    if reduction == "mean":
        assert not found.refused
    elif amount < 0.5 or kind == "eval":  # beyond that, little is left of the gradient
        assert found.kind is LossKind.SUM
    else:
        assert found.kind in (LossKind.SUM, LossKind.RANDOM)


def test_an_error_of_the_loss_is_raised_as_it_is() -> None:
    model = net()
    probe = NoiseProbe(model, sgd(model), batch_size=16)

    def broken(batch: Pair) -> Tensor:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        probe.backward(broken, data(16))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scaled", [False, True])
def test_half_precision_is_no_reason_to_refuse(dtype: torch.dtype, scaled: bool) -> None:
    """A mean over 12, so that parts are rounded otherwise; the gradient is small beside those of the parts."""
    torch.manual_seed(0)
    layers = [layer for _ in range(12) for layer in (nn.Linear(32, 32), nn.Tanh())]
    model = nn.Sequential(nn.Linear(4, 32), *layers, nn.Linear(32, 3))
    x, y = data(12, dtype=torch.float32)
    scaler = torch.amp.GradScaler("cpu") if scaled else None
    probe = NoiseProbe(model, sgd(model), batch_size=12)

    def loss_fn(batch: Pair) -> Tensor:
        with torch.autocast("cpu", dtype=dtype):
            return cross_entropy(model(batch[0]), batch[1])

    probe.backward(loss_fn, (x, y), scaler=scaler)
    model.zero_grad()
    with pytest.raises(NotAMean) as caught:  # on the same numbers
        NoiseProbe(model, sgd(model), batch_size=12, parameters=list(model[0].parameters())).backward(
            lambda batch: loss_fn(batch) * len(batch[1]), (x, y)
        )
    assert caught.value.found.kind is LossKind.SUM


def test_a_compiled_model_is_not_compiled_for_the_check() -> None:
    model, compiled = net(), list[tuple[int, ...]]()

    def backend(graph: Any, inputs: list[Any]) -> Any:
        compiled.append(tuple(inputs[-1].shape))
        return graph.forward

    fast: Any = torch.compile(model, backend=backend, dynamic=False)
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    for _ in range(2):
        model.zero_grad()
        probe.backward(lambda batch: cross_entropy(fast(batch[0]), batch[1]), data(16))
    assert len(compiled) == 1
    model.zero_grad()
    with pytest.raises(NotAMean):
        NoiseProbe(model, sgd(model), batch_size=16, parameters=list(model.parameters())[:2]).backward(
            lambda batch: summed(fast, batch), data(16)
        )


def test_what_several_ranks_refuse_they_refuse_together(two: list[Any]) -> None:
    """One rank alone has a loss that is no mean, or a share to compare; none of them waits for the other."""
    for rank in two:
        for found in rank["checked"]:
            assert found == [LossKind.UNEQUAL_WEIGHTS, LossKind.UNEQUAL_WEIGHTS, "mean", True]
