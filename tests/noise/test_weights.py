"""`probe.backward(…, weights=)`: the gradient is that of a weighted mean over the batch, and G and N are unbiased."""

import itertools
import math
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from tests.noise.nets import Pair, data, loss_of, net, sgd
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from svag import NoiseProbe
from svag.noise.batches import split
from svag.noise.loss_check import LossKind, NotAMean
from svag.theory.estimators import weighted_parts


def ignoring(model: nn.Module) -> Any:
    return lambda batch: cross_entropy(model(batch[0]), batch[1], ignore_index=1)


def gradient_of(model: nn.Module, loss: Tensor) -> Tensor:
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(model.parameters()))])


def graded(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])


def tokens_of(batch: Pair) -> Tensor:
    return (batch[1] != 1).sum().reshape(1)


@pytest.mark.parametrize("per", ["example", "part", "list"])
@pytest.mark.parametrize("scaled", [False, True])
def test_a_token_mean_is_exact_and_so_is_its_reading(per: str, scaled: bool) -> None:
    model, batch = net(), data(16)
    loss_fn = ignoring(model)
    truth = loss_fn(batch)
    wanted = gradient_of(model, truth)
    cut = split(batch, 4)
    weights: Any = {
        "example": (batch[1] != 1).int(),
        "part": torch.cat([tokens_of(part) for part in cut]),
        "list": [int(tokens_of(part)) for part in cut],
    }[per]
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0) if scaled else None
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    loss = probe.backward(loss_fn, batch, weights=weights, scaler=scaler)
    assert float(loss) == pytest.approx(truth.item(), rel=1e-12)
    torch.testing.assert_close(graded(model) / (256.0 if scaled else 1.0), wanted, rtol=1e-10, atol=1e-13)
    shares = [int(tokens_of(part)) / int(tokens_of(batch)) for part in cut]
    parts = [share * gradient_of(model, loss_fn(part)) for share, part in zip(shares, cut, strict=True)]
    squares = sum(share**2 for share in shares)
    expected = weighted_parts(sum(float(c @ c) for c in parts), float(wanted @ wanted), squares)
    (reading,) = probe.readings
    assert (reading.grad_sq, reading.noise_trace) == pytest.approx((expected.grad_sq, expected.noise_trace), rel=1e-9)
    assert reading.weights_sq == pytest.approx(squares)
    assert (reading.n, reading.batch_size) == (4, 16)


