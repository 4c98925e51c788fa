"""`build_model`: a network of the paper by its name, with its first weights, and the memory layout it runs best in."""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from svag.lab.networks import architectures as networks
from svag.lab.networks.architectures import MLP, PreResNet, ResNet
from svag.lab.networks.norms import NORMS, Flags, ScaleFreeGroupNorm
from svag.lab.networks.own import build_own_network
from svag.lab.specs.fields import LARGEST, shown
from svag.lab.specs.parts import CHANNELS, Norm, family_and_depth
from svag.theory import domain


def initialise(network: nn.Module, generator: torch.Generator | None) -> None:
    """Draw every convolution and linear layer of `network` from N(0, 2/fan_in) and set its bias to zero.

    Norms keep the ones and zeros with which they are created.
    """
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            fan_in = layer.weight[0].numel()
            nn.init.normal_(layer.weight, std=math.sqrt(2 / fan_in), generator=generator)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def build_model(
    arch: str,
    norm: Norm = "batch",
    width: float = 1,
    in_channels: int = 3,
    num_classes: int = 10,
    scale_invariant: bool = False,
    *,
    image_size: tuple[int, int] = (32, 32),
    generator: torch.Generator | None = None,
) -> nn.Module:
    r"""Build a network of the paper, as it is or with a scale-invariant loss (sec:failure_mode_1).

    $$L(c\,x) = L(x) \text{ for every } c > 0, \quad\text{hence } \langle x, \nabla L(x)\rangle = 0$$

    where x are all trainable parameters. To that end norms have neither learnt scales nor an eps, convolutions no bias,
    and the last linear layer keeps its first weights, N(0, 2/fan_in). A VGG without norms, whose loss no choice makes
    scale invariant, has no biases and keeps its last layer too, as in the paper.

    >>> network = build_model("preresnet32", scale_invariant=True)
    >>> sum(p.numel() for p in network.parameters() if p.requires_grad)
    464048

    Args:
        arch: `preresnet{d}` or `resnet{d}` with d = 6n+2, `vgg11`, `vgg13`, `vgg16`, `vgg19`, `mlp`, or your own
            network as `package.module:callable`, which is given those of the arguments that its signature names.
        norm: `batch`, `group` (8 groups, of at least 2 channels each), `layer` or `none`.
        width: factor on the number of channels; 16·width must be whole for a ResNet, 64·width for a VGG.
        in_channels: channels of the images, or features of plain vectors.
        num_classes: number of logits.
        scale_invariant: make the loss scale invariant; refused without norms.
        image_size: height and width of the images. Only the perceptron needs it; all others take any size.
        generator: source of the initial weights; torch's global one when None.

    Reference: Li, Malladi, Arora (2021), the appendix on experiments.
    """
    if not isinstance(arch, str):
        raise TypeError(f"arch must be the name of a network, got a {type(arch).__name__}")
    flags = Flags(norm, width, in_channels, num_classes, scale_invariant, image_size)
    if ":" in arch:
        return build_own_network(arch, flags, generator)
    domain.one_of("norm", norm, NORMS)
    if norm == "none" and scale_invariant:
        raise ValueError(
            f"{arch[:40]} without a norm cannot be scale invariant: choose norm batch, group or layer, or "
            "scale_invariant=False"
        )
    for name, value in (("in_channels", in_channels), ("num_classes", num_classes)):
        if domain.whole(name, value, at_least=0) < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    flags = replace(flags, in_channels=int(in_channels), num_classes=int(num_classes))
    given: object = image_size
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise ValueError("image_size must be two whole numbers, height and width")
    for name, value in zip(("height", "width"), image_size, strict=True):
        domain.whole(f"the {name} in image_size", value)
    with torch.random.fork_rng(
        devices=[]
    ):  # torch's own first weights are discarded: do not draw them from the caller's generator
        assemble = partial(_assemble, arch, flags)
        what = f"{shown(arch)} at width {domain.number('width', width):g}"
        _refuse_too_large(assemble, what)
        try:
            network = assemble()
        except (RuntimeError, MemoryError):
            raise ValueError(f"{what} does not fit into memory: lower width") from None
    initialise(network, generator)
    if scale_invariant or (norm == "none" and isinstance(network, networks.VGG)):
        network.linear.requires_grad_(False)
    if norm == "none" and isinstance(network, PreResNet | ResNet):
        for layer in network.branch_ends():  # otherwise the stream doubles in every block
            nn.init.zeros_(layer.weight)
    return network


def memory_layout(network: nn.Module, device: torch.device) -> torch.memory_format:
    """Return the order of an image's values in memory in which a network is fastest on a device.

    Convolutions are faster in `channels_last`. The perceptron has none, and torch's GroupNorm loses that advantage: on
    a CPU its kernel for this layout is ten times slower when a group has few channels, and elsewhere there is none
    (LayerNorm over channels and positions is a GroupNorm to torch too). A user's network gets contiguous images, as it
    may rely on them.

    >>> memory_layout(build_model("preresnet8", "batch"), torch.device("cpu"))
    torch.channels_last
    >>> memory_layout(build_model("preresnet8", "group"), torch.device("cpu"))
    torch.contiguous_format
    """
    if not isinstance(network, PreResNet | ResNet | networks.VGG):
        return torch.contiguous_format
    groups = [layer.groups for layer in network.modules() if isinstance(layer, ScaleFreeGroupNorm)]
    groups += [layer.num_groups for layer in network.modules() if isinstance(layer, nn.GroupNorm)]
    slow = any(number > 1 for number in groups) if device.type == "cpu" else bool(groups)
    return torch.contiguous_format if slow else torch.channels_last


def lay_out(network: nn.Module, layout: torch.memory_format) -> nn.Module:
    """Lay the convolutions of a network out in memory as its images are; returns the network itself."""
    network.to(memory_format=layout)  # type: ignore[call-overload]  # not in torch's stubs
    return network


def _refuse_too_large(assemble: Callable[[], nn.Module], name: str) -> None:
    """Count the weights on the meta device, before more memory is requested than there is."""
    try:
        with torch.device("meta"):
            weights = sum(parameter.numel() for parameter in assemble().parameters())
    except (RuntimeError, TypeError):  # a single layer has more weights than torch can count
        weights = sys.maxsize
    if weights > LARGEST:
        raise ValueError(f"{name} has {weights:.1e} weights, and at most {LARGEST:.0e} can be trained: lower width")


def _assemble(arch: str, flags: Flags) -> PreResNet | ResNet | networks.VGG | MLP:
    family, depth = family_and_depth(arch)
    first = CHANNELS[family]
    if family == "mlp":
        (hidden,) = _scaled((first,), flags.width)
        return MLP(hidden, flags)
    if family == "vgg":
        return networks.VGG(depth, _scaled([first * times for times in networks.VGG_STAGES], flags.width), flags)
    small, middle, large = _scaled((first, 2 * first, 4 * first), flags.width)
    residual = PreResNet if family == "preresnet" else ResNet
    return residual(depth, (small, middle, large), flags)


def _scaled(channels: Sequence[int], width: float) -> tuple[int, ...]:
    width = domain.number("width", width)
    if not (math.isfinite(width) and width > 0 and all((c * width).is_integer() for c in map(float, channels))):
        raise ValueError(
            f"width must be positive and keep the number of channels whole, got {width}: {channels[0]} × width is not"
        )
    return tuple(int(c * width) for c in channels)
