from collections.abc import Callable

import pytest
import torch
from tests.noise.nets import data, everything, loss_of, net
from torch import Tensor, nn

from svag import scale_invariance_error
from svag.paper.verify.network import ScaleInvariantNet


def invariant(shift: bool = False) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    return ScaleInvariantNet(generator, shift=shift), (x, torch.randint(3, (6,), generator=generator))


def test_a_scale_invariant_network_reads_zero_and_a_bias_spoils_it() -> None:
    model, batch = invariant()
    assert scale_invariance_error(model, loss_of(model), batch) < 1e-14
    spoilt, batch = invariant(shift=True)
    assert scale_invariance_error(spoilt, loss_of(spoilt), batch) > 0.01


def test_batch_norm_and_a_frozen_last_layer_make_a_network_scale_invariant() -> None:
    model = nn.Sequential(
        nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8, eps=1e-30, affine=False), nn.ReLU(), nn.Linear(8, 3)
    ).double()
    assert scale_invariance_error(model, loss_of(model), data(16)) > 1e-3
    model[3].requires_grad_(False)
    assert scale_invariance_error(model, loss_of(model), data(16)) < 1e-12
    assert scale_invariance_error(model, loss_of(model), data(16), parameters=list(model[0].parameters())) < 1e-12


def test_each_of_the_two_tests_sees_what_the_other_does_not() -> None:
    weight = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    nn.init.ones_(weight.weight)
    one = torch.ones(1, 1, dtype=torch.float64)
    # flat at w = 1 and different at 2w: only the loss tells
    assert scale_invariance_error(weight, lambda x: ((weight(x) - 1).square() + 1).mean(), one) == pytest.approx(1.0)
    # the same at w/2, w and 2w but not flat: only the gradient tells; with one weight it is all radial
    periodic = scale_invariance_error(weight, lambda x: 2 + torch.sin(2 * torch.pi * weight(x).log2()).mean(), one)
    assert periodic == pytest.approx(1.0)


def test_both_scales_are_looked_at() -> None:
    weight = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    nn.init.ones_(weight.weight)
    one = torch.ones(1, 1, dtype=torch.float64)
    # flat and 1 at w, and different only below 3/4 or only above 3/2
    below = scale_invariance_error(weight, lambda x: 1 + torch.relu(0.75 - weight(x)).mean(), one)
    above = scale_invariance_error(weight, lambda x: 1 + torch.relu(weight(x) - 1.5).mean(), one)
    assert below == pytest.approx(0.25)
    assert above == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda w: w * torch.nan, r"\bloss\b.*\(nan\)"),
        (lambda w: (w - 1).sqrt() + 1, r"\bgradient\b.*\(inf\)"),
        (lambda w: 1 + 0 * (w - 0.75).sqrt(), r"\b0\.5\b.*\(nan\)"),
        (lambda w: 1 + 0 * (1.5 - w).sqrt(), r"\b2\b.*\(nan\)"),
    ],
)
def test_what_is_not_finite_is_refused(loss: Callable[[Tensor], Tensor], message: str) -> None:
    weight = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    nn.init.ones_(weight.weight)
    one = torch.ones(1, 1, dtype=torch.float64)
    with pytest.raises(ValueError, match=message):
        scale_invariance_error(weight, lambda x: loss(weight(x)).mean(), one)
    assert weight.weight.item() == 1


def test_an_empty_batch_is_refused() -> None:
    model = net()
    with pytest.raises(ValueError, match="0 examples"):
        scale_invariance_error(model, loss_of(model), data(0))


def test_leaves_no_trace_and_drops_the_same_units() -> None:
    model = net("batch", dropout=True)
    loss_of(model)(data(6)).backward()
    before = everything(model)
    scale_invariance_error(model, loss_of(model), data(8))
    assert everything(model) == before
    with pytest.raises(ValueError, match=r"^loss_fn\b"):
        scale_invariance_error(model, lambda b: model(b[0]), data(8))
    assert everything(model) == before
    flat = nn.Sequential(nn.Linear(4, 8, bias=False), nn.LayerNorm(8, eps=0, elementwise_affine=False), nn.Dropout(0.5))
    flat.append(nn.Linear(8, 3).requires_grad_(False)).double()
    assert scale_invariance_error(flat, loss_of(flat), data(8)) < 1e-12
