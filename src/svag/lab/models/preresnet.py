"""PreResNet-d: residual blocks with the normalisation before each convolution (He et al. 2016; fig:svag_accs)."""

import torch
from torch import Tensor, nn

from svag.lab.models.norms import Norm, norm_layer


class PreResNet(nn.Module):
    """Three stages of (d−2)/6 blocks with 16, 32, 64 channels times the width, then mean pooling and a linear layer.

    Scale invariant: the stream between the blocks is of degree 1 in the weights everywhere, because the first block of
    every stage replaces it by norm → 1×1 convolution, and the last norm removes that degree. There is no final ReLU.
    """

    def __init__(
        self, depth: int, widths: tuple[int, int, int], in_channels: int, num_classes: int, norm: Norm, scale_free: bool
    ) -> None:
        super().__init__()
        channels = widths[0]
        self.stem = _conv(in_channels, channels, 3, 1, norm)
        self.blocks = nn.Sequential()
        for stage, out in enumerate(widths):
            for index in range((depth - 2) // 6):
                stride = 2 if stage > 0 and index == 0 else 1
                self.blocks.append(_Block(channels, out, stride, norm, scale_free, first=index == 0))
                channels = out
        self.norm = norm_layer(norm, channels, scale_free=scale_free)
        self.last = nn.Identity() if scale_free else nn.ReLU(inplace=True)
        self.linear = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch of images of any size."""
        x = self.last(self.norm(self.blocks(self.stem(x))))
        logits: Tensor = self.linear(x.mean((2, 3)))
        return logits

    def branch_ends(self) -> list[nn.Conv2d]:
        """Return the last convolution of every residual branch."""
        return [block.conv2 for block in self.blocks if isinstance(block, _Block)]


class _Block(nn.Module):
    def __init__(self, inside: int, out: int, stride: int, norm: Norm, scale_free: bool, *, first: bool) -> None:
        super().__init__()
        self.norm1 = norm_layer(norm, inside, scale_free=scale_free)
        self.conv1 = _conv(inside, out, 3, stride, norm)
        self.norm2 = norm_layer(norm, out, scale_free=scale_free)
        self.conv2 = _conv(out, out, 3, 1, norm)
        projects = stride != 1 or inside != out or (scale_free and first)
        self.shortcut = _conv(inside, out, 1, stride, norm) if projects else nn.Identity()
        # Without learnt scales the norm of the shortcut would equal norm1: it is computed once, for both.
        self.shortcut_is_normed = scale_free and first

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        branch = self.conv1(torch.relu(y))
        branch = self.conv2(torch.relu_(self.norm2(branch)))
        total: Tensor = branch + self.shortcut(y if self.shortcut_is_normed else x)
        return total


def _conv(inside: int, out: int, kernel: int, stride: int, norm: Norm) -> nn.Conv2d:
    return nn.Conv2d(inside, out, kernel, stride, padding=kernel // 2, bias=norm == "none")
