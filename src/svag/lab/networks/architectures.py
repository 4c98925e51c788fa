"""The networks of the paper: PreResNet, ResNet, VGG; a perceptron for small problems, and a transformer for text.

Each but the last has a scale-invariant form, whose docstring says why it is one; `docs/run.md` says what differs from
the authors' code. Sources: PreResNet is He et al. 2016 (fig:svag_accs), ResNet He et al. 2015 (fig:app_lsr_c10), VGG
Simonyan and Zisserman 2015 (fig:app_svag_otherarch).
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from svag.lab.networks.norms import Flags, norm_layer
from svag.lab.specs.text import TransformerSpec


class PreResNet(nn.Module):
    """Residual network with the norm before each convolution.

    Three stages of (d−2)/6 blocks with 16, 32, 64 channels times the width, then mean pooling and a linear layer.

    Scale invariant: the stream between the blocks is of degree 1 in the weights everywhere, because the first block of
    every stage replaces it by norm → 1×1 convolution, and the last norm removes that degree. There is no final ReLU.
    """

    def __init__(self, depth: int, widths: tuple[int, int, int], flags: Flags) -> None:
        super().__init__()
        self.stem = _conv(flags.in_channels, widths[0], 3, 1, flags)
        self.blocks = nn.Sequential(*(_PreNormBlock(*block, flags) for block in _blocks(depth, widths)))
        self.norm = norm_layer(widths[-1], flags)
        self.last = nn.Identity() if flags.scale_invariant else nn.ReLU(inplace=True)
        self.linear = nn.Linear(widths[-1], flags.num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch of images of any size."""
        x = self.last(self.norm(self.blocks(self.stem(x))))
        logits: Tensor = self.linear(x.mean((2, 3)))
        return logits

    def branch_ends(self) -> list[nn.Conv2d]:
        """Return the last convolution of every residual branch."""
        return [block.conv2 for block in self.blocks if isinstance(block, _PreNormBlock)]


class _PreNormBlock(nn.Module):
    def __init__(self, inside: int, out: int, stride: int, first: bool, flags: Flags) -> None:
        super().__init__()
        self.norm1 = norm_layer(inside, flags)
        self.conv1 = _conv(inside, out, 3, stride, flags)
        self.norm2 = norm_layer(out, flags)
        self.conv2 = _conv(out, out, 3, 1, flags)
        projects = stride != 1 or inside != out or (flags.scale_invariant and first)
        self.shortcut = _conv(inside, out, 1, stride, flags) if projects else nn.Identity()
        # Without learnt scales the norm of the shortcut would equal norm1, so it is computed once for both.
        self.shortcut_is_normed = flags.scale_invariant and first

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        branch = self.conv1(torch.relu(y))
        branch = self.conv2(torch.relu_(self.norm2(branch)))
        total: Tensor = branch + self.shortcut(y if self.shortcut_is_normed else x)
        return total


