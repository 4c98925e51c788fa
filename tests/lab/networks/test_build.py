"""The networks: parameter counts, scale invariance to rounding, and what is refused."""

import inspect
import math
from typing import get_args

import pytest
import torch
from torch import Tensor, nn

import svag
import svag.lab
from svag.lab.networks.build import build_model, lay_out, memory_layout
from svag.lab.networks.norms import NORMS, Flags, ScaleFreeGroupNorm
from svag.lab.specs.parts import ModelSpec, Norm

ARCHS = ("preresnet8", "resnet8", "vgg11", "mlp")
SIZES = ((1, 14), (3, 16), (3, 32))


def trainable(network: nn.Module) -> list[Tensor]:
    return [p for p in network.parameters() if p.requires_grad]


def count(network: nn.Module) -> int:
    return sum(p.numel() for p in trainable(network))


def small(arch: str, norm: Norm, channels: int, size: int, *, scale_invariant: bool) -> nn.Module:
    width = {"vgg11": 0.125, "mlp": 0.125}.get(arch, 0.5)
    generator = torch.Generator().manual_seed(7)
    return build_model(
        arch, norm, width, channels, 5, scale_invariant, image_size=(size, size), generator=generator
    ).double()


def images(channels: int, size: int, n: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n, channels, size, size, generator=generator, dtype=torch.float64), torch.arange(n) % 5


def loss_and_gradient(network: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, list[Tensor]]:
    loss = nn.functional.cross_entropy(network(x), y)
    return loss.detach(), list(torch.autograd.grad(loss, trainable(network)))


def dot(a: list[Tensor], b: list[Tensor]) -> float:
    return sum(float((u * v).detach().sum()) for u, v in zip(a, b, strict=True))


@pytest.mark.parametrize(
    ("arch", "width", "scale_invariant", "expected"),
    [
        ("preresnet32", 1, True, 464_048),
        ("preresnet32", 4, True, 7_419_584),
        ("preresnet32", 1, False, 466_714),
        ("resnet32", 1, False, 466_906),
    ],
)
def test_parameter_counts(arch: str, width: float, scale_invariant: bool, expected: int) -> None:
    assert count(build_model(arch, "batch", width, scale_invariant=scale_invariant)) == expected


@pytest.mark.parametrize(("depth", "convolutions"), [(11, 8), (13, 10), (16, 13), (19, 16)])
def test_vgg_has_the_convolutions_of_its_name(depth: int, convolutions: int) -> None:
    network = build_model(f"vgg{depth}", width=0.125, scale_invariant=True)
    convs = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)]
    assert len(convs) == convolutions == depth - 3
    assert [conv.out_channels for conv in convs][-1] == 64
    assert count(network) == sum(9 * conv.in_channels * conv.out_channels for conv in convs)


@pytest.mark.parametrize("depth", [8, 14, 20, 26])
@pytest.mark.parametrize("family", ["preresnet", "resnet"])
def test_a_residual_network_has_as_many_layers_as_its_name_says(family: str, depth: int) -> None:
    network = build_model(f"{family}{depth}", width=0.25)
    main_path = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d) and layer.kernel_size == (3, 3)]
    assert len(main_path) + 1 == depth


@pytest.mark.parametrize("channels_and_size", SIZES)
@pytest.mark.parametrize("norm", ["batch", "group", "layer"])
@pytest.mark.parametrize("arch", ARCHS)
def test_scale_invariance_to_rounding(arch: str, norm: Norm, channels_and_size: tuple[int, int]) -> None:
    """In the memory layout in which a run has them."""
    network = small(arch, norm, *channels_and_size, scale_invariant=True)
    layout = memory_layout(network, torch.device("cpu"))
    network = lay_out(network, layout)
    x, y = images(*channels_and_size)
    x = x.to(memory_format=layout)
    weights = trainable(network)
    loss, gradient = loss_and_gradient(network, x, y)
    lengths = math.sqrt(dot(weights, weights) * dot(gradient, gradient))
    assert lengths > 1e-3
    assert abs(dot(weights, gradient)) < 1e-11 * lengths
    for c in (1e-3, 0.3, 7.0):
        with torch.no_grad():
            for weight in weights:
                weight.mul_(c)
        scaled_loss, scaled_gradient = loss_and_gradient(network, x, y)
        torch.testing.assert_close(scaled_loss, loss, rtol=1e-10, atol=0)
        for before, after in zip(gradient, scaled_gradient, strict=True):  # c∇L(cx) = ∇L(x)
            torch.testing.assert_close(c * after, before, rtol=1e-8, atol=1e-10 * float(before.abs().max()))
        with torch.no_grad():
            for weight in weights:
                weight.div_(c)


@pytest.mark.parametrize("norm", ["batch", "group", "layer"])
@pytest.mark.parametrize("arch", ARCHS)
def test_the_public_measure_of_scale_invariance(arch: str, norm: Norm) -> None:
    x, y = images(1, 14)
    for scale_invariant in (True, False):
        network = small(arch, norm, 1, 14, scale_invariant=scale_invariant)
        if not scale_invariant:
            with torch.no_grad():  # zero biases could hide it
                for weight in trainable(network):
                    weight.add_(0.1)
        error = svag.scale_invariance_error(network, lambda _: nn.functional.cross_entropy(network(x), y), (x, y))  # noqa: B023
        assert (error < 1e-9) == scale_invariant


