"""The scale-free norms against torch's own, their guard, and the running statistics of BatchNorm."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from svag.lab.networks.norms import ScaleFreeBatchNorm, ScaleFreeGroupNorm


def activations(*shape: int) -> Tensor:
    return 3 + 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("shape", [(6, 8), (6, 8, 5, 5)])
@pytest.mark.parametrize("groups", [1, 2])
def test_group_norm_is_torchs_with_eps_zero(shape: tuple[int, ...], groups: int) -> None:
    x = activations(*shape)
    expected = nn.functional.group_norm(x, groups, eps=0.0)
    torch.testing.assert_close(ScaleFreeGroupNorm(groups)(x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(6, 8), (6, 8, 5, 5)])
@pytest.mark.parametrize("momentum", [0.1, 0.03, None])
def test_batch_norm_keeps_the_statistics_that_torch_keeps(shape: tuple[int, ...], momentum: float | None) -> None:
    ours = ScaleFreeBatchNorm(8).double()
    torchs = (nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d)(8, eps=1e-30, affine=False).double()
    ours.momentum = torchs.momentum = momentum
    for scale in (1, 2, 5):
        x = scale * activations(*shape)
        torch.testing.assert_close(ours(x), torchs(x), rtol=1e-12, atol=1e-12)
    for name, value in torchs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value, rtol=1e-12, atol=0)
    ours.eval()
    torchs.eval()
    before = {name: value.clone() for name, value in ours.state_dict().items()}
    torch.testing.assert_close(ours(x), torchs(x), rtol=1e-12, atol=1e-12)
    assert all(torch.equal(before[name], value) for name, value in ours.state_dict().items())


def test_batch_norm_is_found_by_whoever_looks_for_one() -> None:
    assert isinstance(ScaleFreeBatchNorm(4), _BatchNorm)


def test_batch_norm_refuses_a_single_value_per_channel() -> None:
    with pytest.raises(ValueError, match="at least 2 examples"):
        ScaleFreeBatchNorm(4)(torch.ones(1, 4, 1, 1))


@pytest.mark.parametrize("level", [0.0, 0.1, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels_last", [False, True])
def test_a_constant_group_gives_zeros_and_no_gradient(level: float, dtype: torch.dtype, channels_last: bool) -> None:
    x = activations(3, 8, 7, 7).to(dtype)
    x[1, :4] = level
    if channels_last:
        x = x.to(memory_format=torch.channels_last)
    x.requires_grad_()
    y = ScaleFreeGroupNorm(2)(x)
    (gradient,) = torch.autograd.grad((y * torch.linspace(-1, 1, 7, dtype=dtype)).sum(), x)
    assert not y[1, :4].any()
    assert not gradient[1, :4].any()
    kept = torch.ones(3, 2, dtype=torch.bool)
    kept[1, 0] = False
    spread = y.detach().unflatten(1, (2, 4)).std((2, 3, 4))
    torch.testing.assert_close(spread[kept], torch.ones(5, dtype=dtype), rtol=1e-2, atol=0)
    assert gradient.abs().max() < 10


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("level", [0.0, 0.1, 1e4])
def test_a_constant_channel_gives_zeros_and_no_gradient(level: float, training: bool) -> None:
    norm = ScaleFreeBatchNorm(8).train(training)
    x = activations(3, 8, 7, 7).float()
    x[:, 2] = level
    assert norm.running_var is not None
    assert norm.running_mean is not None
    if not training:
        norm.running_var[2] = 0
        norm.running_mean[2] = level + 1e-3
    x.requires_grad_()
    y = norm(x)
    (gradient,) = torch.autograd.grad((y * torch.linspace(-1, 1, 7)).sum(), x)
    assert not y[:, 2].any()
    assert not gradient[:, 2].any()
    assert bool(y[:, 0].any())
    assert gradient.abs().max() < 10


def test_without_the_guard_a_constant_group_would_blow_up() -> None:
    x = torch.full((1, 4, 7, 7), 0.1)
    x[0, 0, 0, 0] = torch.nextafter(x[0, 0, 0, 0], torch.ones(()))  # constant up to rounding
    x.requires_grad_()
    y, _, _ = torch.native_group_norm(x, None, None, 1, 4, 49, 1, 1e-30)
    (gradient,) = torch.autograd.grad((y * torch.linspace(-1, 1, 7)).sum(), x)
    assert gradient.abs().max() > 1e5
    guarded = ScaleFreeGroupNorm(1)(x)
    assert not torch.autograd.grad((guarded * torch.linspace(-1, 1, 7)).sum(), x)[0].any()


def guarded(norm: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The sum of the norm's output, weighted, whose gradient the guard changes too."""
    y = norm(x)
    return (y * torch.linspace(-1, 1, y.shape[-1], dtype=y.dtype)).sum()


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("norm", [ScaleFreeGroupNorm(2), ScaleFreeBatchNorm(8).double()], ids=["group", "batch"])
def test_a_compiled_graph_is_whole_and_gives_the_same_bits(norm: nn.Module, constant: bool) -> None:
    """`fullgraph` refuses a branch on data; with all groups varying, the guard multiplies by 1."""
    x = activations(3, 8, 7, 7)
    if constant:
        x[:, :4] = 0.3
    x.requires_grad_()
    compiled = torch.compile(norm, backend="eager", fullgraph=True)
    eager, (gradient,) = norm(x), torch.autograd.grad(guarded(norm, x), x)
    assert torch.equal(compiled(x), eager)
    assert torch.equal(torch.autograd.grad(guarded(compiled, x), x)[0], gradient)
    assert bool(eager[:, 1].any()) is not constant


@pytest.mark.parametrize("constant", [False, True])
def test_gradients_of_single_examples_by_vmap(constant: bool) -> None:
    norm, x = ScaleFreeGroupNorm(2), activations(3, 8, 7, 7)
    if constant:
        x[1, :4] = 0.3
    per_example = torch.func.vmap(torch.func.grad(lambda one: guarded(norm, one.unsqueeze(0))))(x)
    for number, example in enumerate(x):
        example = example.clone().unsqueeze(0).requires_grad_()
        (expected,) = torch.autograd.grad(guarded(norm, example), example)
        torch.testing.assert_close(per_example[number], expected[0], rtol=1e-10, atol=1e-12)
    assert bool(per_example[1, 0].any()) is not constant


def test_batch_norm_in_evaluation_mode_by_vmap() -> None:
    norm, x = ScaleFreeBatchNorm(8).double().eval(), activations(3, 8, 7, 7)
    found = torch.func.vmap(lambda one: norm(one.unsqueeze(0)).squeeze(0))(x)
    torch.testing.assert_close(found, norm(x), rtol=1e-12, atol=1e-12)