def test_unbiased_over_every_batch_where_weights_differ() -> None:
    """Parts of 1 and 3 tokens, independent and from one distribution: all ways to draw them, with their probability."""
    model, (x, y) = net(), data(3)
    every = [gradient_of(model, loss_of(model)((x[[k]], y[[k]]))) for k in range(3)]
    full = torch.stack(every).mean(dim=0)
    # what a step adds up: 1/4 of one token, and 3/4 of the mean over three
    steps = [(every[a] + every[b] + every[c] + every[d]) / 4 for a, b, c, d in itertools.product(range(3), repeat=4)]
    variance = float((torch.stack(steps) - full).square().sum(dim=1).mean())
    probe = NoiseProbe(model, sgd(model), batch_size=6, check_loss=False)
    for a, b, c, d in itertools.product(range(3), repeat=4):
        rows, kept = [a, a, a, b, c, d], torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 1.0], dtype=torch.float64)

        def token_mean(batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
            each = cross_entropy(model(batch[0]), batch[1], reduction="none")
            return (each * batch[2]).sum() / batch[2].sum()

        model.zero_grad()
        probe.backward(token_mean, (x[rows], y[rows], kept), parts=2, weights=kept)
    assert np.mean([r.grad_sq for r in probe.readings]) == pytest.approx(float(full @ full), rel=1e-10)
    assert np.mean([r.noise_trace for r in probe.readings]) == pytest.approx(variance, rel=1e-10)


def test_equal_weights_are_no_weights() -> None:
    model, batch, found = net(), data(16), []
    for weights in (None, [1, 1, 1, 1], torch.full((16,), 3)):
        model.zero_grad()
        with NoiseProbe(model, sgd(model), batch_size=16, population=100) as probe:
            probe.backward(loss_of(model), batch, weights=weights)
        found.append([probe.readings[0].grad_sq, probe.readings[0].noise_trace, *graded(model).tolist()])
    assert found[1] == pytest.approx(found[0], rel=1e-10)
    assert found[2] == found[1]


def test_a_part_that_does_not_count_is_left_out() -> None:
    model, (x, _) = net(), data(16)
    y = torch.tensor([1, 1, 1, 1, 0, 2, 1, 0, 2, 2, 0, 0, 1, 0, 1, 2])
    wanted = gradient_of(model, ignoring(model)((x, y)))
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    probe.backward(ignoring(model), (x, y), weights=y != 1)
    torch.testing.assert_close(graded(model), wanted, rtol=1e-10, atol=1e-13)
    assert probe.readings[0].n == 3
    # one part that counts is a step, and no reading
    alone = torch.where(torch.arange(16) < 12, 1, y)
    model.zero_grad()
    probe.backward(ignoring(model), (x, alone), weights=alone != 1)
    assert all(math.isfinite(number) for number in graded(model).tolist())
    assert len(probe.readings) == 1
    assert probe.last_step is not None
    assert probe.last_step.reading is None


def test_steps_that_are_not_measured_and_short_batches_are_the_same_mean() -> None:
    model = net()
    probe = NoiseProbe(model, sgd(model), batch_size=16, every=3)
    x, y = data(80)
    for start, size, per_part in ((0, 16, False), (16, 16, True), (32, 10, True), (42, 10, True), (52, 10, False)):
        batch = x[start : start + size], y[start : start + size]
        weights = torch.ones(4) if per_part else batch[1] != 1
        model.zero_grad()
        # the first short batch that would be measured
        with pytest.warns(UserWarning, match="without a reading") if start == 42 else nullcontext():
            probe.backward(ignoring(model), batch, weights=weights)
        torch.testing.assert_close(graded(model), gradient_of(model, ignoring(model)(batch)), rtol=1e-10, atol=1e-13)


def test_wrong_weights_are_refused_and_the_loss_is_checked_with_them() -> None:
    model, batch = net(), data(16)
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    wrong: list[Any] = [[1, 2, 3], [1, -1, 1, 1], [0, 0, 0, 0], torch.tensor([1, 1, float("nan"), 1])]
    for weights in wrong:
        with pytest.raises(ValueError, match="weights"):
            probe.backward(loss_of(model), batch, weights=weights)
    with pytest.raises(NotAMean) as caught:  # a plain mean, and weights of something else
        probe.backward(loss_of(model), batch, weights=[1, 2, 3, 4])
    assert caught.value.found.kind is LossKind.UNEQUAL_WEIGHTS


def test_on_two_ranks_every_batch_counts_the_same_as_without_a_probe(two: list[Any]) -> None:
    model = net()
    halves = split(data(32), 2)
    gradients, shares = [], []
    for half in halves:
        for part in split(half, 2):
            shares.append(int(tokens_of(part)) / int(tokens_of(half)) / 2)
            gradients.append(shares[-1] * gradient_of(model, ignoring(model)(part)))
    whole = torch.stack([gradient_of(model, ignoring(model)(half)) for half in halves]).mean(dim=0)
    squares = sum(share**2 for share in shares)
    expected = weighted_parts(sum(float(c @ c) for c in gradients), float(whole @ whole), squares)
    for rank in two:
        assert rank["weighted"]["gradient"] == pytest.approx(whole.tolist(), rel=1e-9, abs=1e-12)
        assert rank["weighted"]["numbers"] == pytest.approx([expected.grad_sq, expected.noise_trace, squares], rel=1e-9)