@pytest.mark.parametrize("depth", [11, 16])
def test_the_vgg_without_norms_is_that_of_the_authors(depth: int) -> None:
    """No biases, average pooling and a frozen last layer: the logits are homogeneous in the weights of the others."""
    network = build_model(f"vgg{depth}", "none", 0.125, generator=torch.Generator().manual_seed(0)).double()
    frozen = {name for name, p in network.named_parameters() if not p.requires_grad}
    assert frozen == {"linear.weight", "linear.bias"}
    layers = list(network.modules())
    assert all(layer.bias is None for layer in layers if isinstance(layer, nn.Conv2d))
    assert sum(isinstance(layer, nn.AvgPool2d) for layer in layers) == 5
    assert not any(isinstance(layer, nn.MaxPool2d) for layer in layers)
    x, _ = images(3, 32)
    logits = network(x)
    with torch.no_grad():
        for weight in trainable(network):
            weight.mul_(0.5)
    torch.testing.assert_close(network(x), logits / 2 ** (depth - 3), rtol=1e-12, atol=0)


def test_other_networks_without_norms_are_trained_whole_with_biases() -> None:
    for arch in ("preresnet8", "resnet8", "mlp"):
        network = build_model(arch, "none", 0.25)
        assert all(p.requires_grad for p in network.parameters())
        layers = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
        assert all(layer.bias is not None for layer in layers)


@pytest.mark.parametrize(("width", "groups"), [(0.25, {2, 4, 8}), (0.5, {4, 8}), (1, {8}), (4, {8})])
def test_groups_of_group_norm(width: float, groups: set[int]) -> None:
    network = build_model("preresnet8", "group", width, scale_invariant=True)
    assert {norm.groups for norm in network.modules() if isinstance(norm, ScaleFreeGroupNorm)} == groups
    ordinary = build_model("resnet8", "group", width)
    assert {norm.num_groups for norm in ordinary.modules() if isinstance(norm, nn.GroupNorm)} == groups


def test_networks_are_not_scale_invariant_unless_that_is_asked_for() -> None:
    default = inspect.signature(build_model).parameters["scale_invariant"].default
    assert default is ModelSpec(arch="mlp").scale_invariant is Flags().scale_invariant is False


LAST, FIRST = torch.channels_last, torch.contiguous_format


@pytest.mark.parametrize(
    ("arch", "norm", "cpu", "cuda"),
    [
        *[(arch, "batch", LAST, LAST) for arch in ("preresnet8", "resnet8", "vgg11")],
        *[(arch, "none", LAST, LAST) for arch in ("preresnet8", "resnet8", "vgg11")],
        *[(arch, "group", FIRST, FIRST) for arch in ("preresnet8", "resnet8", "vgg11")],
        *[(arch, "layer", LAST, FIRST) for arch in ("preresnet8", "resnet8", "vgg11")],
        *[("mlp", norm, FIRST, FIRST) for norm in NORMS],
    ],
)
def test_the_layout_of_each_network(arch: str, norm: Norm, cpu: torch.memory_format, cuda: torch.memory_format) -> None:
    for scale_invariant in {False, norm != "none"}:
        network = small(arch, norm, 1, 14, scale_invariant=scale_invariant)
        assert memory_layout(network, torch.device("cpu")) is cpu
        assert memory_layout(network, torch.device("cuda")) is cuda
    assert memory_layout(nn.Conv2d(1, 1, 1), torch.device("cpu")) is FIRST, "a user's own network"


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("arch", ARCHS)
def test_the_layout_changes_a_loss_by_rounding_only(arch: str, norm: Norm) -> None:
    network = small(arch, norm, 3, 16, scale_invariant=norm != "none")
    x, y = images(3, 16)
    loss, gradient = loss_and_gradient(network, x, y)
    network = lay_out(network, torch.channels_last)
    again, moved = loss_and_gradient(network, x.to(memory_format=torch.channels_last), y)
    torch.testing.assert_close(again, loss, rtol=1e-12, atol=0)
    for one, other in zip(gradient, moved, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-9, atol=1e-12 * float(one.abs().max()))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("arch", ARCHS)