class ResNet(nn.Module):
    """Residual network with the norm after each convolution.

    Three stages of (d−2)/6 blocks with 16, 32, 64 channels times the width, then mean pooling and a linear layer.

    Scale invariant: every convolution, also that of a shortcut, is followed by a norm, so that every stream is of
    degree 0 in the weights. The paper uses only the unmodified network.
    """

    def __init__(self, depth: int, widths: tuple[int, int, int], flags: Flags) -> None:
        super().__init__()
        self.stem = _conv_norm(flags.in_channels, widths[0], 3, 1, flags)
        self.blocks = nn.Sequential(
            *(_PostNormBlock(inside, out, stride, flags) for inside, out, stride, _ in _blocks(depth, widths))
        )
        self.linear = nn.Linear(widths[-1], flags.num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch of images of any size."""
        x = self.blocks(torch.relu_(self.stem(x)))
        logits: Tensor = self.linear(x.mean((2, 3)))
        return logits

    def branch_ends(self) -> list[nn.Conv2d]:
        """Return the last convolution of every residual branch."""
        blocks = (block for block in self.blocks if isinstance(block, _PostNormBlock))
        return [layer for block in blocks for layer in block.second if isinstance(layer, nn.Conv2d)]


class _PostNormBlock(nn.Module):
    def __init__(self, inside: int, out: int, stride: int, flags: Flags) -> None:
        super().__init__()
        self.first = _conv_norm(inside, out, 3, stride, flags)
        self.second = _conv_norm(out, out, 3, 1, flags)
        projects = stride != 1 or inside != out
        self.shortcut = _conv_norm(inside, out, 1, stride, flags) if projects else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        branch = self.second(torch.relu_(self.first(x)))
        return torch.relu_(branch + self.shortcut(x))


def _blocks(depth: int, widths: tuple[int, int, int]) -> Iterator[tuple[int, int, int, bool]]:
    """Channels before and after each block of a residual network, its stride, and whether it begins a stage."""
    inside = widths[0]
    for stage, out in enumerate(widths):
        for index in range((depth - 2) // 6):
            yield inside, out, 2 if stage > 0 and index == 0 else 1, index == 0
            inside = out


def _conv_norm(inside: int, out: int, kernel: int, stride: int, flags: Flags) -> nn.Sequential:
    return nn.Sequential(_conv(inside, out, kernel, stride, flags), norm_layer(out, flags))


def _conv(inside: int, out: int, kernel: int, stride: int, flags: Flags) -> nn.Conv2d:
    return nn.Conv2d(inside, out, kernel, stride, padding=kernel // 2, bias=flags.norm == "none")


# Convolutions in each of the five stages. The name counts three linear layers more, of which small images need one.
STAGES: dict[int, tuple[int, ...]] = {
    11: (1, 1, 2, 2, 2),
    13: (2, 2, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}
# Channels of the stages, in multiples of the first.
VGG_STAGES = (1, 2, 4, 8, 8)


class VGG(nn.Module):
    """Five stages of 3×3 convolutions, each ending in a pooling, then a linear layer.

    Pooling rounds sizes up, so that 14×14 ends at 1×1 as 32×32 does; whatever is left is averaged. Scale invariant:
    every convolution is followed by a norm. The networks of the paper, scale invariant ones and the one without norms,
    pool by the average, and have no biases. An ordinary network with norms pools by the maximum.
    """

    def __init__(self, depth: int, widths: tuple[int, ...], flags: Flags) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = flags.in_channels
        pooling = nn.AvgPool2d if flags.scale_invariant or flags.norm == "none" else nn.MaxPool2d
        for convolutions, out in zip(STAGES[depth], widths, strict=True):
            for _ in range(convolutions):
                layers += [
                    nn.Conv2d(channels, out, 3, padding=1, bias=False),
                    norm_layer(out, flags),
                    nn.ReLU(inplace=True),
                ]
                channels = out
            layers.append(pooling(2, ceil_mode=True))
        self.features = nn.Sequential(*layers)
        self.linear = nn.Linear(channels, flags.num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch of images of any size."""
        logits: Tensor = self.linear(self.features(x).mean((2, 3)))
        return logits


class MLP(nn.Module):
    """Linear → norm → ReLU twice, then a linear layer.

    Scale invariant because every linear layer but the last is followed by a norm.
    """

    def __init__(self, hidden: int, flags: Flags) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inside in (flags.in_channels * math.prod(flags.image_size), hidden):
            layers += [
                nn.Linear(inside, hidden, bias=flags.norm == "none"),
                norm_layer(hidden, flags, image=False),
                nn.ReLU(inplace=True),
            ]
        self.features = nn.Sequential(*layers)
        self.linear = nn.Linear(hidden, flags.num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch; images are flattened."""
        logits: Tensor = self.linear(self.features(x.flatten(1)))
        return logits


class Transformer(nn.Module):
    """Decoder-only transformer on characters: every position predicts the next character from those up to itself.

    Learnt positions; LayerNorm before attention, the perceptron of each block and the last layer; GELU and no dropout.
    Each position is normalised by itself, so that the examples of a batch never see each other. First weights
    as in GPT-2: N(0, 0.02²), divided by √(2·depth) at the ends of the residual branches, biases 0.
    """

    def __init__(self, spec: TransformerSpec, vocabulary: int, context: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(vocabulary, spec.width)
        self.positions = nn.Embedding(context, spec.width)
        self.blocks = nn.Sequential(*(_AttentionBlock(spec.width, spec.heads) for _ in range(spec.depth)))
        self.norm = nn.LayerNorm(spec.width)
        self.linear = None if spec.tied else nn.Linear(spec.width, vocabulary, bias=False)

    def forward(self, text: Tensor) -> Tensor:
        """Return the logits (n, context, vocabulary) of a batch of windows (n, context)."""
        x = self.characters(text) + self.positions.weight[: text.shape[1]]
        last = self.characters.weight if self.linear is None else self.linear.weight
        return nn.functional.linear(self.norm(self.blocks(x)), last)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the first weights."""
        blocks = [block for block in self.blocks if isinstance(block, _AttentionBlock)]
        ends = {layer for block in blocks for layer in (block.out, block.shrink)}
        for layer in self.modules():
            if isinstance(layer, nn.Linear | nn.Embedding):
                std = 0.02 / math.sqrt(2 * len(blocks)) if layer in ends else 0.02
                nn.init.normal_(layer.weight, std=std, generator=generator)
            if isinstance(layer, nn.Linear) and layer.bias is not None:
                nn.init.zeros_(layer.bias)


class _AttentionBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.grow, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, context, width = x.shape
        together = self.queries_keys_values(self.norm1(x)).view(n, context, 3, self.heads, width // self.heads)
        queries, keys, values = together.permute(2, 0, 3, 1, 4)
        looked_up = nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.out(looked_up.transpose(1, 2).reshape(n, context, width))
        total: Tensor = x + self.shrink(nn.functional.gelu(self.grow(self.norm2(x))))
        return total


def build_transformer(
    spec: TransformerSpec, vocabulary: int, context: int, generator: torch.Generator | None = None
) -> Transformer:
    """Build the transformer of a spec for windows of `context` characters.

    >>> network = build_transformer(TransformerSpec(arch="transformer", depth=2, width=48), vocabulary=81, context=64)
    >>> network(torch.zeros(2, 64, dtype=torch.int64)).shape, sum(p.numel() for p in network.parameters())
    (torch.Size([2, 64, 81]), 63600)

    Args:
        spec: depth, width, heads, and whether the last layer is tied to the embedding.
        vocabulary: number of distinct characters.
        context: the longest window it takes.
        generator: source of the initial weights; torch's global one when None.
    """
    with torch.random.fork_rng(
        devices=[]
    ):  # torch's own first weights are discarded: do not draw them from the caller's generator
        network = Transformer(spec, vocabulary, context)
    network.initialise(generator)
    return network