def test_the_unmodified_networks_are_not_scale_invariant(arch: str, norm: Norm) -> None:
    network = small(arch, norm, 1, 14, scale_invariant=False)
    with torch.no_grad():  # a zero bias, or the silent branches of a network without norms, could hide it
        for weight in trainable(network):
            weight.add_(0.1)
    x, y = images(1, 14)
    weights = trainable(network)
    _, gradient = loss_and_gradient(network, x, y)
    assert abs(dot(weights, gradient)) > 1e-4 * math.sqrt(dot(weights, weights) * dot(gradient, gradient))


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_the_hessian_identity_of_scale_invariant_losses(norm: Norm) -> None:
    """lem:2nd_sde_hessian: xᵀ∇²L ∇L = −|∇L|²; also shows that the norms can be differentiated twice."""
    network = small("preresnet8", norm, 1, 14, scale_invariant=True)
    x, y = images(1, 14)
    weights = trainable(network)
    gradient = torch.autograd.grad(nn.functional.cross_entropy(network(x), y), weights, create_graph=True)
    along = sum(((w.detach() * g).sum() for w, g in zip(weights, gradient, strict=True)), torch.zeros(()))
    hessian_x = torch.autograd.grad(along, weights)
    detached = [g.detach() for g in gradient]
    assert dot(list(hessian_x), detached) == pytest.approx(-dot(detached, detached), rel=1e-9)


@pytest.mark.parametrize("channels_and_size", SIZES)
@pytest.mark.parametrize("scale_invariant", [True, False])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("arch", ARCHS)
def test_every_combination_gives_finite_logits_or_an_error(
    arch: str, norm: Norm, scale_invariant: bool, channels_and_size: tuple[int, int]
) -> None:
    if norm == "none" and scale_invariant:
        with pytest.raises(ValueError, match=f"^{arch} .*scale_invariant=False"):
            small(arch, norm, *channels_and_size, scale_invariant=True)
        return
    network = small(arch, norm, *channels_and_size, scale_invariant=scale_invariant)
    x, _ = images(*channels_and_size)
    logits = network(x)
    assert logits.shape == (4, 5)
    assert logits.isfinite().all()
    assert logits.std() > 0.01
    assert all(parameter.isfinite().all() for parameter in network.parameters())


def test_only_the_last_layer_is_frozen_and_it_is_fan_in_normal() -> None:
    network = build_model(
        "preresnet8", width=4, num_classes=100, scale_invariant=True, generator=torch.Generator().manual_seed(0)
    )
    frozen = {name: p for name, p in network.named_parameters() if not p.requires_grad}
    assert set(frozen) == {"linear.weight", "linear.bias"}
    assert not frozen["linear.bias"].any()
    # 25,600 normal draws: the standard error of their variance is √(2/25600) = 0.9%; 5 of them at α = 6e-7.
    assert float(frozen["linear.weight"].var()) == pytest.approx(2 / 256, rel=0.045)


def test_the_first_weights_come_from_the_generator_alone() -> None:
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first = build_model("resnet8", generator=torch.Generator().manual_seed(5)).state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(4)
    again = build_model("resnet8", generator=torch.Generator().manual_seed(5)).state_dict()
    other = build_model("resnet8", generator=torch.Generator().manual_seed(6)).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["linear.weight"], other["linear.weight"])


def test_the_names_of_the_norms_are_those_of_the_type() -> None:
    assert get_args(Norm) == NORMS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"arch": "preresnet33"}, r"\bpreresnet33\b.*\bpreresnet32$"),
        ({"arch": "resnet2"}, r"\bresnet2\b.*\bresnet8$"),
        ({"arch": "vgg12"}, "'vgg12'"),
        ({"arch": "preresnet32", "norm": "instance"}, r"^norm\b.*got 'instance'"),
        (
            {"arch": "preresnet32", "width": 0.3},
            r"^width\b.*got 0.3",
        ),
        ({"arch": "preresnet32", "width": -1}, r"^width\b"),
        ({"arch": "mlp", "width": math.nan}, r"^width\b"),
        ({"arch": "mlp", "num_classes": 0}, r"^num_classes\b.*got 0"),
        ({"arch": "mlp", "in_channels": 1.5}, r"^in_channels\b.*got 1.5"),
        ({"arch": "mlp", "image_size": (-1, 4)}, r"\bheight .*image_size\b"),
        ({"arch": "mlp", "image_size": (4, 0.5)}, r"\bwidth .*image_size\b"),
        ({"arch": "mlp", "image_size": 4}, r"^image_size\b"),
    ],
)
def test_what_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_model(**arguments)  # type: ignore[arg-type]  # the point is a wrong argument


@pytest.mark.parametrize(
    ("arch", "width", "message"),
    [
        ("preresnet600000002", 1, " 2000 .*'preresnet600000002'"),
        ("resnet" + "8" * 6000, 1, " 2000 .*'resnet888"),
        ("mlp", 1e6, r"^'mlp' .* 1e\+06 .* 6\.6e\+16 .* 2e\+09 .*width"),
        ("vgg16", 1e6, r"^'vgg16' .* 1e\+06 .* 9\.2e\+18 .* 2e\+09"),
        ("x" * 10**6, 1, "'xxx"),
    ],
)
def test_what_fits_into_no_computer_is_refused_before_it_is_built(arch: str, width: float, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        build_model(arch, width=width)
    assert len(str(refused.value)) < 300


def test_counting_the_weights_first_changes_no_weight() -> None:
    state = torch.get_rng_state()
    one, other = (build_model("resnet8", generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    assert all(torch.equal(mine, yours) and mine.device.type == "cpu" for mine, yours in pairs)
